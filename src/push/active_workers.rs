//! Registry of the delivery workers of this process, and the number of webhooks per caller.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tokio_util::sync::CancellationToken;

use crate::model::{Caller, PushConfigId, TaskId};

/// Identifies a webhook.
pub(super) type WebhookKey = (TaskId, PushConfigId);

/// Running workers by webhook. A webhook has at most one.
#[derive(Default)]
pub(super) struct ActiveWorkers {
    workers: HashMap<WebhookKey, WorkerHandle>,
    webhooks_per_caller: HashMap<Caller, usize>,
    last_number: u64,
}

struct WorkerHandle {
    /// Distinguishes a worker from its successor for the same webhook.
    number: u64,
    caller: Caller,
    stop: CancellationToken,
}

impl ActiveWorkers {
    /// Registers a worker and stops its predecessor. Returns the worker's number.
    pub(super) fn insert(
        &mut self,
        webhook: WebhookKey,
        caller: Caller,
        stop: CancellationToken,
    ) -> u64 {
        self.stop(&webhook);
        self.last_number += 1;
        *self.webhooks_per_caller.entry(caller.clone()).or_default() += 1;
        let handle = WorkerHandle {
            number: self.last_number,
            caller,
            stop,
        };
        self.workers.insert(webhook, handle);
        self.last_number
    }

    /// Whether the webhook has a worker.
    pub(super) fn contains(&self, webhook: &WebhookKey) -> bool {
        self.workers.contains_key(webhook)
    }

    /// Number of webhooks of a caller that have a worker.
    pub(super) fn webhook_count(&self, caller: &Caller) -> usize {
        self.webhooks_per_caller
            .get(caller)
            .copied()
            .unwrap_or_default()
    }

    /// Stops and removes the worker of a webhook; `false` if it has none.
    pub(super) fn stop(&mut self, webhook: &WebhookKey) -> bool {
        let Some(WorkerHandle { caller, stop, .. }) = self.workers.remove(webhook) else {
            return false;
        };
        stop.cancel();
        if let Entry::Occupied(mut count) = self.webhooks_per_caller.entry(caller) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        true
    }

    /// Removes a worker that has finished, unless a successor has replaced it.
    pub(super) fn remove_finished(&mut self, webhook: &WebhookKey, number: u64) {
        let current = self.workers.get(webhook);
        if current.is_some_and(|worker| worker.number == number) {
            self.stop(webhook);
        }
    }

    /// Whether no worker is running.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }
}
