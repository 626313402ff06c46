//! One turn: the agent speaks, the log takes it down, and others may interrupt.

mod scribe;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::live::Wish;
use super::runner::{News, Runner};
use super::{Engine, Error, Result, reason};
use crate::agent::{Failure, Library, Outcome, Queue, Setting, Turn};
use crate::metrics;
use crate::model::{ContextId, Event, Message, Scope, Task, TaskId, TaskState, Trace};
use crate::store::Query;
use crate::trace;
use scribe::Scribe;

pub(super) use scribe::interrupted;

/// After so many events a turn lets others run.
const A_LOT: usize = 256;

type Work<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send + 'a>>;

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

/// A cancel that the agent was told of, and how long it may take.
struct Stopping {
    until: Option<Instant>,
    answers: Vec<oneshot::Sender<Result<Task>>>,
}

/// Runs the agent on a message and records what it says at the same time. On an error nothing more can be recorded,
/// and the agent is dropped.
pub(super) async fn run(runner: &mut Runner, message: Arc<Message>) -> Result<()> {
    let (setting, span) = setting(runner, message);
    let setting = Arc::new(setting);
    // However the turn ends: whoever still speaks must not wait for ever.
    let _over = Over(&setting.queue);
    let worker = runner.worker.clone();
    let agent = worker.agent.clone();
    let mut work = Some(match runner.failure.take() {
        Some(failure) => Box::pin(std::future::ready(Err(failure))) as Work<'_>,
        None if span.is_disabled() => agent.run(Turn::new(setting.clone())),
        None => Box::pin(agent.run(Turn::new(setting.clone())).instrument(span.clone())),
    });
    let mut ended = None;
    let mut stopping: Option<Stopping> = None;
    let stamped = setting.call.trace.as_ref().filter(|_| runner.engine.settings.trace_metadata);
    let (mut scribe, mut said) = (Scribe::new(stamped), Vec::new());
    let mut heard = Instant::now();
    let mut spoken = 0;
    tracing::debug!(task = %runner.id, "turn started");
    let waited = std::mem::take(&mut runner.waited);
    let running = metrics::turn(&runner.scope().agent, waited);
    let (begun, mut silent) = (heard, true);
    loop {
        if runner.log.task.is_ended() {
            // Whatever the agent makes of it comes too late.
            ended = Some(Ending::Elsewhere);
        } else if runner.was_canceled() && stopping.is_none() && ended.is_none() {
            ended = stop(runner, &setting, &mut stopping);
        }
        if ended.is_none() {
            ended = poll_once(&mut work).await;
        }
        setting.queue.take(&mut said);
        if ended.is_none() && is_news(runner, &said) {
            runner.plan([scribe.working()]);
        }
        if !said.is_empty() {
            heard = Instant::now();
            if std::mem::take(&mut silent) {
                running.spoke(heard - begun);
            }
            spoken += said.len();
            let (weight, fault) = scribe.take_down(runner, &mut said, ended.is_some());
            runner.plan_weighed(&mut said, weight);
            if let (Some(fault), None | Some(Ending::Said(_))) = (fault, &ended) {
                ended = Some(Ending::Fault(fault));
            }
        }
        if let Some(ending) = ended.take() {
            // What the agent holds is let go before anybody hears that its turn is over.
            drop(work);
            let finished = finish(runner, &setting, scribe, ending, stopping).await;
            let state = runner.log.task.status.state;
            running.ended(&runner.scope().agent, state, begun.elapsed());
            trace::turn_ended(&span, state);
            told(runner, &setting, begun.elapsed());
            return finished;
        }
        if runner.has_plans() {
            // While one commit runs, the next batch gathers.
            let until = stopping.as_ref().and_then(|stopping| stopping.until);
            let limit = limit(until, setting.deadline, None);
            beside(pin!(runner.commit(None, false)), &mut work, &mut ended, limit).await?;
            if spoken >= A_LOT {
                // An agent that needs no pause, with a store that needs none, must not have the thread for itself.
                tokio::task::yield_now().await;
                spoken = 0;
            }
        }
        // What was written elsewhere meanwhile may have met what we wrote.
        if ended.is_some() || runner.is_stopped() {
            continue;
        }
        let silence = later(heard, worker.max_silence(&runner.engine.settings));
        let until = stopping.as_ref().and_then(|stopping| stopping.until);
        tokio::select! {
            biased;
            // Before the agent: one that always has more to say is stopped like any other.
            news = runner.news() => match news {
                News::Elsewhere => {
                    let limit = limit(until, setting.deadline, None);
                    beside(Box::pin(runner.refresh()).as_mut(), &mut work, &mut ended, limit).await?;
                }
                News::Wish(Wish::Message(incoming)) => {
                    let limit = limit(until, setting.deadline, None);
                    beside(Box::pin(runner.take_message(*incoming)).as_mut(), &mut work, &mut ended, limit).await?;
                }
                // Those who had it were told that it could not be done in time.
                News::Wish(Wish::Cancel { until, answer, .. }) if until <= Instant::now() => {
                    let _ = answer.send(Err(Error::Lost));
                }
                News::Wish(Wish::Cancel { metadata, answer, .. }) => {
                    if stopping.is_none() {
                        runner.plan([Event::CancelRequested { metadata }]);
                        ended = stop(runner, &setting, &mut stopping);
                    }
                    if let Some(stopping) = &mut stopping {
                        stopping.answers.push(answer);
                    }
                }
                News::Wish(Wish::Late) => runner.plan(vec![reason::late()]),
                // Somebody does work on it.
                News::Wish(Wish::Recover(_) | Wish::Expire | Wish::GiveWay) => {}
            },
            ending = limit(until, setting.deadline, silence) => ended = Some(ending),
            ending = outcome(&mut work) => ended = Some(ending),
            () = setting.queue.news() => {}
        }
    }
}

