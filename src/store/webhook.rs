//! Webhooks of tasks and the progress of their deliveries.

use super::{Head, Holder};
use crate::model::{PushConfig, Seq, Timestamp, Version};

/// Webhook configuration together with the protocol version it was registered in.
#[derive(Debug, Clone, PartialEq)]
pub struct PushRegistration {
    /// Configuration; its id is set.
    pub config: PushConfig,
    /// Protocol version of the notifications.
    pub version: Version,
}

/// Webhook of a task with its delivery progress. Equality ignores the holder, which depends on the reader.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Sequence number of the first registration. Later webhooks have greater numbers.
    pub number: u64,
    /// Number of times the webhook was replaced. [`Store::record_delivery`](super::Store::record_delivery) compares it.
    pub generation: u64,
    /// Task that the webhook belongs to.
    pub task: Head,
    /// Registered configuration.
    pub registration: PushRegistration,
    /// Progress of the deliveries.
    pub delivery: DeliveryProgress,
    /// Replica that delivers, at the time of the read. Single-process stores return [`Holder::None`].
    pub holder: Holder,
}

impl PartialEq for Webhook {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            number,
            generation,
            task,
            registration,
            delivery,
            holder: _,
        } = self;
        *number == other.number
            && *generation == other.generation
            && *task == other.task
            && *registration == other.registration
            && *delivery == other.delivery
    }
}

/// Progress of the deliveries to a webhook.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeliveryProgress {
    /// Position of the last entry that was delivered or needs no delivery.
    pub position: Seq,
    /// Number of failed attempts for the next entry.
    pub attempts: u32,
    /// Time of the next attempt.
    pub due: Timestamp,
    /// Whether deliveries continue.
    pub state: DeliveryState,
}

/// State of the deliveries to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeliveryState {
    /// There may be more entries to deliver.
    #[default]
    Active,
    /// The task has ended and every entry was delivered.
    Finished,
    /// Delivery was given up for this reason. The undelivered entries stay in the log.
    Failed(String),
}

/// Filter of [`Store::list_webhooks`](super::Store::list_webhooks) by delivery state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookFilter {
    /// Webhooks in state [`DeliveryState::Active`].
    Active,
    /// Webhooks in state [`DeliveryState::Failed`].
    Failed,
}
