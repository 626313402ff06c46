//! End of a turn: the last events, the final status, and the replies to cancels.

use super::driver::TurnDriver;
use super::normalizer::{Normalized, add_input_requests};
use super::{AgentFault, TurnEnd};
use crate::engine::runner::{CommitPoint, Runner, RunnerResult};
use crate::model::Event;

impl TurnDriver<'_> {
    /// Ends the turn: commits the remaining events and the final status, and replies to cancels.
    pub(super) async fn finish(&mut self, runner: &mut Runner) -> RunnerResult {
        self.take_last_events();
        match self.hooks.take() {
            // Boxed: future size.
            Some(hooks) => Box::pin(self.stage_end_with_hooks(runner, hooks)).await,
            None => self.stage_end(runner),
        }
        let point = match runner.log.next_message() {
            Some(_) => CommitPoint::Interim,
            None => CommitPoint::Final,
        };
        let committed = runner.commit(None, point).await;
        let committed = committed.map_err(|stop| self.stopped(runner, stop));
        if let Some(cancellation) = self.cancellation.take() {
            for reply in cancellation.replies {
                runner.reply_to_cancel(reply, committed.is_ok());
            }
        }
        committed
    }

    /// Drops the agent and takes its last events.
    fn take_last_events(&mut self) {
        // Dropped before the end is visible, so that a caller which sees it finds the agent's resources released.
        self.drop_agent();
        self.context.queue.close();
        self.events.append(&mut self.unhooked);
        self.context.queue.drain_into(&mut self.events);
        if !self.events.is_empty() {
            self.record_first_event();
        }
    }

    fn stage_end(&mut self, runner: &mut Runner) {
        let Normalized { bytes, fault } = self.normalizer.normalize(runner, &mut self.events, true);
        let ending = self.take_ending(fault);
        let first = self.events.len();
        self.normalizer
            .push_ending(&mut self.events, runner, ending);
        add_input_requests(&mut self.events[first..]);
        let ending_bytes: usize = self.events[first..].iter().map(Event::memory_size).sum();
        runner.stage_sized(&mut self.events, bytes + ending_bytes);
    }

    /// Takes the end of the turn, given the fault of its last events. After a recorded cancel the task ends as canceled,
    /// whatever the agent returns.
    pub(super) fn take_ending(&mut self, fault: Option<AgentFault>) -> TurnEnd {
        let ending = self.ending.take();
        let is_from_agent = matches!(ending, Some(TurnEnd::Returned(_) | TurnEnd::AgentFault(_)));
        if is_from_agent && self.cancellation.is_some() {
            return TurnEnd::Canceled;
        }
        match fault {
            Some(fault) if matches!(ending, Some(TurnEnd::Returned(_))) => {
                TurnEnd::AgentFault(fault)
            }
            _ => ending.unwrap_or(TurnEnd::EndedElsewhere),
        }
    }
}

impl Drop for TurnDriver<'_> {
    /// Unblocks clones of the turn that wait for space in the queue.
    fn drop(&mut self) {
        self.context.queue.close();
    }
}
