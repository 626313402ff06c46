//! Commands to the writers, and the queue in front of them.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::error::DatabaseError;
use super::row::{delivery_columns, sql_number};
use crate::model::{PushConfigId, Scope, Seq, TaskId, Timestamp};
use crate::store::encoded::{EncodedBatch, EncodedConfig, EncodedTask};
use crate::store::{Error, Head, Result, Webhook, WriterRole};

/// Scope and id of a task, owned by a command.
#[derive(Debug, Clone)]
pub(super) struct TaskKey {
    pub(super) scope: Scope,
    pub(super) id: TaskId,
}

impl From<&Head> for TaskKey {
    fn from(head: &Head) -> Self {
        Self {
            scope: head.scope.clone(),
            id: head.id.clone(),
        }
    }
}

/// Write that shares a group commit with others of its kind, or runs alone.
pub(super) enum Write {
    Create(Box<EncodedTask>),
    Append(Box<AppendWrite>),
    Single(SingleWrite),
}

/// Append of a batch.
pub(super) struct AppendWrite {
    pub(super) task: TaskKey,
    pub(super) at: Seq,
    pub(super) batch: EncodedBatch,
    pub(super) role: WriterRole,
}

/// Write that is one statement of its own, and idempotent.
pub(super) enum SingleWrite {
    SaveSnapshot {
        task: TaskKey,
        at: Seq,
        body: Vec<u8>,
    },
    PutConfig {
        task: TaskKey,
        config: EncodedConfig,
    },
    DeleteConfig {
        task: TaskKey,
        id: PushConfigId,
    },
    RecordDelivery(DeliveryUpdate),
    Remove(Vec<TaskKey>),
    RemoveKeys {
        before: Timestamp,
        limit: usize,
    },
    /// Changes nothing; fails if writes fail.
    Probe,
}

/// Delivery progress of a webhook as columns.
pub(super) struct DeliveryUpdate {
    pub(super) number: i64,
    pub(super) generation: i64,
    pub(super) position: i64,
    pub(super) attempts: i64,
    pub(super) due: i64,
    pub(super) state: i16,
    pub(super) reason: String,
}

impl DeliveryUpdate {
    pub(super) fn new(webhook: &Webhook) -> Self {
        let (state, reason) = delivery_columns(&webhook.delivery.state);
        Self {
            number: sql_number(webhook.number),
            generation: sql_number(webhook.generation),
            position: sql_number(webhook.delivery.position.0),
            attempts: i64::from(webhook.delivery.attempts),
            due: webhook.delivery.due.as_millis(),
            state,
            reason,
        }
    }
}

/// Answer to a write that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The log ends at this position now.
    Committed(Seq),
    /// The idempotency key was used before with the same body. Nothing was written.
    Replayed,
    /// Number of rows that a single write has changed.
    Changed(u64),
}

/// Write in the queue or in the hands of a writer.
pub(super) struct Command {
    pub(super) write: Write,
    /// Replica id at the time of the call. After an eviction the command is refused, even if the process has joined again.
    pub(super) replica: i64,
    /// Time after which a write is not repeated any more, unless it is an append with a caller.
    pub(super) deadline: Instant,
    reply: oneshot::Sender<Result<Answer>>,
    /// Whether an attempt may have been committed without an answer.
    pub(super) is_uncertain: bool,
    /// Whether the write failed together with others and is repeated on its own.
    pub(super) runs_alone: bool,
    /// Attempts that failed because of a concurrent statement.
    pub(super) contentions: u32,
}

impl Command {
    pub(super) fn new(
        write: Write,
        replica: i64,
        deadline: Instant,
    ) -> (Self, oneshot::Receiver<Result<Answer>>) {
        let (reply, answer) = oneshot::channel();
        let command = Self {
            write,
            replica,
            deadline,
            reply,
            is_uncertain: false,
            runs_alone: false,
            contentions: 0,
        };
        (command, answer)
    }

    /// Answers the caller, if it still waits.
    pub(super) fn answer(self, result: Result<Answer>) {
        let _ = self.reply.send(result);
    }

    pub(super) fn fail(self, error: DatabaseError) {
        self.answer(Err(error.into_store_error()));
    }

    /// Refuses a write of an evicted replica.
    pub(super) fn refuse_evicted(self) {
        let result = match self.write {
            Write::Append(_) => Err(Error::Fenced),
            Write::Create(_) | Write::Single(_) => Err(not_a_member()),
        };
        self.answer(result);
    }

    /// Returns whether the write is not repeated any more while the database does not answer.
    ///
    /// An append is repeated as long as a runner waits for it: the runner cannot continue without its outcome.
    pub(super) fn is_expired(&self) -> bool {
        match self.write {
            Write::Append(_) => self.reply.is_closed(),
            Write::Create(_) | Write::Single(_) => Instant::now() >= self.deadline,
        }
    }

    /// Returns the size of the bodies in bytes.
    pub(super) fn body_bytes(&self) -> usize {
        let rows = |batch: &EncodedBatch| batch.rows.iter().map(|row| row.body.len()).sum();
        match &self.write {
            Write::Create(task) => rows(&task.batch),
            Write::Append(append) => rows(&append.batch),
            Write::Single(_) => 0,
        }
    }

    /// Returns the task whose other commands must not share the group.
    pub(super) fn task(&self) -> Option<&TaskId> {
        match &self.write {
            Write::Create(task) => Some(&task.id),
            Write::Append(append) => Some(&append.task.id),
            Write::Single(_) => None,
        }
    }

    /// Returns the scope and the idempotency key of the write.
    pub(super) fn key(&self) -> Option<(&Scope, &str)> {
        let (scope, batch) = match &self.write {
            Write::Create(task) => (&task.scope, &task.batch),
            Write::Append(append) => (&append.task.scope, &append.batch),
            Write::Single(_) => return None,
        };
        batch.key.as_ref().map(|key| (scope, key.text.as_str()))
    }
}

/// Error of a write while this replica is not a member of the cluster.
pub(super) fn not_a_member() -> Error {
    let message = "this replica is not a member of the cluster: it was evicted, or the database cannot be reached";
    DatabaseError::refused(message).into_store_error()
}

/// Receiving end of the queue, shared by the writers.
#[derive(Clone)]
pub(super) struct CommandQueue(Arc<Mutex<mpsc::Receiver<Command>>>);

impl CommandQueue {
    pub(super) fn new(receiver: mpsc::Receiver<Command>) -> Self {
        Self(Arc::new(Mutex::new(receiver)))
    }

    /// Waits for a command, then takes those that are queued, up to `limit`; empty if the queue is closed.
    ///
    /// Yields once before it takes the rest: callers that are about to send join the group.
    pub(super) async fn receive(&self, limit: usize) -> Vec<Command> {
        let mut commands = Vec::new();
        let mut queue = self.0.lock().await;
        if queue.recv_many(&mut commands, limit).await == 0 {
            return commands;
        }
        tokio::task::yield_now().await;
        while commands.len() < limit
            && let Ok(command) = queue.try_recv()
        {
            commands.push(command);
        }
        commands
    }
}
