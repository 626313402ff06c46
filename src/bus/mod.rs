//! Notifications that a task's log has grown.
//!
//! The bus carries positions, never events: a notification means "read the log again". A lost notification costs
//! latency, never an event, and a slow subscriber slows down no other.

mod local_bus;

use tokio::sync::watch;

use crate::model::{Seq, TaskId};

pub(crate) use local_bus::LocalBus;

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
}
