//! Task in the memory store: its head, its log and what belongs to it.

use std::sync::Arc;

use super::stored_batch::{BatchForm, StoredBatch};
use crate::model::{PushConfigId, Seq, TaskId};
use crate::store::{
    Batch, DeliveryProgress, DeliveryState, Head, NewTask, PushRegistration, Snapshot, Webhook,
    WebhookFilter,
};

/// Head and log of a task.
#[derive(Debug)]
pub(super) struct TaskRecord {
    pub(super) head: Head,
    pub(super) parked: bool,
    /// Slot in the list of its scope.
    pub(super) scope_slot: usize,
    batches: Vec<StoredBatch>,
    pub(super) alias: Option<TaskId>,
    pub(super) keys: Vec<Arc<str>>,
    pub(super) webhooks: Vec<Webhook>,
    /// Boxed: most tasks have none.
    pub(super) snapshot: Option<Box<(Seq, Snapshot)>>,
}

impl TaskRecord {
    /// Creates a record with its first batch.
    pub(super) fn new(task: &NewTask, scope_slot: usize, first: BatchForm) -> Self {
        Self {
            head: task.head(Seq(task.batch.events.len() as u64)),
            parked: task.batch.parked,
            scope_slot,
            batches: vec![first.starting_at(Seq(0))],
            alias: task.alias.clone(),
            keys: Vec::new(),
            webhooks: Vec::new(),
            snapshot: None,
        }
    }

    /// Appends a batch.
    pub(super) fn add(&mut self, batch: &Batch, form: BatchForm) {
        self.batches.push(form.starting_at(self.head.position));
        self.head.position.0 += batch.events.len() as u64;
        self.head.state = batch.state;
        self.head.status_time = batch.status_time;
        self.parked = batch.parked;
    }

    /// Returns the batches that have the `limit` entries after `after`.
    pub(super) fn batches(&self, after: Seq, limit: usize) -> &[StoredBatch] {
        if after >= self.head.position || limit == 0 {
            return &[];
        }
        let until = after.0.saturating_add(limit as u64);
        let end = self.batches.partition_point(|batch| batch.start.0 < until);
        let next = self.batches.partition_point(|batch| batch.start <= after);
        &self.batches[next.saturating_sub(1)..end]
    }

    /// Returns the first webhook that passes a filter, with the current head.
    pub(super) fn webhook(&self, filter: impl Fn(&Webhook) -> bool) -> Option<Webhook> {
        let webhook = self.webhooks.iter().find(|webhook| filter(webhook))?;
        Some(Webhook {
            task: self.head.clone(),
            ..webhook.clone()
        })
    }

    /// Replaces the registration with the same id. Delivery continues at the same position. Returns `false` if there is
    /// none.
    pub(super) fn replace_webhook(&mut self, registration: &PushRegistration) -> bool {
        let id = registration.config.id.as_ref();
        let mut webhooks = self.webhooks.iter_mut();
        let Some(webhook) = webhooks.find(|webhook| webhook_id(webhook) == id) else {
            return false;
        };
        webhook.generation += 1;
        webhook.registration.clone_from(registration);
        webhook.delivery = DeliveryProgress {
            position: webhook.delivery.position,
            ..DeliveryProgress::default()
        };
        true
    }
}

pub(super) fn webhook_id(webhook: &Webhook) -> Option<&PushConfigId> {
    webhook.registration.config.id.as_ref()
}

/// Returns whether a webhook passes a filter.
pub(super) fn webhook_matches(webhook: &Webhook, filter: WebhookFilter) -> bool {
    match filter {
        WebhookFilter::Active => webhook.delivery.state == DeliveryState::Active,
        WebhookFilter::Failed => matches!(webhook.delivery.state, DeliveryState::Failed(_)),
    }
}
