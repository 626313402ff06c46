//! The deliveries to one webhook of one task: in order, one at a time, as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, Span};

use super::DispatcherInner;
use super::attempt_result::AttemptResult;
use super::notification::Notification;
use crate::egress::ExchangeLimits;
use crate::engine::{self, Follow, SharedEntry};
use crate::model::{Event, PushConfigId, Seq, StreamResponse, TaskState, Timestamp, TraceContext};
use crate::store::{DeliveryProgress, DeliveryState, Head, Webhook};
use crate::telemetry::metrics;
use crate::telemetry::trace;
use crate::wire::{PushPayload, push_payload};

/// How much of an answer is read; nobody looks at it.
const MAX_RESPONSE_BYTES: usize = 16 << 10;
/// How long to wait where the store has failed.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long a worker with nothing to do stays while others wait for its place.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Delivers to one webhook until there is no more, it is given up, or somebody else's turn comes.
pub(super) async fn run_worker(inner: Arc<DispatcherInner>, task: Head, id: PushConfigId) {
    loop {
        let finished = match inner.engine.find_webhook(&task, &id).await {
            Ok(Some(webhook)) if webhook.delivery.state == DeliveryState::Active => {
                DeliveryWorker {
                    inner: &inner,
                    webhook,
                    state: None,
                    trace: None,
                }
                .run()
                .await
            }
            Ok(_) => return,
            Err(error) => Err(error),
        };
        match finished {
            Ok(()) | Err(engine::Error::ShuttingDown) => return,
            Err(engine::Error::Deleted) => {
                tracing::info!(task = %task.id, webhook = %id, "deliveries dropped with their task");
                return;
            }
            Err(error) => {
                log_delayed(&task, &id, &error);
                sleep(STORE_RETRY_DELAY).await;
            }
        }
    }
}

fn log_delayed(task: &Head, id: &PushConfigId, error: &engine::Error) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(task = %task.id, webhook = %id, error, "deliveries held up");
}

struct DeliveryWorker<'a> {
    inner: &'a DispatcherInner,
    webhook: Webhook,
    /// The last state that was seen.
    state: Option<TaskState>,
    /// The trace that the task is worked on in.
    trace: Option<TraceContext>,
}

