//! What a caller waits for: the end of the turn that took their message.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::detach_on_drop::DetachOnDrop;
use super::folded_log::FoldedLog;
use super::journal::{Follow, TailSubscription};
use super::shared_entry::SharedEntry;
use super::{Engine, Error, Result, reason};
use crate::model::{Entry, Seq, Task};
use crate::store::{Batch, Head};

/// A message that is in the log, and the log as it was then. It is large and goes through many hands, so it goes in a box.
#[derive(Debug)]
pub(crate) struct AcceptedMessage {
    pub(crate) head: Head,
    pub(super) log: FoldedLog,
    pub(super) turn: u64,
    /// All that there is in the log, where that is over and somebody wants to read it.
    pub(super) opening: Option<Batch>,
    /// Where somebody works on the task: what comes next is at hand for whoever has this.
    pub(super) tail: Option<TailSubscription>,
}

impl AcceptedMessage {
    /// The number of the turn that takes the message.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// How many turns had ended before.
    pub(crate) fn turns_ended(&self) -> u64 {
        self.log.current_turn() - 1
    }

    /// Whether the turn that took the message is over, or the task with it. One that waits for credentials in
    /// mid-turn is not.
    pub(crate) fn is_over(&self) -> bool {
        self.log.task.is_ended() || self.log.current_turn() > self.turn
    }

    /// Whether what its caller waits for has happened already.
    pub(crate) fn has_turn_result(&self) -> bool {
        self.log.has_turn_result(self.turn)
    }

    /// The task, where that has happened.
    ///
    /// # Errors
    /// The task failed because its agent broke a rule of the protocol.
    pub(crate) fn into_turn_result(self: Box<Self>) -> Result<Task> {
        check_agent_response(self.into_task().0)
    }

    /// The task as it was when it took the message, and the position that stands for.
    pub(crate) fn into_task(self: Box<Self>) -> (Task, Seq) {
        let Self { log, .. } = *self;
        (Arc::unwrap_or_clone(log.task), log.position)
    }
}

impl Engine {
    /// Every entry from the first on, as it comes.
    pub(crate) fn follow_from_start(&self, accepted: &mut AcceptedMessage) -> Follow {
        let known = accepted
            .opening
            .take()
            .map(|batch| SharedEntry::unshared(batch.into_entries(Seq(0))));
        self.journal.follow_from(
            &accepted.head,
            known.unwrap_or_default(),
            accepted.tail.take(),
        )
    }

    /// Every entry behind what was there when the message was taken, as it comes.
    pub(crate) fn follow_from_acceptance(&self, accepted: &mut AcceptedMessage) -> Follow {
        self.journal
            .follow_after(&accepted.head, accepted.log.position, accepted.tail.take())
    }

    /// Waits until the task has ended or the turn that took the message has stopped to ask; gives the task then.
    ///
    /// # Errors
    /// The task failed because its agent broke a rule of the protocol, or nothing can be read for now.
    pub(crate) async fn await_turn_result(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        match accepted.has_turn_result() {
            true => accepted.into_turn_result(),
            false => check_agent_response(
                self.await_entry(accepted, FoldedLog::is_turn_result)
                    .await?,
            ),
        }
    }

    /// The task at the first entry that is what is waited for.
    async fn await_entry(
        &self,
        accepted: Box<AcceptedMessage>,
        is_it: impl Fn(&FoldedLog, u64, &Entry) -> bool,
    ) -> Result<Task> {
        let AcceptedMessage {
            head,
            mut log,
            turn,
            opening: _,
            tail,
        } = *accepted;
        let mut follow = self.journal.follow_after(&head, log.position, tail);
        loop {
            for entry in follow.next().await? {
                log.apply(&entry)?;
                if is_it(&log, turn, &entry) {
                    return Ok(Arc::unwrap_or_clone(log.task));
                }
            }
        }
    }

    /// What a turn came to where tasks are not kept: when it is over its task is dropped, whether or not its caller
    /// has waited for it.
    pub(crate) async fn await_turn_end_and_delete(
        &self,
        accepted: Box<AcceptedMessage>,
    ) -> Result<Task> {
        let (reply, result) = oneshot::channel();
        let engine = self.clone();
        let work = DetachOnDrop::new(self, async move {
            let head = accepted.head.clone();
            let task = engine.await_turn_end(accepted).await;
            let dropped = engine
                .with_store_timeout(async { Ok(engine.journal.delete(&[head]).await?) })
                .await;
            let _ = reply.send(task.and_then(|task| dropped.map(|()| task)));
        });
        work.poll_once().await;
        result.await.unwrap_or(Err(Error::ShuttingDown))
    }

    async fn await_turn_end(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        let over =
            |log: &FoldedLog, turn, _: &Entry| log.task.is_ended() || log.current_turn() > turn;
        let task = match accepted.is_over() {
            true => accepted.into_task().0,
            false => self.await_entry(accepted, over).await?,
        };
        check_agent_response(task)
    }
}

/// A task that has come to rest, unless its agent broke a rule of the protocol.
fn check_agent_response(task: Task) -> Result<Task> {
    if reason::is_invalid_response(&task) {
        Err(Error::InvalidAgentResponse(task.id))
    } else {
        Ok(task)
    }
}
