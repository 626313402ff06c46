//! Bounded queue of events between a turn and its log.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::model::Event;
use crate::rt::lock;

/// Bounded queue with one producer side (clones of a turn) and one consumer (the turn driver).
///
/// A mutex around a vector instead of a channel: the consumer takes the whole vector at once.
#[derive(Debug)]
pub(crate) struct EventQueue {
    state: Mutex<QueueState>,
    limit: usize,
    /// Whether a producer waits for space.
    has_blocked_push: AtomicBool,
    space: Notify,
    events_added: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: Vec<Event>,
    closed: bool,
    /// Number of pushes after the queue was closed.
    late: u64,
}

/// Reason why an event was not queued.
pub(super) enum PushError {
    /// The queue is full. Contains the event.
    Full(Box<Event>),
    /// The turn has ended. Contains the number of pushes since then, this one included.
    Closed(u64),
}

/// Returns by how much to grow a full buffer of `length` events.
///
/// Growth copies all queued events. Small buffers grow by a large factor to copy rarely, large ones double.
fn growth(length: usize) -> usize {
    match length {
        0..4 => 4,
        4..16 => 7 * length,
        16..64 => 3 * length,
        _ => length,
    }
}

impl EventQueue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::default(),
            limit,
            has_blocked_push: AtomicBool::new(false),
            space: Notify::new(),
            events_added: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }

    /// Queues the event of a failed push as soon as there is space (backpressure).
    ///
    /// Returns `None` once it is queued, or the number of pushes after the end of the turn if the queue is closed.
    pub(super) async fn wait_for_room(&self, mut push_error: PushError) -> Option<u64> {
        loop {
            let event = match push_error {
                PushError::Full(event) => event,
                PushError::Closed(times) => return Some(times),
            };
            // Registered before the push is tried again, so that space made in between is not missed.
            let mut space = pin!(self.space.notified());
            space.as_mut().enable();
            match self.push(*event) {
                Ok(()) => return None,
                Err(error) => push_error = error,
            }
            if matches!(push_error, PushError::Full(_)) {
                space.await;
            }
        }
    }

    /// Queues an event if there is space.
    pub(super) fn push(&self, event: Event) -> Result<(), PushError> {
        let mut state = self.state();
        if state.closed {
            state.late += 1;
            return Err(PushError::Closed(state.late));
        }
        if state.events.len() >= self.limit {
            self.has_blocked_push.store(true, Ordering::Relaxed);
            return Err(PushError::Full(Box::new(event)));
        }
        let was_empty = state.events.is_empty();
        if state.events.len() == state.events.capacity() {
            let additional = growth(state.events.len()).min(self.limit.max(4));
            state.events.reserve_exact(additional);
        }
        state.events.push(event);
        drop(state);
        // The consumer drains the whole queue, so only the first event needs to wake it.
        if was_empty {
            self.events_added.notify_one();
        }
        Ok(())
    }

    /// Moves all queued events, in order, to the end of `events`. Swaps the buffers if `events` is empty.
    pub(crate) fn drain_into(&self, events: &mut Vec<Event>) {
        let mut state = self.state();
        if state.events.is_empty() {
            return;
        }
        if events.is_empty() {
            std::mem::swap(&mut state.events, events);
        } else {
            events.append(&mut state.events);
        }
        self.has_blocked_push.store(false, Ordering::Relaxed);
        drop(state);
        self.space.notify_waiters();
    }

    /// Returns whether a producer waits for space.
    pub(crate) fn is_full(&self) -> bool {
        self.has_blocked_push.load(Ordering::Relaxed)
    }

    /// Returns whether no event is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().events.is_empty()
    }

    /// Waits for an event. May return although the queue is empty.
    pub(crate) async fn wait_for_events(&self) {
        self.events_added.notified().await;
    }

    /// Closes the queue. Blocked and later pushes fail with [`PushError::Closed`].
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.space.notify_waiters();
    }
}
