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
use super::error::{OpenError, Trouble};
use super::heads::Heads;
use super::open::Held;
use super::write::{Kept, Work};
use crate::store::{Error, Result, Unwritable};

/// What a command comes to: trouble, after which nothing of it is there, or an answer.
pub(super) type Done<T> = rusqlite::Result<Result<T>>;

/// The way to the thread.
pub(super) struct Writer {
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    known: Known,
}

/// What the thread and those who ask both know.
#[derive(Clone, Default)]
struct Known {
    /// Why the last write has failed.
    unwritable: Arc<Mutex<Option<Unwritable>>>,
    commits: Commits,
}

impl Known {
    fn unwritable(&self) -> MutexGuard<'_, Option<Unwritable>> {
        // A value that is put there whole.
        self.unwritable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the commits of a store: how many batches share one is what a busy store is quick by.
#[derive(Debug, Clone, Default)]
pub struct Commits(Arc<AtomicU64>);

impl Commits {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

enum Command {
    Do(Box<dyn Asked>),
    /// Answered when all is done and the file is closed.
    Close(oneshot::Sender<()>),
}

impl Writer {
    pub(super) fn start(
        held: Held,
        heads: Arc<Heads>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let (commands, queue) = mpsc::channel(options.queue.max(1));
        let path = Arc::clone(&held.path);
        let thread = std::thread::Builder::new().name("attache-sqlite".to_owned());
        let known = Known::default();
        let its = known.clone();
        let thread = thread.spawn(move || work((held, heads), queue, its));
        let thread = thread.map_err(|error| OpenError::io(&path, error))?;
        Ok(Self {
            commands: Some(commands),
            thread: Some(thread),
            known,
        })
    }

    /// Has something done in the next transaction; answers when that is committed.
    ///
    /// What was asked for is done even if nobody waits for the answer any more. It may be done twice, where the first
    /// time was rolled back. Whoever asks later may hear first.
    pub(super) async fn ask<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Work<'_>) -> Done<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        // One that runs only while somebody waits for something may never come to hand out what others wait for.
        let runtime = Handle::try_current()
            .ok()
            .filter(|its| its.runtime_flavor() == RuntimeFlavor::MultiThread);
        self.send(Command::Do(Box::new(Question {
            run,
            result: None,
            answer,
            runtime,
        })))
        .await;
        // What was asked comes back with the answer: large pieces of memory are given back where they were taken, and threads
        // do not wait for each other to do so.
        answered
            .await
            .map_or_else(|_| Err(Trouble::closed()), |(result, _asked)| result)
    }

    /// How many commands wait.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.commands
            .as_ref()
            .map_or(0, |commands| commands.max_capacity() - commands.capacity())
    }

    /// Counts the commits since the store was opened.
    pub(super) fn commits(&self) -> Commits {
        self.known.commits.clone()
    }

    /// Why the last write has failed, if it has.
    pub(super) fn unwritable(&self) -> Option<Unwritable> {
        *self.known.unwritable()
    }

    pub(super) async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        self.send(Command::Close(closed)).await;
        // Nobody answers when it was closed before.
        let _ = is_closed.await;
    }

    /// A command that finds nobody is dropped, and its answer with it.
    async fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command).await;
        }
    }

    /// Waits until all that was asked for is done and the file is closed.
    pub(super) fn end(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // It has told about its panic already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("commands", &self.commands.is_some())
            .finish_non_exhaustive()
    }
}

/// What the thread works with.
struct Desk<'a> {
    path: Arc<Path>,
    begin: Kept<'a>,
    commit: Kept<'a>,
    work: Work<'a>,
    heads: Arc<Heads>,
    known: Known,
}

