//! The operations on webhook registrations, and what makes them valid.

use serde::{Deserialize, Serialize};

use super::{PushConfig, PushConfigId, Result, TaskId, Violation, non_empty, or_default};

impl PushConfig {
    /// Checks a registration that names its task.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
    pub fn validate(&self) -> Result<()> {
        self.task_id.clone().unwrap_or_default().check("taskId")?;
        Ok(self.check("")?)
    }
}

/// Reads one webhook registration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPushConfigRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// The task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// The registration; only a 0.3 client may leave it out.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<PushConfigId>,
    /// Whether the client may leave the id out: 0.3 has one registration by default.
    #[serde(skip)]
    pub allow_missing_id: bool,
}

impl GetPushConfigRequest {
    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
    pub fn validate(&self) -> Result<()> {
        self.task_id.check("taskId")?;
        match &self.id {
            None if self.allow_missing_id => Ok(()),
            id => Ok(id.clone().unwrap_or_default().check("id")?),
        }
    }
}

/// Lists the webhook registrations of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPushConfigsRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// The task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// At most so many; 0 leaves it to the server.
    #[serde(
        default,
        alias = "page_size",
        deserialize_with = "super::request::int32_or_zero",
        skip_serializing_if = "super::request::is_zero"
    )]
    pub page_size: i32,
    /// Where the last page ended.
    #[serde(
        default,
        alias = "page_token",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
}

impl ListPushConfigsRequest {
    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
    pub fn validate(&self) -> Result<()> {
        self.task_id.check("taskId")?;
        if self.page_size < 0 {
            return Err(Violation::new("pageSize", "must not be negative").into());
        }
        Ok(())
    }
}

/// The webhook registrations of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPushConfigsResponse {
    /// The registrations.
    #[serde(default, deserialize_with = "or_default")]
    pub configs: Vec<PushConfig>,
    /// Where the next page begins; empty on the last one.
    #[serde(
        default,
        alias = "next_page_token",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub next_page_token: String,
}

/// Removes a webhook registration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletePushConfigRequest {
    /// Which tenant's agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// The task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// The registration.
    #[serde(default, deserialize_with = "or_default")]
    pub id: PushConfigId,
}

impl DeletePushConfigRequest {
    /// Checks every rule that needs no task.
    ///
    /// # Errors
    /// Invalid parameters, naming the first field at fault.
    pub fn validate(&self) -> Result<()> {
        self.task_id.check("taskId")?;
        Ok(self.id.check("id")?)
    }
}
