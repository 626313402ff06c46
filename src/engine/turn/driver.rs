//! State machine of one turn.
//!
//! The driver polls the agent, collects its events, commits them while the agent continues, and handles commands,
//! cancellation and time limits.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::time::Instant;

use super::cancellation::Cancellation;
use super::normalizer::{EventNormalizer, Normalized, needs_working_status};
use super::{AgentFuture, TurnEnd};
use crate::agent::TurnContext;
use crate::engine::folded_log::empty_task;
use crate::engine::inbox::RunnerCommand;
use crate::engine::lease::LeaseGuard;
use crate::engine::reason;
use crate::engine::runner::{
    CommitPoint, Runner, RunnerEvent, RunnerResult, RunnerStop, shrink_if_empty,
};
use crate::hooks::EventPipeline;
use crate::model::Event;
use crate::store::Head;
use crate::telemetry::metrics;

/// Number of events after which a turn yields to other tasks.
const YIELD_AFTER_EVENTS: usize = 256;

/// State machine of one turn.
pub(super) struct TurnDriver<'a> {
    pub(super) context: Arc<TurnContext>,
    turn_metrics: &'a metrics::TurnMetrics,
    /// The agent's future. `None` after it was dropped.
    pub(super) agent: Option<AgentFuture<'a>>,
    pub(super) ending: Option<TurnEnd>,
    pub(super) cancellation: Option<Cancellation>,
    pub(super) normalizer: EventNormalizer,
    /// Buffer for the events that were taken from the queue.
    pub(super) events: Vec<Event>,
    /// Events that wait for the hooks, because a command came first.
    pub(super) unhooked: Vec<Event>,
    /// Hooks on the events; `None` if there are none.
    pub(super) hooks: Option<Box<EventPipeline>>,
    pub(super) activity: Activity,
    /// Head of the log, shared with appends that are in flight.
    head: Option<Arc<Head>>,
    /// Lease under which the agent is polled. `None` on stores of one process.
    lease: Option<LeaseGuard>,
}

/// Times and counts of the agent's events.
pub(super) struct Activity {
    started: Instant,
    pub(super) last_event: Instant,
    has_sent_event: bool,
    events_since_yield: usize,
}

/// First event of a wait.
enum TurnEvent {
    External(RunnerEvent),
    Ended(TurnEnd),
    AgentEvents,
}

impl<'a> TurnDriver<'a> {
    pub(super) fn new(
        runner: &Runner,
        context: Arc<TurnContext>,
        turn_metrics: &'a metrics::TurnMetrics,
        agent: AgentFuture<'a>,
        started: Instant,
    ) -> Self {
        let recorded_trace = context
            .call
            .trace
            .as_ref()
            .filter(|_| runner.engine.inner.settings.trace_metadata);
        let normalizer = EventNormalizer::new(recorded_trace);
        Self {
            context,
            turn_metrics,
            agent: Some(agent),
            ending: None,
            cancellation: None,
            normalizer,
            events: Vec::new(),
            unhooked: Vec::new(),
            hooks: None,
            activity: Activity {
                started,
                last_event: started,
                has_sent_event: false,
                events_since_yield: 0,
            },
            head: None,
            lease: runner.lease_guard(),
        }
    }

    pub(super) fn context(&self) -> &TurnContext {
        &self.context
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ending.is_some()
    }

    /// Polls the agent once, and stages its events.
    pub(super) async fn poll_agent(&mut self, runner: &mut Runner) {
        if self.ending.is_none() {
            self.ending = poll_once(&mut self.agent, self.lease.as_ref()).await;
        }
        match self.ending {
            // The last events are staged together with the end.
            Some(_) => self.drop_agent(),
            None => self.collect_events(runner).await,
        }
    }

    /// Drops the agent's future. If no `Turn` clone is left, also drops the turn's snapshot of the task: the fold then
    /// mutates the task in place instead of cloning it.
    pub(super) fn drop_agent(&mut self) {
        self.agent = None;
        if let Some(context) = Arc::get_mut(&mut self.context) {
            context.task = empty_task();
        }
    }

    /// Takes events from the queue, runs the hooks on them, normalizes and stages them.
    pub(super) async fn collect_events(&mut self, runner: &mut Runner) {
        self.events.append(&mut self.unhooked);
        self.context.queue.drain_into(&mut self.events);
        if self.ending.is_none() && needs_working_status(runner, &self.events) {
            match &self.hooks {
                Some(_) => self.events.insert(0, self.normalizer.working()),
                None => runner.stage([self.normalizer.working()]),
            }
        }
        if self.events.is_empty() {
            return;
        }
        self.activity.last_event = Instant::now();
        self.record_first_event();
        self.activity.events_since_yield += self.events.len();
        if self.hooks.is_some() {
            // Boxed: future size.
            Box::pin(self.run_hooks(runner)).await;
        }
        let has_ended = self.ending.is_some();
        let Normalized { bytes, fault } =
            self.normalizer
                .normalize(runner, &mut self.events, has_ended);
        runner.stage_sized(&mut self.events, bytes);
        if let (Some(fault), None | Some(TurnEnd::Returned(_))) = (fault, &self.ending) {
            self.ending = Some(TurnEnd::AgentFault(fault));
        }
    }

