//! Wake-ups: the bus carries positions, never events.

mod local_bus;

use tokio::sync::watch;

use crate::model::{Seq, TaskId};

pub(crate) use local_bus::LocalBus;

/// Tells readers that a log has grown.
pub(crate) trait Bus: Send + Sync + 'static {
    /// The log of the task now reaches to `at`.
    fn announce(&self, task: &TaskId, at: Seq);

    /// Whether anybody watches the task now.
    fn is_watched(&self, task: &TaskId) -> bool;

    /// Wakes after an announcement: a wake-up says "look", no more.
    fn watch(&self, task: &TaskId) -> watch::Receiver<Seq>;
}
