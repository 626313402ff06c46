//! Messages on their way into the log, and those that were there before.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Accepted, Error, Incoming, Result, Runner, reason};
use crate::metrics;
use crate::model::{Event, Message, Trace};
use crate::store::{self, Key, Seen};

impl Runner {
    /// Records a message; its turn comes when those before it are over.
    pub(in crate::engine) async fn take_message(&mut self, incoming: Incoming) -> Result<()> {
        let Incoming {
            call,
            mut message,
            key,
            until,
            answer,
        } = incoming;
        if until <= Instant::now() {
            // They were told that it could not be done in time.
            let _ = answer.send(Err(Error::Lost));
            return Ok(());
        }
        if self.log.task.is_ended() {
            let _ = answer.send(
                self.or_seen(key, Error::Ended(self.log.task.status.state))
                    .await,
            );
            return Ok(());
        }
        if self.log.backlog() > self.engine.settings.max_waiting_messages {
            metrics::limit("max_waiting_messages");
            let _ = answer.send(Err(Error::Overloaded));
            return Ok(());
        }
        let idle = self.log.waiting().is_none();
        if idle && !self.has_room() {
            metrics::limit("max_waiting_turns");
            let _ = answer.send(Err(Error::Overloaded));
            return Ok(());
        }
        reason::strip(&mut message);
        let message = Arc::new(self.addressed(message));
        if self.is_too_much(&message) {
            metrics::limit("max_task_bytes");
            let _ = answer.send(self.or_seen(key, Error::TooLarge).await);
            return Ok(());
        }
        self.plan_message(message, call.trace.clone());
        let (answered, result) = match self.commit(key.clone(), false).await {
            Ok(()) if self.log.task.is_ended() => {
                (Err(Error::Ended(self.log.task.status.state)), Ok(()))
            }
            Ok(()) => {
                self.calls.push_back((self.log.last_turn(), call));
                (Ok(self.accepted()), Ok(()))
            }
            // Seen before: nothing was added, and the task is the answer.
            Err(Error::Store(store::Error::Repeated)) => match self.repeated(key, idle).await {
                Ok(accepted) => (Ok(accepted), Ok(())),
                Err(error) => (Err(Error::Lost), Err(error)),
            },
            Err(error @ Error::Store(store::Error::KeyReused)) => {
                (Err(error), self.undo(idle).await)
            }
            Err(error) => (Err(Error::Lost), Err(error)),
        };
        // The caller may have left; the message is in the log all the same.
        let _ = answer.send(answered);
        result
    }

    pub(super) fn addressed(&self, message: Message) -> Message {
        message
            .in_task(self.id.clone())
            .in_context(self.log.task.context_id.clone())
    }

    pub(super) fn plan_message(&mut self, message: Arc<Message>, trace: Option<Trace>) {
        let idle = self.log.waiting().is_none();
        self.plan(
            [Event::Message(message)]
                .into_iter()
                .chain(trace.map(Event::Traced)),
        );
        if idle {
            // The turn begins with its message, so that nobody sees a task that was answered and still asks.
            self.begin_turn();
        }
    }

    /// The answer to a message that was taken before.
    async fn repeated(&mut self, key: Option<Key>, begun: bool) -> Result<Box<Accepted>> {
        self.undo(begun).await?;
        match self.seen(key).await? {
            Some(seen) => self.engine.taken(seen).await,
            None => Ok(self.accepted()),
        }
    }

    async fn seen(&self, key: Option<Key>) -> Result<Option<Seen>> {
        match key {
            Some(key) => Ok(self.engine.journal.store.seen(&self.scope, &key).await?),
            None => Ok(None),
        }
    }

    /// What a message gets that its task has no place for: the task if it was taken before, as its key says, else a refusal.
    async fn or_seen(&self, key: Option<Key>, refusal: Error) -> Result<Box<Accepted>> {
        match self.seen(key).await? {
            Some(_) => Ok(self.accepted()),
            None => Err(refusal),
        }
    }

    /// Whether the task would be larger than it may be.
    fn is_too_much(&self, message: &Arc<Message>) -> bool {
        let most = self.engine.settings.max_task_bytes;
        self.weight
            .saturating_add(Event::Message(message.clone()).weight())
            > most
    }

    /// Forgets what was planned and not written.
    async fn undo(&mut self, begun: bool) -> Result<()> {
        if begun {
            self.permit = None;
        }
        self.refresh().await
    }
}