    /// Records the time to the first event, once.
    pub(super) fn record_first_event(&mut self) {
        if !std::mem::replace(&mut self.activity.has_sent_event, true) {
            self.turn_metrics.record_first_event(self.activity.started);
        }
    }

    /// Commits the staged events while the agent continues.
    pub(super) async fn write(&mut self, runner: &mut Runner) -> RunnerResult {
        match self.pipelined_head(runner) {
            Some(head) => self.write_pipelined(runner, &head).await?,
            None => {
                let commit = pin!(runner.commit(None, CommitPoint::Interim));
                self.await_with_agent(commit).await?;
            }
        }
        if self.activity.events_since_yield >= YIELD_AFTER_EVENTS {
            // Neither the agent nor the store may ever be pending. Other tasks need the thread, too.
            tokio::task::yield_now().await;
            self.activity.events_since_yield = 0;
        }
        Ok(())
    }

    /// Returns the head for pipelined writes. `None` if the log does not exist yet, or has external writers, whose
    /// appends would conflict with batches in flight.
    fn pipelined_head(&mut self, runner: &Runner) -> Option<Arc<Head>> {
        let head = runner.pipeline.head()?;
        if runner.engine.inner.journal.store.has_external_writers() {
            return None;
        }
        let shared = self.head.get_or_insert_with(|| Arc::new(head.clone()));
        Some(shared.clone())
    }

    /// Waits for the store while the agent continues. A store that hangs does not extend the turn: at its limit the
    /// agent is dropped.
    pub(super) async fn await_with_agent<T>(
        &mut self,
        mut store: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let mut limit = pin!(self.limits(None).wait());
        loop {
            tokio::select! {
                biased;
                result = &mut store => return result,
                ending = &mut limit, if self.ending.is_none() => self.end_at_limit(ending),
                ending = agent_end(&mut self.agent, self.lease.as_ref()), if self.ending.is_none() => {
                    self.ending = Some(ending);
                }
            }
        }
    }

    /// Ends the turn at a time limit, and drops the agent.
    pub(super) fn end_at_limit(&mut self, ending: TurnEnd) {
        self.ending = Some(ending);
        self.agent = None;
    }

    /// Waits for the agent, a command, a foreign append, or a time limit.
    pub(super) async fn wait(&mut self, runner: &mut Runner) -> RunnerResult {
        runner.shrink_buffers();
        shrink_if_empty(&mut self.events);
        let limit = self.limits(self.inactivity_deadline(runner)).wait();
        let event = tokio::select! {
            biased;
            // Commands come before the agent: an agent that is always ready must be cancelable.
            external = runner.next_event() => TurnEvent::External(external),
            ending = limit => TurnEvent::Ended(ending),
            ending = agent_end(&mut self.agent, self.lease.as_ref()) => TurnEvent::Ended(ending),
            () = std::future::ready(()), if !self.unhooked.is_empty() => TurnEvent::AgentEvents,
            () = self.context.queue.wait_for_events() => TurnEvent::AgentEvents,
        };
        match event {
            TurnEvent::External(external) => self.handle_event(runner, external).await?,
            TurnEvent::Ended(ending) => self.ending = Some(ending),
            TurnEvent::AgentEvents => {}
        }
        Ok(())
    }

    async fn handle_event(&mut self, runner: &mut Runner, event: RunnerEvent) -> RunnerResult {
        match event {
            RunnerEvent::LeaseLost => Err(RunnerStop::Superseded),
            RunnerEvent::LogGrew => {
                let mut refresh = Box::pin(runner.refresh());
                self.await_with_agent(refresh.as_mut()).await
            }
            RunnerEvent::Command(RunnerCommand::Message(incoming)) => {
                let mut accept = Box::pin(runner.accept_message(*incoming));
                self.await_with_agent(accept.as_mut()).await
            }
            RunnerEvent::Command(RunnerCommand::Cancel {
                metadata,
                deadline,
                reply,
            }) => {
                self.cancel(runner, metadata, deadline, reply);
                Ok(())
            }
            RunnerEvent::Command(RunnerCommand::RecordLate) => {
                runner.stage([reason::late_event()]);
                Ok(())
            }
            // Not applicable: the task has a runner.
            RunnerEvent::Command(
                RunnerCommand::Recover | RunnerCommand::Expire | RunnerCommand::ExpireOverQuota,
            ) => Ok(()),
        }
    }
}

/// Waits for the agent to return. Without an agent, waits without end. With an expired lease the agent is not polled.
async fn agent_end(agent: &mut Option<AgentFuture<'_>>, lease: Option<&LeaseGuard>) -> TurnEnd {
    match (agent, lease) {
        (Some(agent), None) => TurnEnd::Returned(agent.await),
        (Some(agent), Some(lease)) => {
            // Boxed: future size.
            TurnEnd::Returned(Box::pin(lease.run_while_valid(agent)).await)
        }
        (None, _) => std::future::pending().await,
    }
}

async fn poll_once(
    agent: &mut Option<AgentFuture<'_>>,
    lease: Option<&LeaseGuard>,
) -> Option<TurnEnd> {
    let mut end = pin!(agent_end(agent, lease));
    poll_fn(|context| match end.as_mut().poll(context) {
        Poll::Ready(end) => Poll::Ready(Some(end)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
