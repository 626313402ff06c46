//! What an agent has said and the log has not taken yet.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::model::Event;

/// A bounded queue between a turn and its log. Costs a lock, and no channel.
#[derive(Debug)]
pub(crate) struct EventQueue {
    state: Mutex<QueueState>,
    limit: usize,
    /// Whether somebody waits for room.
    has_blocked_push: AtomicBool,
    space: Notify,
    events_added: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: Vec<Event>,
    closed: bool,
    /// How often something was said after that.
    late: u64,
}

/// Why something that was said is not in the queue.
pub(super) enum PushError {
    /// There is no room for it yet.
    Full(Box<Event>),
    /// The turn is over: how often something was said after that.
    Closed(u64),
}

/// Room for how many more is made behind so many: in few steps, since what was said is moved at each of them, and not in leaps
/// where that is much.
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
        // A vector is whole between any two calls, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the log is behind. What is said after the end of the turn is ignored: says how often that was so.
    pub(super) async fn wait_for_room(&self, mut push_error: PushError) -> Option<u64> {
        loop {
            let event = match push_error {
                PushError::Full(event) => event,
                PushError::Closed(times) => return Some(times),
            };
            // Before looking once more: room made in between must wake us.
            let mut space = pin!(self.space.notified());
            space.as_mut().enable();
            match self.push(*event) {
                Ok(()) => return None,
                Err(retry_error) => push_error = retry_error,
            }
            if matches!(push_error, PushError::Full(_)) {
                space.await;
            }
        }
    }

    /// Takes an event if there is room for it.
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
            let more = growth(state.events.len()).min(self.limit.max(4));
            state.events.reserve_exact(more);
        }
        state.events.push(event);
        drop(state);
        // Whoever takes them takes all: behind the first there is nobody to wake.
        if was_empty {
            self.events_added.notify_one();
        }
        Ok(())
    }

    /// Moves everything said so far, in order, behind what is in `events`; an empty vector is swapped for the full one.
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

    /// Whether the agent has more to say than there is room for.
    pub(crate) fn is_full(&self) -> bool {
        self.has_blocked_push.load(Ordering::Relaxed)
    }

    /// Whether nothing was said that is not taken yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().events.is_empty()
    }

    /// Waits until something was said. May wake for nothing.
    pub(crate) async fn wait_for_events(&self) {
        self.events_added.notified().await;
    }

    /// Lets nothing more in; whoever waits goes on, unheard.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.space.notify_waiters();
    }
}
