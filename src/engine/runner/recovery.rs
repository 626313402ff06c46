//! What becomes of a task that was cut off, that waits too long, or whose store has failed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Error, Passed, Result, Runner, Wish, next, turn};
use crate::engine::sweep::LONGEST_PAUSE;
use crate::engine::{Restart, Waiting, reason};
use crate::model::{Seq, TaskStatus};
use crate::stop;

impl Runner {
    /// Nobody worked on this task when we came: does as the policy says.
    pub(super) async fn recover(&mut self) -> Result<()> {
        if self.log.waiting().is_none() && !self.log.turn_runs() {
            return Ok(());
        }
        match self.worker.on_restart(&self.engine.settings) {
            // Its turn begins again, which counts as another attempt.
            Restart::RunAgain { attempts } if self.log.attempts < attempts => Ok(()),
            Restart::Fail | Restart::RunAgain { .. } => self.give_up("interrupted").await,
        }
    }

    /// Does as the policy says with a task that waits for somebody outside, or on which nobody works, for too long.
    pub(super) async fn expire(&mut self) -> Result<()> {
        if self.log.waiting().is_some() || self.log.turn_runs() {
            return if self.is_silent().await? {
                self.recover().await
            } else {
                Err(Error::Overtaken)
            };
        }
        let TaskStatus {
            state,
            timestamp: Some(since),
            ..
        } = self.log.task.status
        else {
            return Ok(());
        };
        if !state.is_interrupted() {
            return Ok(());
        }
        let over = |time| since < self.engine.before(time);
        match self.worker.on_waiting(&self.engine.settings) {
            _ if self.engine.settings.max_parked_age.is_some_and(over) => {
                self.give_up("expired").await
            }
            Waiting::FailAfter(time) if over(time) => self.give_up("expired").await,
            Waiting::ContinueAfter(time) if over(time) => self.go_on().await,
            Waiting::Stay | Waiting::FailAfter(_) | Waiting::ContinueAfter(_) => Ok(()),
        }
    }

    /// Whether nothing was recorded for too long. Nobody here works on the task, somebody elsewhere may.
    async fn is_silent(&self) -> Result<bool> {
        let (Some(head), Some(time)) = (&self.head, self.engine.settings.max_silent_age) else {
            return Ok(false);
        };
        let last = Seq(self.durable.0.saturating_sub(1));
        let last = self.engine.journal.store.read(head, last, 1).await?;
        Ok(last
            .first()
            .is_some_and(|entry| entry.time < self.engine.before(time)))
    }

    /// Begins a turn without the answer that the last one asked for.
    async fn go_on(&mut self) -> Result<()> {
        let silence = self.addressed(reason::silence(self.engine.clock.id().into()));
        self.plan_message(Arc::new(silence), None);
        self.commit(None, false).await
    }

    /// Ends the task as failed, and says why in a word.
    pub(super) async fn give_up(&mut self, reason: &'static str) -> Result<()> {
        if self.log.task.is_ended() {
            return Ok(());
        }
        let ending = turn::interrupted(self, reason);
        self.plan(ending);
        self.commit(None, true).await
    }

    /// Gives the task up; where the store has failed, not before the task has an end.
    pub(super) async fn leave(&mut self, mut ended: Result<()>) {
        while let Err(error) = ended {
            if matches!(error, Error::Overtaken) {
                tracing::warn!(task = %self.id, "somebody else works on the task");
                return self.refuse_all(|| Error::Lost);
            }
            tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "turn lost");
            self.permit = None;
            let mut pause = self.pause;
            let there = loop {
                self.lose();
                self.wait_for_store(&mut pause).await;
                match self.settle().await {
                    Ok(there) => break there,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(task = %self.id, error, "task still without an end");
                    }
                }
            };
            ended = if there {
                self.work().await
            } else {
                return self.refuse_all(|| Error::Gone);
            };
        }
    }

    /// Leaves the task to one who begins anew from what the store has. For a fault of our own, or of the store's:
    /// what was cut off must not stay in the hands of nobody. One that fails for ever is tried ever more rarely.
    pub(super) fn hand_over(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (engine, id, scope) = (self.engine.clone(), self.id.clone(), self.scope.clone());
        let place = (self.head.take(), self.live.take(), self.wished.take());
        let pause = (self.pause * 2).min(LONGEST_PAUSE);
        // A runner only once it runs: a runtime that is itself going down drops this as it is.
        let work = async move {
            let mut next = Self::new(engine, id, scope);
            (next.head, next.live, next.wished) = place;
            next.pause = pause;
            next.leave(Err(Error::Lost)).await;
        };
        let work = stop::until(self.engine.stop.clone(), Box::pin(work));
        self.engine.tracker.spawn_on(work, &runtime);
    }

    /// Tells those who follow that nothing can be recorded for now.
    pub(in crate::engine) fn lose(&self) {
        if let Some(live) = &self.live {
            live.lose();
            self.engine.journal.announce(&self.id, self.durable);
        }
    }

    /// Waits a while, and longer each time. Who comes meanwhile is told to come back later.
    pub(super) async fn wait_for_store(&mut self, pause: &mut Duration) {
        let mut over = pin!(tokio::time::sleep(*pause));
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                wish = next(&mut self.wished) => refuse(wish, Error::Lost),
            }
        }
    }

    /// Does as the policy says with a task whose turn was lost. False when there is no such task, or it is in other hands.
    async fn settle(&mut self) -> Result<bool> {
        if self.head.is_none() {
            self.head = self.engine.journal.find(&self.scope, &self.id).await?;
        }
        if self.head.is_none() || !self.is_ours() {
            return Ok(false);
        }
        match self.reload().await {
            Err(Error::Gone) => return Ok(false),
            result => result?,
        }
        // The end of a turn may be there although its commit seemed to fail. If not, it was cut off like any other.
        self.recover().await?;
        Ok(true)
    }

    /// Whether nobody else works on the task: a quick turn does so without saying.
    fn is_ours(&mut self) -> bool {
        if self.wished.is_none() {
            match self
                .engine
                .journal
                .registry
                .pass(&self.id, Wish::Recover(None))
            {
                Passed::On | Passed::Refused => return false,
                Passed::Back(_, live, wished) => {
                    (self.live, self.wished) = (Some(live), Some(wished))
                }
            }
        }
        true
    }

    /// Stops being the one who works on a task that is not there, or not ours.
    pub(super) fn refuse_all(&mut self, why: fn() -> Error) {
        while let Some(wish) = self.next_wish() {
            refuse(wish, why());
        }
    }
}

pub(super) fn refuse(wish: Wish, error: Error) {
    match wish {
        Wish::Message(incoming) => drop(incoming.answer.send(Err(error))),
        Wish::Cancel { answer, .. } => drop(answer.send(Err(error))),
        Wish::Late | Wish::Recover(_) | Wish::Expire | Wish::GiveWay => {}
    }
}
