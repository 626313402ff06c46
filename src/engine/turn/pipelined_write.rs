//! Pipelined writes of a turn: at most two appends of one log are in flight.
//!
//! ```text
//! agent ──► queue ──► staged ──► `next`  (in flight, sent after `first`)
//!                                `first` (in flight) ──► durable ──► published
//! ```
//!
//! While `first` is in flight, the agent continues and fills the queue. If the queue is full, its events become the
//! batch `next`, which is sent immediately. When `first` is durable, `next` takes its place. The store guarantees that
//! it applies batches in the order in which their futures are first polled (see `Store::has_external_writers`).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{MaybeDone, maybe_done};
use tokio::time::{Instant, Sleep, sleep};

use super::TurnEnd;
use super::driver::TurnDriver;
use super::limits::deadline_after;
use crate::engine::Error;
use crate::engine::runner::{AppendAttempt, FailedAppend, Runner, RunnerResult};
use crate::rt::WakeFlag;
use crate::store::Head;

/// Event while an append is in flight.
enum AppendStep {
    /// The append has completed or failed.
    Completed,
    /// The append takes longer than `store_timeout`.
    TimedOut,
    /// The agent's queue is full, and may be sent as the next batch.
    QueueFull,
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
        let mut wake_flag = WakeFlag::default();
        let mut nothing_to_send = false;
        let mut in_flight = runner.staged_count();
        let mut first = pin!(maybe_done(runner.start_append(head, 0)));
        let mut next = pin!(MaybeDone::Gone);
        let mut limit = pin!(self.limits(None).wait());
        let mut store_timer = pin!(sleep(store_timeout));
        loop {
            // Commands and snapshots run only while no append is in flight, so a waiting one stops pipelining.
            let may_pipeline = !nothing_to_send
                && matches!(*next, MaybeDone::Gone)
                && !runner.has_commands()
                && !runner.is_snapshot_due();
            let step = self.await_step(
                &mut wake_flag,
                first.as_mut(),
                limit.as_mut(),
                store_timer.as_mut(),
                may_pipeline,
            );
            match step.await {
                AppendStep::Completed => {}
                AppendStep::TimedOut => {
                    tracing::warn!(task = %runner.id, "store does not respond");
                    runner.mark_unwritable();
                    restart_timer(store_timer.as_mut(), store_timeout);
                    wake_flag = WakeFlag::default();
                    continue;
                }
                AppendStep::QueueFull => {
                    self.collect_events(runner);
                    // The queue may have held only events that are not recorded. Then this append is awaited, so that
                    // an endless stream of such events cannot keep the loop busy.
                    nothing_to_send = !runner.has_staged();
                    if !nothing_to_send {
                        let behind = std::mem::replace(&mut in_flight, runner.staged_count());
                        next.set(maybe_done(runner.start_append(head, behind)));
                        // The first poll sends it. It is polled again when it has become `first`.
                        poll_fn(|context| {
                            let _ = first.as_mut().poll(context);
                            Poll::Ready(next.as_mut().poll(context).is_ready())
                        })
                        .await;
                        wake_flag = WakeFlag::default();
                    }
                    continue;
                }
            }
            let Some(attempt) = first.as_mut().take_output() else {
                return Ok(());
            };
            if let Err(failed) = runner.complete_append(attempt) {
                let mut rewrite = Box::pin(rewrite_after_failure(runner, failed, next));
                return self.await_with_agent(rewrite.as_mut()).await;
            }
            std::mem::swap(&mut first, &mut next);
            if matches!(*first, MaybeDone::Gone) {
                return Ok(());
            }
            restart_timer(store_timer.as_mut(), store_timeout);
            wake_flag = WakeFlag::default();
            nothing_to_send = false;
        }
    }

    /// Waits for an append while the agent continues.
    ///
    /// `wake_flag` skips the append and the timers in polls that the agent has caused.
    async fn await_step<F: Future>(
        &mut self,
        wake_flag: &mut WakeFlag,
        mut append: Pin<&mut MaybeDone<F>>,
        mut limit: Pin<&mut impl Future<Output = TurnEnd>>,
        mut store_timer: Pin<&mut Sleep>,
        may_pipeline: bool,
    ) -> AppendStep {
        poll_fn(|context| {
            if let Some(waker) = wake_flag.poll_due(context) {
                let context = &mut Context::from_waker(&waker);
                if append.as_mut().poll(context).is_ready() {
                    return Poll::Ready(AppendStep::Completed);
                }
                if store_timer.as_mut().poll(context).is_ready() {
                    return Poll::Ready(AppendStep::TimedOut);
                }
                if self.ending.is_none()
                    && let Poll::Ready(ending) = limit.as_mut().poll(context)
                {
                    self.end_at_limit(ending);
                }
            }
            if self.ending.is_none() {
                let polled = self
                    .agent
                    .as_mut()
                    .map(|agent| Pin::new(agent).poll(context));
                if let Some(Poll::Ready(result)) = polled {
                    self.ending = Some(TurnEnd::Returned(result));
                } else if may_pipeline && self.context.queue.is_full() {
                    return Poll::Ready(AppendStep::QueueFull);
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn restart_timer(timer: Pin<&mut Sleep>, duration: Duration) {
    if let Some(time) = deadline_after(Instant::now(), Some(duration)) {
        timer.reset(time);
    }
}

/// Appends a failed batch and its successor again, after the entries of the process that caused the conflict.
/// Any other failure loses the turn.
async fn rewrite_after_failure<F: Future<Output = AppendAttempt>>(
    runner: &mut Runner,
    mut failed: FailedAppend,
    mut next: Pin<&mut MaybeDone<F>>,
) -> RunnerResult {
    if !matches!(*next, MaybeDone::Gone) {
        next.as_mut().await;
    }
    match next.take_output() {
        // A batch cannot be durable without the one before it. The state is unknown: read the store again.
        Some(attempt) if attempt.is_written() => return Err(Error::StoreUnavailable.into()),
        Some(attempt) => failed.events.extend(attempt.into_events()),
        None => {}
    }
    runner.retry_append(failed).await
}
