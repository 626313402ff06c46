//! Lineage of a task: the chain of agents that led to it, and the remaining budget (S59, R40).
//!
//! The lineage travels in the metadata of every message to another agent. It can only restrict: a receiver applies its
//! own limits as well, so a forged lineage gains nothing. Between servers that trust each other's delegation tokens the
//! signed lineage of the token replaces the one in the message; `attache::auth` enforces that.

use std::time::Duration;

use attache::Turn;
use attache::model::{LINEAGE, MessageId, Object, Role};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delegation_limits::{Budget, DelegationLimits};

/// Maximum number of entries that are read from a received lineage.
const MAX_PATH_LENGTH: usize = 64;

/// Reason for refusing a task that this agent already works on.
const CYCLE_REFUSED: &str =
    "refused: this agent already works on the same request, and would be called in a circle";

/// Chain of delegations that led to a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Lineage {
    /// Number of agents before this one.
    depth: u32,
    /// Hashed URLs of the agents that were called, the first one first.
    path: Vec<String>,
    /// Random ids of the agents that work on the request. Only the agent itself recognizes its id.
    agents: Vec<String>,
    /// Remaining tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// Remaining calls of models.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    /// Remaining time. Relative, because clocks of servers differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    milliseconds: Option<u64>,
}

impl Lineage {
    /// Reads the lineage from the first message of the task. A missing or invalid one is empty.
    pub(crate) fn from_turn(turn: &Turn) -> Self {
        let first = turn
            .task()
            .history
            .iter()
            .find(|message| message.role == Role::User);
        let received =
            first.and_then(|first| first.metadata.as_ref()?.get(LINEAGE)?.read::<Self>().ok());
        let mut lineage = received.unwrap_or_default();
        lineage.path.truncate(MAX_PATH_LENGTH);
        lineage.agents.truncate(MAX_PATH_LENGTH);
        let calls = u32::try_from(lineage.path.len()).unwrap_or(u32::MAX);
        lineage.depth = lineage.depth.max(calls);
        lineage
    }

    /// Returns the budget that the caller granted.
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            tokens: self.tokens,
            calls: self.calls,
            time: self.milliseconds.map(Duration::from_millis),
        }
    }

    /// Returns the reason for refusal if the agent with this id already works on the request.
    pub(crate) fn cycle_refusal(&self, agent_id: &MessageId) -> Option<&'static str> {
        self.agents
            .iter()
            .any(|id| *id == agent_id.as_str())
            .then_some(CYCLE_REFUSED)
    }

    /// Returns the lineage of a task delegated to the agent at `url`.
    ///
    /// # Errors
    /// The call would form a cycle, exceed the maximum depth, or has no budget left. The message is written for a model.
    pub(crate) fn extend(&self, url: &str, limits: &DelegationLimits) -> Result<Self, String> {
        let name = hash_url(url);
        if self
            .path
            .iter()
            .any(|called| *called == name || called == url)
        {
            return Err(CYCLE_REFUSED.to_owned());
        }
        let depth = self.depth.saturating_add(1);
        if depth >= limits.max_depth {
            return Err(format!(
                "refused: at most {} agents may call each other in a chain (max_depth)",
                limits.max_depth
            ));
        }
        let remaining = limits.remaining;
        if let Some(resource) = remaining.exhausted_resource() {
            return Err(format!(
                "refused: no {resource} is left for this task; answer with the results so far"
            ));
        }
        Ok(Self {
            depth,
            path: appended(&self.path, name),
            agents: appended(&self.agents, limits.agent_id.to_string()),
            tokens: remaining.tokens,
            calls: remaining.calls,
            milliseconds: remaining
                .time
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        })
    }

    /// Writes the lineage into the metadata of a message.
    pub(crate) fn write(&self, metadata: &mut Object) {
        metadata.insert(LINEAGE, self.to_value());
    }

    /// Returns the lineage as JSON.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn appended(list: &[String], last: String) -> Vec<String> {
    list.iter().cloned().chain([last]).collect()
}

/// Hashes the URL of an agent into a stable name that does not disclose the URL.
pub(crate) fn hash_url(url: &str) -> String {
    // FNV-1a. The name is stored in task metadata, so the hash must never change.
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;

    fn limits(agent_id: &str, max_depth: u32) -> DelegationLimits {
        DelegationLimits {
            agent_id: agent_id.into(),
            max_depth,
            remaining: Budget::default(),
        }
    }

    #[test]
    fn s59_cycles_and_deep_chains_are_refused() {
        let a = Lineage::default()
            .extend("http://b", &limits("a", 8))
            .unwrap();
        let b = a.extend("http://a", &limits("b", 8)).unwrap();
        let cycle = b.extend("http://b", &limits("a", 8)).unwrap_err();
        assert!(cycle.contains("circle"), "{cycle}");
        assert!(b.extend("http://c", &limits("a", 8)).is_ok());
        let deep = b.extend("http://c", &limits("a", 3)).unwrap_err();
        assert!(deep.contains("at most 3"), "{deep}");
        // An agent recognizes its own id whatever URL it was called by.
        assert!(b.cycle_refusal(&"a".into()).unwrap().contains("circle"));
        assert_eq!(b.cycle_refusal(&"c".into()), None);
        assert!(!format!("{b:?}").contains("http"), "no URL is disclosed");
    }

    #[test]
    fn r40_a_delegate_gets_no_more_than_the_remaining_budget() {
        let own = Budget {
            tokens: Some(100),
            calls: Some(3),
            time: Some(Duration::from_secs(9)),
        };
        let granted = Budget {
            tokens: Some(u64::MAX),
            calls: Some(2),
            time: None,
        };
        let both = own.min(granted);
        let expected = Budget {
            tokens: Some(100),
            calls: Some(2),
            ..own
        };
        assert_eq!(both, expected);
        let cost = Cost {
            calls: 1,
            input_tokens: 50,
            output_tokens: 9,
        };
        let left = both.minus(cost);
        assert_eq!((left.tokens, left.calls), (Some(41), Some(1)));
        assert_eq!(left.divided_by(2).tokens, Some(20));
        let refusal = |remaining: Budget| {
            let limits = DelegationLimits {
                remaining,
                ..limits("a", 8)
            };
            Lineage::default().extend("http://b", &limits).unwrap_err()
        };
        let no_calls = Budget {
            tokens: None,
            ..left.minus(cost)
        };
        assert!(refusal(no_calls).contains("calls"));
        let no_tokens = Budget {
            calls: None,
            ..left.minus(cost)
        };
        assert!(refusal(no_tokens).contains("tokens"));
        let no_time = Budget {
            time: Some(Duration::ZERO),
            ..left
        };
        assert!(refusal(no_time).contains("time"));
        let half = refusal(left.divided_by(2));
        assert!(half.contains("calls"), "one call cannot be shared: {half}");
    }
}
