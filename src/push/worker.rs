//! Delivery worker of one webhook: posts its notifications in order, one at a time, with retry and backoff.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, Span};

use super::attempt_result::AttemptResult;
use super::bodies::{BodyError, NotificationContent};
use super::dispatcher::{DispatcherInner, STORE_RETRY_DELAY};
use super::notification::{EventId, Notification};
use crate::egress::ExchangeLimits;
use crate::engine::{self, Follow, SharedEntry};
use crate::model::{CallerKey, Event, PushConfigId, Seq, TaskState, Timestamp, TraceContext};
use crate::store::{DeliveryProgress, DeliveryState, Head, ReadLimit, Webhook};
use crate::telemetry::metrics;
use crate::telemetry::trace;
use crate::wire::{PushPayload, push_payload};

/// Maximum number of response bytes read. The content is ignored.
const MAX_RESPONSE_BYTES: usize = 16 << 10;
/// Limit of one read of the log. A worker holds this much between attempts, which can go on for a day.
const PAGE: ReadLimit = ReadLimit {
    entries: 64,
    bytes: 4 << 10,
};
/// Delay before the byte budget is requested again, in addition to `outgoing_timeout`.
const POSTPONE_DELAY: Duration = Duration::from_secs(1);
/// Idle time after which a worker gives up its permit if other webhooks wait for one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Delivers to one webhook until all notifications are delivered, the webhook fails or is deleted, or the worker yields its
/// permit. Store errors are retried.
pub(super) async fn run_worker(inner: Arc<DispatcherInner>, task: Head, id: PushConfigId) {
    loop {
        let result = match inner.engine.find_webhook(&task, &id).await {
            Ok(Some(webhook)) if is_active(&webhook) && inner.may_deliver(&webhook) => {
                DeliveryWorker::new(&inner, webhook).run().await
            }
            Ok(_) => return,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) | Err(engine::Error::ShuttingDown) => return,
            Err(engine::Error::Deleted) => {
                tracing::info!(task = %task.id, webhook = %id, "task deleted; pending notifications dropped");
                return;
            }
            Err(error) => {
                log_store_error(&task, &id, &error);
                sleep(STORE_RETRY_DELAY).await;
            }
        }
    }
}

fn is_active(webhook: &Webhook) -> bool {
    webhook.delivery.state == DeliveryState::Active
}

fn log_store_error(task: &Head, id: &PushConfigId, error: &engine::Error) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(task = %task.id, webhook = %id, error, "delivery delayed by a store error");
}

/// `Break` ends the worker.
type Step = ControlFlow<()>;

/// Entry of the log without its memory.
struct LogStep {
    seq: Seq,
    trace: Option<TraceContext>,
    /// Content of its notification; `None`: it has none.
    content: Option<NotificationContent>,
    /// Whether the task ends with it.
    is_last: bool,
}

struct DeliveryWorker<'a> {
    inner: &'a DispatcherInner,
    webhook: Webhook,
    /// State of the last status entry.
    state: Option<TaskState>,
    /// Trace context of the task, newest first.
    trace: Option<TraceContext>,
}

impl<'a> DeliveryWorker<'a> {
    fn new(inner: &'a DispatcherInner, webhook: Webhook) -> Self {
        Self {
            inner,
            webhook,
            state: None,
            trace: None,
        }
    }

