//! Connections that only read.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::Options;
use super::error::DatabaseError;
use super::id_index::IdIndex;
use super::open::{OpenDatabase, STATEMENT_CACHE_SIZE};
use crate::store::{Error, Result};

/// A few connections, opened when they are first needed.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: Arc<Path>,
    id_index: Arc<IdIndex>,
    busy_timeout: Duration,
    size: u32,
    /// One for each connection that may be at work.
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(database: &OpenDatabase, options: &Options) -> Self {
        let size = u32::try_from(options.max_readers.clamp(1, 1_000)).unwrap_or(1);
        let permits = Arc::new(Semaphore::new(size as usize));
        let (path, id_index) = (Arc::clone(&database.path), Arc::clone(&database.id_index));
        Self {
            path,
            id_index,
            busy_timeout: options.busy_timeout,
            size,
            permits,
            idle: Mutex::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn id_index(&self) -> &IdIndex {
        &self.id_index
    }

    /// Reads on a thread that may block.
    pub(super) async fn run<T, F>(self: &Arc<Self>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection, &IdIndex) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| DatabaseError::closed())?;
        let readers = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let result = readers.with_connection(read);
            drop(permit);
            result
        });
        read.await.map_err(|error| Error::Failed(Box::new(error)))?
    }

    /// Waits for reads that are under way, and lets no more begin.
    pub(super) async fn close(&self) {
        let all = self.permits.acquire_many(self.size).await;
        self.permits.close();
        self.close_idle();
        drop(all);
    }

    /// Whether no more reads may begin.
    pub(super) fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }

    /// Closes what is not in use.
    pub(super) fn close_idle(&self) {
        self.permits.close();
        self.idle().clear();
    }

    fn with_connection<T>(
        &self,
        read: impl FnOnce(&mut Connection, &IdIndex) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let idle = self.idle().pop();
        let read_on = || {
            let mut connection = idle.map_or_else(|| self.connect(), Ok)?;
            let result = read(&mut connection, &self.id_index)?;
            // Only after success: one that failed may have seen a file that is no longer there.
            self.release(connection);
            Ok(result)
        };
        read_on().map_err(|error| Error::Failed(Box::new(DatabaseError::new(&self.path, error))))
    }

    fn release(&self, connection: Connection) {
        let mut idle = self.idle();
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

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        // Connections are put in and taken out whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
