//! Commands to tasks that another replica holds.
//!
//! A message or a cancel request is appended to the log, then all replicas are woken. The holder reads its log again and
//! acts on the entry. Nothing is forwarded, so a command survives the loss of the holder: its successor reads the same log.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Runner;
use super::messages::CheckedMessage;
use crate::engine::folded_log::FoldedLog;
use crate::engine::inbox::{IncomingMessage, RunnerCommand};
use crate::engine::{AcceptedMessage, Engine, Error, Result};
use crate::model::{Event, Object, Task, TaskState};
use crate::rt::cancel;
use crate::store::{self, Head, Holder, IdempotencyKey, WriterRole};
use crate::telemetry::metrics;

/// First delay before a remote command is tried again after a conflict.
const MIN_CONFLICT_DELAY: Duration = Duration::from_millis(1);

/// Longest delay before a remote command is tried again after a conflict.
const MAX_CONFLICT_DELAY: Duration = Duration::from_millis(10);

/// Outcome of a remote command.
pub(super) enum RemoteOutcome {
    /// The command was executed or refused.
    Done,
    /// No other replica holds the task: this one runs it.
    Claimable(RunnerCommand),
}

/// Outcome of one attempt to append a remote command.
enum RemoteAppend {
    Appended,
    /// The log has grown, or its holder has changed.
    Conflict,
    Failed(store::Error),
}

/// A cancel of a task that another replica holds.
struct RemoteCancel {
    metadata: Option<Object>,
    deadline: Instant,
    reply: oneshot::Sender<Result<Task>>,
}

impl Runner {
    /// Executes a command, and those that follow it, while another replica holds the task.
    ///
    /// Returns a command that this replica must handle as the runner of the task, or `None` after it has retired.
    pub(super) async fn run_remote_commands(
        &mut self,
        command: RunnerCommand,
    ) -> Option<RunnerCommand> {
        let mut command = command;
        loop {
            match self.run_remote_command(command).await {
                RemoteOutcome::Claimable(command) => return Some(command),
                RemoteOutcome::Done => command = self.next_remote_command()?,
            }
        }
    }

    async fn run_remote_command(&mut self, command: RunnerCommand) -> RemoteOutcome {
        let mut command = command;
        let mut delay = MIN_CONFLICT_DELAY;
        loop {
            let head = match self.current_head().await {
                Ok(head) => head,
                Err(error) => {
                    command.reject(error);
                    return RemoteOutcome::Done;
                }
            };
            if head.holder != Holder::Remote {
                self.open_log(head);
                return RemoteOutcome::Claimable(command);
            }
            let conflicting = match command {
                RunnerCommand::Message(incoming) => {
                    metrics::record_remote_command("message");
                    self.send_remotely(&head, *incoming).await
                }
                RunnerCommand::Cancel {
                    metadata,
                    deadline,
                    reply,
                } => {
                    metrics::record_remote_command("cancel");
                    let cancel = RemoteCancel {
                        metadata,
                        deadline,
                        reply,
                    };
                    self.cancel_remotely(&head, cancel).await
                }
                // The holder recovers the task and applies its limits.
                RunnerCommand::RecordLate
                | RunnerCommand::Recover
                | RunnerCommand::Expire
                | RunnerCommand::ExpireOverQuota => None,
            };
            match conflicting {
                None => return RemoteOutcome::Done,
                Some(conflicting) => command = conflicting,
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_CONFLICT_DELAY);
        }
    }

    /// Appends a message for the holder. Returns the command after a conflict.
    async fn send_remotely(
        &mut self,
        head: &Head,
        incoming: IncomingMessage,
    ) -> Option<RunnerCommand> {
        if let Err(error) = self.fold_for_remote_command(head).await {
            let _ = incoming.reply.send(Err(error));
            return None;
        }
        // The holder has the turn permit, so the message does not wait for one here.
        let checked = self.check_message(incoming, false).await?;
        let events = self.message_events(&checked.message, &checked.call);
        match self
            .append_remotely(head, events, checked.key.clone())
            .await
        {
            RemoteAppend::Appended => {
                let accepted = self.remote_acceptance(head);
                let _ = checked.reply.send(Ok(Box::new(accepted)));
                None
            }
            RemoteAppend::Conflict => Some(checked.into_command()),
            RemoteAppend::Failed(error) => {
                self.reply_to_refused_message(checked, error).await;
                None
            }
        }
    }

