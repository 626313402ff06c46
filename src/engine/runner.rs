//! One turn after the other: agent -> queue -> batch -> append -> announce.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::log::Log;
use super::{Engine, Result};
use crate::agent::{Failure, Outcome, Said, Turn, status_message};
use crate::model::{Event, Message, TaskState, TaskStatus};
use crate::store::{self, Head};

/// How much an agent may say before it waits for the log.
const QUEUE: usize = 256;
/// How much one commit takes at most.
const MAX_BATCH: usize = 256;

/// Works the messages of one task in their order. While there is one, nobody else works on this task.
pub(super) struct Runner {
    pub(super) engine: Engine,
    pub(super) head: Head,
    /// As far as this runner knows it; others may have added messages since.
    pub(super) log: Log,
}

impl Runner {
    /// Works until no message waits. The first turn has been recorded as started.
    pub(super) async fn run(mut self) {
        let (task, caller) = (self.head.id.clone(), self.head.scope.owner.clone());
        tracing::info!(%task, caller = caller.name(), "turn started");
        match self.turns().await {
            Ok(()) => tracing::info!(%task, state = %self.log.task.status.state, "turn ended"),
            Err(error) => tracing::error!(%task, error = &error as &dyn std::error::Error, "turn lost"),
        }
    }

    async fn turns(&mut self) -> Result<()> {
        while let Some(message) = self.log.waiting().cloned() {
            self.turn(message).await?;
            if self.log.waiting().is_some() {
                self.append(self.log.turn_start()).await?;
            }
        }
        Ok(())
    }

    /// Runs the agent and records what it says at the same time. If that cannot be recorded, the agent is dropped.
    async fn turn(&mut self, message: Arc<Message>) -> Result<()> {
        let (queue, said) = mpsc::channel(QUEUE);
        let turn = Turn::new(self.head.id.clone(), self.head.context_id.clone(), message, queue.clone());
        let agent = self.engine.agent.clone();
        let work = async {
            let ended = Said::Ended(agent.run(turn).await);
            // Fails only with the recorder, whose error is the one to report.
            let _ = queue.send(ended).await;
            Ok(())
        };
        tokio::try_join!(work, self.record(said)).map(|_| ())
    }

    /// While one commit runs, the next batch gathers. The end of the turn rides with the last of what was said.
    async fn record(&mut self, mut said: mpsc::Receiver<Said>) -> Result<()> {
        let mut heard = Vec::new();
        while said.recv_many(&mut heard, MAX_BATCH).await > 0 {
            let over = matches!(heard.last(), Some(Said::Ended(_)));
            let events = heard.drain(..).flat_map(|said| self.events(said)).collect();
            self.append(events).await?;
            if over {
                break;
            }
        }
        Ok(())
    }

    /// Adds events to the log, behind whatever others have added to it since.
    async fn append(&mut self, mut events: Vec<Event>) -> Result<()> {
        loop {
            let at = self.log.at;
            let batch = self.log.extend(self.engine.clock.now(), events);
            match self.engine.journal.append(&self.head, at, &batch).await {
                Err(store::Error::Conflict) => self.log = self.engine.journal.log(&self.head).await?,
                result => return Ok(result?),
            }
            events = batch.events;
        }
    }

    fn events(&self, said: Said) -> Vec<Event> {
        match said {
            Said::Event(event) => vec![self.with_ids(event)],
            Said::Ended(ended) => vec![self.with_ids(self.ending(ended)), Event::TurnEnded],
        }
    }

    fn ending(&self, ended: Result<Outcome, Failure>) -> Event {
        let (state, text) = match ended {
            Ok(Outcome::Completed) => (TaskState::Completed, None),
            Ok(Outcome::InputRequired(question)) => (TaskState::InputRequired, Some(question)),
            Ok(Outcome::AuthRequired(which)) => (TaskState::AuthRequired, Some(which)),
            Ok(Outcome::Rejected(why)) => (TaskState::Rejected, Some(why)),
            Ok(Outcome::Failed(why)) => (TaskState::Failed, Some(why)),
            Err(failure) => {
                let cause = failure.cause() as &dyn std::error::Error;
                tracing::warn!(task = %self.head.id, kind = failure.kind(), cause, "agent failed");
                (TaskState::Failed, Some(failure.to_string()))
            }
        };
        let message = text.map(|text| status_message(&self.head.id, &self.head.context_id, text));
        let status = TaskStatus { message: message.map(Arc::new), ..TaskStatus::new(state) };
        Event::Status { status, metadata: None }
    }

    /// Fills the ids that the agent left to us.
    fn with_ids(&self, mut event: Event) -> Event {
        match &mut event {
            Event::Artifact { artifact, .. } if artifact.artifact_id.is_empty() => {
                artifact.artifact_id = self.engine.clock.id().into();
            }
            Event::Status { status, .. } => {
                if let Some(message) = status.message.as_mut().filter(|message| message.message_id.is_empty())
                {
                    Arc::make_mut(message).message_id = self.engine.clock.id().into();
                }
            }
            _ => {}
        }
        event
    }
}
