//! Time limits of a turn: cancel grace, deadline, inactivity.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::TurnEnd;
use super::driver::TurnDriver;
use crate::agent::Failure;
use crate::engine::runner::Runner;

/// The time limits of a turn that apply at present.
pub(super) struct TurnLimits {
    /// End of the grace period after a cancel.
    pub(super) cancel_grace: Option<Instant>,
    /// End of `max_turn_time`.
    pub(super) deadline: Option<Instant>,
    /// End of `max_silence`.
    pub(super) inactivity: Option<Instant>,
}

/// A limit that ends a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    CancelGrace,
    Deadline,
    Inactivity,
}

impl TurnLimits {
    /// Waits for the first limit, with one timer at most. Without a limit, waits without end.
    pub(super) fn wait(self) -> impl Future<Output = TurnEnd> + use<> {
        let limits = [
            (self.cancel_grace, Limit::CancelGrace),
            (self.deadline, Limit::Deadline),
            (self.inactivity, Limit::Inactivity),
        ];
        let first = limits
            .into_iter()
            .filter_map(|(time, limit)| Some((time?, limit)))
            .min();
        wait_for(first)
    }
}

impl TurnDriver<'_> {
    /// Returns the end of `max_silence`. `None` if events are queued: the store was slow, the agent was not.
    pub(super) fn inactivity_deadline(&self, runner: &Runner) -> Option<Instant> {
        if !self.context.queue.is_empty() || !self.unhooked.is_empty() {
            return None;
        }
        let max_silence = runner.agent.max_silence(&runner.engine.inner.settings);
        deadline_after(self.activity.last_event, max_silence)
    }

    /// Returns the time limits, with the end of `max_silence` where it applies.
    pub(super) fn limits(&self, inactivity: Option<Instant>) -> TurnLimits {
        TurnLimits {
            cancel_grace: self
                .cancellation
                .as_ref()
                .and_then(|cancel| cancel.deadline),
            deadline: self.context.deadline,
            inactivity,
        }
    }
}

async fn wait_for(first: Option<(Instant, Limit)>) -> TurnEnd {
    let Some((time, limit)) = first else {
        return std::future::pending().await;
    };
    sleep_until(time).await;
    match limit {
        Limit::CancelGrace => TurnEnd::Canceled,
        Limit::Deadline => TurnEnd::Returned(Err(Failure::new(
            "deadline",
            "the turn exceeded max_turn_time",
        ))),
        Limit::Inactivity => TurnEnd::Returned(Err(Failure::new(
            "inactivity",
            "the agent sent no event for max_silence",
        ))),
    }
}

/// Returns the instant after a duration. `None` if there is no limit, or the clock cannot represent it.
pub(super) fn deadline_after(start: Instant, duration: Option<Duration>) -> Option<Instant> {
    start.checked_add(duration?)
}
