//! Any request, and any answer.

use super::{
    AgentCard, CancelTaskRequest, DeletePushConfigRequest, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, Limits, ListPushConfigsRequest, ListPushConfigsResponse,
    ListTasksRequest, ListTasksResponse, Operation, PushConfig, Result, SendMessageRequest,
    SendMessageResponse, SubscribeToTaskRequest, Task,
};

/// A request of any operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Sends a message and waits for the answer.
    SendMessage(Box<SendMessageRequest>),
    /// Sends a message and streams what happens.
    SendStreamingMessage(Box<SendMessageRequest>),
    /// Reads a task.
    GetTask(GetTaskRequest),
    /// Lists tasks by page.
    ListTasks(ListTasksRequest),
    /// Asks for a task to be canceled.
    CancelTask(CancelTaskRequest),
    /// Streams what happens to an existing task.
    SubscribeToTask(SubscribeToTaskRequest),
    /// Registers a webhook for a task.
    CreatePushConfig(Box<PushConfig>),
    /// Reads a webhook registration.
    GetPushConfig(GetPushConfigRequest),
    /// Lists the webhook registrations of a task.
    ListPushConfigs(ListPushConfigsRequest),
    /// Removes a webhook registration.
    DeletePushConfig(DeletePushConfigRequest),
    /// Reads the card that authenticated callers see.
    GetExtendedAgentCard(GetExtendedAgentCardRequest),
}

impl Request {
    /// What it asks for.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::SendMessage(_) => Operation::SendMessage,
            Self::SendStreamingMessage(_) => Operation::SendStreamingMessage,
            Self::GetTask(_) => Operation::GetTask,
            Self::ListTasks(_) => Operation::ListTasks,
            Self::CancelTask(_) => Operation::CancelTask,
            Self::SubscribeToTask(_) => Operation::SubscribeToTask,
            Self::CreatePushConfig(_) => Operation::CreatePushConfig,
            Self::GetPushConfig(_) => Operation::GetPushConfig,
            Self::ListPushConfigs(_) => Operation::ListPushConfigs,
            Self::DeletePushConfig(_) => Operation::DeletePushConfig,
            Self::GetExtendedAgentCard(_) => Operation::GetExtendedAgentCard,
        }
    }

    /// The tenant that it names.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => {
                request.tenant.as_deref()
            }
            Self::GetTask(request) => request.tenant.as_deref(),
            Self::ListTasks(request) => request.tenant.as_deref(),
            Self::CancelTask(request) => request.tenant.as_deref(),
            Self::SubscribeToTask(request) => request.tenant.as_deref(),
            Self::CreatePushConfig(config) => config.tenant.as_deref(),
            Self::GetPushConfig(request) => request.tenant.as_deref(),
            Self::ListPushConfigs(request) => request.tenant.as_deref(),
            Self::DeletePushConfig(request) => request.tenant.as_deref(),
            Self::GetExtendedAgentCard(request) => request.tenant.as_deref(),
        }
    }

    /// Drops from its metadata, and from that of its parts, what only we may say there: names that begin with `attache.`.
    pub fn strip_reserved_metadata(&mut self) {
        const RESERVED: &str = "attache.";
        if let Self::SendMessage(request) | Self::SendStreamingMessage(request) = self {
            let parts = request.message.parts.iter_mut();
            parts
                .filter_map(|part| part.metadata_mut())
                .for_each(|object| object.remove_prefixed(RESERVED));
        }
        let metadata = match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => {
                [request.metadata.as_mut(), request.message.metadata.as_mut()]
            }
            Self::CancelTask(request) => [request.metadata.as_mut(), None],
            Self::GetTask(_)
            | Self::ListTasks(_)
            | Self::SubscribeToTask(_)
            | Self::CreatePushConfig(_)
            | Self::GetPushConfig(_)
            | Self::ListPushConfigs(_)
            | Self::DeletePushConfig(_)
            | Self::GetExtendedAgentCard(_) => [None, None],
        };
        metadata
            .into_iter()
            .flatten()
            .for_each(|object| object.remove_prefixed(RESERVED));
    }

    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
    pub fn validate(&self, limits: &Limits) -> Result<()> {
        match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => {
                request.validate(limits)
            }
            Self::GetTask(request) => request.validate(),
            Self::ListTasks(request) => request.validate(),
            Self::CancelTask(request) => request.validate(),
            Self::SubscribeToTask(request) => request.validate(),
            Self::CreatePushConfig(config) => config.validate(),
            Self::GetPushConfig(request) => request.validate(),
            Self::ListPushConfigs(request) => request.validate(),
            Self::DeletePushConfig(request) => request.validate(),
            Self::GetExtendedAgentCard(_) => Ok(()),
        }
    }
}

/// The answer of any operation that does not stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// To a message.
    SendMessage(SendMessageResponse),
    /// A task, read or canceled.
    Task(Task),
    /// A page of tasks.
    ListTasks(ListTasksResponse),
    /// A webhook registration, made or read.
    PushConfig(PushConfig),
    /// The webhook registrations of a task.
    ListPushConfigs(ListPushConfigsResponse),
    /// Done; there is nothing to say.
    Empty,
    /// A card.
    AgentCard(Box<AgentCard>),
}
