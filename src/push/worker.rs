//! The deliveries to one webhook of one task: in order, one at a time, as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, Span};

use super::Inner;
use super::notice::Notice;
use super::verdict::Verdict;
use crate::egress::Caps;
use crate::engine::{self, Follow, Recorded};
use crate::metrics;
use crate::model::{Event, PushConfigId, Seq, StreamResponse, TaskState, Timestamp, Trace};
use crate::store::{Delivery, Head, Push, Standing};
use crate::trace;
use crate::wire::{Carries, carries};

/// How much of an answer is read; nobody looks at it.
const ANSWER_BYTES: usize = 16 << 10;
/// How long to wait where the store has failed.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a worker with nothing to do stays while others wait for its place.
const IDLE: Duration = Duration::from_secs(30);

/// Delivers to one webhook until there is no more, it is given up, or somebody else's turn comes.
pub(super) async fn deliver(inner: Arc<Inner>, task: Head, id: PushConfigId) {
    loop {
        let worked = match inner.engine.push(&task, &id).await {
            Ok(Some(push)) if push.delivery.standing == Standing::Open => {
                Worker {
                    inner: &inner,
                    push,
                    state: None,
                    trace: None,
                }
                .work()
                .await
            }
            Ok(_) => return,
            Err(error) => Err(error),
        };
        match worked {
            Ok(()) | Err(engine::Error::Stopped) => return,
            Err(engine::Error::Gone) => {
                tracing::info!(task = %task.id, webhook = %id, "deliveries dropped with their task");
                return;
            }
            Err(error) => {
                held_up(&task, &id, &error);
                sleep(PAUSE).await;
            }
        }
    }
}

fn held_up(task: &Head, id: &PushConfigId, error: &engine::Error) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(task = %task.id, webhook = %id, error, "deliveries held up");
}

struct Worker<'a> {
    inner: &'a Inner,
    push: Push,
    /// The last state that was seen.
    state: Option<TaskState>,
    /// The trace that the task is worked on in.
    trace: Option<Trace>,
}

