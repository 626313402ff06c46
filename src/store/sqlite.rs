//! Logs in one SQLite file.
//!
//! One thread writes. It takes every command that waits, does them all in one transaction and answers when that is on
//! disk: under load a flush is shared by many tasks. Readers have connections of their own and wait for nobody.

mod blocks;
mod error;
mod heads;
mod names;
mod open;
mod pushes;
mod read;
mod readers;
mod schema;
mod seal;
mod sieve;
mod upkeep;
mod write;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    Batch, Folded, Head, Key, NewTask, Opened, Page, Push, Query, Registered, Result, Seen, Store,
    Tally, Unwritable, Which, codec,
};
use crate::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use heads::Heads;
use readers::Readers;
use seal::Seal;
use write::{Addition, Creation};
use writer::Writer;

pub use error::OpenError;
pub use upkeep::Inspection;
pub use writer::Commits;

/// Keeps logs in a SQLite file, for one process at a time.
///
/// Dropping it finishes what was asked for and waits for that; [`Sqlite::close`] does the same without blocking.
#[derive(Debug)]
pub struct Sqlite {
    writer: Writer,
    readers: Arc<Readers>,
    heads: Arc<Heads>,
    seal: Arc<Seal>,
    path: Arc<Path>,
    min_free: u64,
}

/// How a [`Sqlite`] store works. The defaults suit most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What a commit waits for.
    pub synchronous: Synchronous,
    /// How many commands may wait for the writer; whoever comes later waits for a place.
    pub queue: usize,
    /// How many reads may run at a time.
    pub readers: usize,
    /// How long to wait for another program that has locked the file, such as a shell or a backup.
    pub busy_timeout: Duration,
    /// With fewer bytes left on the disk than this, the store says that it is not well, while it still can write.
    pub min_free: u64,
    /// Of how many tasks that were read the store remembers where they stand: to read one of them again it need not ask the
    /// file. Each takes about half a kilobyte.
    pub max_known_tasks: usize,
}

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Until the disk has it: what was acknowledged survives a loss of power.
    #[default]
    Full,
    /// Until the operating system has it. Faster where commits are rare. What was acknowledged survives the end of the
    /// process, however it ends; a loss of power may take the last commits, whole ones, and damages nothing.
    Normal,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            queue: 1024,
            readers: 4,
            busy_timeout: Duration::from_secs(5),
            min_free: 256 << 20,
            max_known_tasks: 10_000,
        }
    }
}

impl Sqlite {
    /// Opens a store, or makes one where there is no file yet; only its owner may read it, on Unix.
    ///
    /// A file of an older version is brought up to date, after a copy was put beside it. Blocks while it does that.
    ///
    /// # Errors
    /// The file cannot be used; the message says why and what to do. It is as it was.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::over(open::open(path.as_ref(), &options)?, &options)
    }

    fn over(held: open::Held, options: &Options) -> Result<Self, OpenError> {
        let readers = Arc::new(Readers::new(&held, options));
        let (seal, path) = (Arc::clone(&held.seal), Arc::clone(&held.path));
        let heads = Arc::new(Heads::new(options.max_known_tasks));
        let writer = Writer::start(held, Arc::clone(&heads), options)?;
        Ok(Self {
            writer,
            readers,
            heads,
            seal,
            path,
            min_free: options.min_free,
        })
    }

    /// Finishes what was asked for, moves it into the main file and lets go of it. Later calls fail.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Counts the commits, also once the store belongs to a server.
    #[must_use]
    pub fn commits(&self) -> Commits {
        self.writer.commits()
    }

    /// What is known of a task; nothing once the store was closed.
    fn known<T>(&self, look: impl FnOnce(&Heads) -> Option<T>) -> Option<T> {
        if self.readers.is_closed() {
            None
        } else {
            look(&self.heads)
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // The last connection tidies up; that is the writer's.
        self.readers.forget();
        self.writer.end();
    }
}

#[async_trait]
impl Store for Sqlite {
    fn is_shared(&self) -> bool {
        false
    }

    async fn check(&self) -> Result<(), Unwritable> {
        if let Some(why) = self.writer.unwritable() {
            let probed = self.writer.ask(|work| work.probe()).await;
            probed.map_err(|_| self.writer.unwritable().unwrap_or(why))?;
        }
        // Also where writes get through again: what is small may fit where the last one did not.
        let is_low = upkeep::free(&self.path).is_some_and(|free| free < self.min_free);
        if is_low {
            Err(Unwritable::AlmostFull)
        } else {
            Ok(())
        }
    }

    async fn create(&self, task: &NewTask) -> Result<Opened> {
        let task = Creation::new(task, &self.seal)?;
        self.writer.ask(move |work| work.create(&task)).await
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        let (id, scope, batch) = (task.id.clone(), task.scope.clone(), Addition::new(batch)?);
        self.writer
            .ask(move |work| work.append(&scope, &id, at, &batch))
            .await
    }

