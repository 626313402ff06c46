//! The operations of the protocol, whatever carries them: validate, look within the caller's scope, call the engine.

mod cursor;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::agent::AnyAgent;
use crate::engine::{Accepted, Engine, Opening};
use crate::model::{
    Call, CancelTaskRequest, Error, ErrorKind, GetTaskRequest, Json, Limits, ListTasksRequest,
    ListTasksResponse, Message, Request, Response, Result, SendMessageRequest, SendMessageResponse, Task,
    TaskId,
};
use crate::store::{self, Head, Key};

/// What a binding calls.
pub(crate) struct Service {
    engine: Engine,
    agent: Arc<dyn AnyAgent>,
    limits: Limits,
}

impl Service {
    pub(crate) fn new(engine: Engine, agent: Arc<dyn AnyAgent>) -> Self {
        Self { engine, agent, limits: Limits::default() }
    }

    /// Any operation whose answer is not a stream.
    pub(crate) async fn call(&self, call: &Call, request: Request) -> Result<Response> {
        match request {
            Request::SendMessage(request) => {
                Ok(Response::SendMessage(self.send_message(call, request).await?))
            }
            Request::GetTask(request) => Ok(Response::Task(self.get_task(call, request).await?)),
            Request::ListTasks(request) => Ok(Response::ListTasks(self.list_tasks(call, request).await?)),
            Request::CancelTask(request) => Ok(Response::Task(self.cancel_task(call, request).await?)),
            Request::SendStreamingMessage(_)
            | Request::SubscribeToTask(_)
            | Request::CreatePushConfig(_)
            | Request::GetPushConfig(_)
            | Request::ListPushConfigs(_)
            | Request::DeletePushConfig(_)
            | Request::GetExtendedAgentCard(_) => Err(ErrorKind::UnsupportedOperation.into()),
        }
    }

    /// Sends a message, to a new task or to one that is there; waits for the answer unless asked not to.
    pub(crate) async fn send_message(
        &self,
        call: &Call,
        request: SendMessageRequest,
    ) -> Result<SendMessageResponse> {
        request.validate(&self.limits)?;
        refuse_push(&request)?;
        let (history_length, at_once) = (request.history_length(), request.returns_immediately());
        let call = within(call, request.tenant.as_deref());
        let key = self.key(&call, &request)?;
        let accepted = match self.continued(&call, &request).await? {
            Some(head) => self.resume(call, head, request.message, key).await?,
            None => match self.again(&call, key.as_ref(), &request.message).await? {
                Some(accepted) => accepted,
                None => match self.reply(&request.message, &call).await? {
                    Some(reply) => return Ok(SendMessageResponse::Message(reply)),
                    None => {
                        let SendMessageRequest { message, alias, .. } = request;
                        let named = call.idempotency_key.is_some();
                        let opening = Opening { message, key, alias, config: None };
                        self.engine.start(call, opening).await.map_err(|error| refused(error, named))?
                    }
                },
            },
        };
        let mut task = if at_once { accepted.into_task().0 } else { self.engine.settled(accepted).await? };
        task.limit_history(history_length);
        Ok(SendMessageResponse::Task(task))
    }

    /// Reads a task.
    pub(crate) async fn get_task(&self, call: &Call, request: GetTaskRequest) -> Result<Task> {
        request.validate()?;
        let head = self.find(&within(call, request.tenant.as_deref()), &request.id).await?;
        let (mut task, _) = self.engine.task(&head).await?;
        task.limit_history(request.history_length);
        Ok(task)
    }

