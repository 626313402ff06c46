//! The one thread that writes.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot};

use super::Options;
use super::error::{DatabaseError, OpenError};
use super::head_cache::HeadCache;
use super::open::OpenDatabase;
use super::write::{PreparedStatement, Transaction};
use crate::store::{Error, HealthProblem, Result};

/// What a command comes to: error, after which nothing of it is there, or an answer.
pub(super) type CommandResult<T> = rusqlite::Result<Result<T>>;

/// The way to the thread.
pub(super) struct WriterHandle {
    commands: Option<mpsc::Sender<WriterRequest>>,
    thread: Option<JoinHandle<()>>,
    status: WriterStatus,
}

/// What the thread and those who ask both know.
#[derive(Clone, Default)]
struct WriterStatus {
    /// Why the last write has failed.
    health_problem: Arc<Mutex<Option<HealthProblem>>>,
    commits: CommitCounter,
}

impl WriterStatus {
    fn health_problem(&self) -> MutexGuard<'_, Option<HealthProblem>> {
        // A value that is put there whole.
        self.health_problem
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the commits of a store: how many batches share one is what a busy store is quick by.
#[derive(Debug, Clone, Default)]
pub struct CommitCounter(Arc<AtomicU64>);

impl CommitCounter {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

enum WriterRequest {
    Run(Box<dyn AnyCommand>),
    /// Answered when all is done and the file is closed.
    Close(oneshot::Sender<()>),
}

impl WriterHandle {
    pub(super) fn start(
        database: OpenDatabase,
        head_cache: Arc<HeadCache>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let (commands, queue) = mpsc::channel(options.queue_capacity.max(1));
        let path = Arc::clone(&database.path);
        let thread = std::thread::Builder::new().name("attache-sqlite".to_owned());
        let status = WriterStatus::default();
        let thread_status = status.clone();
        let thread = thread.spawn(move || run_writer((database, head_cache), queue, thread_status));
        let thread = thread.map_err(|error| OpenError::io(&path, error))?;
        Ok(Self {
            commands: Some(commands),
            thread: Some(thread),
            status,
        })
    }

    /// Has something done in the next transaction; answers when that is committed.
    ///
    /// What was command for is done even if nobody waits for the answer any more. It may be done twice, where the first
    /// time was rolled back. Whoever asks later may hear first.
    pub(super) async fn run<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> CommandResult<T> + Send + 'static,
    {
        let (reply, replied) = oneshot::channel();
        // One that runs only while somebody waits for something may never come to hand out what others wait for.
        let runtime = Handle::try_current()
            .ok()
            .filter(|its| its.runtime_flavor() == RuntimeFlavor::MultiThread);
        self.send(WriterRequest::Run(Box::new(WriteCommand {
            run,
            result: None,
            reply,
            runtime,
        })))
        .await;
        // What was command comes back with the answer: large pieces of memory are given back where they were taken, and threads
        // do not wait for each other to do so.
        replied
            .await
            .map_or_else(|_| Err(DatabaseError::closed()), |(result, _run)| result)
    }

    /// How many commands wait.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.commands
            .as_ref()
            .map_or(0, |commands| commands.max_capacity() - commands.capacity())
    }

    /// Counts the commits since the store was opened.
    pub(super) fn commit_counter(&self) -> CommitCounter {
        self.status.commits.clone()
    }

    /// Why the last write has failed, if it has.
    pub(super) fn health_problem(&self) -> Option<HealthProblem> {
        *self.status.health_problem()
    }

    pub(super) async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        self.send(WriterRequest::Close(closed)).await;
        // Nobody answers when it was closed before.
        let _ = is_closed.await;
    }

    /// A command that finds nobody is dropped, and its answer with it.
    async fn send(&self, command: WriterRequest) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command).await;
        }
    }

    /// Waits until all that was command for is done and the file is closed.
    pub(super) fn shut_down(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // It has told about its panic already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterHandle")
            .field("commands", &self.commands.is_some())
            .finish_non_exhaustive()
    }
}

/// What the thread works with.
struct WriterLoop<'a> {
    path: Arc<Path>,
    begin: PreparedStatement<'a>,
    commit: PreparedStatement<'a>,
    transaction: Transaction<'a>,
    head_cache: Arc<HeadCache>,
    status: WriterStatus,
}

fn run_writer(
    (database, head_cache): (OpenDatabase, Arc<HeadCache>),
    mut queue: mpsc::Receiver<WriterRequest>,
    status: WriterStatus,
) {
    let OpenDatabase {
        path,
        connection,
        id_index,
        lock,
        ..
    } = database;
    let mut writer = WriterLoop {
        path,
        begin: PreparedStatement::new("BEGIN IMMEDIATE"),
        commit: PreparedStatement::new("COMMIT"),
        transaction: Transaction::new(&connection, &id_index),
        head_cache,
        status,
    };
    let (mut closers, mut waiting) = (Vec::new(), Vec::new());
    let max_group = queue.max_capacity();
    while queue.blocking_recv_many(&mut waiting, max_group) > 0 {
        drain_queue(&mut queue, &mut waiting);
        let mut group = Vec::with_capacity(waiting.len());
        for request in waiting.drain(..) {
            match request {
                WriterRequest::Run(command) => group.push(command),
                WriterRequest::Close(closed) => {
                    queue.close();
                    closers.push(closed);
                }
            }
        }
        writer.execute_group(group);
    }
    drop(writer);
    // All of it is durable as it is; this only makes the next start quicker and the files fewer.
    let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    drop(connection);
    drop(lock);
    for closed in closers {
        let _ = closed.send(());
    }
}

