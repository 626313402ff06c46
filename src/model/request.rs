//! One struct per operation, its answer, and what makes it valid.

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use super::event::is_false;
use super::{
    ContextId, Limits, Message, Object, PushConfig, Result, Task, TaskId, TaskState, Timestamp,
    Violation, int32, non_empty, or_default,
};

/// Sends a message, to a new task or to one that is there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendMessageRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// What is said.
    #[serde(default, deserialize_with = "or_default")]
    pub message: Message,
    /// How the answer should come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SendMessageConfiguration>,
    /// Whatever else the client wants to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// The name that a client of the first days gave the task; it may be the id of one that is there.
    #[serde(skip)]
    pub alias: Option<TaskId>,
}

impl SendMessageRequest {
    /// A request that sends this message.
    pub fn new(message: Message) -> Self {
        Self {
            message,
            ..Self::default()
        }
    }

    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
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

    /// Whether the caller wants the task at once, whatever its state.
    #[must_use]
    pub fn returns_immediately(&self) -> bool {
        self.configuration
            .as_ref()
            .is_some_and(|configuration| configuration.return_immediately)
    }

    /// How much history the caller wants.
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

/// How the answer to a message should come.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendMessageConfiguration {
    /// Media types the client can read; empty means any.
    #[serde(
        default,
        alias = "accepted_output_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    /// A webhook for the task, registered before it starts.
    #[serde(
        default,
        alias = "task_push_notification_config",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_push_notification_config: Option<PushConfig>,
    /// At most so many messages of history; absent means all, 0 none.
    #[serde(
        default,
        alias = "history_length",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Do not wait for the end.
    #[serde(
        default,
        alias = "return_immediately",
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub return_immediately: bool,
}

/// The answer to a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SendMessageResponse {
    /// A task was made or continued.
    Task(Task),
    /// A plain message was enough.
    Message(Message),
}

impl SendMessageResponse {
    /// The answer as text: of the message, or of the task's artifacts, else its status, else its history.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Task(task) => task.text(),
            Self::Message(message) => message.text(),
        }
    }

    /// The task, unless a plain message was enough.
    #[must_use]
    pub fn task(&self) -> Option<&Task> {
        match self {
            Self::Task(task) => Some(task),
            Self::Message(_) => None,
        }
    }

    /// Where the task stands; a plain message is as good as a task that is done.
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

/// Reads a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetTaskRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// The task.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
    /// At most so many messages of history; absent means all, 0 none.
    #[serde(
        default,
        alias = "history_length",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
}

impl GetTaskRequest {
    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
    pub fn validate(&self) -> Result<()> {
        self.id.check("id")?;
        check_history_length(self.history_length, "historyLength")
    }
}

/// Lists the caller's tasks, newest status first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListTasksRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Only of this conversation.
    #[serde(
        default,
        alias = "context_id",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub context_id: Option<ContextId>,
    /// Only in this state.
    #[serde(
        default,
        deserialize_with = "specified_state",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<TaskState>,
    /// At most so many; 1 to 100, by default 50.
    #[serde(
        default,
        alias = "page_size",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_size: Option<i32>,
    /// Where the last page ended.
    #[serde(
        default,
        alias = "page_token",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
    /// At most so many messages of history per task; absent means all, 0 none.
    #[serde(
        default,
        alias = "history_length",
        deserialize_with = "int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub history_length: Option<i32>,
    /// Only with a status of this time or later.
    #[serde(
        default,
        alias = "status_timestamp_after",
        deserialize_with = "zoned_timestamp",
        skip_serializing_if = "Option::is_none"
    )]
    pub status_timestamp_after: Option<Timestamp>,
    /// With artifacts; by default without.
    #[serde(
        default,
        alias = "include_artifacts",
        skip_serializing_if = "Option::is_none"
    )]
    pub include_artifacts: Option<bool>,
}

impl ListTasksRequest {
    /// The page size used when none is asked for.
    pub const DEFAULT_PAGE_SIZE: i32 = 50;
    /// The largest page.
    pub const MAX_PAGE_SIZE: i32 = 100;

    /// Checks every rule that needs no store.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
    pub fn validate(&self) -> Result<()> {
        if let Some(id) = &self.context_id {
            id.check("contextId")?;
        }
        if !(1..=Self::MAX_PAGE_SIZE).contains(&self.page_size()) {
            return Err(Violation::new("pageSize", "must be between 1 and 100").into());
        }
        check_history_length(self.history_length, "historyLength")
    }

    /// The page size in force.
    #[must_use]
    pub fn page_size(&self) -> i32 {
        self.page_size.unwrap_or(Self::DEFAULT_PAGE_SIZE)
    }
}

/// A page of tasks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListTasksResponse {
    /// The tasks, newest status first.
    #[serde(default, deserialize_with = "or_default")]
    pub tasks: Vec<Task>,
    /// Where the next page begins; empty on the last one.
    #[serde(default, alias = "next_page_token", deserialize_with = "or_default")]
    pub next_page_token: String,
    /// The page size used.
    #[serde(default, alias = "page_size", deserialize_with = "int32_or_zero")]
    pub page_size: i32,
    /// All that match, on whatever page.
    #[serde(default, alias = "total_size", deserialize_with = "int32_or_zero")]
    pub total_size: i32,
}

/// Asks for a task to be canceled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelTaskRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// The task.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
    /// Whatever else the client wants to say, such as why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

impl CancelTaskRequest {
    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the field at fault.
    pub fn validate(&self) -> Result<()> {
        Ok(self.id.check("id")?)
    }
}

/// Follows a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeToTaskRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// The task.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
}

impl SubscribeToTaskRequest {
    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the field at fault.
    pub fn validate(&self) -> Result<()> {
        Ok(self.id.check("id")?)
    }
}

/// Reads the card that authenticated callers see.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetExtendedAgentCardRequest {
    /// Which tenant's agent.
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

/// An unspecified state in a filter is no filter.
fn specified_state<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<TaskState>, D::Error> {
    Ok(Option::deserialize(deserializer)?.filter(|state| *state != TaskState::Unspecified))
}

/// A filter must say exactly which time is meant; a guess at the zone would silently hide tasks.
fn zoned_timestamp<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Timestamp>, D::Error> {
    let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(de::Error::custom))
        .transpose()
}
