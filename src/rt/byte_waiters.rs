//! Queues of callers that wait for a part of a byte budget.
//!
//! Each caller has a FIFO queue. Released bytes go to the first waiters of the queues, the longest waiting first, as far as
//! they fit. A waiter that does not fit delays its own queue alone.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;

use super::Reservation;
use crate::model::CallerKey;

/// Waiters of all callers.
#[derive(Debug, Default)]
pub(super) struct ByteWaiters {
    queues: HashMap<CallerKey, BTreeMap<u64, ByteWaiter>>,
    /// First waiter of each queue.
    heads: BTreeMap<u64, CallerKey>,
    /// Number of tickets issued. Tickets order the waiters.
    tickets: u64,
}

/// Waiter for a number of bytes.
#[derive(Debug)]
struct ByteWaiter {
    bytes: usize,
    grant: oneshot::Sender<Reservation>,
}

/// Reservation for a waiter that has left its queue.
pub(super) type Grant = (oneshot::Sender<Reservation>, Reservation);

impl ByteWaiters {
    /// Whether a caller has waiters.
    pub(super) fn has_waiters(&self, caller: &CallerKey) -> bool {
        self.queues.contains_key(caller)
    }

    /// Adds a waiter to the queue of its caller. Returns its ticket, and the receiver of its reservation.
    pub(super) fn push(
        &mut self,
        caller: &CallerKey,
        bytes: usize,
    ) -> (u64, oneshot::Receiver<Reservation>) {
        self.tickets += 1;
        let ticket = self.tickets;
        let (grant, granted) = oneshot::channel();
        if !self.has_waiters(caller) {
            self.heads.insert(ticket, caller.clone());
        }
        let queue = self.queues.entry(caller.clone()).or_default();
        queue.insert(ticket, ByteWaiter { bytes, grant });
        (ticket, granted)
    }

    /// Removes a waiter, if it still waits.
    pub(super) fn remove(&mut self, caller: &CallerKey, ticket: u64) {
        let Some(queue) = self.queues.get_mut(caller) else {
            return;
        };
        if queue.remove(&ticket).is_none() {
            return;
        }
        let next = queue.keys().next().copied();
        if next.is_none() {
            self.queues.remove(caller);
        }
        if self.heads.remove(&ticket).is_some()
            && let Some(next) = next
        {
            self.heads.insert(next, caller.clone());
        }
    }

    /// Removes the first waiters of the queues for which `reserve` succeeds.
    pub(super) fn take_granted(
        &mut self,
        mut reserve: impl FnMut(&CallerKey, usize) -> Option<Reservation>,
    ) -> Vec<Grant> {
        let mut granted = Vec::new();
        let mut after = 0;
        while let Some((&ticket, caller)) = self.heads.range(after..).next() {
            after = ticket + 1;
            let caller = caller.clone();
            let Some(queue) = self.queues.get_mut(&caller) else {
                self.heads.remove(&ticket);
                continue;
            };
            while let Some(waiter) = queue.first_entry() {
                let Some(reservation) = reserve(&caller, waiter.get().bytes) else {
                    break;
                };
                granted.push((waiter.remove().grant, reservation));
            }
            let next = queue.keys().next().copied();
            if next == Some(ticket) {
                continue;
            }
            self.heads.remove(&ticket);
            match next {
                Some(next) => drop(self.heads.insert(next, caller)),
                None => drop(self.queues.remove(&caller)),
            }
        }
        granted
    }
}
