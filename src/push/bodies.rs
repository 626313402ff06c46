//! Bodies of notifications that are being sent.
//!
//! A body is encoded for an attempt and dropped after it: a webhook that waits for its next attempt holds none. Webhooks
//! that send the same large body at the same time share it. It counts once against the byte budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use crate::engine::{self, Engine, SharedEntry};
use crate::model::{CallerKey, Seq, StreamResponse, Task, TaskId, Version};
use crate::rt::{ByteBudget, Reservation, is_counted, lock};
use crate::store::{Head, Webhook};
use crate::wire::{Dialect, task_event_envelope, write_event, write_task};

/// Size of an entry above which a worker does not hold it between attempts.
const LARGE_ENTRY_BYTES: usize = 64 << 10;

/// Content of a notification.
pub(super) enum NotificationContent {
    /// The update of this entry.
    Update(SharedEntry),
    /// The update of an entry that is read for each attempt, because it is large.
    LargeUpdate,
    /// The task at the position of the entry.
    Task,
}

impl NotificationContent {
    /// Returns the content for an update.
    pub(super) fn update(entry: &SharedEntry) -> Self {
        if entry.event.memory_size() > LARGE_ENTRY_BYTES {
            Self::LargeUpdate
        } else {
            Self::Update(entry.clone())
        }
    }
}

/// Identifies a shared body. Webhooks of one version send the same one.
type BodyKey = (TaskId, Seq, Version);

/// Body that workers share. The lock is held while it is encoded, so that it is encoded once.
type BodySlot = Arc<tokio::sync::Mutex<Weak<EncodedBody>>>;

/// Encoded body with its part of the byte budget.
struct EncodedBody {
    bytes: Bytes,
    _reservation: Option<Reservation>,
}

/// Holder of a shared body.
struct SharedBody(Arc<EncodedBody>);

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// Why there is no body.
pub(super) enum BodyError {
    /// The byte budget is exhausted. Retry later.
    Exhausted,
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

    /// Returns the body of a notification. A small update is encoded for each webhook.
    ///
    /// # Errors
    /// The byte budget is exhausted, or the log cannot be read.
    pub(super) async fn body(
        &self,
        engine: &Engine,
        webhook: &Webhook,
        seq: Seq,
        content: &NotificationContent,
    ) -> Result<Bytes, BodyError> {
        let task = &webhook.task;
        let version = webhook.registration.version;
        if let NotificationContent::Update(entry) = content {
            let update = entry.update(&task.id, &task.context_id);
            return Ok(update.map_or_else(Bytes::new, |update| encode(&update, version)));
        }
        let key = (task.id.clone(), seq, version);
        let slot = lock(&self.slots).entry(key.clone()).or_default().clone();
        let mut shared = slot.lock().await;
        let body = match shared.upgrade() {
            Some(body) => Ok(body),
            None => self
                .encode_large(engine, webhook, seq, content)
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

    /// Encodes a body within the byte budget. While this waits for the budget, it holds nothing.
    async fn encode_large(
        &self,
        engine: &Engine,
        webhook: &Webhook,
        seq: Seq,
        content: &NotificationContent,
    ) -> Result<EncodedBody, BodyError> {
        let head = &webhook.task;
        let caller = CallerKey::Caller(head.scope.owner.clone());
        let mut reservation = None;
        loop {
            let event = ReadEvent::read(engine, head, seq, content).await?;
            let bytes = 2 * event.memory_size();
            if let Some(budget) = &self.budget
                && reservation.is_none()
                && is_counted(bytes)
            {
                match budget.try_reserve(&caller, bytes) {
                    Ok(reserved) => reservation = Some(reserved),
                    Err(_) => {
                        drop(event);
                        let reserved = budget.reserve(&caller, bytes).await;
                        reservation = Some(reserved.map_err(|_| BodyError::Exhausted)?);
                        continue;
                    }
                }
            }
            return Ok(EncodedBody {
                bytes: event.encode(webhook.registration.version),
                _reservation: reservation,
            });
        }
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
        let mut body = before.to_vec();
        write_task(&mut body, task, &dialect);
        body.extend_from_slice(after);
        body.into()
    }
}

fn encode(event: &StreamResponse, version: Version) -> Bytes {
    let mut body = Vec::new();
    write_event(&mut body, event, false, &Dialect::from(version));
    body.into()
}
