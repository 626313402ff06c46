//! The eleven A2A operations, each as a single call without retries. If the selected endpoint is unreachable or does not
//! know the version, one other endpoint of the card is tried.

use tokio::time::timeout;
use tracing::{Instrument, Span};

use super::retry::deadline_exceeded;
use super::{Client, EventStream, chat_completions, grpc, jsonrpc, rest};
use crate::model::{
    AgentCard, Binding, CancelTaskRequest, DeletePushConfigRequest, Error,
    GetExtendedAgentCardRequest, GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest,
    ListPushConfigsResponse, ListTasksRequest, ListTasksResponse, PushConfig, Request, Response,
    Result, SendMessageRequest, SendMessageResponse, Seq, SubscribeToTaskRequest, Task,
};
use crate::telemetry::trace;

impl Client {
    /// Sends a message and waits for the response.
    ///
    /// # Errors
    /// An error of the agent, a connection error, or an invalid response. The same holds for every operation.
    pub async fn send_message(
        &self,
        mut request: SendMessageRequest,
    ) -> Result<SendMessageResponse> {
        self.fill_tenant(&mut request.tenant);
        match self.call(Request::SendMessage(Box::new(request))).await? {
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

    /// Registers a webhook for a task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn create_push_config(&self, mut config: PushConfig) -> Result<PushConfig> {
        self.fill_tenant(&mut config.tenant);
        into_push_config(
            self.call(Request::CreatePushConfig(Box::new(config)))
                .await?,
        )
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

    /// Reads the extended card for authenticated callers.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn get_extended_agent_card(&self) -> Result<AgentCard> {
        let request = GetExtendedAgentCardRequest {
            tenant: self.endpoint.tenant.clone(),
        };
        match self.call(Request::GetExtendedAgentCard(request)).await? {
            Response::AgentCard(card) => Ok(*card),
            other => Err(mismatched_response(&other)),
        }
    }

    /// Adds the tenant of the interface to a request without one, as A2A 1.0 requires.
    fn fill_tenant(&self, tenant: &mut Option<String>) {
        if tenant.is_none() {
            tenant.clone_from(&self.endpoint.tenant);
        }
    }

    async fn call(&self, request: Request) -> Result<Response> {
        let client = self.active_client();
        let refused = match client.call_once(&request).await {
            Err(refused) => refused,
            answer => return answer,
        };
        let Some(other) = client.fallback_for(&refused) else {
            return Err(refused);
        };
        let answer = other.call_once(&request).await;
        self.resolve_fallback(&other, refused, answer)
    }

    async fn call_once(&self, request: &Request) -> Result<Response> {
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
        match self.endpoint.binding {
            Binding::JsonRpc => jsonrpc::call(self, request).await,
            Binding::HttpJson => rest::call(self, request).await,
            Binding::Grpc => grpc::call(self, request).await,
        }
    }

    async fn open(&self, request: Request, after: Option<Seq>) -> Result<EventStream> {
        let client = self.active_client();
        let refused = match client.open_once(&request, after).await {
            Err(refused) => refused,
            opened => return opened,
        };
        let Some(other) = client.fallback_for(&refused) else {
            return Err(refused);
        };
        let opened = other.open_once(&request, after).await;
        self.resolve_fallback(&other, refused, opened)
    }

    async fn open_once(&self, request: &Request, after: Option<Seq>) -> Result<EventStream> {
        if self.chat_model().is_some() {
            return Err(chat_completions::unsupported());
        }
        let span = self.span(request);
        let opened = async {
            match self.endpoint.binding {
                Binding::JsonRpc => jsonrpc::stream(self, request, after).await,
                Binding::HttpJson => rest::stream(self, request, after).await,
                Binding::Grpc => grpc::stream(self, request, after).await,
            }
        };
        opened.instrument(span).await
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