/// Whether nobody has heard yet that the task is worked on, and the agent does not say so itself. A turn that is over
/// at once is never seen at work.
fn is_news(runner: &Runner, said: &[Event]) -> bool {
    runner.log.task.status.state == TaskState::Submitted
        && !said.iter().any(|event| matches!(event, Event::Status { .. }))
}

/// Waits for the store while the agent goes on. A store that hangs does not lengthen the turn: at its limit the agent
/// is let go.
async fn beside<T>(
    mut written: Pin<&mut impl Future<Output = T>>,
    work: &mut Option<Work<'_>>,
    ended: &mut Option<Ending>,
    limit: impl Future<Output = Ending>,
) -> T {
    let mut limit = pin!(limit);
    loop {
        tokio::select! {
            biased;
            written = &mut written => return written,
            ending = &mut limit, if ended.is_none() => {
                *ended = Some(ending);
                *work = None;
            }
            ending = outcome(work), if ended.is_none() => *ended = Some(ending),
        }
    }
}

/// Closes the queue of a turn that is over.
struct Over<'a>(&'a Queue);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The time after another one; none if there is no such limit, or it is beyond all time.
fn later(from: Instant, time: Option<Duration>) -> Option<Instant> {
    from.checked_add(time?)
}

/// How the agent says that the turn ended; one that was let go says nothing.
async fn outcome(work: &mut Option<Work<'_>>) -> Ending {
    match work {
        Some(work) => Ending::Said(work.await),
        None => std::future::pending().await,
    }
}

