//! For operators: webhooks that were given up, what they did not get, and another try.

use super::Pushes;
use super::notice::EventId;
use crate::model::{Error, ErrorKind, Event, PushConfigId, Result, Scope, Seq, TaskId, Timestamp};
use crate::store::{Delivery, Push, Standing, Which};
use crate::wire::{Carries, carries};

/// What became of deliveries to webhooks. For operators: it knows no scope.
#[derive(Clone)]
pub struct Deliveries(pub(super) Pushes);

/// A webhook that was given up.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
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
pub struct Letter {
    /// The id it was, or will be, sent under.
    pub event_id: String,
    /// Its position in the log.
    pub seq: Seq,
    /// When it was recorded.
    pub time: Timestamp,
}

impl Pushes {
    /// For operators.
    pub(crate) fn deliveries(&self) -> Deliveries {
        Deliveries(self.clone())
    }
}

impl Deliveries {
    /// Webhooks that were given up, after the given number, at most `limit` of them.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn stopped(&self, after: Option<u64>, limit: usize) -> Result<Vec<Stopped>> {
        let pushes = self.0.0.engine.pushes(Which::Stopped, after, limit).await?;
        Ok(pushes.into_iter().map(stopped).collect())
    }

    /// What a webhook that was given up did not get, oldest first, at most `limit` of it.
    ///
    /// # Errors
    /// There is no such webhook, or the store does not answer.
    pub async fn letters(&self, number: u64, limit: usize) -> Result<Vec<Letter>> {
        let push = self.find(number).await?;
        let mut follow = self.0.0.engine.follow(&push.task, push.delivery.position);
        let (mut letters, task) = (Vec::new(), &push.task);
        while letters.len() < limit {
            let entries = follow.ready().await?;
            if entries.is_empty() {
                break;
            }
            let told = entries
                .iter()
                .filter(|entry| match carries(push.registered.version) {
                    Carries::Update => entry.update(&task.id, &task.context_id).is_some(),
                    Carries::Task => matches!(entry.event, Event::Status { .. }),
                });
            letters.extend(told.take(limit - letters.len()).map(|entry| Letter {
                event_id: EventId::of(&push, entry.seq).to_string(),
                seq: entry.seq,
                time: entry.time,
            }));
        }
        Ok(letters)
    }

    /// Calls a webhook that was given up again, from where it was left, in order and under the same ids.
    ///
    /// # Errors
    /// There is no such webhook, or the store does not answer.
    pub async fn retry(&self, number: u64) -> Result<()> {
        let mut push = self.find(number).await?;
        push.delivery = Delivery {
            position: push.delivery.position,
            ..Delivery::default()
        };
        if !self.0.0.engine.record_delivery(&push).await? {
            return Err(none());
        }
        if let Some(id) = &push.registered.config.id {
            self.0.registered(&push.task, id);
        }
        Ok(())
    }

    async fn find(&self, number: u64) -> Result<Push> {
        let mut found = self
            .0
            .0
            .engine
            .pushes(Which::Stopped, number.checked_sub(1), 1)
            .await?;
        found
            .pop()
            .filter(|push| push.number == number)
            .ok_or_else(none)
    }
}

fn none() -> Error {
    Error::new(ErrorKind::InvalidParams).with_message("no webhook of this number was given up")
}

fn stopped(push: Push) -> Stopped {
    let url = &push.registered.config.url;
    let origin = url
        .match_indices('/')
        .nth(2)
        .map_or(url.as_str(), |(end, _)| &url[..end]);
    Stopped {
        number: push.number,
        origin: origin.split('?').next().unwrap_or_default().to_owned(),
        webhook: push.registered.config.id.unwrap_or_default(),
        reason: match push.delivery.standing {
            Standing::Stopped(reason) => reason,
            Standing::Open | Standing::Over => String::new(),
        },
        delivered: push.delivery.position,
        end: push.task.position,
        task: push.task.id,
        scope: push.task.scope,
    }
}
