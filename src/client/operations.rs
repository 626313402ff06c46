//! The eleven A2A operations, each as a single call without retries. If the selected endpoint is unreachable, missing
//! or does not know the version, the other endpoints of the card are tried, and at last chat completions.

use tokio::time::timeout;
use tracing::{Instrument, Span};

use super::retry::{FallbackSearch, deadline_exceeded, is_unsupported};
use super::{Client, EventStream, chat_completions, grpc, jsonrpc, rest};
use crate::model::{
    Binding, CancelTaskRequest, DeletePushConfigRequest, Error, GetPushConfigRequest,
    GetTaskRequest, ListPushConfigsRequest, ListPushConfigsResponse, ListTasksRequest,
    ListTasksResponse, PushConfig, Request, Response, Result, SendMessageRequest,
    SendMessageResponse, Seq, SubscribeToTaskRequest, Task,
};
use crate::telemetry::trace;

impl Client {
    /// Sends a message and waits for the response. Reads the task once more if the server left its content out
    /// ([`Task::is_content_omitted`]).
    ///
    /// # Errors
    /// An error of the agent, a connection error, or an invalid response. The same holds for every operation.
    pub async fn send_message(
        &self,
        mut request: SendMessageRequest,
    ) -> Result<SendMessageResponse> {
        self.fill_tenant(&mut request.tenant);
        let history_length = request.history_length();
        let tenant = request.tenant.clone();
        match self.call(Request::SendMessage(Box::new(request))).await? {
            Response::SendMessage(SendMessageResponse::Task(task)) if task.is_content_omitted() => {
                let read = GetTaskRequest {
                    tenant,
                    id: task.id.clone(),
                    history_length,
                };
                // Boxed: rarely needed. The message took effect, so a failed read is no error.
                let complete = Box::pin(self.get_task(read)).await;
                Ok(SendMessageResponse::Task(complete.unwrap_or(task)))
            }
            Response::SendMessage(response) => Ok(response),
            other => Err(mismatched_response(&other)),
        }
    }

    /// Sends a message and streams the events of its task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message). A refusal may also be the first item of the stream.
    pub async fn send_streaming_message(
        &self,
        mut request: SendMessageRequest,
    ) -> Result<EventStream> {
        self.fill_tenant(&mut request.tenant);
        self.open(Request::SendStreamingMessage(Box::new(request)), None)
            .await
    }

