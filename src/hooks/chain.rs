//! Hooks of one agent, in the order of their declaration.

use std::sync::Arc;

use super::{EventOrigin, EventPipeline, Hook, HookContext, HookPhase};
use crate::model::{
    Call, Error, ErrorKind, Message, Operation, Request, Response, Result, SendMessageResponse,
    StreamResponse, TaskId,
};

/// Hooks of one agent. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct HookChain {
    agent: Arc<str>,
    hooks: Arc<[Hook]>,
}

impl HookChain {
    /// Selects the hooks of an agent.
    pub(crate) fn new(agent: &Arc<str>, hooks: &[Hook]) -> Self {
        let own = hooks.iter().filter(|hook| hook.applies_to_agent(agent));
        Self {
            agent: agent.clone(),
            hooks: own.cloned().collect(),
        }
    }

    /// Whether a hook runs before or after this operation.
    pub(crate) fn intercepts_call(&self, operation: Operation) -> bool {
        self.hooks.iter().any(|hook| {
            hook.intercepts(HookPhase::Call, operation)
                || hook.intercepts(HookPhase::Response, operation)
        })
    }

    /// Whether a hook runs after this operation.
    pub(crate) fn intercepts_response(&self, operation: Operation) -> bool {
        let mut hooks = self.hooks.iter();
        hooks.any(|hook| hook.intercepts(HookPhase::Response, operation))
    }

    /// Whether a hook runs on events.
    pub(crate) fn intercepts_events(&self) -> bool {
        self.hooks.iter().any(Hook::intercepts_events)
    }

    /// Facts about a request for the hooks.
    pub(crate) fn context<'a>(&'a self, call: &'a Call, request: &Request) -> HookContext<'a> {
        HookContext::for_request(&self.agent, call, request)
    }

    /// Runs the hooks before an operation, in order.
    ///
    /// # Errors
    /// A hook denies, or has failed and fails closed.
    pub(crate) async fn before_call(
        &self,
        context: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<()> {
        let operation = request.operation();
        let hooks = self.hooks.iter();
        for hook in hooks.filter(|hook| hook.intercepts(HookPhase::Call, operation)) {
            let original = hook.fails_open().then(|| request.clone());
            let intercept = hook.interceptor.before_call(context, request);
            let result = hook.run(HookPhase::Call, context, intercept).await;
            let has_failed = result.map_err(|denial| denial.error)?.is_failure();
            if let (true, Some(original)) = (has_failed, original) {
                *request = original;
            }
        }
        Ok(())
    }

    /// Runs the hooks after an operation, in reverse order.
    ///
    /// # Errors
    /// A hook denies, or has failed and fails closed. The error does not invite to a retry: the operation has run.
    pub(crate) async fn after_call(
        &self,
        context: &HookContext<'_>,
        operation: Operation,
        response: &mut Response,
    ) -> Result<()> {
        let task_id = task_id(response).cloned();
        let hooks = self.hooks.iter().rev();
        for hook in hooks.filter(|hook| hook.intercepts(HookPhase::Response, operation)) {
            let original = hook.fails_open().then(|| response.clone());
            let intercept = hook.interceptor.after_call(context, response);
            let result = hook.run(HookPhase::Response, context, intercept).await;
            let result =
                result.map_err(|denial| error_after_operation(denial.error, task_id.as_ref()));
            if let (true, Some(original)) = (result?.is_failure(), original) {
                *response = original;
            }
        }
        Ok(())
    }

    /// Creates the pipeline for the events of one turn; `None` if no hook intercepts events.
    pub(crate) fn event_pipeline(
        &self,
        source: impl FnOnce() -> EventOrigin,
    ) -> Option<Box<EventPipeline>> {
        if !self.intercepts_events() {
            return None;
        }
        Some(Box::new(EventPipeline::new(
            &self.agent,
            &self.hooks,
            source(),
        )))
    }

    /// Runs the event hooks on a direct reply.
    ///
    /// # Errors
    /// A hook denies, or has failed and fails closed.
    pub(crate) async fn filter_reply(&self, call: &Call, reply: Message) -> Result<Message> {
        let context_id = reply.context_id.clone();
        let pipeline = self.event_pipeline(|| EventOrigin {
            scope: call.scope.clone(),
            client: call.client,
            task_id: None,
            context_id,
        });
        let Some(mut pipeline) = pipeline else {
            return Ok(reply);
        };
        let event = StreamResponse::Message(reply);
        match pipeline.apply(event).await.map_err(|denial| denial.error)? {
            StreamResponse::Message(reply) => Ok(reply),
            StreamResponse::Task(_)
            | StreamResponse::StatusUpdate(_)
            | StreamResponse::ArtifactUpdate(_) => Err(ErrorKind::Internal.into()),
        }
    }
}

/// Converts the error of a response hook. A client that retried would run the operation again, so kinds which invite to
/// a retry become internal errors.
fn error_after_operation(error: Error, task_id: Option<&TaskId>) -> Error {
    let error = match error.kind() {
        ErrorKind::Unavailable | ErrorKind::RateLimited => {
            Error::new(ErrorKind::Internal).with_message(error.message().to_owned())
        }
        _ => error,
    };
    match task_id {
        Some(id) => error.with_detail("taskId", id.as_str()),
        None => error,
    }
}

/// Returns the task of a response.
fn task_id(response: &Response) -> Option<&TaskId> {
    match response {
        Response::Task(task) | Response::SendMessage(SendMessageResponse::Task(task)) => {
            Some(&task.id)
        }
        Response::SendMessage(SendMessageResponse::Message(_))
        | Response::ListTasks(_)
        | Response::PushConfig(_)
        | Response::ListPushConfigs(_)
        | Response::Empty
        | Response::AgentCard(_) => None,
    }
}
