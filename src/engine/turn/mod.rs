//! One turn: the agent speaks, the log takes it down, and others may interrupt.

mod driver;
mod normalizer;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tracing::Span;

use super::active_tasks::RunnerCommand;
use super::runner::Runner;
use super::{Engine, EngineInner, Result, reason};
use crate::agent::{CatchPanic, EventQueue, Failure, Outcome, TaskLookup, Turn, TurnContext};
use crate::model::{ContextId, Message, Scope, Task, TaskId, TraceContext};
use crate::store::TaskQuery;
use crate::telemetry::metrics;
use crate::telemetry::trace;
use driver::TurnDriver;

pub(super) use normalizer::interruption_events;

type AgentFuture<'a> = CatchPanic<'a, Outcome>;

/// How a turn came to its end.
pub(super) enum TurnEnd {
    /// The agent said so.
    Returned(Result<Outcome, Failure>),
    /// The agent said what cannot be recorded.
    AgentFault(AgentFault),
    /// Somebody asked for it.
    Canceled,
    /// Somebody else has ended the task.
    EndedElsewhere,
}

/// Why something that an agent said cannot be recorded.
pub(super) enum AgentFault {
    /// It breaks a rule of the protocol: which one is for the log.
    InvalidResponse(String),
    /// The task would be larger than it may be.
    TooLarge,
}

/// Runs the agent on a message and records what it says at the same time. On an error nothing more can be recorded,
/// and the agent is dropped.
pub(super) async fn run(runner: &mut Runner, message: Arc<Message>) -> Result<()> {
    let started = Instant::now();
    let (context, span) = turn_context(runner, message, started);
    let agent_handle = runner.agent_handle.clone();
    let work = match runner.failure.take() {
        Some(failure) => AgentFuture::failed(failure),
        None if span.is_disabled() => agent_handle.agent.run(Turn::new(context.clone())),
        None => span
            .in_scope(|| agent_handle.agent.run(Turn::new(context.clone())))
            .instrumented(span.clone()),
    };
    tracing::debug!(task = %runner.id, "turn started");
    let queue_time = std::mem::take(&mut runner.queue_time);
    let turn_metrics = metrics::start_turn(&runner.scope().agent, queue_time);
    let mut driver = TurnDriver::new(runner, context, &turn_metrics, (work, started));
    loop {
        driver.check_cancelled(runner);
        driver.poll_agent(runner).await;
        if driver.ending.is_some() {
            break;
        }
        if runner.has_staged() {
            // Apart: a turn that waits need not keep room for it, and one that is over at once has no use for it.
            Box::pin(driver.write(runner)).await?;
        }
        // What was written elsewhere meanwhile may have met what we wrote.
        if driver.ending.is_none() && !runner.is_stopping() {
            driver.wait(runner).await?;
        }
    }
    let finished = driver.finish(runner).await;
    let state = runner.log.task.status.state;
    turn_metrics.record_end(&runner.scope().agent, state, started);
    trace::record_turn_end(&span, state);
    log_turn_end(runner, &driver.context, started);
    finished
}

/// The time after another one; none if there is no such limit, or it is beyond all time.
fn deadline_after(from: Instant, time: Option<Duration>) -> Option<Instant> {
    from.checked_add(time?)
}

fn turn_context(
    runner: &mut Runner,
    message: Arc<Message>,
    started: Instant,
) -> (Arc<TurnContext>, Span) {
    let mut call = runner.take_call();
    runner.version = call.version;
    let attempt = runner.log.attempts.max(1);
    let span = trace::turn_span(
        runner.scope(),
        &runner.log.task,
        attempt,
        call.trace.as_ref(),
    );
    // What the agent asks of others is part of its turn.
    call.trace = trace::span_context(&span).or(call.trace);
    let engine = &runner.engine;
    let context = Arc::new(TurnContext {
        task: runner.log.task.clone(),
        is_unanswered: reason::is_timeout_message(&message),
        message,
        call,
        attempt,
        queue: EventQueue::new(engine.settings.max_queued_events.max(1)),
        cancel: OnceLock::new(),
        awaits_cancel: AtomicBool::new(false),
        deadline: deadline_after(started, runner.agent_handle.max_turn_time(&engine.settings)),
        task_lookup: engine.0.clone(),
    });
    (context, span)
}

/// The one line that the log has of every turn: whose it was and how it ended, and nothing of what was said.
fn log_turn_end(runner: &Runner, context: &TurnContext, started: Instant) {
    let (scope, task) = (runner.scope(), &runner.log.task);
    tracing::info!(
        task = %runner.id,
        context = %task.context_id,
        agent = &*scope.agent,
        caller = context.call.caller().name(),
        trace = context.call.trace.as_ref().map(TraceContext::trace_id),
        state = %task.status.state,
        took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "turn ended"
    );
}

#[async_trait]
impl TaskLookup for EngineInner {
    async fn task(&self, scope: &Scope, id: &TaskId) -> Option<Task> {
        let head = self.journal.find(scope, id).await.ok()??;
        self.journal
            .log(&head)
            .await
            .ok()
            .map(|log| Arc::unwrap_or_clone(log.task))
    }

    async fn context(
        &self,
        scope: &Scope,
        id: &ContextId,
        excluded: &TaskId,
        limit: usize,
    ) -> Vec<Task> {
        let query = TaskQuery {
            context_id: Some(id.clone()),
            limit: limit.saturating_add(1),
            ..TaskQuery::default()
        };
        let Ok(page) = self.journal.list(scope, &query).await else {
            return Vec::new();
        };
        let mut tasks = Vec::new();
        for head in page
            .tasks
            .iter()
            .filter(|head| head.id != *excluded)
            .take(limit)
        {
            tasks.extend(
                self.journal
                    .log(head)
                    .await
                    .ok()
                    .map(|log| Arc::unwrap_or_clone(log.task)),
            );
        }
        tasks.reverse();
        tasks
    }

    async fn record_late_event(self: Arc<Self>, scope: &Scope, id: &TaskId) {
        let engine = Engine(self);
        // A note for whoever reads the log: where it cannot be made, nothing is lost.
        if let Ok(Some(head)) = engine.find(scope, id).await {
            let _ = engine.send_command(&head, RunnerCommand::RecordLate).await;
        }
    }
}