/// Lets those go first who are about to ask for something and share a core with us: what shares a commit costs a fraction
/// of one of its own, and whoever waits for it waits about as long.
fn drain_queue(queue: &mut mpsc::Receiver<WriterRequest>, waiting: &mut Vec<WriterRequest>) {
    std::thread::yield_now();
    while waiting.len() < queue.max_capacity()
        && let Ok(command) = queue.try_recv()
    {
        waiting.push(command);
    }
}

impl WriterLoop<'_> {
    /// Does a group of commands in one transaction and tells each how it went. Where one of them fails, each has a
    /// transaction of its own: its neighbours are committed.
    fn execute_group(&mut self, mut group: Vec<Box<dyn AnyCommand>>) {
        let committed = self.commit(&mut group);
        match committed {
            Err(error) if group.len() > 1 && !error.affects_all_commands() => {
                for mut command in group {
                    let committed = self.commit(std::slice::from_mut(&mut command));
                    command.reply(committed);
                }
            }
            committed => GroupReply { group, committed }.deliver(),
        }
    }

    /// Commits all of them or none, and remembers how the file took it.
    fn commit(&mut self, group: &mut [Box<dyn AnyCommand>]) -> Result<(), Arc<DatabaseError>> {
        // Unwind safe: what a panic leaves behind is rolled back like any other failure.
        let committed = catch_unwind(AssertUnwindSafe(|| self.transact(group)));
        let committed = match committed {
            Ok(committed) => committed.map_err(|error| DatabaseError::new(&self.path, error)),
            Err(_) => Err(DatabaseError::panicked()),
        };
        match &committed {
            Ok(()) => {
                self.transaction.after_commit(&self.head_cache);
                *self.status.health_problem() = None;
                self.status.commits.0.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                self.transaction.after_rollback(&self.head_cache);
                if let Some(problem) = error.health_problem() {
                    *self.status.health_problem() = Some(problem);
                }
            }
        }
        committed.map_err(Arc::new)
    }

    fn transact(&mut self, group: &mut [Box<dyn AnyCommand>]) -> rusqlite::Result<()> {
        let connection = self.transaction.connection;
        self.begin.execute(connection, ())?;
        let _guard = RollbackGuard(connection);
        for command in group {
            command.run(&mut self.transaction)?;
        }
        self.transaction.before_commit()?;
        self.commit.execute(connection, ())?;
        Ok(())
    }
}

/// A transaction. Rolled back when it is dropped before its commit.
struct RollbackGuard<'a>(&'a Connection);

impl Drop for RollbackGuard<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // Where even that fails, the next one finds a transaction open and fails too: it says so.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

/// What became of a group, on its way to those who command.
struct GroupReply {
    group: Vec<Box<dyn AnyCommand>>,
    committed: Result<(), Arc<DatabaseError>>,
}

impl GroupReply {
    /// Hands them out where those are who command, if all are in one place. From here each would wake a worker of their runtime that
    /// may have gone to sleep again before the next; from there one wake does for all.
    fn deliver(self) {
        if let Some(runtime) = self.runtime() {
            // Done when it is first looked at, and by whoever drops it if that is never.
            drop(runtime.spawn(async move { drop(self) }));
        }
    }

    /// The one runtime of several who command.
    fn runtime(&self) -> Option<Handle> {
        let (first, others) = self.group.split_first()?;
        let runtime = first.runtime().filter(|_| !others.is_empty())?;
        let is_theirs = |its: &Handle| its.id() == runtime.id();
        others
            .iter()
            .all(|command| command.runtime().is_some_and(is_theirs))
            .then(|| runtime.clone())
    }
}

impl Drop for GroupReply {
    fn drop(&mut self) {
        for command in self.group.drain(..) {
            command.reply(self.committed.clone());
        }
    }
}

/// A command whose answer has any type.
trait AnyCommand: Send {
    /// Where whoever command is, if answers can be handed out there.
    fn runtime(&self) -> Option<&Handle>;

    /// Does it, and keeps the result until the commit.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()>;

    /// Hands the result out.
    fn reply(self: Box<Self>, committed: Result<(), Arc<DatabaseError>>);
}

struct WriteCommand<T, F> {
    run: F,
    result: Option<Result<T>>,
    reply: oneshot::Sender<(Result<T>, F)>,
    runtime: Option<Handle>,
}

impl<T: Send, F: FnMut(&mut Transaction<'_>) -> CommandResult<T> + Send> AnyCommand
    for WriteCommand<T, F>
{
    fn runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.run)(transaction)?);
        Ok(())
    }

    fn reply(self: Box<Self>, committed: Result<(), Arc<DatabaseError>>) {
        let Self {
            run, result, reply, ..
        } = *self;
        let result = match committed {
            Ok(()) => result.unwrap_or_else(|| Err(DatabaseError::closed())),
            Err(error) => Err(Error::Failed(Box::new(error))),
        };
        // Whoever command may have left.
        let _ = reply.send((result, run));
    }
}
