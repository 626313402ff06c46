//! Bodies of notifications that are being sent.
//!
//! A body is encoded for an attempt and dropped after it: a webhook that waits for its next attempt holds none. Webhooks
//! that send the same large body at the same time share it. It counts once against the byte budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use crate::engine::{self, Engine};
use crate::model::{
    self, CallerKey, ContextId, Entry, Event, Seq, StreamResponse, Task, TaskId, Version,
};
use crate::rt::{ByteBudget, Reservation, is_counted, lock};
use crate::store::{Head, Webhook};
use crate::wire::{Dialect, task_event_envelope, write_event, write_task};

/// Content of a notification.
pub(super) enum NotificationContent {
    /// This update. A copy: the entry shares its memory with those that were read or written together with it.
    Update(Box<StreamResponse>),
    /// The update of an entry that is read for each attempt, because it is large.
    LargeUpdate,
    /// The task at the position of the entry.
    Task,
}

impl NotificationContent {
    /// Returns the content for an entry. `None`: it has no update.
    pub(super) fn update(entry: &Entry, task: &TaskId, context: &ContextId) -> Option<Self> {
        if !matches!(entry.event, Event::Status { .. } | Event::Artifact { .. }) {
            return None;
        }
        if is_counted(entry.event.memory_size()) {
            return Some(Self::LargeUpdate);
        }
        let update = entry.update(task, context)?;
        Some(Self::Update(Box::new(update)))
    }
}

/// Identifies a shared body. Webhooks of one version send the same one.
type BodyKey = (TaskId, Seq, Version);

/// Body that workers share. The lock is held while it is encoded, so that it is encoded once.
type BodySlot = Arc<tokio::sync::Mutex<Weak<EncodedBody>>>;

/// Encoded body. Its bytes hold their part of the byte budget.
struct EncodedBody(Bytes);

/// Holder of a shared body.
struct SharedBody(Arc<EncodedBody>);

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

/// Why there is no body.
pub(super) enum BodyError {
    /// The byte budget does not allow this number of bytes. Reserve them, and try again.
    Exhausted(usize),
    /// The log cannot be read.
    Engine(engine::Error),
}

impl From<engine::Error> for BodyError {
    fn from(error: engine::Error) -> Self {
        Self::Engine(error)
    }
}

/// Large bodies that are being sent.
#[derive(Default)]
pub(super) struct NotificationBodies {
    slots: Mutex<HashMap<BodyKey, BodySlot>>,
    /// `None`: bodies are not limited.
    budget: Option<Arc<ByteBudget>>,
}

impl NotificationBodies {
    pub(super) fn new(budget: Option<Arc<ByteBudget>>) -> Self {
        Self {
            slots: Mutex::default(),
            budget,
        }
    }

    /// Returns the body of a notification. A small update is encoded for each webhook. `reserved` is the part of the byte
    /// budget for it, if the budget was exhausted before.
    ///
    /// # Errors
    /// The byte budget is exhausted, or the log cannot be read.
    pub(super) async fn body(
        &self,
        engine: &Engine,
        webhook: &Webhook,
        seq: Seq,
        content: &NotificationContent,
        reserved: Option<Reservation>,
    ) -> Result<Bytes, BodyError> {
        let version = webhook.registration.version;
        if let NotificationContent::Update(update) = content {
            return Ok(encode(update, version));
        }
        let key = (webhook.task.id.clone(), seq, version);
        let slot = lock(&self.slots).entry(key.clone()).or_default().clone();
        let mut shared = slot.lock().await;
        let body = match shared.upgrade() {
            Some(body) => Ok(body),
            None => self
                .encode_large(engine, webhook, seq, content, reserved)
                .await
                .map(Arc::new),
        };
        if let Ok(body) = &body {
            *shared = Arc::downgrade(body);
        }
        drop(shared);
        drop(slot);
        self.remove_unused();
        body.map(|body| Bytes::from_owner(SharedBody(body)))
    }

    /// Waits up to `outgoing_timeout` for a part of the byte budget.
    ///
    /// # Errors
    /// Unavailable: the budget was exhausted for that time.
    pub(super) async fn reserve(
        &self,
        webhook: &Webhook,
        bytes: usize,
    ) -> model::Result<Option<Reservation>> {
        match &self.budget {
            Some(budget) => budget.reserve(&budget_key(webhook), bytes).await.map(Some),
            None => Ok(None),
        }
    }

