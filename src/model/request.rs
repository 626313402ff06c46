//! Request and response types of the operations on messages, tasks and cards, with their
//! validation.

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use super::event::is_false;
use super::{
    ClientDialect, ContextId, Limits, Message, Object, PushConfig, Result, Task, TaskId, TaskState,
    Timestamp, Violation, int32, non_empty, or_default,
};

/// Request to send a message to a new or an existing task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendMessageRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Message.
    #[serde(default, deserialize_with = "or_default")]
    pub message: Message,
    /// Options for the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SendMessageConfiguration>,
    /// Additional data from the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// Task id chosen by a 0.1 client (04 §4). May be the id of an existing task.
    #[serde(skip)]
    pub alias: Option<TaskId>,
    /// Dialect of the client, if the message shows one.
    #[serde(skip)]
    pub dialect: Option<ClientDialect>,
    /// Positions of the parts of the message that a 0.x client sent as `tool-use` or `tool-result`.
    #[serde(skip)]
    pub tool_parts: Vec<usize>,
}

impl SendMessageRequest {
    /// Creates a request without options.
    pub fn new(message: Message) -> Self {
        Self {
            message,
            ..Self::default()
        }
    }

    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self, limits: &Limits) -> Result<()> {
        if let Some(alias) = &self.alias {
            alias.check("id")?;
        }
        self.message.check("message", limits)?;
        let Some(configuration) = &self.configuration else {
            return Ok(());
        };
        check_history_length(configuration.history_length, "configuration.historyLength")?;
        if let Some(push) = &configuration.task_push_notification_config {
            push.check("configuration.taskPushNotificationConfig")?;
        }
        Ok(())
    }

    /// Whether the response is due immediately, regardless of the task's state.
    #[must_use]
    pub fn returns_immediately(&self) -> bool {
        self.configuration
            .as_ref()
            .is_some_and(|configuration| configuration.return_immediately)
    }

    /// Returns the requested history length.
    #[must_use]
    pub fn history_length(&self) -> Option<i32> {
        self.configuration.as_ref()?.history_length
    }
}

impl From<Message> for SendMessageRequest {
    fn from(message: Message) -> Self {
        Self::new(message)
    }
}

/// Options for the response to a message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendMessageConfiguration {
    /// Media types the client accepts; empty means any.
    #[serde(
        default,
        alias = "accepted_output_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    /// Push configuration that is registered before the task starts.
    #[serde(
        default,
        alias = "task_push_notification_config",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_push_notification_config: Option<PushConfig>,
    /// Maximum number of history messages; absent means all, 0 means none.
    #[serde(
        default,
        alias = "history_length",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Whether to return before the task reaches a terminal or interrupted state.
    #[serde(
        default,
        alias = "return_immediately",
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub return_immediately: bool,
}

/// Result of a send.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SendMessageResponse {
    /// Task that was created or continued.
    Task(Task),
    /// Direct message without a task.
    Message(Message),
}

impl SendMessageResponse {
    /// Returns the result as text: of the message, or of the task's artifacts, else its status,
    /// else its history.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Task(task) => task.text(),
            Self::Message(message) => message.text(),
        }
    }

    /// Returns the task, or `None` for a direct message.
    #[must_use]
    pub fn task(&self) -> Option<&Task> {
        match self {
            Self::Task(task) => Some(task),
            Self::Message(_) => None,
        }
    }

    /// Returns the state of the task; a direct message counts as completed.
    #[must_use]
    pub fn state(&self) -> TaskState {
        self.task()
            .map_or(TaskState::Completed, |task| task.status.state)
    }
}

impl<'de> Deserialize<'de> for SendMessageResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Members {
            task: Option<Task>,
            message: Option<Message>,
        }
        match Members::deserialize(deserializer)? {
            Members {
                task: Some(task),
                message: None,
            } => Ok(Self::Task(task)),
            Members {
                task: None,
                message: Some(message),
            } => Ok(Self::Message(message)),
            _ => Err(de::Error::custom("must have exactly one of task, message")),
        }
    }
}

