//! A webhook of a task.

use crate::model::PushConfigId;
use crate::store::{Delivery, Head, Push, Registered, Standing, Which};

#[derive(Debug)]
pub(super) struct Hook {
    pub(super) number: u64,
    generation: u64,
    pub(super) registered: Registered,
    delivery: Delivery,
}

impl Hook {
    pub(super) fn new(number: u64, registered: Registered, delivery: Delivery) -> Self {
        Self {
            number,
            generation: 0,
            registered,
            delivery,
        }
    }

    pub(super) fn id(&self) -> Option<&PushConfigId> {
        self.registered.config.id.as_ref()
    }

    /// Takes the place of the one before, and goes on where that was.
    pub(super) fn renew(&mut self, registered: &Registered) {
        self.generation += 1;
        self.registered.clone_from(registered);
        self.delivery = Delivery {
            position: self.delivery.position,
            ..Delivery::default()
        };
    }

    /// Notes how far the deliveries are, if it is still the one that was asked for.
    pub(super) fn record(&mut self, push: &Push) -> bool {
        let same = self.generation == push.generation;
        if same {
            self.delivery = push.delivery.clone();
        }
        same
    }

    pub(super) fn stands(&self, which: Which) -> bool {
        match (which, &self.delivery.standing) {
            (Which::Open, Standing::Open) | (Which::Stopped, Standing::Stopped(_)) => true,
            (Which::Open | Which::Stopped, _) => false,
        }
    }

    pub(super) fn push(&self, task: Head) -> Push {
        Push {
            number: self.number,
            generation: self.generation,
            task,
            registered: self.registered.clone(),
            delivery: self.delivery.clone(),
        }
    }
}
