//! Requests and responses of the push configuration operations.

use serde::{Deserialize, Serialize};

use super::{PushConfig, PushConfigId, Result, TaskId, Violation, non_empty, or_default};

impl PushConfig {
    /// Validates a configuration for a create request, which must name its task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        self.task_id.clone().unwrap_or_default().check("taskId")?;
        Ok(self.check("")?)
    }
}

/// Request to read a push configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPushConfigRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Id of the task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// Id of the configuration. Only a 0.3 client may omit it.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<PushConfigId>,
    /// Whether `id` may be absent. 0.3 then returns the default configuration.
    #[serde(skip)]
    pub allow_missing_id: bool,
}

impl GetPushConfigRequest {
    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        self.task_id.check("taskId")?;
        match &self.id {
            None if self.allow_missing_id => Ok(()),
            id => Ok(id.clone().unwrap_or_default().check("id")?),
        }
    }
}

/// Request to list the push configurations of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPushConfigsRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Id of the task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// Maximum number of results; 0 selects the server's default.
    #[serde(
        default,
        alias = "page_size",
        deserialize_with = "super::request::int32_or_zero",
        skip_serializing_if = "super::request::is_zero"
    )]
    pub page_size: i32,
    /// Token from the previous page.
    #[serde(
        default,
        alias = "page_token",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
}

impl ListPushConfigsRequest {
    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        self.task_id.check("taskId")?;
        if self.page_size < 0 {
            return Err(Violation::new("pageSize", "must not be negative").into());
        }
        Ok(())
    }
}

/// Page of push configurations of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPushConfigsResponse {
    /// Push configurations.
    #[serde(default, deserialize_with = "or_default")]
    pub configs: Vec<PushConfig>,
    /// Token for the next page; empty on the last one.
    #[serde(
        default,
        alias = "next_page_token",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub next_page_token: String,
}

/// Request to delete a push configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletePushConfigRequest {
    /// Tenant of the agent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Id of the task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// Id of the configuration.
    #[serde(default, deserialize_with = "or_default")]
    pub id: PushConfigId,
}

impl DeletePushConfigRequest {
    /// Checks all rules that do not depend on a stored task.
    ///
    /// # Errors
    /// Invalid parameters; names the first invalid field.
    pub fn validate(&self) -> Result<()> {
        self.task_id.check("taskId")?;
        Ok(self.id.check("id")?)
    }
}