/// Request to read a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetTaskRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Id of the task.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
    /// Maximum number of history messages; absent means all, 0 means none.
    #[serde(
        default,
        alias = "history_length",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
}

impl GetTaskRequest {
    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        self.id.check("id")?;
        check_history_length(self.history_length, "historyLength")
    }
}

/// Request to list the caller's tasks, most recent status first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListTasksRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Filter: context.
    #[serde(
        default,
        alias = "context_id",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub context_id: Option<ContextId>,
    /// Filter: state.
    #[serde(
        default,
        deserialize_with = "specified_state",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<TaskState>,
    /// Maximum number of results: 1 to 100, default 50.
    #[serde(
        default,
        alias = "page_size",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_size: Option<i32>,
    /// Token from the previous page.
    #[serde(
        default,
        alias = "page_token",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
    /// Maximum number of history messages per task; absent means all, 0 means none.
    #[serde(
        default,
        alias = "history_length",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Filter: status timestamp not before this time.
    #[serde(
        default,
        alias = "status_timestamp_after",
        deserialize_with = "zoned_timestamp",
        skip_serializing_if = "Option::is_none"
    )]
    pub status_timestamp_after: Option<Timestamp>,
    /// Whether to include artifacts; default false.
    #[serde(
        default,
        alias = "include_artifacts",
        skip_serializing_if = "Option::is_none"
    )]
    pub include_artifacts: Option<bool>,
}

impl ListTasksRequest {
    /// Page size if the request names none.
    pub const DEFAULT_PAGE_SIZE: i32 = 50;
    /// Maximum page size.
    pub const MAX_PAGE_SIZE: i32 = 100;

    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        if let Some(id) = &self.context_id {
            id.check("contextId")?;
        }
        if !(1..=Self::MAX_PAGE_SIZE).contains(&self.page_size()) {
            return Err(Violation::new("pageSize", "must be between 1 and 100").into());
        }
        check_history_length(self.history_length, "historyLength")
    }

    /// Returns the requested or default page size.
    #[must_use]
    pub fn page_size(&self) -> i32 {
        self.page_size.unwrap_or(Self::DEFAULT_PAGE_SIZE)
    }
}

/// Page of tasks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListTasksResponse {
    /// Tasks, most recent status first.
    #[serde(default, deserialize_with = "or_default")]
    pub tasks: Vec<Task>,
    /// Token for the next page; empty on the last one.
    #[serde(default, alias = "next_page_token", deserialize_with = "or_default")]
    pub next_page_token: String,
    /// Page size that was applied.
    #[serde(default, alias = "page_size", deserialize_with = "int32_or_zero")]
    pub page_size: i32,
    /// Number of matching tasks on all pages.
    #[serde(default, alias = "total_size", deserialize_with = "int32_or_zero")]
    pub total_size: i32,
}

/// Request to cancel a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelTaskRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Id of the task.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
    /// Additional data from the client, such as a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

impl CancelTaskRequest {
    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        Ok(self.id.check("id")?)
    }
}

/// Request to stream the events of an existing task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeToTaskRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Id of the task.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
}

impl SubscribeToTaskRequest {
    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        Ok(self.id.check("id")?)
    }
}

/// Request for the card for authenticated callers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetExtendedAgentCardRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
}

fn check_history_length(length: Option<i32>, field: &str) -> Result<()> {
    match length {
        Some(..0) => Err(Violation::new(field, "must not be negative").into()),
        _ => Ok(()),
    }
}

pub(super) fn is_zero(number: &i32) -> bool {
    *number == 0
}

pub(super) fn int32_or_zero<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<i32, D::Error> {
    int32(deserializer).map(Option::unwrap_or_default)
}

/// Deserializes a state filter; an unspecified state means no filter.
fn specified_state<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<TaskState>, D::Error> {
    Ok(Option::deserialize(deserializer)?.filter(|state| *state != TaskState::Unspecified))
}

/// Deserializes a time filter, which must contain an offset. Guessing the time zone could hide
/// tasks.
fn zoned_timestamp<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Timestamp>, D::Error> {
    let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(de::Error::custom))
        .transpose()
}