    async fn run(&mut self) -> engine::Result<()> {
        let position = self.webhook.delivery.position;
        let follow = self.inner.engine.follow(&self.webhook.task, position);
        let mut follow = follow.with_page_limit(&PAGE);
        if position > Seq(0) {
            // The trace entry may precede the position.
            self.trace = self.inner.engine.newest_trace(&self.webhook.task).await?;
        }
        sleep(self.time_until_due()).await;
        while let Some(steps) = self.next_steps(&mut follow).await? {
            for step in steps {
                if self.process_step(step).await?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Waits for the next log entries; `None` after the last one, or when the worker yields its permit.
    async fn next_steps(&mut self, follow: &mut Follow) -> engine::Result<Option<Vec<LogStep>>> {
        let head = &self.webhook.task;
        if head.state.is_terminal() && self.webhook.delivery.position >= head.position {
            self.webhook.delivery.state = DeliveryState::Finished;
            let _ = self.save_progress().await?;
            return Ok(None);
        }
        // Also for an ended task: its last entries are stored, their notification may still be on its way.
        loop {
            match timeout(IDLE_TIMEOUT, follow.next()).await {
                Ok(entries) => {
                    let entries = entries?;
                    return Ok(Some(entries.iter().map(|entry| self.step(entry)).collect()));
                }
                Err(_) if self.inner.is_at_capacity() => {
                    self.inner.pending_webhooks.notify_one();
                    return Ok(None);
                }
                Err(_) => {}
            }
        }
    }

    /// Returns what a delivery needs of an entry.
    fn step(&mut self, entry: &SharedEntry) -> LogStep {
        let trace = match &entry.event {
            Event::TraceContext(trace) => Some(trace.clone()),
            _ => None,
        };
        LogStep {
            seq: entry.seq,
            trace,
            content: self.content(entry),
            is_last: entry_state(entry).is_some_and(TaskState::is_terminal),
        }
    }

    /// Delivers the notification of an entry, if it has one, and advances the position.
    async fn process_step(&mut self, step: LogStep) -> engine::Result<Step> {
        let LogStep {
            seq,
            trace,
            content,
            is_last,
        } = step;
        self.trace = trace.or(self.trace.take());
        let Some(content) = content else {
            self.webhook.delivery.position = seq;
            return Ok(Step::Continue(()));
        };
        if self.deliver(seq, &content).await?.is_break() {
            return Ok(Step::Break(()));
        }
        self.webhook.delivery = DeliveryProgress {
            position: seq,
            state: if is_last {
                DeliveryState::Finished
            } else {
                DeliveryState::Active
            },
            ..DeliveryProgress::default()
        };
        let saved = self.save_progress().await?;
        Ok(if is_last { Step::Break(()) } else { saved })
    }

    /// Content of the notification of an entry in the protocol version of the registration (R51): the update, or before
    /// 1.0 the task whenever its state changes. `None`: the entry has no notification.
    fn content(&mut self, entry: &SharedEntry) -> Option<NotificationContent> {
        match push_payload(self.webhook.registration.version) {
            PushPayload::Update => {
                let task = &self.webhook.task;
                NotificationContent::update(entry, &task.id, &task.context_id)
            }
            PushPayload::Task => {
                let state = entry_state(entry)?;
                let is_change = self.state.replace(state) != Some(state);
                is_change.then_some(NotificationContent::Task)
            }
        }
    }

    /// Sends a notification until it is delivered. `Break`: the webhook has failed or was deleted.
    async fn deliver(&mut self, seq: Seq, content: &NotificationContent) -> engine::Result<Step> {
        let event_id = EventId::for_entry(&self.webhook, seq);
        loop {
            let attempt = self.webhook.delivery.attempts + 1;
            let span = trace::push_span(&self.webhook.task.id, attempt, self.trace.as_ref());
            let result = self
                .attempt(event_id, seq, content, &span)
                .instrument(span.clone())
                .await?;
            metrics::record_push_attempt(result.as_str());
            match result {
                AttemptResult::Delivered => return Ok(Step::Continue(())),
                AttemptResult::Failed(reason) => return self.fail(reason).await,
                AttemptResult::Superseded => {
                    self.log_end();
                    return Ok(Step::Break(()));
                }
                AttemptResult::Postponed => {
                    let saved = self.save_progress().await?;
                    if saved.is_break() {
                        return Ok(saved);
                    }
                    sleep(POSTPONE_DELAY).await;
                }
                AttemptResult::Retry(retry_after) => {
                    let retry = self.schedule_retry(event_id, retry_after).await?;
                    if retry.is_break() {
                        return Ok(retry);
                    }
                }
            }
        }
    }

    /// Stores the time of the next attempt and sleeps until then. Fails the webhook after the last attempt.
    async fn schedule_retry(
        &mut self,
        event_id: EventId,
        retry_after: Duration,
    ) -> engine::Result<Step> {
        let settings = &self.inner.settings;
        let attempts = self.webhook.delivery.attempts.saturating_add(1);
        let jitter = event_id.jitter(attempts);
        let Some(backoff) = settings.backoff(attempts, jitter) else {
            let limit = settings.retry_for;
            return self
                .fail(format!("no success within retry_for = {limit:?}"))
                .await;
        };
        let delay = backoff.max(retry_after);
        self.webhook.delivery = DeliveryProgress {
            attempts,
            due: later(self.inner.engine.now(), delay),
            ..self.webhook.delivery.clone()
        };
        let saved = self.save_progress().await?;
        if saved.is_continue() {
            sleep(delay).await;
        }
        Ok(saved)
    }

    /// Marks the webhook as failed: it becomes a dead letter with this reason.
    async fn fail(&mut self, reason: String) -> engine::Result<Step> {
        let task = &self.webhook.task.id;
        tracing::warn!(task = %task, webhook = %self.config_id(), reason, "webhook failed");
        self.webhook.delivery.state = DeliveryState::Failed(reason);
        let _ = self.save_progress().await?;
        Ok(Step::Break(()))
    }

    /// Sends the notification once.
    ///
    /// # Errors
    /// The log cannot be read.
    async fn attempt(
        &self,
        event_id: EventId,
        seq: Seq,
        content: &NotificationContent,
        span: &Span,
    ) -> engine::Result<AttemptResult> {
        let inner = self.inner;
        let url = &self.webhook.registration.config.url;
        let mut reserved = None;
        let (slot, body) = loop {
            // The host's slot first: a worker that waits for a slow host must not hold a delivery permit.
            let slot = match inner.egress.acquire_slot(url).await {
                Ok(slot) => slot,
                Err(error) => return Ok(AttemptResult::Failed(format!("url {error}"))),
            };
            let body = inner.bodies.body(
                &inner.engine,
                &self.webhook,
                seq,
                content,
                Option::take(&mut reserved),
            );
            let missing = match body.await {
                Ok(body) => break (slot, body),
                Err(BodyError::Exhausted(bytes)) => bytes,
                Err(BodyError::Engine(error)) => return Err(error),
            };
            // Waiting for the byte budget of one caller must not delay others at the same host.
            drop(slot);
            match inner.bodies.reserve(&self.webhook, missing).await {
                Ok(reservation) => reserved = reservation,
                Err(_) => return Ok(AttemptResult::Postponed),
            }
        };
        let notification = &Notification::new(event_id, seq, body);
        let permits = if self.webhook.delivery.attempts == 0 {
            &inner.healthy_permits
        } else {
            &inner.failing_permits
        };
        let permit = permits.acquire().await;
        if !self.is_current().await? {
            return Ok(AttemptResult::Superseded);
        }
        // After all waiting, so that no notification follows the revocation.
        if inner.is_revoked(&self.webhook.task.scope.owner) {
            let reason = "the keys of the caller were revoked";
            return Ok(AttemptResult::Failed(reason.to_owned()));
        }
        // Signed after all waiting, so that the token is fresh.
        let Some(request) = self.build_request(notification, span) else {
            let reason = "the registration is not representable as an HTTP request";
            return Ok(AttemptResult::Failed(reason.to_owned()));
        };
        let limits = ExchangeLimits {
            time: inner.settings.timeout,
            bytes: MAX_RESPONSE_BYTES,
        };
        let owner = CallerKey::Caller(self.webhook.task.scope.owner.clone());
        let response = inner.egress.send_for(owner, request, limits).await;
        drop(permit);
        drop(slot);
        let status = response
            .as_ref()
            .ok()
            .map(|response| response.status.as_u16());
        tracing::debug!(task = %self.webhook.task.id, webhook = %self.config_id(), event = %notification.event_id,
            status, "webhook called");
        let result = AttemptResult::from_response(response, inner.engine.now());
        trace::record_push_result(span, status, matches!(result, AttemptResult::Delivered));
        Ok(result)
    }

    /// Returns whether this worker still delivers. On a shared store another replica may have deleted or replaced the
    /// webhook, or taken it over.
    async fn is_current(&self) -> engine::Result<bool> {
        let engine = &self.inner.engine;
        if !engine.is_shared() {
            return Ok(true);
        }
        engine.wait_for_lease().await;
        let found = engine
            .find_webhook(&self.webhook.task, &self.config_id())
            .await?;
        Ok(found.is_some_and(|found| {
            found.generation == self.webhook.generation
                && is_active(&found)
                && self.inner.may_deliver(&found)
        }))
    }

    /// Builds the signed request; `None` if it cannot be signed or has invalid headers.
    fn build_request(&self, notification: &Notification, span: &Span) -> Option<Request<Bytes>> {
        let token = match &self.inner.signer {
            Some(signer) => {
                let engine = &self.inner.engine;
                let token_id = engine.new_id().to_string();
                let token = signer.sign(&self.webhook, notification, engine.now(), token_id);
                let log = |error: &crate::model::Error| {
                    let error = error as &dyn std::error::Error;
                    tracing::error!(error, "cannot sign a notification");
                };
                Some(token.inspect_err(log).ok()?)
            }
            None => None,
        };
        let trace = trace::span_context(span).or_else(|| self.trace.clone());
        notification.request(&self.webhook, token.as_deref(), trace.as_ref())
    }

    /// Stores the delivery progress. `Break`: the webhook was deleted.
    async fn save_progress(&self) -> engine::Result<Step> {
        if self.inner.engine.record_delivery(&self.webhook).await? {
            return Ok(Step::Continue(()));
        }
        self.log_end();
        Ok(Step::Break(()))
    }

    fn log_end(&self) {
        let task = &self.webhook.task.id;
        let webhook = self.config_id();
        if self.inner.engine.is_shared() {
            tracing::info!(%task, %webhook, "webhook deleted, replaced or taken over by another replica");
        } else {
            tracing::info!(%task, %webhook, "webhook deleted; pending notifications dropped");
        }
    }

    /// Time until the stored retry is due. Bounded, so that a clock that was set back delays it by one backoff at most.
    fn time_until_due(&self) -> Duration {
        let due = self.webhook.delivery.due.as_millis();
        let wait = due.saturating_sub(self.inner.engine.now().as_millis());
        Duration::from_millis(u64::try_from(wait).unwrap_or_default())
            .min(self.inner.settings.max_delay())
    }

    fn config_id(&self) -> PushConfigId {
        let config = &self.webhook.registration.config;
        config.id.clone().unwrap_or_default()
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_add(by)).unwrap_or(now)
}

/// The state of a status entry.
fn entry_state(entry: &SharedEntry) -> Option<TaskState> {
    match &entry.event {
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    }
}
