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
    fn announce(&self, task: &TaskId, at: Seq);

    /// Returns whether the task has at least one subscriber.
    fn is_watched(&self, task: &TaskId) -> bool;

    /// Subscribes to the task. The receiver changes after each announcement; announcements may be merged.
    fn watch(&self, task: &TaskId) -> watch::Receiver<Seq>;
}
