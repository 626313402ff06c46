//! Cost of a task: model calls and tokens, as recorded in task metadata.

use attache::Turn;
use attache::model::{Object, Task};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Metadata key for the total cost of a task.
pub(crate) const USAGE_KEY: &str = "attache.usage";
/// Metadata key for the cost of choosing the agent that handles a task.
pub(crate) const ROUTING_COST_KEY: &str = "attache.routed";

tokio::task_local! {
    /// Cost of routing the current turn. The snapshot in the turn does not contain it yet.
    static ROUTING_COST: Cost;
}

/// Number of model calls and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Cost {
    pub(crate) calls: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

impl Cost {
    /// Returns the cost of routing the task, spent before its agent was called.
    pub(crate) fn of_routing(turn: &Turn) -> Self {
        let recorded = turn
            .task()
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(ROUTING_COST_KEY)?.read().ok());
        recorded
            .or_else(|| ROUTING_COST.try_with(|cost| *cost).ok())
            .unwrap_or_default()
    }

    /// Runs an agent with this as its routing cost; see [`of_routing`](Self::of_routing).
    pub(crate) async fn run_after_routing<T>(self, work: impl Future<Output = T>) -> T {
        ROUTING_COST.scope(self, work).await
    }

    /// Adds this cost to the usage in `metadata`. Does nothing if the metadata has no usage.
    pub(crate) fn add_to(self, metadata: &mut Object) {
        let Some(recorded) = metadata.get(USAGE_KEY) else {
            return;
        };
        let (Ok(cost), Ok(Value::Object(mut usage))) = (recorded.read::<Self>(), recorded.read())
        else {
            return;
        };
        if let Ok(Value::Object(total)) = serde_json::to_value(cost.plus(self)) {
            usage.extend(total);
            metadata.insert(USAGE_KEY, Value::Object(usage));
        }
    }

    /// Returns the total cost recorded in a task.
    pub(crate) fn from_task(task: &Task) -> Self {
        let recorded = task
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(USAGE_KEY)?.read().ok());
        recorded.unwrap_or_default()
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
        }
    }

    /// Returns the number of input and output tokens.
    pub(crate) fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn routing_cost_is_added_and_other_members_are_kept() {
        let mut metadata: Object = serde_json::from_str(
            r#"{"attache.usage": {"model": "m", "calls": 2, "inputTokens": 30, "outputTokens": 4}, "mine": 1}"#,
        )
        .unwrap();
        let cost = Cost {
            calls: 1,
            input_tokens: 10,
            output_tokens: 2,
        };
        cost.add_to(&mut metadata);
        let all: Value = serde_json::from_str(metadata.as_str()).unwrap();
        let usage = json!({"model": "m", "calls": 3, "inputTokens": 40, "outputTokens": 6});
        assert_eq!(all, json!({"attache.usage": usage, "mine": 1}));
        let mut empty = Object::new();
        cost.add_to(&mut empty);
        assert!(empty.is_empty());
    }
}
