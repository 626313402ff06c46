//! Endpoint `/activity`: the tasks that have not ended, for `attache top`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::engine::Engine;
use crate::model::{Result, Timestamp};
use crate::store::Head;

/// Maximum number of open tasks that are read. If there are more, the counts are lower bounds.
const MAX_TASKS: usize = 10_000;
/// Maximum number of tasks in a reply, oldest first.
const MAX_OLDEST: usize = 50;

/// Returns the open tasks of all callers: counts by state, and the oldest of them.
pub(super) async fn activity(engine: &Engine) -> Result<Value> {
    let mut tasks = engine.list_unfinished(MAX_TASKS + 1).await?;
    let has_more = tasks.len() > MAX_TASKS;
    tasks.truncate(MAX_TASKS);
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for task in &tasks {
        *states.entry(task.state.as_str()).or_default() += 1;
    }
    tasks.sort_by_key(created);
    let oldest: Vec<_> = tasks.iter().take(MAX_OLDEST).map(task_json).collect();
    Ok(json!({
        "now": engine.now(),
        "open": tasks.len(),
        "openIsExact": !has_more,
        "states": states,
        "oldest": oldest,
    }))
}

fn task_json(head: &Head) -> Value {
    json!({
        "task": head.id,
        "agent": head.scope.agent,
        "tenant": head.scope.tenant,
        "caller": head.scope.owner.name(),
        "state": head.state.as_str(),
        "created": created(head),
        "updated": head.status_time,
        "events": head.position.0,
    })
}

/// Time at which the task was created: that of its UUIDv7, else of its last status.
fn created(head: &Head) -> Timestamp {
    let id: Option<uuid::Uuid> = head.id.as_str().parse().ok();
    let time = id.and_then(|id| id.get_timestamp());
    let millis = time.and_then(|time| {
        let (seconds, nanos) = time.to_unix();
        let millis = seconds.checked_mul(1000)? + u64::from(nanos / 1_000_000);
        Timestamp::from_millis(i64::try_from(millis).ok()?)
    });
    millis.unwrap_or(head.status_time)
}
