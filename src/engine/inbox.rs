//! Inbox of a runner: the bounded queue of commands to the one runner of an active task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::active_tasks::ActiveTask;
use super::{AcceptedMessage, Error, Result};
use crate::model::{Call, Message, Object, Task};
use crate::rt::lock;
use crate::store::IdempotencyKey;

/// Command to the runner of a task.
pub(super) enum RunnerCommand {
    /// Accept this message.
    Message(Box<IncomingMessage>),
    /// Cancel the task.
    Cancel {
        metadata: Option<Object>,
        deadline: Instant,
        reply: oneshot::Sender<Result<Task>>,
    },
    /// Record that an event of the agent after the end of its turn was ignored.
    RecordLate,
    /// Startup recovery: apply `on_restart`.
    Recover,
    /// The task may be unanswered or orphaned for too long: apply the policies.
    Expire,
    /// Too many tasks of anonymous callers are waiting: fail the task if it is parked.
    ExpireOverQuota,
}

impl RunnerCommand {
    /// Replies to the sender of the command with an error.
    pub(super) fn reject(self, error: Error) {
        match self {
            Self::Message(incoming) => drop(incoming.reply.send(Err(error))),
            Self::Cancel { reply, .. } => drop(reply.send(Err(error))),
            Self::RecordLate | Self::Recover | Self::Expire | Self::ExpireOverQuota => {}
        }
    }
}

/// A message to an existing task, and the channel for the reply to its sender.
pub(super) struct IncomingMessage {
    pub(super) call: Call,
    pub(super) message: Message,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Box<AcceptedMessage>>>,
}

/// Sending half of an inbox.
///
/// A mutex around a queue instead of a channel: most tasks never get a command, and an empty queue allocates nothing.
pub(super) struct InboxSender {
    queue: Mutex<InboxQueue>,
    command_added: Notify,
}

struct InboxQueue {
    commands: VecDeque<RunnerCommand>,
    capacity: usize,
    /// Whether the runner has retired.
    closed: bool,
}

impl InboxSender {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            queue: Mutex::new(InboxQueue {
                commands: VecDeque::new(),
                capacity: capacity.max(1),
                closed: false,
            }),
            command_added: Notify::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, InboxQueue> {
        lock(&self.queue)
    }

    /// Enqueues a command. Returns `false` if the queue is full or closed.
    pub(super) fn send(&self, command: RunnerCommand) -> bool {
        let mut queue = self.queue();
        if queue.closed || queue.commands.len() >= queue.capacity {
            return false;
        }
        queue.commands.push_back(command);
        drop(queue);
        self.command_added.notify_one();
        true
    }

    pub(super) fn close(&self) {
        self.queue().closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue().closed
    }
}

/// Receiving half of an inbox. Its owner is the only runner of the task in this process.
pub(super) struct Inbox(Arc<ActiveTask>);

impl Inbox {
    pub(super) fn new(task: Arc<ActiveTask>) -> Self {
        Self(task)
    }

    /// The active task that this inbox belongs to.
    pub(super) fn task(&self) -> &Arc<ActiveTask> {
        &self.0
    }

    /// Waits for the next command.
    pub(super) async fn recv(&mut self) -> RunnerCommand {
        loop {
            if self.has_commands() {
                // Yields now and then: a steady stream of commands must not occupy the thread.
                tokio::task::coop::consume_budget().await;
            }
            if let Some(command) = self.try_recv() {
                return command;
            }
            // `Notify` stores a permit, so a command that was sent in between is not missed.
            self.0.inbox().command_added.notified().await;
        }
    }

    /// Returns whether a command is waiting.
    pub(super) fn has_commands(&self) -> bool {
        !self.0.inbox().queue().commands.is_empty()
    }

    /// Returns the next command, if there is one.
    pub(super) fn try_recv(&mut self) -> Option<RunnerCommand> {
        self.0.inbox().queue().commands.pop_front()
    }
}

impl Drop for Inbox {
    /// Closes the queue and drops its commands. Their senders see that the reply channel is closed.
    fn drop(&mut self) {
        let mut queue = self.0.inbox().queue();
        queue.closed = true;
        let unprocessed = std::mem::take(&mut queue.commands);
        drop(queue);
        drop(unprocessed);
    }
}
