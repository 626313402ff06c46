//! Cancellation of a running turn: by a caller's command, or by another process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::TurnEnd;
use super::driver::TurnDriver;
use super::limits::deadline_after;
use crate::engine::inbox::RunnerCommand;
use crate::engine::runner::{Runner, RunnerStop};
use crate::engine::{Error, Result};
use crate::model::{Event, Object, Task};

/// A cancel that was signalled to the agent.
pub(super) struct Cancellation {
    /// End of the grace period.
    pub(super) deadline: Option<Instant>,
    /// Time after which no further event of the agent is passed to the hooks.
    pub(super) hooks_end: Option<Instant>,
    pub(super) replies: Vec<oneshot::Sender<Result<Task>>>,
}

impl TurnDriver<'_> {
    /// Checks whether another process has ended the task or requested a cancel.
    pub(super) fn check_cancelled(&mut self, runner: &mut Runner) {
        if runner.log.task.is_ended() {
            // Replaces an ending of the agent, which would come after the end of the task.
            self.ending = Some(TurnEnd::EndedElsewhere);
        } else if runner.take_cancel_request()
            && self.cancellation.is_none()
            && self.ending.is_none()
        {
            self.request_cancel(runner);
        }
    }

    /// Hands the cancels of a superseded turn over: the new holder of the task ends it. Returns the reason of the stop.
    pub(super) fn stopped(&mut self, runner: &mut Runner, stop: RunnerStop) -> RunnerStop {
        if let (RunnerStop::Superseded, Some(cancellation)) = (&stop, self.cancellation.take()) {
            let grace = runner.engine.inner.settings.cancel_grace;
            let deadline = runner.engine.reply_deadline(grace);
            for reply in cancellation.replies {
                runner.hand_over(RunnerCommand::Cancel {
                    metadata: None,
                    deadline,
                    reply,
                });
            }
        }
        stop
    }

    /// Handles a cancel. The reply follows at the end of the turn.
    pub(super) fn cancel(
        &mut self,
        runner: &mut Runner,
        metadata: Option<Object>,
        deadline: Instant,
        reply: oneshot::Sender<Result<Task>>,
    ) {
        if deadline <= Instant::now() {
            // The caller already has this reply.
            let _ = reply.send(Err(Error::StoreUnavailable));
            return;
        }
        if self.cancellation.is_none() {
            runner.stage([Event::CancelRequested { metadata }]);
            self.request_cancel(runner);
        }
        if let Some(cancellation) = &mut self.cancellation {
            cancellation.replies.push(reply);
        }
    }

    /// Signals the cancellation to the agent. An agent that does not await it has no grace period: its turn ends.
    fn request_cancel(&mut self, runner: &Runner) {
        let awaits_cancel = self.context.awaits_cancel.load(Ordering::Acquire);
        let cancel_grace = runner.engine.inner.settings.cancel_grace;
        let grace = if awaits_cancel {
            cancel_grace
        } else {
            Duration::ZERO
        };
        self.context
            .cancel
            .get_or_init(CancellationToken::new)
            .cancel();
        self.cancellation = Some(Cancellation {
            deadline: deadline_after(Instant::now(), Some(grace)),
            hooks_end: deadline_after(Instant::now(), Some(cancel_grace)),
            replies: Vec::new(),
        });
        if !awaits_cancel {
            self.ending = Some(TurnEnd::Canceled);
        }
    }
}
