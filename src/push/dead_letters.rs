//! Dead letters: webhooks whose delivery has failed, the notifications they missed, and manual retry.

use super::PushDispatcher;
use super::notification::EventId;
use crate::engine::{Engine, SharedEntry};
use crate::model::{Error, ErrorKind, Event, PushConfigId, Result, Scope, Seq, TaskId, Timestamp};
use crate::store::{DeliveryProgress, DeliveryState, Webhook, WebhookFilter};
use crate::wire::{PushPayload, push_payload};

/// Operator access to failed webhooks. Not scoped to a caller.
#[derive(Clone)]
pub struct DeadLetters(pub(super) PushDispatcher);

/// A webhook whose delivery has failed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FailedWebhook {
    /// Number of the webhook, for [`DeadLetters::undelivered`] and [`DeadLetters::retry`].
    pub number: u64,
    /// Id of the task.
    pub task: TaskId,
    /// Agent, tenant and owner of the task.
    pub scope: Scope,
    /// Id of the push configuration within the task.
    pub webhook: PushConfigId,
    /// Scheme and host of the URL. Path and query may contain secrets and are left out.
    pub origin: String,
    /// Reason of the failure.
    pub reason: String,
    /// Log position up to which everything was delivered.
    pub delivered: Seq,
    /// Position of the last log entry.
    pub end: Seq,
}

/// A notification that was not delivered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UndeliveredNotification {
    /// Event id, the same in every attempt.
    pub event_id: String,
    /// Log position.
    pub seq: Seq,
    /// Time of the log entry.
    pub time: Timestamp,
}

impl PushDispatcher {
    /// Returns the dead letters of this server.
    pub(crate) fn dead_letters(&self) -> DeadLetters {
        DeadLetters(self.clone())
    }
}

impl DeadLetters {
    /// Lists at most `limit` failed webhooks with a number above `after`.
    ///
    /// # Errors
    /// Unavailable: the store does not respond.
    pub async fn failed_webhooks(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<FailedWebhook>> {
        let webhooks = self
            .engine()
            .list_webhooks(WebhookFilter::Failed, after, limit)
            .await?;
        Ok(webhooks.into_iter().map(failed_webhook).collect())
    }

    /// Lists at most `limit` notifications that a failed webhook has missed, oldest first.
    ///
    /// # Errors
    /// Invalid parameters: no failed webhook has this number. Unavailable: the store does not respond.
    pub async fn undelivered(
        &self,
        number: u64,
        limit: usize,
    ) -> Result<Vec<UndeliveredNotification>> {
        let webhook = self.find(number).await?;
        let position = webhook.delivery.position;
        let mut follow = self.engine().follow(&webhook.task, position);
        let mut undelivered = Vec::new();
        while undelivered.len() < limit {
            let entries = follow.try_next().await?;
            if entries.is_empty() {
                break;
            }
            let notifications = entries
                .iter()
                .filter(|entry| is_notified(&webhook, entry))
                .map(|entry| UndeliveredNotification {
                    event_id: EventId::for_entry(&webhook, entry.seq).to_string(),
                    seq: entry.seq,
                    time: entry.time,
                });
            undelivered.extend(notifications.take(limit - undelivered.len()));
        }
        Ok(undelivered)
    }

    /// Resumes delivery to a failed webhook at the first undelivered notification, in order and with the same event ids.
    ///
    /// # Errors
    /// Invalid parameters: no failed webhook has this number. Unavailable: the store does not respond.
    pub async fn retry(&self, number: u64) -> Result<()> {
        let mut webhook = self.find(number).await?;
        webhook.delivery = DeliveryProgress {
            position: webhook.delivery.position,
            ..DeliveryProgress::default()
        };
        if !self.engine().record_delivery(&webhook).await? {
            return Err(unknown_webhook());
        }
        if let Some(id) = &webhook.registration.config.id {
            self.0.start_delivery(&webhook.task, id);
        }
        Ok(())
    }

    fn engine(&self) -> &Engine {
        &self.0.0.engine
    }

    async fn find(&self, number: u64) -> Result<Webhook> {
        let mut found = self
            .engine()
            .list_webhooks(WebhookFilter::Failed, number.checked_sub(1), 1)
            .await?;
        found
            .pop()
            .filter(|webhook| webhook.number == number)
            .ok_or_else(unknown_webhook)
    }
}

/// Whether the webhook is notified of an entry.
fn is_notified(webhook: &Webhook, entry: &SharedEntry) -> bool {
    let task = &webhook.task;
    match push_payload(webhook.registration.version) {
        PushPayload::Update => entry.update(&task.id, &task.context_id).is_some(),
        PushPayload::Task => matches!(entry.event, Event::Status { .. }),
    }
}

fn unknown_webhook() -> Error {
    Error::new(ErrorKind::InvalidParams).with_message("no failed webhook has this number")
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
