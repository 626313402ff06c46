//! What an agent has said and the log has not taken yet.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::model::Event;

/// A bounded queue between a turn and its log. Costs a lock, and no channel.
#[derive(Debug)]
pub(crate) struct Queue {
    said: Mutex<Said>,
    limit: usize,
    /// Whether somebody waits for room.
    full: AtomicBool,
    room: Notify,
    news: Notify,
}

#[derive(Debug, Default)]
struct Said {
    events: Vec<Event>,
    closed: bool,
    /// How often something was said after that.
    late: u64,
}

/// Why something that was said is not in the queue.
pub(super) enum Unheard {
    /// There is no room for it yet.
    Full(Box<Event>),
    /// The turn is over: how often something was said after that.
    Late(u64),
}

/// Room for how many more is made behind so many: in few steps, since what was said is moved at each of them, and not in leaps
/// where that is much.
fn more_room(length: usize) -> usize {
    match length {
        0..4 => 4,
        4..16 => 7 * length,
        16..64 => 3 * length,
        _ => length,
    }
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            said: Mutex::default(),
            limit,
            full: AtomicBool::new(false),
            room: Notify::new(),
            news: Notify::new(),
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        // A vector is whole between any two calls, so a panic elsewhere spoils nothing.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the log is behind. What is said after the end of the turn is ignored: says how often that was so.
    pub(super) async fn room(&self, mut unheard: Unheard) -> Option<u64> {
        loop {
            let event = match unheard {
                Unheard::Full(event) => event,
                Unheard::Late(times) => return Some(times),
            };
            // Before looking once more: room made in between must wake us.
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            match self.push(*event) {
                Ok(()) => return None,
                Err(still) => unheard = still,
            }
            if matches!(unheard, Unheard::Full(_)) {
                room.await;
            }
        }
    }

    /// Takes an event if there is room for it.
    pub(super) fn push(&self, event: Event) -> Result<(), Unheard> {
        let mut said = self.said();
        if said.closed {
            said.late += 1;
            return Err(Unheard::Late(said.late));
        }
        if said.events.len() >= self.limit {
            self.full.store(true, Ordering::Relaxed);
            return Err(Unheard::Full(Box::new(event)));
        }
        let is_news = said.events.is_empty();
        if said.events.len() == said.events.capacity() {
            let more = more_room(said.events.len()).min(self.limit.max(4));
            said.events.reserve_exact(more);
        }
        said.events.push(event);
        drop(said);
        // Whoever takes them takes all: behind the first there is nobody to wake.
        if is_news {
            self.news.notify_one();
        }
        Ok(())
    }

    /// Moves everything said so far, in order, behind what is in `events`; an empty vector is swapped for the full one.
    pub(crate) fn take(&self, events: &mut Vec<Event>) {
        let mut said = self.said();
        if said.events.is_empty() {
            return;
        }
        if events.is_empty() {
            std::mem::swap(&mut said.events, events);
        } else {
            events.append(&mut said.events);
        }
        self.full.store(false, Ordering::Relaxed);
        drop(said);
        self.room.notify_waiters();
    }

    /// Whether the agent has more to say than there is room for.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether nothing was said that is not taken yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.said().events.is_empty()
    }

    /// Waits until something was said. May wake for nothing.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Lets nothing more in; whoever waits goes on, unheard.
    pub(crate) fn close(&self) {
        self.said().closed = true;
        self.room.notify_waiters();
    }
}
