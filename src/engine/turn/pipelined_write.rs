//! Pipelined writes of a turn: at most two appends of one log are in flight.
//!
//! ```text
//! agent ──► queue ──► staged ──► second append ─┐
//!                                first append  ─┴─► durable, in order ──► published
//! ```
//!
//! While an append is in flight, the agent continues and fills the queue. If the queue is full, its events become the
//! next append, which is sent immediately. `FuturesOrdered` polls new appends in the order in which they were added,
//! and the store applies batches in the order of their first polls (see `Store::has_external_writers`).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::time::{Instant, Sleep, sleep};

use super::TurnEnd;
use super::driver::TurnDriver;
use super::limits::deadline_after;
use crate::agent::{Failure, Outcome};
use crate::engine::Error;
use crate::engine::runner::{AppendAttempt, FailedAppend, Runner, RunnerResult};
use crate::rt::WakeFlag;
use crate::store::Head;

/// Maximum number of appends of one log that are in flight.
const MAX_APPENDS_IN_FLIGHT: usize = 2;

/// Appends in flight, oldest first.
struct AppendsInFlight<F: Future> {
    appends: FuturesOrdered<F>,
    /// Number of events in all of them.
    events: usize,
    /// Whether the last full queue held only events that are not recorded. Then the oldest append is awaited, so that
    /// an endless stream of such events cannot keep the loop busy.
    is_paused: bool,
}

/// Event while appends are in flight.
enum AppendStep {
    /// The oldest append has completed or failed.
    Completed(AppendAttempt),
    /// The oldest append takes longer than `store_timeout`.
    TimedOut,
    /// The agent's queue is full, and may be sent as the next append.
    QueueFull,
    AgentReturned(Result<Outcome, Failure>),
    LimitReached(TurnEnd),
}

impl TurnDriver<'_> {
    /// Appends the staged events, and all events that the agent sends during the append. No append is in flight when
    /// this returns.
    pub(super) async fn write_pipelined(
        &mut self,
        runner: &mut Runner,
        head: &Arc<Head>,
    ) -> RunnerResult {
        let store_timeout = runner.engine.inner.settings.store_timeout;
        let events = runner.staged_count();
        let mut in_flight = AppendsInFlight::new(events, runner.start_append(head, 0));
        let mut limit = pin!(self.limits(None).wait());
        let mut store_timer = pin!(sleep(store_timeout));
        loop {
            // Hooks take time, during which no append would be polled.
            let may_pipeline = self.hooks.is_none() && in_flight.has_room() && can_pipeline(runner);
            let timer = store_timer.as_mut();
            let step = self.next_step(&mut in_flight, limit.as_mut(), timer, may_pipeline);
            match step.await {
                AppendStep::Completed(attempt) => match runner.complete_append(attempt) {
                    Ok(()) if in_flight.is_empty() => return Ok(()),
                    Ok(()) => restart_timer(store_timer.as_mut(), store_timeout),
                    Err(failed) => {
                        let rewrite = rewrite_after_failure(runner, failed, in_flight);
                        return self.await_with_agent(Box::pin(rewrite).as_mut()).await;
                    }
                },
                AppendStep::TimedOut => {
                    runner.report_slow_store();
                    restart_timer(store_timer.as_mut(), store_timeout);
                }
                AppendStep::QueueFull => {
                    self.collect_events(runner).await;
                    in_flight.is_paused = !runner.has_staged();
                    if runner.has_staged() {
                        let events = runner.staged_count();
                        in_flight.push(events, runner.start_append(head, in_flight.events));
                    }
                }
                AppendStep::AgentReturned(result) => self.ending = Some(TurnEnd::Returned(result)),
                AppendStep::LimitReached(ending) => self.end_at_limit(ending),
            }
        }
    }

    /// Waits for the oldest append while the agent continues.
    ///
    /// A [`WakeFlag`] skips the appends and the timers in polls that the agent has caused. An agent that yields after
    /// each event causes one poll per event.
    async fn next_step(
        &mut self,
        in_flight: &mut AppendsInFlight<impl Future<Output = AppendAttempt>>,
        mut limit: Pin<&mut impl Future<Output = TurnEnd>>,
        mut store_timer: Pin<&mut Sleep>,
        may_pipeline: bool,
    ) -> AppendStep {
        let mut wake_flag = WakeFlag::default();
        let is_running = self.ending.is_none();
        let mut agent = self.agent.as_mut().filter(|_| is_running);
        poll_fn(|context| {
            if let Some(waker) = wake_flag.poll_due(context) {
                let context = &mut Context::from_waker(&waker);
                if let Poll::Ready(Some(attempt)) = in_flight.poll_next(context) {
                    return Poll::Ready(AppendStep::Completed(attempt));
                }
                if store_timer.as_mut().poll(context).is_ready() {
                    return Poll::Ready(AppendStep::TimedOut);
                }
                if is_running && let Poll::Ready(ending) = limit.as_mut().poll(context) {
                    return Poll::Ready(AppendStep::LimitReached(ending));
                }
            }
            let Some(agent) = &mut agent else {
                return Poll::Pending;
            };
            match Pin::new(agent).poll(context) {
                Poll::Ready(result) => Poll::Ready(AppendStep::AgentReturned(result)),
                Poll::Pending if may_pipeline && self.context.queue.is_full() => {
                    Poll::Ready(AppendStep::QueueFull)
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

impl<F: Future<Output = AppendAttempt>> AppendsInFlight<F> {
    fn new(events: usize, append: F) -> Self {
        Self {
            appends: FuturesOrdered::from_iter([append]),
            events,
            is_paused: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }

    fn has_room(&self) -> bool {
        !self.is_paused && self.appends.len() < MAX_APPENDS_IN_FLIGHT
    }

    /// Adds an append of this number of events. The next poll sends it.
    fn push(&mut self, events: usize, append: F) {
        self.appends.push_back(append);
        self.events += events;
    }

    /// Polls for the result of the oldest append. `None` if there is none.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<AppendAttempt>> {
        let polled = self.appends.poll_next_unpin(context);
        if let Poll::Ready(Some(attempt)) = &polled {
            self.events -= attempt.event_count();
            self.is_paused = false;
        }
        polled
    }
}

/// Returns whether a further append may be sent. Commands and snapshots run only while none is in flight, so a waiting
/// one stops pipelining.
fn can_pipeline(runner: &Runner) -> bool {
    !runner.has_commands() && !runner.is_snapshot_due()
}

fn restart_timer(timer: Pin<&mut Sleep>, duration: Duration) {
    if let Some(time) = deadline_after(Instant::now(), Some(duration)) {
        timer.reset(time);
    }
}

/// Appends a failed batch and its successors again, after the entries of the process that caused the conflict.
/// Any other failure loses the turn.
async fn rewrite_after_failure(
    runner: &mut Runner,
    mut failed: FailedAppend,
    mut in_flight: AppendsInFlight<impl Future<Output = AppendAttempt>>,
) -> RunnerResult {
    while let Some(attempt) = in_flight.appends.next().await {
        if attempt.is_written() {
            // A batch cannot be durable without the one before it. The state is unknown: read the store again.
            return Err(Error::StoreUnavailable.into());
        }
        failed.events.extend(attempt.into_events());
    }
    runner.retry_append(failed).await
}