impl Worker<'_> {
    async fn work(&mut self) -> engine::Result<()> {
        let mut follow = self
            .inner
            .engine
            .follow(&self.push.task, self.push.delivery.position);
        if self.push.delivery.position > Seq(0) {
            // What was said of it is behind us.
            self.trace = self.inner.engine.trace(&self.push.task).await?;
        }
        sleep(self.until_due()).await;
        while let Some(entries) = self.next(&mut follow).await? {
            for entry in entries {
                if !self.pass(&entry).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// What is next in the log; `None` when there is no more, or others wait for the place.
    async fn next(&mut self, follow: &mut Follow) -> engine::Result<Option<Vec<Recorded>>> {
        let head = &self.push.task;
        if head.state.is_terminal() && self.push.delivery.position >= head.position {
            self.push.delivery.standing = Standing::Over;
            self.record().await?;
            return Ok(None);
        }
        // What is in the store and not here yet is about to come: whoever wrote it will say so.
        loop {
            match timeout(IDLE, follow.next()).await {
                Ok(entries) => return entries.map(Some),
                Err(_) if self.inner.is_crowded() => {
                    self.inner.left_over.notify_one();
                    return Ok(None);
                }
                Err(_) => {}
            }
        }
    }

    /// Goes past an entry; `false` when there is nothing more to do.
    async fn pass(&mut self, entry: &Recorded) -> engine::Result<bool> {
        if let Event::Traced(trace) = &entry.event {
            self.trace = Some(trace.clone());
        }
        let Some(event) = self.event(entry).await? else {
            self.push.delivery.position = entry.seq;
            return Ok(true);
        };
        let ends = state(entry).is_some_and(TaskState::is_terminal);
        let notice = Notice::new(&self.push, entry.seq, &event);
        if !self.send(&notice).await? {
            return Ok(false);
        }
        let standing = if ends { Standing::Over } else { Standing::Open };
        self.push.delivery = Delivery {
            position: entry.seq,
            standing,
            ..Delivery::default()
        };
        Ok(self.record().await? && !ends)
    }

    /// What the webhook is told of an entry, in the version in which it was registered (R51).
    async fn event(&mut self, entry: &Recorded) -> engine::Result<Option<StreamResponse>> {
        let task = &self.push.task;
        match carries(self.push.registered.version) {
            Carries::Update => Ok(entry.update(&task.id, &task.context_id)),
            Carries::Task => {
                let changed =
                    state(entry).filter(|state| self.state.replace(*state) != Some(*state));
                match changed {
                    Some(_) => {
                        let task = self.inner.engine.task_at(task, entry.seq).await?;
                        Ok(Some(StreamResponse::Task(Arc::unwrap_or_clone(task))))
                    }
                    None => Ok(None),
                }
            }
        }
    }

    /// Sends until it arrives; `false` when it will not, or the webhook is not there any more.
    async fn send(&mut self, notice: &Notice) -> engine::Result<bool> {
        loop {
            let span = trace::push(
                &self.push.task.id,
                self.push.delivery.attempts + 1,
                self.trace.as_ref(),
            );
            let verdict = self.attempt(notice, &span).instrument(span.clone()).await;
            metrics::push(verdict.as_str());
            let why = match verdict {
                Verdict::Delivered => return Ok(true),
                Verdict::Never(why) => why,
                Verdict::Later(asked) => {
                    let attempts = self.push.delivery.attempts.saturating_add(1);
                    let pause = self
                        .inner
                        .settings
                        .pause(attempts, notice.event_id.chance(attempts));
                    match pause {
                        Some(pause) => {
                            let pause = pause.max(asked);
                            let due = later(self.inner.engine.now(), pause);
                            self.push.delivery = Delivery {
                                attempts,
                                due,
                                ..self.push.delivery.clone()
                            };
                            if !self.record().await? {
                                return Ok(false);
                            }
                            sleep(pause).await;
                            continue;
                        }
                        None => "it did not answer well for as long as it was tried".to_owned(),
                    }
                }
            };
            tracing::warn!(task = %self.push.task.id, webhook = %self.id(), why, "webhook given up");
            self.push.delivery.standing = Standing::Stopped(why);
            self.record().await?;
            return Ok(false);
        }
    }

    async fn attempt(&self, notice: &Notice, span: &Span) -> Verdict {
        let url = &self.push.registered.config.url;
        // The host's place first: whoever waits for a slow host holds up nobody else.
        let place = match self.inner.door.place(url).await {
            Ok(place) => place,
            Err(why) => return Verdict::Never(format!("its url {why}")),
        };
        // Those that fail have places of their own: however many they are, they do not slow those that answer.
        let places = if self.push.delivery.attempts == 0 {
            &self.inner.answering
        } else {
            &self.inner.failing
        };
        let turn = places.acquire().await;
        // Signed last: whoever has waited for a place has not grown old.
        let Some(request) = self.request(notice, span) else {
            return Verdict::Never("its registration cannot be written as a request".to_owned());
        };
        let caps = Caps {
            time: self.inner.settings.timeout,
            bytes: ANSWER_BYTES,
        };
        let answer = self.inner.door.send(request, caps).await;
        drop((turn, place));
        let status = answer.as_ref().ok().map(|answer| answer.status.as_u16());
        tracing::debug!(task = %self.push.task.id, webhook = %self.id(), event = %notice.event_id,
            status, "webhook called");
        let verdict = Verdict::of(answer, self.inner.engine.now());
        trace::pushed(span, status, matches!(verdict, Verdict::Delivered));
        verdict
    }

    fn request(&self, notice: &Notice, span: &Span) -> Option<Request<Bytes>> {
        let (engine, push) = (&self.inner.engine, &self.push);
        let token = self.inner.signature.as_ref().map(|signature| {
            let about = (&push.task.id, notice.event_id);
            let url = &push.registered.config.url;
            signature.token(
                url,
                about,
                &notice.body,
                engine.now(),
                engine.fresh_id().to_string(),
            )
        });
        let token = token
            .transpose()
            .inspect_err(|error| {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    "a notification cannot be signed"
                );
            })
            .ok()?;
        let trace = trace::of(span).or_else(|| self.trace.clone());
        notice.request(&self.push, token.as_deref(), trace.as_ref())
    }

    /// Writes down how far it is; `false` when the webhook is not there any more.
    async fn record(&self) -> engine::Result<bool> {
        let is_there = self.inner.engine.record_delivery(&self.push).await?;
        if !is_there {
            tracing::info!(task = %self.push.task.id, webhook = %self.id(), "deliveries dropped with their webhook");
        }
        Ok(is_there)
    }

    fn until_due(&self) -> Duration {
        let wait = self
            .push
            .delivery
            .due
            .as_millis()
            .saturating_sub(self.inner.engine.now().as_millis());
        // A clock that was set back must not hold anything up for long.
        Duration::from_millis(u64::try_from(wait).unwrap_or_default())
            .min(self.inner.settings.longest())
    }

    fn id(&self) -> PushConfigId {
        self.push.registered.config.id.clone().unwrap_or_default()
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_add(by)).unwrap_or(now)
}

fn state(entry: &Recorded) -> Option<TaskState> {
    match &entry.event {
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    }
}
