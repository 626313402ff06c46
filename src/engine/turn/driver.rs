//! The course of a turn: the agent speaks, the log takes it down, and others interrupt.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{MaybeDone, maybe_done};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::normalizer::EventNormalizer;
use super::{AgentFuture, TurnEnd, deadline_after};
use crate::agent::{Failure, TurnContext};
use crate::engine::active_tasks::RunnerCommand;
use crate::engine::folded_log::empty_task;
use crate::engine::runner::{AppendAttempt, Runner, RunnerEvent, shrink_if_empty};
use crate::engine::{Error, Result, reason};
use crate::model::{Event, Task, TaskState};
use crate::rt::WakeFlag;
use crate::store::Head;
use crate::telemetry::metrics;

/// After so many events a turn lets others run.
const YIELD_AFTER_EVENTS: usize = 256;

/// A turn from its beginning to its end.
pub(super) struct TurnDriver<'a> {
    pub(super) context: Arc<TurnContext>,
    turn_metrics: &'a metrics::TurnMetrics,
    /// The agent, until it was let go.
    agent: Option<AgentFuture<'a>>,
    pub(super) ending: Option<TurnEnd>,
    cancel_state: Option<CancelState>,
    normalizer: EventNormalizer,
    /// What the agent has just said, and room for it.
    events: Vec<Event>,
    /// How much it has said since others were let run.
    events_since_yield: usize,
    started: Instant,
    /// When the agent was heard the last time, and whether that is when it began.
    last_event: Instant,
    is_silent: bool,
    /// For what is on its way to the store.
    head: Option<Arc<Head>>,
}

/// A cancel that the agent was told of, and how long it may take.
struct CancelState {
    deadline: Option<Instant>,
    replies: Vec<oneshot::Sender<Result<Task>>>,
}

/// What a turn that waits for a commit does next.
enum AppendStep {
    /// It is there, or has failed.
    Completed,
    /// It takes too long.
    TimedOut,
    /// The next one is full, and need not wait for it.
    QueueFull,
}

/// What a turn that waits hears first.
enum TurnEvent {
    External(RunnerEvent),
    Ended(TurnEnd),
    /// The agent has said something.
    AgentEvents,
}

impl<'a> TurnDriver<'a> {
    pub(super) fn new(
        runner: &Runner,
        context: Arc<TurnContext>,
        turn_metrics: &'a metrics::TurnMetrics,
        (agent, started): (AgentFuture<'a>, Instant),
    ) -> Self {
        let traced_call = context
            .call
            .trace
            .as_ref()
            .filter(|_| runner.engine.settings.trace_metadata);
        let normalizer = EventNormalizer::new(traced_call);
        Self {
            context,
            turn_metrics,
            agent: Some(agent),
            ending: None,
            cancel_state: None,
            normalizer,
            events: Vec::new(),
            events_since_yield: 0,
            started,
            last_event: started,
            is_silent: true,
            head: None,
        }
    }

    /// Looks whether somebody else has ended the task, or asked for that.
    pub(super) fn check_cancelled(&mut self, runner: &mut Runner) {
        if runner.log.task.is_ended() {
            // Whatever the agent makes of it comes too late.
            self.ending = Some(TurnEnd::EndedElsewhere);
        } else if runner.take_cancel_request()
            && self.cancel_state.is_none()
            && self.ending.is_none()
        {
            self.request_cancel(runner);
        }
    }

    /// Lets the agent go on until it waits, and plans what it has said.
    pub(super) async fn poll_agent(&mut self, runner: &mut Runner) {
        if self.ending.is_none() {
            self.ending = poll_once(&mut self.agent).await;
        }
        match self.ending {
            // What it has said goes with how it ended.
            Some(_) => self.drop_agent(),
            None => self.collect_events(runner),
        }
    }

    /// Drops the agent. Where it has left nothing behind, nobody looks any more at the task as it was when the turn began, and
    /// the fold goes on in its place instead of in a copy.
    fn drop_agent(&mut self) {
        self.agent = None;
        if let Some(context) = Arc::get_mut(&mut self.context) {
            context.task = empty_task();
        }
    }

    fn collect_events(&mut self, runner: &mut Runner) {
        self.context.queue.drain_into(&mut self.events);
        if self.ending.is_none() && needs_working_status(runner, &self.events) {
            runner.stage([self.normalizer.working()]);
        }
        if self.events.is_empty() {
            return;
        }
        self.last_event = Instant::now();
        self.record_first_event();
        self.events_since_yield += self.events.len();
        let (weight, fault) =
            self.normalizer
                .normalize(runner, &mut self.events, self.ending.is_some());
        runner.stage_sized(&mut self.events, weight);
        if let (Some(fault), None | Some(TurnEnd::Returned(_))) = (fault, &self.ending) {
            self.ending = Some(TurnEnd::AgentFault(fault));
        }
    }

    /// Counts how long it took the agent to say something.
    fn record_first_event(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.turn_metrics.record_first_event(self.started);
        }
    }

