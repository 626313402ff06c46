//! Pool of read-only connections.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::Options;
use super::error::DatabaseError;
use super::open::{OpenDatabase, STATEMENT_CACHE_SIZE};
use crate::rt::{PoolLimits, ThreadPool, lock};
use crate::store::{Error, Result};

/// Pool of read-only connections, opened on demand. Reads run on threads of their own: blocking work elsewhere in the
/// process does not delay them.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: Arc<Path>,
    busy_timeout: Duration,
    size: u32,
    /// One permit for each connection in use. Closed when the pool is closed.
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// One thread for each permit.
    threads: ThreadPool<()>,
}

impl ReaderPool {
    pub(super) fn new(database: &OpenDatabase, options: &Options) -> Self {
        let size = u32::try_from(options.max_readers.clamp(1, 1_000)).unwrap_or(1);
        let permits = Arc::new(Semaphore::new(size as usize));
        Self {
            path: Arc::clone(&database.path),
            busy_timeout: options.busy_timeout,
            size,
            permits,
            idle: Mutex::default(),
            threads: ThreadPool::new(
                "attache-reader",
                PoolLimits {
                    threads: size as usize,
                    threads_per_owner: size as usize,
                    queue_per_owner: size as usize,
                },
            ),
        }
    }

    /// Runs a read on a reader thread. Waits while `max_readers` reads are running.
    pub(super) async fn run<T, F>(self: &Arc<Self>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| DatabaseError::closed())?;
        let pool = Arc::clone(self);
        let read = move || {
            let result = pool.with_connection(read);
            drop(permit);
            result
        };
        self.threads
            .run(&(), read)
            .await
            .map_err(|error| Error::Failed(Box::new(error)))?
    }

    /// Waits for running reads, refuses further ones and closes the connections.
    pub(super) async fn close(&self) {
        let all = self.permits.acquire_many(self.size).await;
        self.permits.close();
        self.close_idle();
        drop(all);
    }

    /// Refuses further reads and closes the idle connections.
    pub(super) fn close_idle(&self) {
        self.permits.close();
        lock(&self.idle).clear();
    }

    fn with_connection<T>(
        &self,
        read: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let idle = lock(&self.idle).pop();
        let attempt = || {
            let mut connection = idle.map_or_else(|| self.connect(), Ok)?;
            let result = read(&mut connection)?;
            // Not after an error: the file may have been replaced since the connection was opened.
            self.release(connection);
            Ok(result)
        };
        attempt().map_err(|error| DatabaseError::new(&self.path, error).into_store_error())
    }

    fn release(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        if !self.permits.is_closed() {
            idle.push(connection);
        }
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.busy_timeout)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
        Ok(connection)
    }
}
