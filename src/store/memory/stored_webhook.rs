//! A webhook of a task.

use crate::model::PushConfigId;
use crate::store::{
    DeliveryProgress, DeliveryState, Head, PushRegistration, Webhook, WebhookFilter,
};

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

    /// Takes the place of the one before, and goes on where that was.
    pub(super) fn replace(&mut self, registration: &PushRegistration) {
        self.generation += 1;
        self.registration.clone_from(registration);
        self.delivery = DeliveryProgress {
            position: self.delivery.position,
            ..DeliveryProgress::default()
        };
    }

    /// Notes how far the deliveries are, if it is still the one that was asked for.
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