    /// Has what was planned written while the agent goes on.
    pub(super) async fn write(&mut self, runner: &mut Runner) -> Result<()> {
        match runner
            .head
            .as_ref()
            .filter(|_| !runner.engine.journal.store.has_external_writers())
        {
            Some(head) => {
                let head = self
                    .head
                    .get_or_insert_with(|| Arc::new(head.clone()))
                    .clone();
                self.write_pipelined(runner, &head).await?;
            }
            None => {
                self.await_with_agent(pin!(runner.commit(None, false)))
                    .await?
            }
        }
        if self.events_since_yield >= YIELD_AFTER_EVENTS {
            // An agent that needs no pause, with a store that needs none, must not have the thread for itself.
            tokio::task::yield_now().await;
            self.events_since_yield = 0;
        }
        Ok(())
    }

    /// Writes batch after batch: while one commit runs the next batch gathers, and where it is full before that it is sent
    /// behind it. Nothing is under way when this returns.
    async fn write_pipelined(&mut self, runner: &mut Runner, head: &Arc<Head>) -> Result<()> {
        let (store_timeout, mut wake_flag) =
            (runner.engine.settings.store_timeout, WakeFlag::default());
        let mut nothing_to_send = false;
        let mut in_flight = runner.staged_count();
        let mut first = pin!(maybe_done(runner.start_append(head, 0)));
        let mut next = pin!(MaybeDone::Gone);
        let mut limit = pin!(self.next_limit(None));
        let mut store_timer = pin!(sleep(store_timeout));
        loop {
            let may_pipeline = !nothing_to_send
                && matches!(*next, MaybeDone::Gone)
                && !runner.has_commands()
                && !runner.is_snapshot_due();
            match self
                .await_step(
                    &mut wake_flag,
                    first.as_mut(),
                    limit.as_mut(),
                    store_timer.as_mut(),
                    may_pipeline,
                )
                .await
            {
                AppendStep::Completed => {}
                AppendStep::TimedOut => {
                    tracing::warn!(task = %runner.id, "store hangs");
                    runner.mark_unwritable();
                    restart_timer(store_timer.as_mut(), store_timeout);
                    wake_flag = WakeFlag::default();
                    continue;
                }
                AppendStep::QueueFull => {
                    self.collect_events(runner);
                    // Where nothing of it is for the log there is nothing to send, and there may be no end of that.
                    nothing_to_send = !runner.has_staged();
                    if !nothing_to_send {
                        let behind = std::mem::replace(&mut in_flight, runner.staged_count());
                        next.set(maybe_done(runner.start_append(head, behind)));
                        // Sent now, behind the first, and looked at again when it is the first.
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
            let Some(sent) = first.as_mut().take_output() else {
                return Ok(());
            };
            if let Err((error, events)) = runner.complete_append(sent) {
                return self
                    .await_with_agent(
                        Box::pin(rewrite_after_conflict(runner, error, events, next)).as_mut(),
                    )
                    .await;
            }
            std::mem::swap(&mut first, &mut next);
            if matches!(*first, MaybeDone::Gone) {
                return Ok(());
            }
            restart_timer(store_timer.as_mut(), store_timeout);
            (wake_flag, nothing_to_send) = (WakeFlag::default(), false);
        }
    }

    /// Waits for a commit while the agent goes on, and says if it cannot because it has said as much as fits.
    async fn await_step<F: Future>(
        &mut self,
        wake_flag: &mut WakeFlag,
        mut commit: Pin<&mut MaybeDone<F>>,
        mut limit: Pin<&mut impl Future<Output = TurnEnd>>,
        mut store_timer: Pin<&mut Sleep>,
        may_pipeline: bool,
    ) -> AppendStep {
        poll_fn(|context| {
            if let Some(waker) = wake_flag.poll_due(context) {
                // Most often it is the agent that has woken us.
                let context = &mut Context::from_waker(&waker);
                if commit.as_mut().poll(context).is_ready() {
                    return Poll::Ready(AppendStep::Completed);
                }
                if store_timer.as_mut().poll(context).is_ready() {
                    return Poll::Ready(AppendStep::TimedOut);
                }
                if self.ending.is_none()
                    && let Poll::Ready(ending) = limit.as_mut().poll(context)
                {
                    (self.ending, self.agent) = (Some(ending), None);
                }
            }
            if self.ending.is_none() {
                if let Some(Poll::Ready(result)) = self
                    .agent
                    .as_mut()
                    .map(|agent| Pin::new(agent).poll(context))
                {
                    self.ending = Some(TurnEnd::Returned(result));
                } else if may_pipeline && self.context.queue.is_full() {
                    return Poll::Ready(AppendStep::QueueFull);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for the store while the agent goes on. A store that hangs does not lengthen the turn: at its limit the agent
    /// is let go.
    async fn await_with_agent<T>(&mut self, mut written: Pin<&mut impl Future<Output = T>>) -> T {
        let mut limit = pin!(self.next_limit(None));
        loop {
            tokio::select! {
                biased;
                written = &mut written => return written,
                ending = &mut limit, if self.ending.is_none() => {
                    (self.ending, self.agent) = (Some(ending), None);
                }
                ending = outcome(&mut self.agent), if self.ending.is_none() => self.ending = Some(ending),
            }
        }
    }

    /// Waits until the agent goes on, somebody wants something, or it takes too long.
    pub(super) async fn wait(&mut self, runner: &mut Runner) -> Result<()> {
        runner.shrink_buffers();
        shrink_if_empty(&mut self.events);
        // Whoever has spoken while the store was slow was not silent.
        let silence = match self.context.queue.is_empty() {
            true => deadline_after(
                self.last_event,
                runner.agent_handle.max_silence(&runner.engine.settings),
            ),
            false => None,
        };
        let limit = self.next_limit(silence);
        let event = tokio::select! {
            biased;
            // Before the agent: one that always has more to say is stopped like any other.
            external = runner.next_event() => TurnEvent::External(external),
            ending = limit => TurnEvent::Ended(ending),
            ending = outcome(&mut self.agent) => TurnEvent::Ended(ending),
            () = self.context.queue.wait_for_events() => TurnEvent::AgentEvents,
        };
        // Not in the branches, which would have room for all that could be heard.
        match event {
            TurnEvent::External(external) => self.handle_event(runner, external).await?,
            TurnEvent::Ended(ending) => self.ending = Some(ending),
            TurnEvent::AgentEvents => {}
        }
        Ok(())
    }

    async fn handle_event(&mut self, runner: &mut Runner, event: RunnerEvent) -> Result<()> {
        match event {
            RunnerEvent::LogGrew => {
                self.await_with_agent(Box::pin(runner.refresh()).as_mut())
                    .await?
            }
            RunnerEvent::Command(RunnerCommand::Message(incoming)) => {
                self.await_with_agent(Box::pin(runner.accept_message(*incoming)).as_mut())
                    .await?;
            }
            // Those who had it were told that it could not be done in time.
            RunnerEvent::Command(RunnerCommand::Cancel {
                deadline, reply, ..
            }) if deadline <= Instant::now() => {
                let _ = reply.send(Err(Error::StoreUnavailable));
            }
            RunnerEvent::Command(RunnerCommand::Cancel {
                metadata, reply, ..
            }) => {
                if self.cancel_state.is_none() {
                    runner.stage([Event::CancelRequested { metadata }]);
                    self.request_cancel(runner);
                }
                if let Some(cancel_state) = &mut self.cancel_state {
                    cancel_state.replies.push(reply);
                }
            }
            RunnerEvent::Command(RunnerCommand::RecordLate) => {
                runner.stage(vec![reason::late_event()])
            }
            // Somebody does work on it.
            RunnerEvent::Command(
                RunnerCommand::Recover(_) | RunnerCommand::Expire | RunnerCommand::ExpireOverQuota,
            ) => {}
        }
        Ok(())
    }

    /// Tells the agent to stop; one that does not listen has ended.
    fn request_cancel(&mut self, runner: &Runner) {
        let awaits_cancel = self.context.awaits_cancel.load(Ordering::Acquire);
        let grace = if awaits_cancel {
            runner.engine.settings.cancel_grace
        } else {
            Duration::ZERO
        };
        self.context
            .cancel
            .get_or_init(CancellationToken::new)
            .cancel();
        self.cancel_state = Some(CancelState {
            deadline: deadline_after(Instant::now(), Some(grace)),
            replies: Vec::new(),
        });
        if !awaits_cancel {
            self.ending = Some(TurnEnd::Canceled);
        }
    }

    /// Ends the turn: what the agent said up to now counts, what comes after does not.
    pub(super) async fn finish(&mut self, runner: &mut Runner) -> Result<()> {
        self.stage_end(runner);
        let last = runner.log.next_message().is_none();
        let committed = runner.commit(None, last).await;
        let failed = committed.is_err();
        for reply in self
            .cancel_state
            .take()
            .into_iter()
            .flat_map(|cancel_state| cancel_state.replies)
        {
            let outcome = if failed {
                Err(Error::StoreUnavailable)
            } else {
                Ok(())
            };
            let _ = runner.reply_to_cancel(reply, outcome);
        }
        committed
    }

    fn stage_end(&mut self, runner: &mut Runner) {
        // What the agent holds is let go before anybody hears that its turn is over.
        self.drop_agent();
        self.context.queue.close();
        self.context.queue.drain_into(&mut self.events);
        if !self.events.is_empty() {
            self.record_first_event();
        }
        let (weight, fault) = self.normalizer.normalize(runner, &mut self.events, true);
        // After a cancel was recorded the task ends as canceled, whatever the agent makes of its grace.
        let ending = match (self.ending.take(), fault) {
            (Some(TurnEnd::Returned(_) | TurnEnd::AgentFault(_)), _)
                if self.cancel_state.is_some() =>
            {
                TurnEnd::Canceled
            }
            (Some(TurnEnd::Returned(_)), Some(fault)) => TurnEnd::AgentFault(fault),
            (ending, _) => ending.unwrap_or(TurnEnd::EndedElsewhere),
        };
        let events = self.events.len();
        self.events
            .extend(self.normalizer.ending_events(runner, ending));
        let more: usize = self.events[events..].iter().map(Event::memory_size).sum();
        runner.stage_sized(&mut self.events, weight + more);
    }

    /// Ready when the turn has taken or been silent too long, or has not stopped in time.
    fn next_limit(&self, silence: Option<Instant>) -> impl Future<Output = TurnEnd> + use<> {
        let deadline = self
            .cancel_state
            .as_ref()
            .and_then(|cancel_state| cancel_state.deadline);
        let limits = [deadline, self.context.deadline, silence]
            .into_iter()
            .enumerate();
        let first = limits
            .filter_map(|(which, time)| Some((time?, which)))
            .min();
        limit(first)
    }
}

impl Drop for TurnDriver<'_> {
    /// However the turn ends: whoever still speaks must not wait for ever.
    fn drop(&mut self) {
        self.context.queue.close();
    }
}

/// No timer where there is no limit, and one where there are three.
async fn limit(first: Option<(Instant, usize)>) -> TurnEnd {
    let Some((time, which)) = first else {
        return std::future::pending().await;
    };
    sleep_until(time).await;
    match which {
        0 => TurnEnd::Canceled,
        1 => TurnEnd::Returned(Err(Failure::new(
            "deadline",
            "the turn took longer than max_turn_time",
        ))),
        _ => TurnEnd::Returned(Err(Failure::new(
            "inactivity",
            "the agent was silent for longer than max_silence",
        ))),
    }
}

/// Begins to wait for as long once more.
fn restart_timer(store_timer: Pin<&mut Sleep>, store_timeout: Duration) {
    if let Some(time) = deadline_after(Instant::now(), Some(store_timeout)) {
        store_timer.reset(time);
    }
}

/// What could not be written, and what was sent behind it, is written behind what others wrote; or the turn is lost.
async fn rewrite_after_conflict<F: Future<Output = AppendAttempt>>(
    runner: &mut Runner,
    error: crate::store::Error,
    mut events: Vec<Event>,
    mut next: Pin<&mut MaybeDone<F>>,
) -> Result<()> {
    if !matches!(*next, MaybeDone::Gone) {
        next.as_mut().await;
    }
    match next.take_output() {
        // It cannot be there without what is before it; if it is, the store knows better than we do.
        Some(sent) if sent.is_written() => return Err(Error::StoreUnavailable),
        Some(sent) => events.extend(sent.into_events()),
        None => {}
    }
    runner.retry_append(error, events).await
}

/// Whether nobody has heard yet that the task is worked on, and the agent does not say so itself. A turn that is over
/// at once is never seen at work.
fn needs_working_status(runner: &Runner, events: &[Event]) -> bool {
    runner.log.task.status.state == TaskState::Submitted
        && !events
            .iter()
            .any(|event| matches!(event, Event::Status { .. }))
}

/// How the agent says that the turn ended; one that was let go says nothing.
async fn outcome(agent: &mut Option<AgentFuture<'_>>) -> TurnEnd {
    match agent {
        Some(agent) => TurnEnd::Returned(agent.await),
        None => std::future::pending().await,
    }
}

async fn poll_once(agent: &mut Option<AgentFuture<'_>>) -> Option<TurnEnd> {
    let mut outcome = pin!(outcome(agent));
    poll_fn(|context| match outcome.as_mut().poll(context) {
        Poll::Ready(ending) => Poll::Ready(Some(ending)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
