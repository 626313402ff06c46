//! Webhook of a task, as the memory store keeps it.

use crate::model::PushConfigId;
use crate::store::{
    DeliveryProgress, DeliveryState, Head, PushRegistration, Webhook, WebhookFilter,
};

/// Registration and delivery progress of a webhook.
#[derive(Debug)]
pub(super) struct StoredWebhook {
    pub(super) number: u64,
    generation: u64,
    pub(super) registration: PushRegistration,
    delivery: DeliveryProgress,
}

impl StoredWebhook {
    pub(super) fn new(
        number: u64,
        registration: PushRegistration,
        delivery: DeliveryProgress,
    ) -> Self {
        Self {
            number,
            generation: 0,
            registration,
            delivery,
        }
    }

    pub(super) fn id(&self) -> Option<&PushConfigId> {
        self.registration.config.id.as_ref()
    }

    /// Replaces the registration. Delivery continues at the same position.
    pub(super) fn replace(&mut self, registration: &PushRegistration) {
        self.generation += 1;
        self.registration.clone_from(registration);
        self.delivery = DeliveryProgress {
            position: self.delivery.position,
            ..DeliveryProgress::default()
        };
    }

    /// Records delivery progress, unless the webhook was replaced since `webhook` was read.
    pub(super) fn record(&mut self, webhook: &Webhook) -> bool {
        let same = self.generation == webhook.generation;
        if same {
            self.delivery = webhook.delivery.clone();
        }
        same
    }

    pub(super) fn matches(&self, filter: WebhookFilter) -> bool {
        match (filter, &self.delivery.state) {
            (WebhookFilter::Active, DeliveryState::Active)
            | (WebhookFilter::Failed, DeliveryState::Failed(_)) => true,
            (WebhookFilter::Active | WebhookFilter::Failed, _) => false,
        }
    }

    pub(super) fn to_webhook(&self, task: Head) -> Webhook {
        Webhook {
            number: self.number,
            generation: self.generation,
            task,
            registration: self.registration.clone(),
            delivery: self.delivery.clone(),
        }
    }
}