    /// Reads a task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn get_task(&self, mut request: GetTaskRequest) -> Result<Task> {
        self.fill_tenant(&mut request.tenant);
        into_task(self.call(Request::GetTask(request)).await?)
    }

    /// Lists tasks by page.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message). Unsupported in A2A 0.3.
    pub async fn list_tasks(&self, mut request: ListTasksRequest) -> Result<ListTasksResponse> {
        self.fill_tenant(&mut request.tenant);
        match self.call(Request::ListTasks(request)).await? {
            Response::ListTasks(page) => Ok(page),
            other => Err(mismatched_response(&other)),
        }
    }

    /// Requests the cancellation of a task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn cancel_task(&self, mut request: CancelTaskRequest) -> Result<Task> {
        self.fill_tenant(&mut request.tenant);
        into_task(self.call(Request::CancelTask(request)).await?)
    }

    /// Streams the events of an existing task: from now on, or from behind a position that an earlier stream returned.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message). A refusal may also be the first item of the stream.
    pub async fn subscribe_to_task(
        &self,
        mut request: SubscribeToTaskRequest,
        after: Option<Seq>,
    ) -> Result<EventStream> {
        self.fill_tenant(&mut request.tenant);
        self.open(Request::SubscribeToTask(request), after).await
    }

    /// Registers a webhook for a task. The id of the result is absent if the peer does not return it.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn create_push_config(&self, mut config: PushConfig) -> Result<PushConfig> {
        self.fill_tenant(&mut config.tenant);
        let request = Request::CreatePushConfig(Box::new(config.clone()));
        let created = into_push_config(self.call(request).await?)?;
        if !created.url.is_empty() {
            return Ok(created);
        }
        Ok(self.find_created(config).await)
    }

    /// Returns the registration of a peer that confirmed it without returning it (09, 3.12). The id is read from the peer.
    async fn find_created(&self, config: PushConfig) -> PushConfig {
        let Some(task_id) = config.task_id.clone().filter(|_| config.id.is_none()) else {
            return config;
        };
        let request = GetPushConfigRequest {
            task_id,
            ..GetPushConfigRequest::default()
        };
        let found = self.get_push_config(request).await.ok();
        let id = found
            .filter(|found| found.url == config.url)
            .and_then(|found| found.id);
        PushConfig { id, ..config }
    }

    /// Reads a webhook registration.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn get_push_config(&self, mut request: GetPushConfigRequest) -> Result<PushConfig> {
        self.fill_tenant(&mut request.tenant);
        into_push_config(self.call(Request::GetPushConfig(request)).await?)
    }

    /// Lists the webhook registrations of a task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn list_push_configs(
        &self,
        mut request: ListPushConfigsRequest,
    ) -> Result<ListPushConfigsResponse> {
        self.fill_tenant(&mut request.tenant);
        match self.call(Request::ListPushConfigs(request)).await? {
            Response::ListPushConfigs(list) => Ok(list),
            other => Err(mismatched_response(&other)),
        }
    }

    /// Removes a webhook registration.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn delete_push_config(&self, mut request: DeletePushConfigRequest) -> Result<()> {
        self.fill_tenant(&mut request.tenant);
        self.call(Request::DeletePushConfig(request))
            .await
            .map(|_| ())
    }

    /// Adds the tenant of the interface to a request without one, as A2A 1.0 requires.
    fn fill_tenant(&self, tenant: &mut Option<String>) {
        if tenant.is_none() {
            tenant.clone_from(&self.endpoint.tenant);
        }
    }

    pub(super) async fn call(&self, request: Request) -> Result<Response> {
        match self.call_any_endpoint(&request).await {
            Err(error) => match self.chat_fallback(&request, &error) {
                Some(chat) => chat.call_once(&request).await.map_err(|_| error),
                None => Err(error),
            },
            answer => answer,
        }
    }

    async fn call_any_endpoint(&self, request: &Request) -> Result<Response> {
        let client = self.active_client();
        let mut error = match client.call_once(request).await {
            Err(error) => error,
            answer => return answer,
        };
        let mut search = FallbackSearch::new(&client);
        loop {
            let other = search.next(error)?;
            match other.call_once(request).await {
                Err(refused) if FallbackSearch::is_refusal(&refused) => error = refused,
                answer => {
                    self.fallbacks.activate(&other.endpoint);
                    return answer;
                }
            }
        }
    }

    pub(super) async fn call_once(&self, request: &Request) -> Result<Response> {
        if matches!(request, Request::SendMessage(_)) {
            return self.call_traced(request).await;
        }
        let limit = self.settings.timeouts.total;
        timeout(limit, self.call_traced(request))
            .await
            .unwrap_or_else(|_| Err(deadline_exceeded(limit)))
    }

    async fn call_traced(&self, request: &Request) -> Result<Response> {
        let span = self.span(request);
        self.dispatch(request).instrument(span).await
    }

    fn span(&self, request: &Request) -> Span {
        trace::client_span(
            request.operation(),
            self.endpoint.binding,
            self.endpoint.version,
            self.endpoint.url.host(),
            self.trace.as_ref(),
        )
    }

    async fn dispatch(&self, request: &Request) -> Result<Response> {
        if let Some(model) = self.chat_model() {
            return chat_completions::call(self, model, request).await;
        }
        let request = &*self.encode_files(request).await;
        let response = match self.endpoint.binding {
            Binding::JsonRpc => jsonrpc::call(self, request).await,
            Binding::HttpJson => rest::call(self, request).await,
            Binding::Grpc => grpc::call(self, request).await,
        };
        response.map(|response| self.decode_files(response))
    }

    async fn open(&self, request: Request, after: Option<Seq>) -> Result<EventStream> {
        match self.open_any_endpoint(&request, after).await {
            // A peer that only lacks streams is sent the message without one.
            Err(error) if !is_unsupported(&error) => match self.chat_fallback(&request, &error) {
                Some(chat) => {
                    EventStream::from_response(chat.call_once(&request).await.map_err(|_| error)?)
                }
                None => Err(error),
            },
            opened => opened,
        }
    }

    async fn open_any_endpoint(
        &self,
        request: &Request,
        after: Option<Seq>,
    ) -> Result<EventStream> {
        let client = self.active_client();
        let mut error = match client.open_once(request, after).await {
            Err(error) => error,
            opened => return opened,
        };
        let mut search = FallbackSearch::new(&client);
        loop {
            let other = search.next(error)?;
            match other.open_once(request, after).await {
                Err(refused) if FallbackSearch::is_refusal(&refused) => error = refused,
                opened => {
                    self.fallbacks.activate(&other.endpoint);
                    return opened;
                }
            }
        }
    }

    async fn open_once(&self, request: &Request, after: Option<Seq>) -> Result<EventStream> {
        if self.chat_model().is_some() {
            return Err(chat_completions::unsupported());
        }
        let span = self.span(request);
        let request = &*self.encode_files(request).await;
        let opened = async {
            match self.endpoint.binding {
                Binding::JsonRpc => jsonrpc::stream(self, request, after).await,
                Binding::HttpJson => rest::stream(self, request, after).await,
                Binding::Grpc => grpc::stream(self, request, after).await,
            }
        };
        let opened = opened.instrument(span).await?;
        Ok(opened.with_base64_files(self.uses_base64_files()))
    }
}

fn into_task(response: Response) -> Result<Task> {
    match response {
        Response::Task(task) => Ok(task),
        other => Err(mismatched_response(&other)),
    }
}

fn into_push_config(response: Response) -> Result<PushConfig> {
    match response {
        Response::PushConfig(config) => Ok(config),
        other => Err(mismatched_response(&other)),
    }
}

/// Returns the error for a response of another operation. The decoders choose by operation, so this is a bug here.
pub(super) fn mismatched_response(_: &Response) -> Error {
    Error::internal("decoded a response of another operation")
}
