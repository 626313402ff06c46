//! For operators: webhooks that were given up, what they did not get, and another try.

use super::PushDispatcher;
use super::notification::EventId;
use crate::model::{Error, ErrorKind, Event, PushConfigId, Result, Scope, Seq, TaskId, Timestamp};
use crate::store::{DeliveryProgress, DeliveryState, Webhook, WebhookFilter};
use crate::wire::{PushPayload, push_payload};

/// What became of deliveries to webhooks. For operators: it knows no scope.
#[derive(Clone)]
pub struct DeadLetters(pub(super) PushDispatcher);

/// A webhook that was given up.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FailedWebhook {
    /// What to call it by.
    pub number: u64,
    /// Its task.
    pub task: TaskId,
    /// Whose task that is.
    pub scope: Scope,
    /// Its id within the task.
    pub webhook: PushConfigId,
    /// The scheme and host of its url; the rest may be a secret.
    pub origin: String,
    /// Why it was given up.
    pub reason: String,
    /// Up to here everything was delivered.
    pub delivered: Seq,
    /// So far the log goes.
    pub end: Seq,
}

/// A notification that was not delivered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UndeliveredNotification {
    /// The id it was, or will be, sent under.
    pub event_id: String,
    /// Its position in the log.
    pub seq: Seq,
    /// When it was recorded.
    pub time: Timestamp,
}

impl PushDispatcher {
    /// For operators.
    pub(crate) fn dead_letters(&self) -> DeadLetters {
        DeadLetters(self.clone())
    }
}

impl DeadLetters {
    /// Webhooks that were given up, after the given number, at most `limit` of them.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn failed_webhooks(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<FailedWebhook>> {
        let pushes = self
            .0
            .0
            .engine
            .list_webhooks(WebhookFilter::Failed, after, limit)
            .await?;
        Ok(pushes.into_iter().map(failed_webhook).collect())
    }

    /// What a webhook that was given up did not get, oldest first, at most `limit` of it.
    ///
    /// # Errors
    /// There is no such webhook, or the store does not answer.
    pub async fn undelivered(
        &self,
        number: u64,
        limit: usize,
    ) -> Result<Vec<UndeliveredNotification>> {
        let webhook = self.find(number).await?;
        let mut follow = self
            .0
            .0
            .engine
            .follow(&webhook.task, webhook.delivery.position);
        let (mut undelivered, task) = (Vec::new(), &webhook.task);
        while undelivered.len() < limit {
            let entries = follow.try_next().await?;
            if entries.is_empty() {
                break;
            }
            let notified =
                entries
                    .iter()
                    .filter(|entry| match push_payload(webhook.registration.version) {
                        PushPayload::Update => entry.update(&task.id, &task.context_id).is_some(),
                        PushPayload::Task => matches!(entry.event, Event::Status { .. }),
                    });
            undelivered.extend(notified.take(limit - undelivered.len()).map(|entry| {
                UndeliveredNotification {
                    event_id: EventId::for_entry(&webhook, entry.seq).to_string(),
                    seq: entry.seq,
                    time: entry.time,
                }
            }));
        }
        Ok(undelivered)
    }

    /// Calls a webhook that was given up again, from where it was left, in order and under the same ids.
    ///
    /// # Errors
    /// There is no such webhook, or the store does not answer.
    pub async fn retry(&self, number: u64) -> Result<()> {
        let mut webhook = self.find(number).await?;
        webhook.delivery = DeliveryProgress {
            position: webhook.delivery.position,
            ..DeliveryProgress::default()
        };
        if !self.0.0.engine.record_delivery(&webhook).await? {
            return Err(unknown_webhook());
        }
        if let Some(id) = &webhook.registration.config.id {
            self.0.start_delivery(&webhook.task, id);
        }
        Ok(())
    }

    async fn find(&self, number: u64) -> Result<Webhook> {
        let mut found = self
            .0
            .0
            .engine
            .list_webhooks(WebhookFilter::Failed, number.checked_sub(1), 1)
            .await?;
        found
            .pop()
            .filter(|webhook| webhook.number == number)
            .ok_or_else(unknown_webhook)
    }
}

fn unknown_webhook() -> Error {
    Error::new(ErrorKind::InvalidParams).with_message("no webhook of this number was given up")
}

fn failed_webhook(webhook: Webhook) -> FailedWebhook {
    let url = &webhook.registration.config.url;
    let origin = url
        .match_indices('/')
        .nth(2)
        .map_or(url.as_str(), |(end, _)| &url[..end]);
    FailedWebhook {
        number: webhook.number,
        origin: origin.split('?').next().unwrap_or_default().to_owned(),
        webhook: webhook.registration.config.id.unwrap_or_default(),
        reason: match webhook.delivery.state {
            DeliveryState::Failed(reason) => reason,
            DeliveryState::Active | DeliveryState::Finished => String::new(),
        },
        delivered: webhook.delivery.position,
        end: webhook.task.position,
        task: webhook.task.id,
        scope: webhook.task.scope,
    }
}
