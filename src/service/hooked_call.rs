//! Operations with hooks: the hooks before, the operation, and the hooks after it.

use super::{Service, ServiceResponse};
use crate::model::{Call, Error, Request, Response, Result, Task};
use crate::store::IdempotencyKey;

impl Service {
    /// Runs an operation between the hooks of its agent.
    ///
    /// # Errors
    /// A hook denies, or the operation fails. Internal: a hook has made the request invalid.
    pub(super) async fn call_with_hooks(
        &self,
        call: &Call,
        mut request: Request,
    ) -> Result<ServiceResponse> {
        let hooks = &self.options.hooks;
        let operation = request.operation();
        // Computed before the hooks, which may change the same message in different ways.
        let key = self.received_key(call, &request)?;
        let context = hooks.context(call, &request);
        hooks.before_call(&context, &mut request).await?;
        if request.operation() != operation {
            return Err(Error::internal("a hook changed the kind of a request"));
        }
        // The hooks may have changed the request.
        request
            .validate(&self.options.limits)
            .map_err(Error::internal)?;
        request.strip_reserved_metadata();
        let response = self.dispatch(call, request, key).await?;
        if !hooks.intercepts_response(operation) {
            return Ok(response);
        }
        let (mut response, reservation) = match response {
            ServiceResponse::Single(response, reservation) => (response, reservation),
            ServiceResponse::Task(mut task) => {
                let reservation = task.take_reservation();
                (Box::new(Response::Task(Task::clone(&task))), reservation)
            }
            // Its events have passed the hooks.
            ServiceResponse::Stream(stream) => return Ok(ServiceResponse::Stream(stream)),
        };
        hooks.after_call(&context, operation, &mut response).await?;
        Ok(ServiceResponse::Single(response, reservation))
    }

    /// Returns the idempotency key of a message as the caller sent it.
    fn received_key(&self, call: &Call, request: &Request) -> Result<Option<Box<IdempotencyKey>>> {
        match request {
            Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
                Ok(self.idempotency_key(call, send)?.map(Box::new))
            }
            Request::GetTask(_)
            | Request::ListTasks(_)
            | Request::CancelTask(_)
            | Request::SubscribeToTask(_)
            | Request::CreatePushConfig(_)
            | Request::GetPushConfig(_)
            | Request::ListPushConfigs(_)
            | Request::DeletePushConfig(_)
            | Request::GetExtendedAgentCard(_) => Ok(None),
        }
    }
}
