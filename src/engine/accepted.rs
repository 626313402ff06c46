//! What a caller waits for: the end of the turn that took their message.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::journal::{Follow, Watched};
use super::log::Log;
use super::recorded::Recorded;
use super::work::Work;
use super::{Engine, Error, Result, reason};
use crate::model::{Entry, Seq, Task};
use crate::store::{Batch, Head};

/// A message that is in the log, and the log as it was then. It is large and goes through many hands, so it goes in a box.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) head: Head,
    pub(super) log: Log,
    pub(super) turn: u64,
    /// All that there is in the log, where that is over and somebody wants to read it.
    pub(super) opening: Option<Batch>,
    /// Where somebody works on the task: what comes next is at hand for whoever has this.
    pub(super) tail: Option<Watched>,
}

impl Accepted {
    /// The number of the turn that takes the message.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// How many turns had ended before.
    pub(crate) fn turns_ended(&self) -> u64 {
        self.log.turn() - 1
    }

    /// Whether the turn that took the message is over, or the task with it. One that waits for credentials in
    /// mid-turn is not.
    pub(crate) fn is_over(&self) -> bool {
        self.log.task.is_ended() || self.log.turn() > self.turn
    }

    /// Whether what its caller waits for has happened already.
    pub(crate) fn has_settled(&self) -> bool {
        self.log.has_settled(self.turn)
    }

    /// The task, where that has happened.
    ///
    /// # Errors
    /// The task failed because its agent broke a rule of the protocol.
    pub(crate) fn into_settled(self: Box<Self>) -> Result<Task> {
        settled(self.into_task().0)
    }

    /// The task as it was when it took the message, and the position that stands for.
    pub(crate) fn into_task(self: Box<Self>) -> (Task, Seq) {
        let Self { log, .. } = *self;
        (Arc::unwrap_or_clone(log.task), log.at)
    }
}

impl Engine {
    /// Every entry from the first on, as it comes.
    pub(crate) fn follow_accepted(&self, accepted: &mut Accepted) -> Follow {
        let known = accepted
            .opening
            .take()
            .map(|batch| Recorded::own(batch.into_entries(Seq(0))));
        self.journal.follow_from(
            &accepted.head,
            known.unwrap_or_default(),
            accepted.tail.take(),
        )
    }

    /// Every entry behind what was there when the message was taken, as it comes.
    pub(crate) fn follow_rest(&self, accepted: &mut Accepted) -> Follow {
        self.journal
            .follow_on(&accepted.head, accepted.log.at, accepted.tail.take())
    }

    /// Waits until the task has ended or the turn that took the message has stopped to ask; gives the task then.
    ///
    /// # Errors
    /// The task failed because its agent broke a rule of the protocol, or nothing can be read for now.
    pub(crate) async fn settled(&self, accepted: Box<Accepted>) -> Result<Task> {
        match accepted.has_settled() {
            true => accepted.into_settled(),
            false => settled(self.followed(accepted, Log::settles).await?),
        }
    }

    /// The task at the first entry that is what is waited for.
    async fn followed(
        &self,
        accepted: Box<Accepted>,
        is_it: impl Fn(&Log, u64, &Entry) -> bool,
    ) -> Result<Task> {
        let Accepted {
            head,
            mut log,
            turn,
            opening: _,
            tail,
        } = *accepted;
        let mut follow = self.journal.follow_on(&head, log.at, tail);
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
    pub(crate) async fn concluded(&self, accepted: Box<Accepted>) -> Result<Task> {
        let (answer, told) = oneshot::channel();
        let engine = self.clone();
        let work = Work::new(self, async move {
            let head = accepted.head.clone();
            let task = engine.at_end_of_turn(accepted).await;
            let dropped = engine
                .in_time(async { Ok(engine.journal.remove(&[head]).await?) })
                .await;
            let _ = answer.send(task.and_then(|task| dropped.map(|()| task)));
        });
        work.begin().await;
        told.await.unwrap_or(Err(Error::Stopped))
    }

    async fn at_end_of_turn(&self, accepted: Box<Accepted>) -> Result<Task> {
        let over = |log: &Log, turn, _: &Entry| log.task.is_ended() || log.turn() > turn;
        let task = match accepted.is_over() {
            true => accepted.into_task().0,
            false => self.followed(accepted, over).await?,
        };
        settled(task)
    }
}

/// A task that has come to rest, unless its agent broke a rule of the protocol.
fn settled(task: Task) -> Result<Task> {
    if reason::is_invalid(&task) {
        Err(Error::Invalid(task.id))
    } else {
        Ok(task)
    }
}
