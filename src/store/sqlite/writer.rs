//! The one thread that writes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::Options;
use super::error::{OpenError, Trouble};
use super::names::Names;
use super::open::Held;
use super::write::{Memo, Work};
use crate::store::{Error, Result};

/// What a command comes to: trouble with the file, which is everybody's, or an answer, which is the command's own.
pub(super) type Done<T> = rusqlite::Result<Result<T>>;

/// The way to the thread.
pub(super) struct Writer {
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

enum Command {
    Do(Box<dyn Asked>),
    /// Answered when all is done and the file is closed.
    Close(oneshot::Sender<()>),
}

impl Writer {
    pub(super) fn start(held: Held, options: &Options) -> Result<Self, OpenError> {
        let (commands, queue) = mpsc::channel(options.queue.max(1));
        let path = Arc::clone(&held.path);
        let thread = std::thread::Builder::new().name("attache-sqlite".to_owned());
        let thread = thread.spawn(move || work(held, queue)).map_err(|error| OpenError::io(&path, error))?;
        Ok(Self { commands: Some(commands), thread: Some(thread) })
    }

    /// Has something done in the next transaction; answers when that is committed.
    ///
    /// What was asked for is done even if nobody waits for the answer any more.
    pub(super) async fn ask<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Work<'_>) -> Done<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Do(Box::new(Question { run: Some(run), result: None, answer }))).await;
        answered.await.unwrap_or_else(|_| Err(Trouble::closed()))
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
        f.debug_struct("Writer").field("commands", &self.commands.is_some()).finish_non_exhaustive()
    }
}

fn work(held: Held, mut queue: mpsc::Receiver<Command>) {
    let Held { path, mut connection, names, lock, .. } = held;
    let (mut memo, mut closers, mut waiting) = (Memo::default(), Vec::new(), Vec::new());
    let most = queue.max_capacity();
    while queue.blocking_recv_many(&mut waiting, most) > 0 {
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
        answer(group, &path, &mut connection, &names, &mut memo);
    }
    // All of it is durable as it is; this only makes the next start quicker and the files fewer.
    let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    drop(connection);
    drop(lock);
    for closed in closers {
        let _ = closed.send(());
    }
}

/// Does a group of commands in one transaction and tells each how it went.
fn answer(
    mut group: Vec<Box<dyn Asked>>,
    path: &Path,
    connection: &mut Connection,
    names: &Names,
    memo: &mut Memo,
) {
    let committed = commit(&mut group, connection, names, memo);
    match committed {
        Ok(()) => memo.committed(names),
        Err(_) => memo.rolled_back(names),
    }
    let committed = committed.map_err(|error| Arc::new(Trouble::new(path, error)));
    for asked in group {
        asked.answer(committed.clone());
    }
}

fn commit(
    group: &mut [Box<dyn Asked>],
    connection: &mut Connection,
    names: &Names,
    memo: &mut Memo,
) -> rusqlite::Result<()> {
    // Rolled back when it is dropped before its commit.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut work = Work::new(&transaction, names, memo);
    for asked in group {
        asked.run(&mut work)?;
    }
    work.finish()?;
    transaction.commit()
}

/// A command whose answer has any type.
trait Asked: Send {
    /// Does it, and keeps the result until the commit.
    fn run(&mut self, work: &mut Work<'_>) -> rusqlite::Result<()>;

    /// Hands the result out.
    fn answer(self: Box<Self>, committed: Result<(), Arc<Trouble>>);
}

struct Question<T, F> {
    run: Option<F>,
    result: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce(&mut Work<'_>) -> Done<T> + Send> Asked for Question<T, F> {
    fn run(&mut self, work: &mut Work<'_>) -> rusqlite::Result<()> {
        if let Some(run) = self.run.take() {
            self.result = Some(run(work)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), Arc<Trouble>>) {
        let result = match committed {
            Ok(()) => self.result.unwrap_or_else(|| Err(Trouble::closed())),
            Err(trouble) => Err(Error::Failed(Box::new(trouble))),
        };
        // Whoever asked may have left.
        let _ = self.answer.send(result);
    }
}
