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

use super::scribe::Scribe;
use super::{Ending, Work, later};
use crate::agent::{Failure, Setting};
use crate::bell::Bell;
use crate::engine::live::Wish;
use crate::engine::log::nothing;
use crate::engine::runner::{News, Runner, Sent, rest};
use crate::engine::{Error, Result, reason};
use crate::metrics;
use crate::model::{Event, Task, TaskState};
use crate::store::Head;

/// After so many events a turn lets others run.
const A_LOT: usize = 256;

/// A turn from its beginning to its end.
pub(super) struct Course<'a> {
    pub(super) setting: Arc<Setting>,
    running: &'a metrics::Running,
    /// The agent, until it was let go.
    work: Option<Work<'a>>,
    pub(super) ended: Option<Ending>,
    stopping: Option<Stopping>,
    scribe: Scribe,
    /// What the agent has just said, and room for it.
    said: Vec<Event>,
    /// How much it has said since others were let run.
    spoken: usize,
    begun: Instant,
    /// When the agent was heard the last time, and whether that is when it began.
    heard: Instant,
    silent: bool,
    /// For what is on its way to the store.
    head: Option<Arc<Head>>,
}

/// A cancel that the agent was told of, and how long it may take.
struct Stopping {
    until: Option<Instant>,
    answers: Vec<oneshot::Sender<Result<Task>>>,
}

/// What a turn that waits for a commit does next.
enum Step {
    /// It is there, or has failed.
    Written,
    /// It takes too long.
    Late,
    /// The next one is full, and need not wait for it.
    Full,
}

/// What a turn that waits hears first.
enum Heard {
    News(News),
    End(Ending),
    /// The agent has said something.
    Agent,
}