fn work((held, heads): (Held, Arc<Heads>), mut queue: mpsc::Receiver<Command>, known: Known) {
    let Held {
        path,
        connection,
        names,
        lock,
        ..
    } = held;
    let mut desk = Desk {
        path,
        begin: Kept::new("BEGIN IMMEDIATE"),
        commit: Kept::new("COMMIT"),
        work: Work::new(&connection, &names),
        heads,
        known,
    };
    let (mut closers, mut waiting) = (Vec::new(), Vec::new());
    let most = queue.max_capacity();
    while queue.blocking_recv_many(&mut waiting, most) > 0 {
        gather(&mut queue, &mut waiting);
        let mut group = Vec::with_capacity(waiting.len());
        for command in waiting.drain(..) {
            match command {
                Command::Do(asked) => group.push(asked),
                Command::Close(closed) => {
                    queue.close();
                    closers.push(closed);
                }
            }
        }
        desk.answer(group);
    }
    drop(desk);
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
fn gather(queue: &mut mpsc::Receiver<Command>, waiting: &mut Vec<Command>) {
    std::thread::yield_now();
    while waiting.len() < queue.max_capacity()
        && let Ok(command) = queue.try_recv()
    {
        waiting.push(command);
    }
}

impl Desk<'_> {
    /// Does a group of commands in one transaction and tells each how it went. Where one of them fails, each has a
    /// transaction of its own: its neighbours are committed.
    fn answer(&mut self, mut group: Vec<Box<dyn Asked>>) {
        let committed = self.commit(&mut group);
        match committed {
            Err(trouble) if group.len() > 1 && !trouble.is_everybodys() => {
                for mut asked in group {
                    let committed = self.commit(std::slice::from_mut(&mut asked));
                    asked.answer(committed);
                }
            }
            committed => Answers { group, committed }.hand_out(),
        }
    }

    /// Commits all of them or none, and remembers how the file took it.
    fn commit(&mut self, group: &mut [Box<dyn Asked>]) -> Result<(), Arc<Trouble>> {
        // Unwind safe: what a panic leaves behind is rolled back like any other failure.
        let committed = catch_unwind(AssertUnwindSafe(|| self.transact(group)));
        let committed = match committed {
            Ok(committed) => committed.map_err(|error| Trouble::new(&self.path, error)),
            Err(_) => Err(Trouble::panicked()),
        };
        match &committed {
            Ok(()) => {
                self.work.committed(&self.heads);
                *self.known.unwritable() = None;
                self.known.commits.0.fetch_add(1, Ordering::Relaxed);
            }
            Err(trouble) => {
                self.work.rolled_back(&self.heads);
                if let Some(why) = trouble.unwritable() {
                    *self.known.unwritable() = Some(why);
                }
            }
        }
        committed.map_err(Arc::new)
    }

    fn transact(&mut self, group: &mut [Box<dyn Asked>]) -> rusqlite::Result<()> {
        let connection = self.work.connection;
        self.begin.execute(connection, ())?;
        let _open = Open(connection);
        for asked in group {
            asked.run(&mut self.work)?;
        }
        self.work.finish()?;
        self.commit.execute(connection, ())?;
        Ok(())
    }
}

/// A transaction. Rolled back when it is dropped before its commit.
struct Open<'a>(&'a Connection);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // Where even that fails, the next one finds a transaction open and fails too: it says so.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

/// What became of a group, on its way to those who asked.
struct Answers {
    group: Vec<Box<dyn Asked>>,
    committed: Result<(), Arc<Trouble>>,
}

impl Answers {
    /// Hands them out where those are who asked, if all are in one place. From here each would wake a worker of their runtime that
    /// may have gone to sleep again before the next; from there one wake does for all.
    fn hand_out(self) {
        if let Some(runtime) = self.runtime() {
            // Done when it is first looked at, and by whoever drops it if that is never.
            drop(runtime.spawn(async move { drop(self) }));
        }
    }

    /// The one runtime of several who asked.
    fn runtime(&self) -> Option<Handle> {
        let (first, others) = self.group.split_first()?;
        let runtime = first.runtime().filter(|_| !others.is_empty())?;
        let is_theirs = |its: &Handle| its.id() == runtime.id();
        others
            .iter()
            .all(|asked| asked.runtime().is_some_and(is_theirs))
            .then(|| runtime.clone())
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        for asked in self.group.drain(..) {
            asked.answer(self.committed.clone());
        }
    }
}

/// A command whose answer has any type.
trait Asked: Send {
    /// Where whoever asked is, if answers can be handed out there.
    fn runtime(&self) -> Option<&Handle>;

    /// Does it, and keeps the result until the commit.
    fn run(&mut self, work: &mut Work<'_>) -> rusqlite::Result<()>;

    /// Hands the result out.
    fn answer(self: Box<Self>, committed: Result<(), Arc<Trouble>>);
}

struct Question<T, F> {
    run: F,
    result: Option<Result<T>>,
    answer: oneshot::Sender<(Result<T>, F)>,
    runtime: Option<Handle>,
}

impl<T: Send, F: FnMut(&mut Work<'_>) -> Done<T> + Send> Asked for Question<T, F> {
    fn runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    fn run(&mut self, work: &mut Work<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.run)(work)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), Arc<Trouble>>) {
        let Self {
            run,
            result,
            answer,
            ..
        } = *self;
        let result = match committed {
            Ok(()) => result.unwrap_or_else(|| Err(Trouble::closed())),
            Err(trouble) => Err(Error::Failed(Box::new(trouble))),
        };
        // Whoever asked may have left.
        let _ = answer.send((result, run));
    }
}
