//! Accepted messages, and waiting for the result of their turns.
//!
//! A blocking caller waits for the *turn result*. There is one when the task has ended, or when the turn of the
//! caller's message requires input or credentials.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::detach_on_drop::DetachOnDrop;
use super::folded_log::FoldedLog;
use super::follow::{Follow, LogPage, TailSubscription};
use super::journal::SizedBatch;
use super::shared_entry::SharedEntry;
use super::{Engine, Error, Result, reason};
use crate::model::{Entry, Seq, Task};
use crate::store::Head;

/// A durable message, and the fold of the log at that point.
#[derive(Debug)]
pub(crate) struct AcceptedMessage {
    pub(crate) head: Head,
    pub(super) log: FoldedLog,
    pub(super) turn: u64,
    /// The whole log, if it is complete and the sender wants to follow it.
    pub(super) batch: Option<SizedBatch>,
    /// Subscription to the tail, if the task has a runner: the sender misses no entry.
    pub(super) tail: Option<TailSubscription>,
}

impl AcceptedMessage {
    /// Number of the turn that answers the message.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// Number of turns that had ended when the message was accepted.
    pub(crate) fn turns_ended(&self) -> u64 {
        self.log.current_turn() - 1
    }

    /// Returns whether the turn or the task has ended. A turn that waits for credentials has not.
    pub(crate) fn is_over(&self) -> bool {
        self.log.task.is_ended() || self.log.current_turn() > self.turn
    }

    /// Returns whether the turn result is in the log.
    pub(crate) fn has_turn_result(&self) -> bool {
        self.log.has_turn_result(self.turn)
    }

    /// Returns the turn result. Only meaningful if [`has_turn_result`](Self::has_turn_result).
    ///
    /// # Errors
    /// The task failed because its agent violated the protocol.
    pub(crate) fn into_turn_result(self: Box<Self>) -> Result<Task> {
        check_agent_response(self.into_task().0)
    }

    /// Returns the task when the message was accepted, and its position.
    pub(crate) fn into_task(self: Box<Self>) -> (Task, Seq) {
        let Self { log, .. } = *self;
        (Arc::unwrap_or_clone(log.task), log.position)
    }
}

impl Engine {
    /// Returns a reader of all entries of the task.
    pub(crate) fn follow_from_start(&self, accepted: &mut AcceptedMessage) -> Follow {
        let buffered = match accepted.batch.take() {
            Some(SizedBatch { batch, bytes }) => LogPage {
                entries: SharedEntry::unshared(batch.into_entries(Seq(0))),
                bytes,
            },
            None => LogPage::default(),
        };
        let journal = &self.inner.journal;
        journal.follow_from(&accepted.head, buffered, accepted.tail.take())
    }

    /// Returns a reader of the entries after the acceptance of the message.
    pub(crate) fn follow_from_acceptance(&self, accepted: &mut AcceptedMessage) -> Follow {
        let position = accepted.log.position;
        let journal = &self.inner.journal;
        journal.follow_after(&accepted.head, position, accepted.tail.take())
    }

    /// Waits for the turn result, and returns the task.
    ///
    /// # Errors
    /// The task failed because its agent violated the protocol, or the log cannot be read.
    pub(crate) async fn await_turn_result(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        if accepted.has_turn_result() {
            return accepted.into_turn_result();
        }
        let task = self
            .await_entry(accepted, FoldedLog::is_turn_result)
            .await?;
        check_agent_response(task)
    }

    /// Applies entries until one of them matches, and returns the task.
    async fn await_entry(
        &self,
        accepted: Box<AcceptedMessage>,
        is_match: impl Fn(&FoldedLog, u64, &Entry) -> bool,
    ) -> Result<Task> {
        let AcceptedMessage {
            head,
            mut log,
            turn,
            batch: _,
            tail,
        } = *accepted;
        let mut follow = self.inner.journal.follow_after(&head, log.position, tail);
        loop {
            for entry in follow.next().await? {
                log.apply(&entry)?;
                if is_match(&log, turn, &entry) {
                    return Ok(Arc::unwrap_or_clone(log.task));
                }
            }
        }
    }

    /// Waits for the end of the turn, deletes the task, and returns it. For stores that do not keep tasks.
    ///
    /// The task is deleted even if the caller does not wait.
    pub(crate) async fn await_turn_end_and_delete(
        &self,
        accepted: Box<AcceptedMessage>,
    ) -> Result<Task> {
        let (reply, result) = oneshot::channel();
        let engine = self.clone();
        let wait_and_delete = async move {
            let head = accepted.head.clone();
            let task = engine.await_turn_end(accepted).await;
            let delete = async { Ok(engine.inner.journal.delete(&[head]).await?) };
            let deleted = engine.with_store_timeout(delete).await;
            let _ = reply.send(task.and_then(|task| deleted.map(|()| task)));
        };
        DetachOnDrop::new(self, Box::pin(wait_and_delete))
            .poll_once()
            .await;
        result.await.unwrap_or(Err(Error::ShuttingDown))
    }

    async fn await_turn_end(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        let is_turn_over =
            |log: &FoldedLog, turn, _: &Entry| log.task.is_ended() || log.current_turn() > turn;
        let task = if accepted.is_over() {
            accepted.into_task().0
        } else {
            self.await_entry(accepted, is_turn_over).await?
        };
        check_agent_response(task)
    }
}

/// Returns the task, or an error if it failed because its agent violated the protocol.
fn check_agent_response(task: Task) -> Result<Task> {
    if reason::is_invalid_response(&task) {
        Err(Error::InvalidAgentResponse(task.id))
    } else {
        Ok(task)
    }
}
