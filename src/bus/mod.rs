//! Notifications that a task's log has grown.
//!
//! The bus carries positions, never events: a notification means "read the log again". A lost notification costs
//! latency, never an event, and a slow subscriber slows down no other.

mod channels;
mod cluster_bus;
mod local_bus;
mod message;
mod outbox;
#[cfg(test)]
pub(crate) mod test_network;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::Pin;

use tokio::sync::watch;

use crate::model::{Seq, TaskId, Timestamp};

pub(crate) use cluster_bus::ClusterBus;
pub(crate) use local_bus::LocalBus;

/// Boxed future of a bus.
pub(crate) type BusFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a bus between replicas needs of its replica.
pub(crate) trait BusHost: Send + Sync {
    /// Returns the wall-clock time, for the latency of messages.
    fn now(&self) -> Timestamp;

    /// Sends a heartbeat before its interval has passed: another replica has left.
    fn request_heartbeat(&self);
}

/// Publishes the positions of task logs to their readers.
pub(crate) trait Bus: Send + Sync + 'static {
    /// Announces that the log of the task reaches to `at` now.
    ///
    /// Wakes the subscribers in this process, and replicas that have requested announcements of the task.
    fn announce(&self, task: &TaskId, at: Seq);

    /// Announces like [`announce`](Self::announce) to every replica: the holder of the task may not have requested it.
    fn announce_to_all(&self, task: &TaskId, at: Seq) {
        self.announce(task, at);
    }

    /// Announces to the subscribers in this process alone.
    fn announce_locally(&self, task: &TaskId, at: Seq) {
        self.announce(task, at);
    }

    /// Requests announcements from the replica that holds the task, while the task has a subscriber here.
    fn request_announcements(&self, _task: &TaskId) {}

    /// Returns whether messages reach the other replicas.
    fn is_up(&self) -> bool {
        true
    }

    /// Returns a counter of the times at which messages of other replicas may have been lost. `None`: there are none.
    fn gaps(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Returns whether the task has at least one subscriber.
    fn is_watched(&self, task: &TaskId) -> bool;

    /// Subscribes to the task. The receiver changes after each announcement; announcements may be merged.
    fn watch(&self, task: &TaskId) -> watch::Receiver<Seq>;

    /// Exchanges messages with other replicas, without end.
    fn run<'a>(&'a self, _host: &'a dyn BusHost) -> BusFuture<'a, Infallible> {
        Box::pin(std::future::pending())
    }

    /// Sends the waiting messages and announces that this replica has left. [`run`](Self::run) has ended.
    fn announce_departure(&self, _now: Timestamp) -> BusFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
