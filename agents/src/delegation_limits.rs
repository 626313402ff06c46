//! Limits of delegation: how deep agents may call each other, and the budget that a task has left.

use std::time::Duration;

use attache::model::MessageId;

use crate::cost::Cost;

/// Remaining budget of a task; `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Input and output tokens.
    pub(crate) tokens: Option<u64>,
    /// Calls of language models.
    pub(crate) calls: Option<u64>,
    pub(crate) time: Option<Duration>,
}

/// Limits that apply when an agent delegates work to another agent.
#[derive(Debug, Clone)]
pub(crate) struct DelegationLimits {
    /// Id of the delegating agent, for cycle detection.
    pub(crate) agent_id: MessageId,
    /// Maximum number of agents in a chain of delegations.
    pub(crate) max_depth: u32,
    /// Budget that the delegate may use.
    pub(crate) remaining: Budget,
}

impl Budget {
    /// Returns the smaller limit of each resource.
    pub(crate) fn min(self, other: Self) -> Self {
        fn smaller<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            tokens: smaller(self.tokens, other.tokens),
            calls: smaller(self.calls, other.calls),
            time: smaller(self.time, other.time),
        }
    }

    /// Subtracts a cost; no limit falls below 0.
    pub(crate) fn minus(self, cost: Cost) -> Self {
        Self {
            tokens: self.tokens.map(|limit| limit.saturating_sub(cost.tokens())),
            calls: self.calls.map(|limit| limit.saturating_sub(cost.calls)),
            ..self
        }
    }

    /// Returns the share of each of `delegates` that run concurrently. Time is not divided.
    ///
    /// Shares are rounded down, so the delegates together never exceed the budget.
    pub(crate) fn divided_by(self, delegates: usize) -> Self {
        let delegates = u64::try_from(delegates.max(1)).unwrap_or(u64::MAX);
        let share = |limit: u64| limit / delegates;
        Self {
            tokens: self.tokens.map(share),
            calls: self.calls.map(share),
            ..self
        }
    }

    /// Returns the name of a resource whose budget is used up.
    pub(crate) fn exhausted_resource(&self) -> Option<&'static str> {
        let resources = [
            ("budget of tokens", self.tokens == Some(0)),
            ("budget of calls", self.calls == Some(0)),
            ("time", self.time.is_some_and(|time| time.is_zero())),
        ];
        resources
            .into_iter()
            .find(|(_, is_exhausted)| *is_exhausted)
            .map(|(name, _)| name)
    }
}
