//! Execution of one turn: runs the agent, records its events, and handles commands that arrive during the turn.

mod cancellation;
mod driver;
mod ending;
mod hooked_events;
mod limits;
mod normalizer;
mod pipelined_write;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::time::Instant;
use tracing::Span;

use super::inbox::RunnerCommand;
use super::runner::{Runner, RunnerResult};
use super::{Engine, EngineInner, Result, reason};
use crate::agent::{CatchPanic, EventQueue, Failure, Outcome, TaskLookup, Turn, TurnContext};
use crate::model::{ContextId, Message, Scope, Task, TaskId, TraceContext};
use crate::store::TaskQuery;
use crate::telemetry::{metrics, trace};
use driver::TurnDriver;
use limits::deadline_after;

pub(super) use normalizer::interruption_events;

type AgentFuture<'a> = CatchPanic<'a, Outcome>;

/// How a turn ended.
enum TurnEnd {
    /// The agent returned, or exceeded a time limit.
    Returned(Result<Outcome, Failure>),
    /// The agent sent an event that cannot be recorded.
    AgentFault(AgentFault),
    Canceled,
    /// Another process has ended the task.
    EndedElsewhere,
}

/// Reason why an event of an agent cannot be recorded.
enum AgentFault {
    /// It violates the protocol. The text is for the log.
    InvalidResponse(String),
    /// The task would exceed `max_task_bytes`.
    TooLarge,
    /// A hook denies it. The text is for the caller.
    Denied(String),
}

/// Runs the agent on a message and records its events. After an error nothing more can be recorded, and the agent is
/// dropped.
pub(super) async fn run(runner: &mut Runner, message: Arc<Message>) -> RunnerResult {
    let started = Instant::now();
    let (context, span) = turn_context(runner, message, started);
    runner.begin_turn_trace(&span, &context.message);
    let handle = runner.agent.clone();
    let agent = match runner.take_early_failure() {
        Some(failure) => AgentFuture::failed(failure),
        None if span.is_disabled() => handle.agent.run(Turn::new(context.clone())),
        None => span
            .in_scope(|| handle.agent.run(Turn::new(context.clone())))
            .instrumented(span.clone()),
    };
    tracing::debug!(task = %runner.id, "turn started");
    let queue_time = runner.take_queue_time();
    let turn_metrics = metrics::start_turn(&runner.scope.agent, queue_time);
    let mut driver = TurnDriver::new(runner, context, &turn_metrics, agent, started);
    driver.hooks = runner.event_hooks();
    loop {
        driver.check_cancelled(runner);
        driver.poll_agent(runner).await;
        if driver.has_ended() {
            break;
        }
        if runner.has_staged() {
            // Boxed: future size.
            let written = Box::pin(driver.write(runner)).await;
            written.map_err(|stop| driver.stopped(runner, stop))?;
        }
        // A foreign append may have been detected by the write.
        if !driver.has_ended() && !runner.is_stopping() {
            let waited = driver.wait(runner).await;
            waited.map_err(|stop| driver.stopped(runner, stop))?;
        }
    }
    let finished = driver.finish(runner).await;
    runner.end_turn_trace();
    let state = runner.log.task.status.state;
    turn_metrics.record_end(&runner.scope.agent, state, started);
    trace::record_turn_end(&span, state);
    log_turn_end(runner, driver.context(), started);
    finished
}

fn turn_context(
    runner: &mut Runner,
    message: Arc<Message>,
    started: Instant,
) -> (Arc<TurnContext>, Span) {
    let mut call = runner.take_call();
    let attempt = runner.log.attempts.max(1);
    let span = trace::turn_span(
        &runner.scope,
        &runner.log.task,
        attempt,
        call.trace.as_ref(),
    );
    // Outgoing calls of the agent are children of the turn's span.
    call.trace = trace::span_context(&span).or(call.trace);
    let engine = &runner.engine.inner;
    let max_turn_time = runner.agent.max_turn_time(&engine.settings);
    let context = Arc::new(TurnContext {
        task: runner.log.task.clone(),
        is_unanswered: reason::is_timeout_message(&message),
        message,
        call,
        attempt,
        queue: EventQueue::new(engine.settings.max_queued_events.max(1)),
        cancel: OnceLock::new(),
        awaits_cancel: AtomicBool::new(false),
        deadline: deadline_after(started, max_turn_time),
        task_lookup: engine.clone(),
    });
    (context, span)
}

/// Logs one line per turn: ids, caller and final state. Message content is not logged.
fn log_turn_end(runner: &Runner, context: &TurnContext, started: Instant) {
    let task = &runner.log.task;
    tracing::info!(
        task = %runner.id,
        context = %task.context_id,
        agent = &*runner.scope.agent,
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
        let log = self.journal.log(&head).await.ok()?;
        Some(Arc::unwrap_or_clone(log.task))
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
        let heads = page.tasks.iter().filter(|head| head.id != *excluded);
        for head in heads.take(limit) {
            if let Ok(log) = self.journal.log(head).await {
                tasks.push(Arc::unwrap_or_clone(log.task));
            }
        }
        tasks.reverse();
        tasks
    }

    async fn record_late_event(self: Arc<Self>, scope: &Scope, id: &TaskId) {
        let engine = Engine { inner: self };
        // Informational: an entry that cannot be recorded is skipped.
        if let Ok(Some(head)) = engine.find(scope, id).await {
            let _ = engine.send_command(&head, RunnerCommand::RecordLate).await;
        }
    }
}