    async fn read(&self, task: &Head, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        self.readers
            .ask(move |connection, names| {
                read::entries(connection, names, &scope, &id, after, limit)
            })
            .await
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        if let Some(head) = self.known(|heads| heads.get(scope, task)) {
            return Ok(Some(head));
        }
        let (id, scope, reading) = (task.clone(), scope.clone(), self.heads.reading(task));
        let read = self
            .readers
            .ask(move |connection, names| read::find(connection, names, &scope, &id));
        let found = read.await?;
        // One that was found by its alias is known by its id only: the alias may be another's id.
        if let Some(head) = found.as_ref().filter(|head| head.id == *task) {
            self.heads.read(&reading, head);
        }
        Ok(found)
    }

    fn position(&self, scope: &Scope, task: &TaskId) -> Option<Seq> {
        self.known(|heads| heads.position(scope, task))
    }

    async fn seen(&self, scope: &Scope, key: &Key) -> Result<Option<Seen>> {
        let (scope, key) = (scope.clone(), key.clone());
        self.readers
            .ask(move |connection, names| read::seen(connection, names, &scope, &key))
            .await?
            .transpose()
    }

    async fn list(&self, scope: &Scope, query: &Query) -> Result<Page> {
        let (scope, query) = (scope.clone(), query.clone());
        self.readers
            .ask(move |connection, _| read::list(connection, &scope, &query))
            .await
    }

    async fn unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let after = after.cloned();
        self.readers
            .ask(move |connection, _| read::unfinished(connection, after.as_ref(), limit))
            .await
    }

    async fn with_work(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let after = after.cloned();
        self.readers
            .ask(move |connection, _| read::with_work(connection, after.as_ref(), limit))
            .await
    }

    async fn parked(&self, scope: &Scope, limit: usize) -> Result<Vec<Head>> {
        let scope = scope.clone();
        self.readers
            .ask(move |connection, _| read::parked(connection, &scope, limit))
            .await
    }

    async fn newest(&self) -> Result<Option<Timestamp>> {
        self.readers
            .ask(|connection, _| read::newest(connection))
            .await
    }

    async fn ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        self.readers
            .ask(move |connection, _| read::ended(connection, before, limit))
            .await
    }

    async fn count_ended(&self) -> Result<u64> {
        self.readers
            .ask(|connection, _| read::count_ended(connection))
            .await
    }

    async fn tally(&self, agent: &str, tenant: &str) -> Result<Option<Tally>> {
        let (agent, tenant) = (agent.to_owned(), tenant.to_owned());
        let read = move |connection: &mut _, _: &_| read::tally(connection, &agent, &tenant);
        self.readers.ask(read).await.map(Some)
    }

    async fn keep(&self, task: &Head, at: Seq, folded: &Folded) -> Result<()> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        let body = write::checked(codec::write_folded(folded))?;
        self.writer
            .ask(move |work| work.keep(&scope, &id, at, &body))
            .await
    }

    async fn kept(&self, task: &Head) -> Result<Option<(Seq, Folded)>> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        self.readers
            .ask(move |connection, names| read::kept(connection, names, &scope, &id))
            .await
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        let tasks: Vec<_> = tasks
            .iter()
            .map(|head| (head.scope.clone(), head.id.clone()))
            .collect();
        self.writer.ask(move |work| work.remove(&tasks)).await
    }

    async fn put_config(&self, task: &Head, config: &Registered) -> Result<()> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        let config = write::Config::new(config, &self.seal)?;
        self.writer
            .ask(move |work| work.put_config(&scope, &id, &config))
            .await
    }

    async fn configs(&self, task: &Head) -> Result<Vec<Registered>> {
        let (id, scope, seal) = (task.id.clone(), task.scope.clone(), self.seal.clone());
        let read = self
            .readers
            .ask(move |connection, names| read::configs(connection, names, &seal, &scope, &id));
        read.await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        let (task, scope, id) = (task.id.clone(), task.scope.clone(), id.clone());
        self.writer
            .ask(move |work| work.delete_config(&scope, &task, &id))
            .await
    }

    async fn pushes(&self, which: Which, after: Option<u64>, limit: usize) -> Result<Vec<Push>> {
        let seal = self.seal.clone();
        self.readers
            .ask(move |connection, _| pushes::list(connection, &seal, which, after, limit))
            .await
    }

    async fn push(&self, task: &Head, id: &PushConfigId) -> Result<Option<Push>> {
        let (task, scope, id, seal) = (
            task.id.clone(),
            task.scope.clone(),
            id.clone(),
            self.seal.clone(),
        );
        let read = self.readers.ask(move |connection, names| {
            pushes::one(connection, names, &seal, (&scope, &task), &id)
        });
        read.await
    }

    async fn record_delivery(&self, push: &Push) -> Result<bool> {
        let record = pushes::Record::new(push);
        self.writer
            .ask(move |work| record.write(work.connection))
            .await
    }
}
