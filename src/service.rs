//! The operations of the protocol, whatever carries them: validate, look within the caller's scope, call the engine.

use std::sync::Arc;

use crate::agent::AnyAgent;
use crate::engine::{Accepted, Engine};
use crate::model::{
    Call, Error, ErrorKind, GetTaskRequest, Limits, Message, Request, Response, Result, Scope,
    SendMessageRequest, SendMessageResponse, Task, TaskId,
};

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
            Request::SendStreamingMessage(_)
            | Request::ListTasks(_)
            | Request::CancelTask(_)
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
        let scope = scope(call, request.tenant.as_deref());
        let accepted = match request.message.task_id.clone() {
            Some(id) => self.resume(&scope, id, request.message).await?,
            None => match self.reply(&request.message, call).await? {
                Some(reply) => return Ok(SendMessageResponse::Message(reply)),
                None => self.engine.start(scope, request.message).await?,
            },
        };
        let mut task = if at_once { accepted.into_task() } else { self.engine.settled(accepted).await? };
        task.limit_history(history_length);
        Ok(SendMessageResponse::Task(task))
    }

    /// Reads a task.
    pub(crate) async fn get_task(&self, call: &Call, request: GetTaskRequest) -> Result<Task> {
        request.validate()?;
        let scope = scope(call, request.tenant.as_deref());
        let head = self.engine.find(&scope, &request.id).await?.ok_or_else(|| not_found(&request.id))?;
        let mut task = self.engine.task(&head).await?;
        task.limit_history(request.history_length);
        Ok(task)
    }

    async fn resume(&self, scope: &Scope, id: TaskId, message: Message) -> Result<Accepted> {
        let head = self.engine.find(scope, &id).await?.ok_or_else(|| not_found(&id))?;
        if message.context_id.as_ref().is_some_and(|context_id| *context_id != head.context_id) {
            return Err(Error::invalid("message.contextId", "does not match the context of the task"));
        }
        let resumed = self.engine.resume(head, message).await;
        resumed.map_err(|error| Error::from(error).with("taskId", id.as_str()))
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

/// The caller's scope, within the tenant that the request names.
fn scope(call: &Call, tenant: Option<&str>) -> Scope {
    match tenant {
        Some(tenant) => Scope { tenant: tenant.into(), ..call.scope.clone() },
        None => call.scope.clone(),
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