    /// Replies to a message that the store has refused: with the task of the first message of its key, or an error.
    async fn reply_to_refused_message(&self, checked: CheckedMessage, error: store::Error) {
        let result = match error {
            store::Error::AlreadyApplied => self.first_of_key(checked.key).await,
            error @ store::Error::KeyReused => Err(error.into()),
            error => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(task = %self.id, error = cause, "message to another replica's task not stored");
                Err(Error::StoreUnavailable)
            }
        };
        let _ = checked.reply.send(result);
    }

    /// Returns the task and the turn of the first message with a key.
    async fn first_of_key(&self, key: Option<IdempotencyKey>) -> Result<Box<AcceptedMessage>> {
        match self.find_replay(key).await? {
            Some(record) => self.engine.accepted_replay(record).await,
            None => Err(Error::StoreUnavailable),
        }
    }

    /// Requests a cancel from the holder, and replies when the task has ended. Returns the command after a conflict.
    async fn cancel_remotely(
        &mut self,
        head: &Head,
        cancel: RemoteCancel,
    ) -> Option<RunnerCommand> {
        let refusal = match self.fold_for_remote_command(head).await {
            Err(error) => Some(error),
            Ok(()) if cancel.deadline <= Instant::now() => Some(Error::StoreUnavailable),
            Ok(()) if self.log.task.is_ended() => Some(Error::Ended(self.log.task.status.state)),
            Ok(()) => None,
        };
        if let Some(refusal) = refusal {
            let _ = cancel.reply.send(Err(refusal));
            return None;
        }
        if !self.log.cancel_requested {
            let requested = Event::CancelRequested {
                metadata: cancel.metadata.clone(),
            };
            match self.append_remotely(head, vec![requested], None).await {
                RemoteAppend::Appended => {}
                RemoteAppend::Conflict => return Some(cancel.into_command()),
                RemoteAppend::Failed(_) => {
                    let _ = cancel.reply.send(Err(Error::StoreUnavailable));
                    return None;
                }
            }
        }
        self.reply_after_end(head, cancel);
        None
    }

    /// Replies to a cancel when the log has an end. Other commands of the task are not delayed.
    fn reply_after_end(&self, head: &Head, cancel: RemoteCancel) {
        let engine = self.engine.clone();
        let head = head.clone();
        let log = self.log.clone();
        let RemoteCancel {
            deadline, reply, ..
        } = cancel;
        let wait = async move {
            let ended = timeout_at(deadline, engine.await_end(&head, log)).await;
            let result = match ended.unwrap_or(Err(Error::StoreUnavailable)) {
                Ok(task) if task.status.state == TaskState::Canceled => Ok(task),
                Ok(task) => Err(Error::Ended(task.status.state)),
                Err(error) => Err(error),
            };
            let _ = reply.send(result);
        };
        let stop = self.engine.inner.stop.clone();
        let tracker = &self.engine.inner.tracker;
        tracker.spawn(cancel::run_until(stop, Box::pin(wait)));
    }

    /// Folds the log up to its end, without a tail for readers: they use the store.
    async fn fold_for_remote_command(&mut self, head: &Head) -> Result<()> {
        self.log = self.engine.inner.journal.log(head).await?;
        self.pipeline.reset(&self.log);
        Ok(())
    }

    /// Appends events at the end of the fold with the role of a remote writer, and wakes all replicas.
    async fn append_remotely(
        &mut self,
        head: &Head,
        events: Vec<Event>,
        key: Option<IdempotencyKey>,
    ) -> RemoteAppend {
        if self.log.position != head.position {
            // The fold is ahead of the head.
            return RemoteAppend::Conflict;
        }
        self.stage(events);
        let position = self.pipeline.durable_position;
        let mut batch = self.pipeline.take_batch(&self.log, key).batch;
        batch.writer = WriterRole::Remote;
        let journal = &self.engine.inner.journal;
        let append = journal.append(head, position, &batch);
        match self.await_commit(append).await {
            Ok(end) => {
                self.pipeline.durable_position = end;
                journal.bus.announce_to_all(&self.id, end);
                RemoteAppend::Appended
            }
            Err(store::Error::Conflict) => RemoteAppend::Conflict,
            Err(error) => RemoteAppend::Failed(error),
        }
    }

    fn remote_acceptance(&self, head: &Head) -> AcceptedMessage {
        AcceptedMessage {
            head: Head {
                position: self.pipeline.durable_position,
                ..head.clone()
            },
            turn: self.log.newest_turn(),
            log: self.log.clone(),
            batch: None,
            tail: None,
        }
    }

    /// Reads the head from the store.
    ///
    /// # Errors
    /// `Deleted` if there is none, or the store failed.
    pub(super) async fn current_head(&self) -> Result<Head> {
        let store = &self.engine.inner.journal.store;
        let found = store.find(&self.scope, &self.id).await?;
        found.ok_or(Error::Deleted)
    }
}

impl RemoteCancel {
    fn into_command(self) -> RunnerCommand {
        RunnerCommand::Cancel {
            metadata: self.metadata,
            deadline: self.deadline,
            reply: self.reply,
        }
    }
}

impl Engine {
    /// Follows a log until its task has ended, and returns the task.
    async fn await_end(&self, head: &Head, mut log: FoldedLog) -> Result<Task> {
        let mut follow = self.inner.journal.follow(head, log.position);
        while !log.task.is_ended() {
            for entry in follow.next().await? {
                log.apply(&entry)?;
            }
        }
        Ok(Arc::unwrap_or_clone(log.task))
    }
}