    /// Encodes a body within the byte budget, without waiting for it: other workers may wait for this body.
    async fn encode_large(
        &self,
        engine: &Engine,
        webhook: &Webhook,
        seq: Seq,
        content: &NotificationContent,
        reserved: Option<Reservation>,
    ) -> Result<EncodedBody, BodyError> {
        let event = ReadEvent::read(engine, &webhook.task, seq, content).await?;
        let bytes = 2 * event.memory_size();
        let reservation = match (&self.budget, reserved) {
            (Some(budget), None) if is_counted(bytes) => {
                let reserved = budget.try_reserve(&budget_key(webhook), bytes);
                Some(reserved.map_err(|_| BodyError::Exhausted(bytes))?)
            }
            (_, reserved) => reserved,
        };
        let body = event.encode(webhook.registration.version);
        drop(event);
        Ok(EncodedBody(match reservation {
            Some(reservation) => reservation.attach(body),
            None => body,
        }))
    }

    /// Removes the slots of bodies that no worker holds or encodes.
    fn remove_unused(&self) {
        let is_used = |slot: &mut BodySlot| {
            let is_shared = Arc::strong_count(slot) > 1;
            is_shared || slot.try_lock().is_ok_and(|body| body.strong_count() > 0)
        };
        lock(&self.slots).retain(|_, slot| is_used(slot));
    }
}

/// Event of a notification, read for one attempt.
enum ReadEvent {
    Task(Arc<Task>),
    Update(Box<StreamResponse>, usize),
}

impl ReadEvent {
    async fn read(
        engine: &Engine,
        head: &Head,
        seq: Seq,
        content: &NotificationContent,
    ) -> engine::Result<Self> {
        if matches!(content, NotificationContent::Task) {
            return engine.task_at_position(head, seq).await.map(Self::Task);
        }
        let entries = engine.follow(head, Seq(seq.0 - 1)).try_next().await?;
        let entry = entries.first().ok_or(engine::Error::Deleted)?;
        let update = entry.update(&head.id, &head.context_id);
        let update = update.ok_or(engine::Error::Deleted)?;
        Ok(Self::Update(Box::new(update), entry.event.memory_size()))
    }

    fn memory_size(&self) -> usize {
        match self {
            Self::Task(task) => task.memory_size(),
            Self::Update(_, bytes) => *bytes,
        }
    }

    fn encode(&self, version: Version) -> Bytes {
        let task = match self {
            Self::Task(task) => task,
            Self::Update(update, _) => return encode(update, version),
        };
        let dialect = Dialect::from(version).for_task(task);
        let (before, after) = task_event_envelope(&dialect).unwrap_or_default();
        let mut body = Vec::with_capacity(task.memory_size());
        body.extend_from_slice(before);
        write_task(&mut body, task, &dialect);
        body.extend_from_slice(after);
        body.into()
    }
}

/// Returns the key of a webhook in the byte budget.
fn budget_key(webhook: &Webhook) -> CallerKey {
    CallerKey::Caller(webhook.task.scope.owner.clone())
}

fn encode(event: &StreamResponse, version: Version) -> Bytes {
    let mut body = Vec::new();
    write_event(&mut body, event, false, &Dialect::from(version));
    body.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Artifact, Part, Timestamp};

    #[test]
    fn d04_a_worker_holds_small_updates_only() {
        let content = |bytes: usize| {
            let artifact = Artifact {
                parts: vec![Part::text("x".repeat(bytes))],
                ..Artifact::default()
            };
            let event = Event::Artifact {
                artifact,
                append: false,
                last_chunk: true,
                metadata: None,
            };
            let entry = Entry {
                seq: Seq(1),
                time: Timestamp::default(),
                event,
            };
            NotificationContent::update(&entry, &"t".into(), &"c".into())
        };
        assert!(matches!(content(100), Some(NotificationContent::Update(_))));
        assert!(matches!(
            content(5_000),
            Some(NotificationContent::LargeUpdate)
        ));
    }
}
