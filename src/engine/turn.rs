//! One turn: the agent speaks, the log takes it down, and others may interrupt.

mod course;
mod scribe;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tracing::Span;

use super::live::Wish;
use super::runner::Runner;
use super::{Engine, Parts, Result, reason};
use crate::agent::{Calm, Failure, Library, Outcome, Queue, Setting, Turn};
use crate::metrics;
use crate::model::{ContextId, Message, Scope, Task, TaskId, Trace};
use crate::store::Query;
use crate::trace;
use course::Course;

pub(super) use scribe::interrupted;

type Work<'a> = Calm<'a, Outcome>;

/// How a turn came to its end.
pub(super) enum Ending {
    /// The agent said so.
    Said(Result<Outcome, Failure>),
    /// The agent said what cannot be recorded.
    Fault(Fault),
    /// Somebody asked for it.
    Canceled,
    /// Somebody else has ended the task.
    Elsewhere,
}

/// Why something that an agent said cannot be recorded.
pub(super) enum Fault {
    /// It breaks a rule of the protocol: which one is for the log.
    Broken(String),
    /// The task would be larger than it may be.
    TooLarge,
}

/// Runs the agent on a message and records what it says at the same time. On an error nothing more can be recorded,
/// and the agent is dropped.
pub(super) async fn run(runner: &mut Runner, message: Arc<Message>) -> Result<()> {
    let begun = Instant::now();
    let (setting, span) = setting(runner, message, begun);
    let worker = runner.worker.clone();
    let work = match runner.failure.take() {
        Some(failure) => Work::failed(failure),
        None if span.is_disabled() => worker.agent.run(Turn::new(setting.clone())),
        None => span
            .in_scope(|| worker.agent.run(Turn::new(setting.clone())))
            .traced(span.clone()),
    };
    tracing::debug!(task = %runner.id, "turn started");
    let waited = std::mem::take(&mut runner.waited);
    let running = metrics::turn(&runner.scope().agent, waited);
    let mut course = Course::new(runner, setting, &running, (work, begun));
    loop {
        course.look_around(runner);
        course.listen(runner).await;
        if course.ended.is_some() {
            break;
        }
        if runner.has_plans() {
            // Apart: a turn that waits need not keep room for it, and one that is over at once has no use for it.
            Box::pin(course.write(runner)).await?;
        }
        // What was written elsewhere meanwhile may have met what we wrote.
        if course.ended.is_none() && !runner.is_stopped() {
            course.wait(runner).await?;
        }
    }
    let finished = course.finish(runner).await;
    let state = runner.log.task.status.state;
    running.ended(&runner.scope().agent, state, begun);
    trace::turn_ended(&span, state);
    told(runner, &course.setting, begun);
    finished
}

/// The time after another one; none if there is no such limit, or it is beyond all time.
fn later(from: Instant, time: Option<Duration>) -> Option<Instant> {
    from.checked_add(time?)
}

fn setting(runner: &mut Runner, message: Arc<Message>, begun: Instant) -> (Arc<Setting>, Span) {
    let mut call = runner.call();
    runner.version = call.version;
    let attempt = runner.log.attempts.max(1);
    let span = trace::turn(
        runner.scope(),
        &runner.log.task,
        attempt,
        call.trace.as_ref(),
    );
    // What the agent asks of others is part of its turn.
    call.trace = trace::of(&span).or(call.trace);
    let engine = &runner.engine;
    let setting = Arc::new(Setting {
        task: runner.log.task.clone(),
        timed_out: reason::is_silence(&message),
        message,
        call,
        attempt,
        queue: Queue::new(engine.settings.max_queued_events.max(1)),
        cancel: OnceLock::new(),
        listens: AtomicBool::new(false),
        deadline: later(begun, runner.worker.max_turn_time(&engine.settings)),
        library: engine.0.clone(),
    });
    (setting, span)
}

/// The one line that the log has of every turn: whose it was and how it ended, and nothing of what was said.
fn told(runner: &Runner, setting: &Setting, begun: Instant) {
    let (scope, task) = (runner.scope(), &runner.log.task);
    tracing::info!(
        task = %runner.id,
        context = %task.context_id,
        agent = &*scope.agent,
        caller = setting.call.caller().name(),
        trace = setting.call.trace.as_ref().map(Trace::trace_id),
        state = %task.status.state,
        took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        "turn ended"
    );
}

#[async_trait]
impl Library for Parts {
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
        but: &TaskId,
        limit: usize,
    ) -> Vec<Task> {
        let query = Query {
            context_id: Some(id.clone()),
            limit: limit.saturating_add(1),
            ..Query::default()
        };
        let Ok(page) = self.journal.list(scope, &query).await else {
            return Vec::new();
        };
        let mut tasks = Vec::new();
        for head in page.tasks.iter().filter(|head| head.id != *but).take(limit) {
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

    async fn late(self: Arc<Self>, scope: &Scope, id: &TaskId) {
        let engine = Engine(self);
        // A note for whoever reads the log: where it cannot be made, nothing is lost.
        if let Ok(Some(head)) = engine.find(scope, id).await {
            let _ = engine.wish(&head, Wish::Late).await;
        }
    }
}
