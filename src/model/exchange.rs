//! Requests and responses of all operations as enums.

use super::published::RESERVED_PREFIX;
use super::{
    AgentCard, CancelTaskRequest, DeletePushConfigRequest, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, Limits, ListPushConfigsRequest, ListPushConfigsResponse,
    ListTasksRequest, ListTasksResponse, Object, Operation, PushConfig, Result, SendMessageRequest,
    SendMessageResponse, SubscribeToTaskRequest, Task,
};

/// Request of any operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Sends a message and waits for the result.
    SendMessage(Box<SendMessageRequest>),
    /// Sends a message and streams the events of the task.
    SendStreamingMessage(Box<SendMessageRequest>),
    /// Reads a task.
    GetTask(GetTaskRequest),
    /// Lists tasks, page by page.
    ListTasks(ListTasksRequest),
    /// Requests cancellation of a task.
    CancelTask(CancelTaskRequest),
    /// Streams the events of an existing task.
    SubscribeToTask(SubscribeToTaskRequest),
    /// Registers a webhook for a task.
    CreatePushConfig(Box<PushConfig>),
    /// Reads a push configuration.
    GetPushConfig(GetPushConfigRequest),
    /// Lists the push configurations of a task.
    ListPushConfigs(ListPushConfigsRequest),
    /// Deletes a push configuration.
    DeletePushConfig(DeletePushConfigRequest),
    /// Reads the card for authenticated callers.
    GetExtendedAgentCard(GetExtendedAgentCardRequest),
}

impl Request {
    /// Returns the operation.
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

    /// Returns the tenant named in the request.
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

    /// Removes reserved keys (prefix `attache.`) from the metadata of the request, the message and
    /// its parts. Only the server may set them.
    pub fn strip_reserved_metadata(&mut self) {
        if let Self::SendMessage(request) | Self::SendStreamingMessage(request) = self {
            for part in &mut request.message.parts {
                part.update_metadata(strip_reserved);
            }
        }
        let metadata = match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => [
                Some(&mut request.metadata),
                Some(&mut request.message.metadata),
            ],
            Self::CancelTask(request) => [Some(&mut request.metadata), None],
            Self::GetTask(_)
            | Self::ListTasks(_)
            | Self::SubscribeToTask(_)
            | Self::CreatePushConfig(_)
            | Self::GetPushConfig(_)
            | Self::ListPushConfigs(_)
            | Self::DeletePushConfig(_)
            | Self::GetExtendedAgentCard(_) => [None, None],
        };
        metadata.into_iter().flatten().for_each(strip_reserved);
    }

    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
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

/// Response of any operation that does not stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// Result of a send.
    SendMessage(SendMessageResponse),
    /// Task that was read or canceled.
    Task(Task),
    /// Page of tasks.
    ListTasks(ListTasksResponse),
    /// Push configuration that was created or read.
    PushConfig(PushConfig),
    /// Push configurations of a task.
    ListPushConfigs(ListPushConfigsResponse),
    /// No content.
    Empty,
    /// Agent card.
    AgentCard(Box<AgentCard>),
}

/// Removes reserved keys, and metadata that have no other.
fn strip_reserved(metadata: &mut Option<Object>) {
    if let Some(object) = metadata
        && !object.is_empty()
    {
        object.remove_prefixed(RESERVED_PREFIX);
        if object.is_empty() {
            *metadata = None;
        }
    }
}
