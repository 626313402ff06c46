//! Options of the SQLite store.

use std::time::Duration;

/// Options of a [`Sqlite`](super::Sqlite) store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Durability of a commit.
    pub synchronous: Synchronous,
    /// Capacity of the writer's command queue. Further writes wait for a free slot.
    pub queue_capacity: usize,
    /// Number of reader threads, each with a connection. Further reads wait.
    pub max_readers: usize,
    /// How long to wait for a lock that another program holds on the file, such as a shell or a backup.
    pub busy_timeout: Duration,
    /// Free disk space in bytes below which the store reports
    /// [`AlmostFull`](crate::store::HealthProblem::AlmostFull), while writes still succeed.
    pub min_free_bytes: u64,
}

/// Durability of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// A commit waits for fsync. Acknowledged writes survive a power loss.
    #[default]
    Full,
    /// A commit waits until the operating system has the data. Acknowledged writes survive a crash of the process. A
    /// power loss may remove the last commits, but does not damage the file. Faster if commits are rare.
    Normal,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            queue_capacity: 1024,
            max_readers: 4,
            busy_timeout: Duration::from_secs(5),
            min_free_bytes: 256 << 20,
        }
    }
}