impl<'a> Course<'a> {
    pub(super) fn new(
        runner: &Runner,
        setting: Arc<Setting>,
        running: &'a metrics::Running,
        (work, begun): (Work<'a>, Instant),
    ) -> Self {
        let stamped = setting
            .call
            .trace
            .as_ref()
            .filter(|_| runner.engine.settings.trace_metadata);
        let scribe = Scribe::new(stamped);
        Self {
            setting,
            running,
            work: Some(work),
            ended: None,
            stopping: None,
            scribe,
            said: Vec::new(),
            spoken: 0,
            begun,
            heard: begun,
            silent: true,
            head: None,
        }
    }

    /// Looks whether somebody else has ended the task, or asked for that.
    pub(super) fn look_around(&mut self, runner: &mut Runner) {
        if runner.log.task.is_ended() {
            // Whatever the agent makes of it comes too late.
            self.ended = Some(Ending::Elsewhere);
        } else if runner.was_canceled() && self.stopping.is_none() && self.ended.is_none() {
            self.stop(runner);
        }
    }

    /// Lets the agent go on until it waits, and plans what it has said.
    pub(super) async fn listen(&mut self, runner: &mut Runner) {
        if self.ended.is_none() {
            self.ended = poll_once(&mut self.work).await;
        }
        match self.ended {
            // What it has said goes with how it ended.
            Some(_) => self.let_go(),
            None => self.take_down(runner),
        }
    }

    /// Drops the agent. Where it has left nothing behind, nobody looks any more at the task as it was when the turn began, and
    /// the fold goes on in its place instead of in a copy.
    fn let_go(&mut self) {
        self.work = None;
        if let Some(setting) = Arc::get_mut(&mut self.setting) {
            setting.task = nothing();
        }
    }

    fn take_down(&mut self, runner: &mut Runner) {
        self.setting.queue.take(&mut self.said);
        if self.ended.is_none() && is_news(runner, &self.said) {
            runner.plan([self.scribe.working()]);
        }
        if self.said.is_empty() {
            return;
        }
        self.heard = Instant::now();
        self.note_first();
        self.spoken += self.said.len();
        let (weight, fault) = self
            .scribe
            .take_down(runner, &mut self.said, self.ended.is_some());
        runner.plan_weighed(&mut self.said, weight);
        if let (Some(fault), None | Some(Ending::Said(_))) = (fault, &self.ended) {
            self.ended = Some(Ending::Fault(fault));
        }
    }

    /// Counts how long it took the agent to say something.
    fn note_first(&mut self) {
        if std::mem::take(&mut self.silent) {
            self.running.spoke(self.begun);
        }
    }

    /// Has what was planned written while the agent goes on.
    pub(super) async fn write(&mut self, runner: &mut Runner) -> Result<()> {
        match runner
            .head
            .as_ref()
            .filter(|_| !runner.engine.journal.store.is_shared())
        {
            Some(head) => {
                let head = self
                    .head
                    .get_or_insert_with(|| Arc::new(head.clone()))
                    .clone();
                self.flow(runner, &head).await?;
            }
            None => self.beside(pin!(runner.commit(None, false))).await?,
        }
        if self.spoken >= A_LOT {
            // An agent that needs no pause, with a store that needs none, must not have the thread for itself.
            tokio::task::yield_now().await;
            self.spoken = 0;
        }
        Ok(())
    }

    /// Writes batch after batch: while one commit runs the next batch gathers, and where it is full before that it is sent
    /// behind it. Nothing is under way when this returns.
    async fn flow(&mut self, runner: &mut Runner, head: &Arc<Head>) -> Result<()> {
        let (patience, mut bell) = (runner.engine.settings.store_timeout, Bell::default());
        let mut waits = false;
        let mut ahead = runner.planned();
        let mut first = pin!(maybe_done(runner.send(head, 0)));
        let mut next = pin!(MaybeDone::Gone);
        let mut limit = pin!(self.limit(None));
        let mut late = pin!(sleep(patience));
        loop {
            let may_follow = !waits
                && matches!(*next, MaybeDone::Gone)
                && !runner.is_wanted()
                && !runner.fold_is_due();
            match self
                .step(
                    &mut bell,
                    first.as_mut(),
                    limit.as_mut(),
                    late.as_mut(),
                    may_follow,
                )
                .await
            {
                Step::Written => {}
                Step::Late => {
                    tracing::warn!(task = %runner.id, "store hangs");
                    runner.lose();
                    wait_anew(late.as_mut(), patience);
                    bell = Bell::default();
                    continue;
                }
                Step::Full => {
                    self.take_down(runner);
                    // Where nothing of it is for the log there is nothing to send, and there may be no end of that.
                    waits = !runner.has_plans();
                    if !waits {
                        let behind = std::mem::replace(&mut ahead, runner.planned());
                        next.set(maybe_done(runner.send(head, behind)));
                        // Sent now, behind the first, and looked at again when it is the first.
                        poll_fn(|context| {
                            let _ = first.as_mut().poll(context);
                            Poll::Ready(next.as_mut().poll(context).is_ready())
                        })
                        .await;
                        bell = Bell::default();
                    }
                    continue;
                }
            }
            let Some(sent) = first.as_mut().take_output() else {
                return Ok(());
            };
            if let Err((error, events)) = runner.take_result(sent) {
                return self
                    .beside(Box::pin(unwritten(runner, error, events, next)).as_mut())
                    .await;
            }
            std::mem::swap(&mut first, &mut next);
            if matches!(*first, MaybeDone::Gone) {
                return Ok(());
            }
            wait_anew(late.as_mut(), patience);
            (bell, waits) = (Bell::default(), false);
        }
    }

    /// Waits for a commit while the agent goes on, and says if it cannot because it has said as much as fits.
    async fn step<F: Future>(
        &mut self,
        bell: &mut Bell,
        mut commit: Pin<&mut MaybeDone<F>>,
        mut limit: Pin<&mut impl Future<Output = Ending>>,
        mut late: Pin<&mut Sleep>,
        may_follow: bool,
    ) -> Step {
        poll_fn(|context| {
            if let Some(waker) = bell.look(context) {
                // Most often it is the agent that has woken us.
                let context = &mut Context::from_waker(&waker);
                if commit.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Step::Written);
                }
                if late.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Step::Late);
                }
                if self.ended.is_none()
                    && let Poll::Ready(ending) = limit.as_mut().poll(context)
                {
                    (self.ended, self.work) = (Some(ending), None);
                }
            }
            if self.ended.is_none() {
                if let Some(Poll::Ready(said)) =
                    self.work.as_mut().map(|work| Pin::new(work).poll(context))
                {
                    self.ended = Some(Ending::Said(said));
                } else if may_follow && self.setting.queue.is_full() {
                    return Poll::Ready(Step::Full);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for the store while the agent goes on. A store that hangs does not lengthen the turn: at its limit the agent
    /// is let go.
    async fn beside<T>(&mut self, mut written: Pin<&mut impl Future<Output = T>>) -> T {
        let mut limit = pin!(self.limit(None));
        loop {
            tokio::select! {
                biased;
                written = &mut written => return written,
                ending = &mut limit, if self.ended.is_none() => {
                    (self.ended, self.work) = (Some(ending), None);
                }
                ending = outcome(&mut self.work), if self.ended.is_none() => self.ended = Some(ending),
            }
        }
    }

    /// Waits until the agent goes on, somebody wants something, or it takes too long.
    pub(super) async fn wait(&mut self, runner: &mut Runner) -> Result<()> {
        runner.rest();
        rest(&mut self.said);
        // Whoever has spoken while the store was slow was not silent.
        let silence = match self.setting.queue.is_empty() {
            true => later(
                self.heard,
                runner.worker.max_silence(&runner.engine.settings),
            ),
            false => None,
        };
        let limit = self.limit(silence);
        let heard = tokio::select! {
            biased;
            // Before the agent: one that always has more to say is stopped like any other.
            news = runner.news() => Heard::News(news),
            ending = limit => Heard::End(ending),
            ending = outcome(&mut self.work) => Heard::End(ending),
            () = self.setting.queue.news() => Heard::Agent,
        };
        // Not in the branches, which would have room for all that could be heard.
        match heard {
            Heard::News(news) => self.hear(runner, news).await?,
            Heard::End(ending) => self.ended = Some(ending),
            Heard::Agent => {}
        }
        Ok(())
    }

    async fn hear(&mut self, runner: &mut Runner, news: News) -> Result<()> {
        match news {
            News::Elsewhere => self.beside(Box::pin(runner.refresh()).as_mut()).await?,
            News::Wish(Wish::Message(incoming)) => {
                self.beside(Box::pin(runner.take_message(*incoming)).as_mut())
                    .await?;
            }
            // Those who had it were told that it could not be done in time.
            News::Wish(Wish::Cancel { until, answer, .. }) if until <= Instant::now() => {
                let _ = answer.send(Err(Error::Lost));
            }
            News::Wish(Wish::Cancel {
                metadata, answer, ..
            }) => {
                if self.stopping.is_none() {
                    runner.plan([Event::CancelRequested { metadata }]);
                    self.stop(runner);
                }
                if let Some(stopping) = &mut self.stopping {
                    stopping.answers.push(answer);
                }
            }
            News::Wish(Wish::Late) => runner.plan(vec![reason::late()]),
            // Somebody does work on it.
            News::Wish(Wish::Recover(_) | Wish::Expire | Wish::GiveWay) => {}
        }
        Ok(())
    }

    /// Tells the agent to stop; one that does not listen has ended.
    fn stop(&mut self, runner: &Runner) {
        let listens = self.setting.listens.load(Ordering::Acquire);
        let grace = if listens {
            runner.engine.settings.cancel_grace
        } else {
            Duration::ZERO
        };
        self.setting
            .cancel
            .get_or_init(CancellationToken::new)
            .cancel();
        self.stopping = Some(Stopping {
            until: later(Instant::now(), Some(grace)),
            answers: Vec::new(),
        });
        if !listens {
            self.ended = Some(Ending::Canceled);
        }
    }

    /// Ends the turn: what the agent said up to now counts, what comes after does not.
    pub(super) async fn finish(&mut self, runner: &mut Runner) -> Result<()> {
        self.plan_end(runner);
        let last = runner.log.waiting().is_none();
        let committed = runner.commit(None, last).await;
        let failed = committed.is_err();
        for answer in self
            .stopping
            .take()
            .into_iter()
            .flat_map(|stopping| stopping.answers)
        {
            let outcome = if failed { Err(Error::Lost) } else { Ok(()) };
            let _ = runner.answer_cancel(answer, outcome);
        }
        committed
    }

    fn plan_end(&mut self, runner: &mut Runner) {
        // What the agent holds is let go before anybody hears that its turn is over.
        self.let_go();
        self.setting.queue.close();
        self.setting.queue.take(&mut self.said);
        if !self.said.is_empty() {
            self.note_first();
        }
        let (weight, fault) = self.scribe.take_down(runner, &mut self.said, true);
        // After a cancel was recorded the task ends as canceled, whatever the agent makes of its grace.
        let ending = match (self.ended.take(), fault) {
            (Some(Ending::Said(_) | Ending::Fault(_)), _) if self.stopping.is_some() => {
                Ending::Canceled
            }
            (Some(Ending::Said(_)), Some(fault)) => Ending::Fault(fault),
            (ending, _) => ending.unwrap_or(Ending::Elsewhere),
        };
        let said = self.said.len();
        self.said.extend(self.scribe.ending(runner, ending));
        let more: usize = self.said[said..].iter().map(Event::weight).sum();
        runner.plan_weighed(&mut self.said, weight + more);
    }

    /// Ready when the turn has taken or been silent too long, or has not stopped in time.
    fn limit(&self, silence: Option<Instant>) -> impl Future<Output = Ending> + use<> {
        let until = self.stopping.as_ref().and_then(|stopping| stopping.until);
        let limits = [until, self.setting.deadline, silence]
            .into_iter()
            .enumerate();
        let first = limits
            .filter_map(|(which, time)| Some((time?, which)))
            .min();
        limit(first)
    }
}

impl Drop for Course<'_> {
    /// However the turn ends: whoever still speaks must not wait for ever.
    fn drop(&mut self) {
        self.setting.queue.close();
    }
}

/// No timer where there is no limit, and one where there are three.
async fn limit(first: Option<(Instant, usize)>) -> Ending {
    let Some((time, which)) = first else {
        return std::future::pending().await;
    };
    sleep_until(time).await;
    match which {
        0 => Ending::Canceled,
        1 => Ending::Said(Err(Failure::new(
            "deadline",
            "the turn took longer than max_turn_time",
        ))),
        _ => Ending::Said(Err(Failure::new(
            "inactivity",
            "the agent was silent for longer than max_silence",
        ))),
    }
}

/// Begins to wait for as long once more.
fn wait_anew(late: Pin<&mut Sleep>, patience: Duration) {
    if let Some(time) = later(Instant::now(), Some(patience)) {
        late.reset(time);
    }
}

/// What could not be written, and what was sent behind it, is written behind what others wrote; or the turn is lost.
async fn unwritten<F: Future<Output = Sent>>(
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
        Some(sent) if sent.is_written() => return Err(Error::Lost),
        Some(sent) => events.extend(sent.into_events()),
        None => {}
    }
    runner.write_again(error, events).await
}

/// Whether nobody has heard yet that the task is worked on, and the agent does not say so itself. A turn that is over
/// at once is never seen at work.
fn is_news(runner: &Runner, said: &[Event]) -> bool {
    runner.log.task.status.state == TaskState::Submitted
        && !said
            .iter()
            .any(|event| matches!(event, Event::Status { .. }))
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
    poll_fn(|context| match outcome.as_mut().poll(context) {
        Poll::Ready(ending) => Poll::Ready(Some(ending)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