    /// Lists the caller's tasks, newest status first.
    pub(crate) async fn list_tasks(
        &self,
        call: &Call,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse> {
        request.validate()?;
        let scope = within(call, request.tenant.as_deref()).scope;
        let mut query = cursor::query(&request)?;
        let size = query.limit;
        // One more than asked for tells whether there is another page.
        query.limit += 1;
        let page = self.engine.list(&scope, &query).await?;
        let next_page_token = match page.tasks.get(size.wrapping_sub(1)) {
            Some(last) if page.tasks.len() > size => cursor::write(&request, last),
            _ => String::new(),
        };
        let mut tasks = Vec::with_capacity(size);
        for head in page.tasks.iter().take(size) {
            let (mut task, _) = match self.engine.task(head).await {
                Ok(task) => task,
                // One that was removed since is simply not there.
                Err(crate::engine::Error::Gone) => continue,
                Err(error) => return Err(error.into()),
            };
            task.limit_history(request.history_length);
            if request.include_artifacts != Some(true) {
                task.artifacts.clear();
            }
            tasks.push(task);
        }
        let total_size = i32::try_from(page.total).unwrap_or(i32::MAX);
        Ok(ListTasksResponse { tasks, next_page_token, page_size: request.page_size(), total_size })
    }

    /// Asks for a task to be canceled.
    pub(crate) async fn cancel_task(&self, call: &Call, request: CancelTaskRequest) -> Result<Task> {
        request.validate()?;
        let head = self.find(&within(call, request.tenant.as_deref()), &request.id).await?;
        self.engine.cancel(&head, request.metadata).await.map_err(|error| match error {
            crate::engine::Error::Ended(_) => {
                Error::new(ErrorKind::TaskNotCancelable).with("taskId", request.id.as_str())
            }
            error => error.into(),
        })
    }

    async fn find(&self, call: &Call, id: &TaskId) -> Result<Head> {
        self.engine.find(&call.scope, id).await?.ok_or_else(|| not_found(id))
    }

    /// The task that a message continues: the one it names or, for a client of the first days, the one it chose a
    /// name for before.
    async fn continued(&self, call: &Call, request: &SendMessageRequest) -> Result<Option<Head>> {
        match (&request.message.task_id, &request.alias) {
            (Some(id), _) => Ok(Some(self.find(call, id).await?)),
            (None, Some(alias)) => Ok(self.engine.find(&call.scope, alias).await?),
            (None, None) => Ok(None),
        }
    }

    async fn resume(&self, call: Call, head: Head, message: Message, key: Option<Key>) -> Result<Accepted> {
        if message.context_id.as_ref().is_some_and(|context_id| *context_id != head.context_id) {
            return Err(Error::invalid("message.contextId", "does not match the context of the task"));
        }
        let named = call.idempotency_key.is_some();
        let resumed = self.engine.resume(call, &head, message, key).await;
        resumed.map_err(|error| refused(error, named).with("taskId", head.id.as_str()))
    }

    /// What the same message became when it was sent before.
    async fn again(&self, call: &Call, key: Option<&Key>, message: &Message) -> Result<Option<Accepted>> {
        let Some(key) = key else { return Ok(None) };
        let again = self.engine.again(&call.scope, key, message).await;
        again.map_err(|error| refused(error, call.idempotency_key.is_some()))
    }

    /// What makes the message the same message when it is sent again: the key that came with it or, where that is
    /// wanted, its own id. 04 §3.4.
    fn key(&self, call: &Call, request: &SendMessageRequest) -> Result<Option<Key>> {
        match &call.idempotency_key {
            Some(text) => named_key(text, request).map(Some),
            None if self.engine.knows_messages() => message_key(request).map(Some),
            None => Ok(None),
        }
    }

    /// A plain answer, if the agent thinks that one is enough.
    async fn reply(&self, message: &Message, call: &Call) -> Result<Option<Message>> {
        let reply = self.agent.reply(message, call).await.map_err(|failure| {
            let cause = failure.cause() as &dyn std::error::Error;
            tracing::warn!(kind = failure.kind(), cause, "agent failed");
            Error::new(ErrorKind::Internal).with_message(failure.to_string())
        })?;
        let context_id = || message.context_id.clone().unwrap_or_else(|| self.engine.context_id());
        Ok(reply.map(|mut reply| {
            reply.context_id.get_or_insert_with(context_id);
            reply
        }))
    }
}

/// The call, within the tenant that the request names.
fn within(call: &Call, tenant: Option<&str>) -> Call {
    let mut call = call.clone();
    if let Some(tenant) = tenant {
        call.scope.tenant = tenant.into();
    }
    call
}

/// A key that the caller chose: it stands for all that was sent, the name of the task included.
fn named_key(text: &str, request: &SendMessageRequest) -> Result<Key> {
    if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
        return Err(Error::invalid("Idempotency-Key", "must be 1 to 256 bytes without control characters"));
    }
    let body = match &request.alias {
        // In the first days messages had no ids; the one this has was made up as it came in.
        Some(alias) => {
            let message = Message { message_id: "".into(), ..request.message.clone() };
            let rest =
                Json::of(&SendMessageRequest { message, ..request.clone() }).map_err(Error::internal)?;
            format!("{alias}\n{}", rest.get())
        }
        None => Json::of(request).map_err(Error::internal)?.get().to_owned(),
    };
    Ok(Key { text: text.to_owned(), body: Sha256::digest(body).into() })
}

/// The message's own id as its key. It begins as no key that a caller chooses can, so the two never meet.
fn message_key(request: &SendMessageRequest) -> Result<Key> {
    let body = Json::of(&request.message).map_err(Error::internal)?;
    let text = format!("\u{1}{}", request.message.message_id);
    Ok(Key { text, body: Sha256::digest(body.get()).into() })
}

/// What a caller is told; one who chose no key has used an id twice.
fn refused(error: crate::engine::Error, named: bool) -> Error {
    match error {
        crate::engine::Error::Store(store::Error::KeyReused) if !named => {
            Error::invalid("message.messageId", "was used before with another message")
        }
        error => error.into(),
    }
}

/// 04 §3.7: a webhook that nobody would call is an error, not a silence.
fn refuse_push(request: &SendMessageRequest) -> Result<()> {
    let configuration = request.configuration.as_ref();
    match configuration.and_then(|configuration| configuration.task_push_notification_config.as_ref()) {
        Some(_) => Err(ErrorKind::PushNotificationNotSupported.into()),
        None => Ok(()),
    }
}

fn not_found(id: &TaskId) -> Error {
    Error::new(ErrorKind::TaskNotFound).with("taskId", id.as_str())
}
