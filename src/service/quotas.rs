//! Task quotas of a caller and of a tenant. Checked before a task is opened.

use std::time::Duration;

use crate::engine::Engine;
use crate::model::{Caller, Error, ErrorKind, Result, Scope, TaskState};
use crate::store::TaskQuery;

/// `Retry-After` of a refused message.
const RETRY_AFTER: Duration = Duration::from_secs(30);

const ACTIVE_STATES: [TaskState; 2] = [TaskState::Submitted, TaskState::Working];
const WAITING_STATES: [TaskState; 2] = [TaskState::InputRequired, TaskState::AuthRequired];

/// Task limits for one agent; `None`: unlimited.
///
/// `open` and `waiting` apply to each authenticated caller, the tenant limits to all callers of a tenant together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TaskQuota {
    /// Tasks of a caller that have not ended.
    pub(crate) open: Option<u64>,
    /// Tasks of a caller that wait for input or authentication.
    pub(crate) waiting: Option<u64>,
    /// Tasks of a tenant that have not ended.
    pub(crate) tenant_open: Option<u64>,
    /// Stored tasks of a tenant, ended or not.
    pub(crate) tenant_total: Option<u64>,
}

impl TaskQuota {
    /// Whether a limit applies to tasks of this caller.
    pub(super) fn applies_to(self, caller: &Caller) -> bool {
        let limits_tenant = self.tenant_open.is_some() || self.tenant_total.is_some();
        limits_tenant || self.limits_caller(caller)
    }

    /// Anonymous callers share one identity, so they have no quota of their own.
    fn limits_caller(self, caller: &Caller) -> bool {
        (self.open.is_some() || self.waiting.is_some()) && *caller != Caller::anonymous()
    }

    /// Checks that one more task may be opened. Concurrent calls are not serialized and may exceed the quota together.
    ///
    /// # Errors
    /// Rate limited: a quota is used up.
    pub(super) async fn check(self, engine: &Engine, scope: &Scope) -> Result<()> {
        self.check_tenant(engine, scope).await?;
        if !self.limits_caller(&scope.owner) {
            return Ok(());
        }
        let waiting = count_tasks(engine, scope, WAITING_STATES).await?;
        if let Some(max) = self.waiting.filter(|max| waiting >= *max) {
            return Err(quota_exceeded(
                "waiting_tasks",
                format!(
                    "too many tasks of this caller wait for input (limit: waiting_tasks = {max}); answer or cancel some"
                ),
            ));
        }
        let Some(max) = self.open else {
            return Ok(());
        };
        if waiting + count_tasks(engine, scope, ACTIVE_STATES).await? >= max {
            return Err(quota_exceeded(
                "open_tasks",
                format!("too many open tasks for this caller (limit: open_tasks = {max})"),
            ));
        }
        Ok(())
    }

    /// Checks the tenant limits. Anonymous callers count.
    async fn check_tenant(self, engine: &Engine, scope: &Scope) -> Result<()> {
        if self.tenant_open.is_none() && self.tenant_total.is_none() {
            return Ok(());
        }
        let Some(counts) = engine.count_tasks(scope).await? else {
            return Ok(());
        };
        if let Some(max) = self.tenant_open.filter(|max| counts.open >= *max) {
            return Err(quota_exceeded(
                "tenant_open_tasks",
                format!("too many open tasks for this tenant (limit: tenant_open_tasks = {max})"),
            ));
        }
        if let Some(max) = self.tenant_total.filter(|max| counts.total >= *max) {
            return Err(quota_exceeded(
                "tenant_tasks",
                format!(
                    "too many stored tasks for this tenant (limit: tenant_tasks = {max}); retention deletes the oldest"
                ),
            ));
        }
        Ok(())
    }
}

async fn count_tasks(engine: &Engine, scope: &Scope, states: [TaskState; 2]) -> Result<u64> {
    let mut total = 0;
    for state in states {
        let query = TaskQuery {
            state: Some(state),
            limit: 1,
            ..TaskQuery::default()
        };
        total += engine.list(scope, &query).await?.total;
    }
    Ok(total)
}

/// An error of a used-up quota. The detail `quota` names the limit, so clients need not parse the message.
fn quota_exceeded(quota: &'static str, message: String) -> Error {
    Error::new(ErrorKind::RateLimited)
        .with_message(message)
        .with_detail("quota", quota)
        .with_retry_after(RETRY_AFTER)
}