async fn poll_once(work: &mut Option<Work<'_>>) -> Option<Ending> {
    let mut outcome = pin!(outcome(work));
    std::future::poll_fn(|context| match outcome.as_mut().poll(context) {
        Poll::Ready(ending) => Poll::Ready(Some(ending)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

fn setting(runner: &mut Runner, message: Arc<Message>) -> (Setting, Span) {
    let mut call = runner.call();
    runner.version = call.version;
    let attempt = runner.log.attempts.max(1);
    let span = trace::turn(runner.scope(), &runner.log.task, attempt, call.trace.as_ref());
    // What the agent asks of others is part of its turn.
    call.trace = trace::of(&span).or(call.trace);
    let (engine, scope) = (&runner.engine, runner.scope().clone());
    let setting = Setting {
        task: runner.log.task.clone(),
        timed_out: reason::is_silence(&message),
        message,
        call,
        attempt,
        queue: Queue::new(engine.settings.max_queued_events.max(1)),
        cancel: OnceLock::new(),
        listens: AtomicBool::new(false),
        deadline: later(Instant::now(), runner.worker.max_turn_time(&engine.settings)),
        library: Arc::new(Shelf { engine: engine.clone(), scope }),
    };
    (setting, span)
}

/// Ends the turn: what the agent said up to now counts, what comes after does not.
async fn finish(
    runner: &mut Runner,
    setting: &Setting,
    mut scribe: Scribe,
    ending: Ending,
    stopping: Option<Stopping>,
) -> Result<()> {
    setting.queue.close();
    let mut said = Vec::new();
    setting.queue.take(&mut said);
    let (weight, fault) = scribe.take_down(runner, &mut said, true);
    runner.plan_weighed(&mut said, weight);
    // After a cancel was recorded the task ends as canceled, whatever the agent makes of its grace.
    let ending = match (ending, fault) {
        (Ending::Said(_) | Ending::Fault(_), _) if stopping.is_some() => Ending::Canceled,
        (Ending::Said(_), Some(fault)) => Ending::Fault(fault),
        (ending, _) => ending,
    };
    let ending = scribe.ending(runner, ending);
    runner.plan(ending);
    let last = runner.log.waiting().is_none();
    let committed = runner.commit(None, last).await;
    let failed = committed.is_err();
    for answer in stopping.into_iter().flat_map(|stopping| stopping.answers) {
        let outcome = if failed { Err(Error::Lost) } else { Ok(()) };
        let _ = runner.answer_cancel(answer, outcome);
    }
    committed
}

/// The one line that the log has of every turn: whose it was and how it ended, and nothing of what was said.
fn told(runner: &Runner, setting: &Setting, took: Duration) {
    let (scope, task) = (runner.scope(), &runner.log.task);
    tracing::info!(
        task = %runner.id,
        context = %task.context_id,
        agent = &*scope.agent,
        caller = setting.call.caller().name(),
        trace = setting.call.trace.as_ref().map(Trace::trace_id),
        state = %task.status.state,
        took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "turn ended"
    );
}

/// Ready when the turn has taken or been silent too long, or has not stopped in time.
async fn limit(until: Option<Instant>, deadline: Option<Instant>, silence: Option<Instant>) -> Ending {
    let limits = [until, deadline, silence].into_iter().enumerate();
    let first = limits.filter_map(|(which, time)| Some((time?, which))).min();
    // No timer where there is no limit, and one where there are three.
    let Some((time, which)) = first else { return std::future::pending().await };
    sleep_until(time).await;
    match which {
        0 => Ending::Canceled,
        1 => Ending::Said(Err(Failure::new("deadline", "the turn took longer than max_turn_time"))),
        _ => {
            Ending::Said(Err(Failure::new("inactivity", "the agent was silent for longer than max_silence")))
        }
    }
}

/// Tells the agent to stop; one that does not listen has ended.
fn stop(runner: &Runner, setting: &Setting, stopping: &mut Option<Stopping>) -> Option<Ending> {
    let listens = setting.listens.load(Ordering::Acquire);
    let grace = if listens { runner.engine.settings.cancel_grace } else { Duration::ZERO };
    setting.cancel.get_or_init(CancellationToken::new).cancel();
    *stopping = Some(Stopping { until: later(Instant::now(), Some(grace)), answers: Vec::new() });
    (!listens).then_some(Ending::Canceled)
}

/// What a turn may look up: only what its caller may see.
struct Shelf {
    engine: Engine,
    scope: Scope,
}

#[async_trait]
impl Library for Shelf {
    async fn task(&self, id: &TaskId) -> Option<Task> {
        let head = self.engine.journal.find(&self.scope, id).await.ok()??;
        self.engine.journal.log(&head).await.ok().map(|log| Arc::unwrap_or_clone(log.task))
    }

    async fn context(&self, id: &ContextId, but: &TaskId, limit: usize) -> Vec<Task> {
        let query =
            Query { context_id: Some(id.clone()), limit: limit.saturating_add(1), ..Query::default() };
        let Ok(page) = self.engine.journal.list(&self.scope, &query).await else { return Vec::new() };
        let mut tasks = Vec::new();
        for head in page.tasks.iter().filter(|head| head.id != *but).take(limit) {
            tasks.extend(self.engine.journal.log(head).await.ok().map(|log| Arc::unwrap_or_clone(log.task)));
        }
        tasks.reverse();
        tasks
    }

    async fn late(&self, id: &TaskId) {
        // A note for whoever reads the log: where it cannot be made, nothing is lost.
        if let Ok(Some(head)) = self.engine.find(&self.scope, id).await {
            let _ = self.engine.wish(&head, Wish::Late).await;
        }
    }
}
