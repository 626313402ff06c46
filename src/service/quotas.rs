//! How many tasks a caller may have, and all callers of a tenant together.

use std::time::Duration;

use crate::engine::Engine;
use crate::model::{Caller, Error, ErrorKind, Result, Scope, TaskState};
use crate::store::TaskQuery;

/// How long a caller with too many tasks is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(30);

const ACTIVE_STATES: [TaskState; 2] = [TaskState::Submitted, TaskState::Working];
const WAITING_STATES: [TaskState; 2] = [TaskState::InputRequired, TaskState::AuthRequired];

/// How many tasks of one agent a caller whom we know may have, and a tenant; `None`: as many as they like.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TaskQuota {
    /// That have not ended.
    pub(crate) open: Option<u64>,
    /// That wait for their caller.
    pub(crate) waiting: Option<u64>,
    /// Of a tenant, that have not ended.
    pub(crate) tenant_open: Option<u64>,
    /// Of a tenant, all that are kept.
    pub(crate) tenant_total: Option<u64>,
}

impl TaskQuota {
    /// Whether there is any limit.
    pub(super) fn is_limited(self) -> bool {
        self != Self::default()
    }

    /// Whether there is room for one more. Those who ask at the same moment may all be told that there is.
    ///
    /// # Errors
    /// Rate limited: some have to end first.
    pub(super) async fn check(self, engine: &Engine, scope: &Scope) -> Result<()> {
        self.check_tenant(engine, scope).await?;
        if (self.open.is_none() && self.waiting.is_none()) || scope.owner == Caller::anonymous() {
            return Ok(());
        }
        let waiting = count_tasks(engine, scope, WAITING_STATES).await?;
        if self.waiting.is_some_and(|most| waiting >= most) {
            return Err(quota_exceeded(
                "as many tasks wait for the caller as parked_tasks allows: answer or cancel some",
            ));
        }
        match self.open {
            Some(most) if waiting + count_tasks(engine, scope, ACTIVE_STATES).await? >= most => {
                Err(quota_exceeded(
                    "as many tasks of the caller are open as open_tasks allows",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The same for all callers of the tenant: whoever has no name is one of them.
    async fn check_tenant(self, engine: &Engine, scope: &Scope) -> Result<()> {
        if self.tenant_open.is_none() && self.tenant_total.is_none() {
            return Ok(());
        }
        let Some(counts) = engine.count_tasks(scope).await? else {
            return Ok(());
        };
        if self.tenant_open.is_some_and(|most| counts.open >= most) {
            return Err(quota_exceeded(
                "as many tasks of the tenant are open as tenant_open_tasks allows",
            ));
        }
        if self.tenant_total.is_some_and(|most| counts.total >= most) {
            return Err(quota_exceeded(
                "as many tasks of the tenant are kept as tenant_tasks allows: the oldest go with their age",
            ));
        }
        Ok(())
    }
}

async fn count_tasks(engine: &Engine, scope: &Scope, states: [TaskState; 2]) -> Result<u64> {
    let mut all = 0;
    for state in states {
        let query = TaskQuery {
            state: Some(state),
            limit: 1,
            ..TaskQuery::default()
        };
        all += engine.list(scope, &query).await?.total;
    }
    Ok(all)
}

fn quota_exceeded(message: &'static str) -> Error {
    Error::new(ErrorKind::RateLimited)
        .with_message(message)
        .with_retry_after(RETRY_AFTER)
}
