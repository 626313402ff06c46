//! Facts about a call or an event for a hook. They contain no credentials.

use crate::model::{
    Call, Caller, CallerKey, CancelTaskRequest, ClientAddress, ContextId, GetTaskRequest,
    Operation, Request, Scope, TaskId,
};

/// Call or event that a hook intercepts. Contains no credentials.
#[derive(Debug, Clone)]
pub struct HookContext<'a> {
    pub(super) agent: &'a str,
    pub(super) scope: &'a Scope,
    pub(super) client: Option<ClientAddress>,
    pub(super) operation: Option<Operation>,
    pub(super) task_id: Option<TaskId>,
    pub(super) context_id: Option<ContextId>,
}

impl<'a> HookContext<'a> {
    /// Name of the agent.
    #[must_use]
    pub fn agent(&self) -> &'a str {
        self.agent
    }

    /// Caller that sends the request, or that owns the task of the event.
    #[must_use]
    pub fn caller(&self) -> &'a Caller {
        &self.scope.owner
    }

    /// Key of the caller in limits: its name, or the address of an anonymous caller.
    #[must_use]
    pub fn caller_key(&self) -> CallerKey {
        CallerKey::new(self.caller(), self.client)
    }

    /// Tenant; empty if there is none.
    #[must_use]
    pub fn tenant(&self) -> &'a str {
        &self.scope.tenant
    }

    /// Operation of the call; `None` for an event.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        self.operation
    }

    /// Task of the event, or the one that the request names.
    #[must_use]
    pub fn task_id(&self) -> Option<&TaskId> {
        self.task_id.as_ref()
    }

    /// Context of the event, or the one that the request names.
    #[must_use]
    pub fn context_id(&self) -> Option<&ContextId> {
        self.context_id.as_ref()
    }

    /// Creates the context of a call.
    pub(super) fn for_request(agent: &'a str, call: &'a Call, request: &Request) -> Self {
        Self {
            agent,
            scope: &call.scope,
            client: call.client,
            operation: Some(request.operation()),
            task_id: task_id(request).cloned(),
            context_id: context_id(request).cloned(),
        }
    }
}

/// Returns the task that a request names.
fn task_id(request: &Request) -> Option<&TaskId> {
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            request.message.task_id.as_ref()
        }
        Request::GetTask(GetTaskRequest { id, .. })
        | Request::CancelTask(CancelTaskRequest { id, .. }) => Some(id),
        Request::SubscribeToTask(request) => Some(&request.id),
        Request::CreatePushConfig(config) => config.task_id.as_ref(),
        Request::GetPushConfig(request) => Some(&request.task_id),
        Request::ListPushConfigs(request) => Some(&request.task_id),
        Request::DeletePushConfig(request) => Some(&request.task_id),
        Request::ListTasks(_) | Request::GetExtendedAgentCard(_) => None,
    }
}

/// Returns the context that a request names.
fn context_id(request: &Request) -> Option<&ContextId> {
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            request.message.context_id.as_ref()
        }
        Request::ListTasks(request) => request.context_id.as_ref(),
        Request::GetTask(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::CreatePushConfig(_)
        | Request::GetPushConfig(_)
        | Request::ListPushConfigs(_)
        | Request::DeletePushConfig(_)
        | Request::GetExtendedAgentCard(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_have_a_key_by_name_and_anonymous_ones_by_address() {
        let scope = |owner: Caller| Scope {
            agent: "echo".into(),
            tenant: "".into(),
            owner,
        };
        let context = |scope, client| HookContext {
            agent: "echo",
            scope,
            client,
            operation: None,
            task_id: None,
            context_id: None,
        };
        let [first, second] = [1, 2].map(|number| Some(ClientAddress::from_ipv6([number; 16])));
        let ann = scope(Caller::new("ann"));
        let anonymous = scope(Caller::anonymous());
        let key = |scope, client| context(scope, client).caller_key();
        assert_eq!(key(&ann, first), CallerKey::Caller(Caller::new("ann")));
        assert_eq!(key(&ann, first), key(&ann, second));
        assert_ne!(key(&anonymous, first), key(&anonymous, second));
        assert_eq!(
            key(&anonymous, None),
            CallerKey::Caller(Caller::anonymous())
        );
    }
}