impl DeliveryWorker<'_> {
    async fn run(&mut self) -> engine::Result<()> {
        let mut follow = self
            .inner
            .engine
            .follow(&self.webhook.task, self.webhook.delivery.position);
        if self.webhook.delivery.position > Seq(0) {
            // What was said of it is behind us.
            self.trace = self.inner.engine.newest_trace(&self.webhook.task).await?;
        }
        sleep(self.time_until_due()).await;
        while let Some(entries) = self.next_entries(&mut follow).await? {
            for entry in entries {
                if !self.process_entry(&entry).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// What is next in the log; `None` when there is no more, or others wait for the place.
    async fn next_entries(
        &mut self,
        follow: &mut Follow,
    ) -> engine::Result<Option<Vec<SharedEntry>>> {
        let head = &self.webhook.task;
        if head.state.is_terminal() && self.webhook.delivery.position >= head.position {
            self.webhook.delivery.state = DeliveryState::Finished;
            self.save_progress().await?;
            return Ok(None);
        }
        // What is in the store and not here yet is about to come: whoever wrote it will say so.
        loop {
            match timeout(IDLE_TIMEOUT, follow.next()).await {
                Ok(entries) => return entries.map(Some),
                Err(_) if self.inner.is_at_capacity() => {
                    self.inner.pending_webhooks.notify_one();
                    return Ok(None);
                }
                Err(_) => {}
            }
        }
    }

    /// Goes past an entry; `false` when there is nothing more to do.
    async fn process_entry(&mut self, entry: &SharedEntry) -> engine::Result<bool> {
        if let Event::TraceContext(trace) = &entry.event {
            self.trace = Some(trace.clone());
        }
        let Some(event) = self.payload(entry).await? else {
            self.webhook.delivery.position = entry.seq;
            return Ok(true);
        };
        let ends = entry_state(entry).is_some_and(TaskState::is_terminal);
        let notification = Notification::new(&self.webhook, entry.seq, &event);
        if !self.deliver(&notification).await? {
            return Ok(false);
        }
        let state = if ends {
            DeliveryState::Finished
        } else {
            DeliveryState::Active
        };
        self.webhook.delivery = DeliveryProgress {
            position: entry.seq,
            state,
            ..DeliveryProgress::default()
        };
        Ok(self.save_progress().await? && !ends)
    }

    /// What the webhook is told of an entry, in the version in which it was registered (R51).
    async fn payload(&mut self, entry: &SharedEntry) -> engine::Result<Option<StreamResponse>> {
        let task = &self.webhook.task;
        match push_payload(self.webhook.registration.version) {
            PushPayload::Update => Ok(entry.update(&task.id, &task.context_id)),
            PushPayload::Task => {
                let changed =
                    entry_state(entry).filter(|state| self.state.replace(*state) != Some(*state));
                match changed {
                    Some(_) => {
                        let task = self.inner.engine.task_at_position(task, entry.seq).await?;
                        Ok(Some(StreamResponse::Task(Arc::unwrap_or_clone(task))))
                    }
                    None => Ok(None),
                }
            }
        }
    }

    /// Sends until it arrives; `false` when it will not, or the webhook is not there any more.
    async fn deliver(&mut self, notification: &Notification) -> engine::Result<bool> {
        loop {
            let span = trace::push_span(
                &self.webhook.task.id,
                self.webhook.delivery.attempts + 1,
                self.trace.as_ref(),
            );
            let result = self
                .attempt(notification, &span)
                .instrument(span.clone())
                .await;
            metrics::record_push_attempt(result.as_str());
            let why = match result {
                AttemptResult::Delivered => return Ok(true),
                AttemptResult::Failed(why) => why,
                AttemptResult::Retry(retry_after) => {
                    let attempts = self.webhook.delivery.attempts.saturating_add(1);
                    let delay = self
                        .inner
                        .settings
                        .backoff(attempts, notification.event_id.jitter(attempts));
                    match delay {
                        Some(delay) => {
                            let delay = delay.max(retry_after);
                            let due = add(self.inner.engine.now(), delay);
                            self.webhook.delivery = DeliveryProgress {
                                attempts,
                                due,
                                ..self.webhook.delivery.clone()
                            };
                            if !self.save_progress().await? {
                                return Ok(false);
                            }
                            sleep(delay).await;
                            continue;
                        }
                        None => "it did not answer well for as long as it was tried".to_owned(),
                    }
                }
            };
            tracing::warn!(task = %self.webhook.task.id, webhook = %self.config_id(), why, "webhook given up");
            self.webhook.delivery.state = DeliveryState::Failed(why);
            self.save_progress().await?;
            return Ok(false);
        }
    }

    async fn attempt(&self, notification: &Notification, span: &Span) -> AttemptResult {
        let url = &self.webhook.registration.config.url;
        // The host's place first: whoever waits for a slow host holds up nobody else.
        let place = match self.inner.egress.acquire_slot(url).await {
            Ok(place) => place,
            Err(why) => return AttemptResult::Failed(format!("its url {why}")),
        };
        // Those that fail have places of their own: however many they are, they do not slow those that answer.
        let places = if self.webhook.delivery.attempts == 0 {
            &self.inner.healthy_permits
        } else {
            &self.inner.failing_permits
        };
        let turn = places.acquire().await;
        // Signed last: whoever has waited for a place has not grown old.
        let Some(request) = self.build_request(notification, span) else {
            return AttemptResult::Failed(
                "its registration cannot be written as a request".to_owned(),
            );
        };
        let caps = ExchangeLimits {
            time: self.inner.settings.timeout,
            bytes: MAX_RESPONSE_BYTES,
        };
        let answer = self.inner.egress.send(request, caps).await;
        drop((turn, place));
        let status = answer.as_ref().ok().map(|answer| answer.status.as_u16());
        tracing::debug!(task = %self.webhook.task.id, webhook = %self.config_id(), event = %notification.event_id,
            status, "webhook called");
        let result = AttemptResult::from_response(answer, self.inner.engine.now());
        trace::record_push_result(span, status, matches!(result, AttemptResult::Delivered));
        result
    }

    fn build_request(&self, notification: &Notification, span: &Span) -> Option<Request<Bytes>> {
        let (engine, webhook) = (&self.inner.engine, &self.webhook);
        let token = self.inner.signature.as_ref().map(|signature| {
            let about = (&webhook.task.id, notification.event_id);
            let url = &webhook.registration.config.url;
            signature.token(
                url,
                about,
                &notification.body,
                engine.now(),
                engine.new_id().to_string(),
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
        let trace = trace::span_context(span).or_else(|| self.trace.clone());
        notification.request(&self.webhook, token.as_deref(), trace.as_ref())
    }

    /// Writes down how far it is; `false` when the webhook is not there any more.
    async fn save_progress(&self) -> engine::Result<bool> {
        let still_registered = self.inner.engine.record_delivery(&self.webhook).await?;
        if !still_registered {
            tracing::info!(task = %self.webhook.task.id, webhook = %self.config_id(), "deliveries dropped with their webhook");
        }
        Ok(still_registered)
    }

    fn time_until_due(&self) -> Duration {
        let wait = self
            .webhook
            .delivery
            .due
            .as_millis()
            .saturating_sub(self.inner.engine.now().as_millis());
        // A clock that was set back must not hold anything up for long.
        Duration::from_millis(u64::try_from(wait).unwrap_or_default())
            .min(self.inner.settings.max_delay())
    }

    fn config_id(&self) -> PushConfigId {
        self.webhook
            .registration
            .config
            .id
            .clone()
            .unwrap_or_default()
    }
}

fn add(now: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_add(by)).unwrap_or(now)
}

fn entry_state(entry: &SharedEntry) -> Option<TaskState> {
    match &entry.event {
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    }
}
