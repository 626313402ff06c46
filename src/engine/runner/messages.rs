//! Messages on their way into the log, and those that were there before.

use std::sync::Arc;

use tokio::time::Instant;

use super::{AcceptedMessage, Error, IncomingMessage, Result, Runner, reason};
use crate::model::{Event, Message, TraceContext};
use crate::store::{self, IdempotencyKey, IdempotencyRecord};
use crate::telemetry::metrics;

impl Runner {
    /// Records a message; its turn comes when those before it are over.
    pub(in crate::engine) async fn accept_message(
        &mut self,
        incoming: IncomingMessage,
    ) -> Result<()> {
        let IncomingMessage {
            call,
            mut message,
            key,
            deadline,
            reply,
        } = incoming;
        if deadline <= Instant::now() {
            // They were told that it could not be done in time.
            let _ = reply.send(Err(Error::StoreUnavailable));
            return Ok(());
        }
        if self.log.task.is_ended() {
            let _ = reply.send(
                self.replay_or(key, Error::Ended(self.log.task.status.state))
                    .await,
            );
            return Ok(());
        }
        if self.log.backlog() > self.engine.settings.max_waiting_messages {
            metrics::record_limit_hit("max_waiting_messages");
            let _ = reply.send(Err(Error::Overloaded));
            return Ok(());
        }
        let is_idle = self.log.next_message().is_none();
        if is_idle && !self.can_queue_turn() {
            metrics::record_limit_hit("max_waiting_turns");
            let _ = reply.send(Err(Error::Overloaded));
            return Ok(());
        }
        reason::strip_reason(&mut message);
        let message = Arc::new(self.with_task_ids(message));
        if self.exceeds_task_size(&message) {
            metrics::record_limit_hit("max_task_bytes");
            let _ = reply.send(self.replay_or(key, Error::TooLarge).await);
            return Ok(());
        }
        self.stage_message(message, call.trace.clone());
        let (answered, result) = match self.commit(key.clone(), false).await {
            Ok(()) if self.log.task.is_ended() => {
                (Err(Error::Ended(self.log.task.status.state)), Ok(()))
            }
            Ok(()) => {
                self.callers.push_back((self.log.newest_turn(), call));
                (Ok(self.acceptance()), Ok(()))
            }
            // Seen before: nothing was added, and the task is the answer.
            Err(Error::Store(store::Error::AlreadyApplied)) => {
                match self.replay(key, is_idle).await {
                    Ok(accepted) => (Ok(accepted), Ok(())),
                    Err(error) => (Err(Error::StoreUnavailable), Err(error)),
                }
            }
            Err(error @ Error::Store(store::Error::KeyReused)) => {
                (Err(error), self.discard_staged(is_idle).await)
            }
            Err(error) => (Err(Error::StoreUnavailable), Err(error)),
        };
        // The caller may have left; the message is in the log all the same.
        let _ = reply.send(answered);
        result
    }

    pub(super) fn with_task_ids(&self, message: Message) -> Message {
        message
            .in_task(self.id.clone())
            .in_context(self.log.task.context_id.clone())
    }

    pub(super) fn stage_message(&mut self, message: Arc<Message>, trace: Option<TraceContext>) {
        let is_idle = self.log.next_message().is_none();
        self.stage(
            [Event::Message(message)]
                .into_iter()
                .chain(trace.map(Event::TraceContext)),
        );
        if is_idle {
            // The turn begins with its message, so that nobody sees a task that was answered and still asks.
            self.try_begin_turn();
        }
    }

    /// The answer to a message that was taken before.
    async fn replay(
        &mut self,
        key: Option<IdempotencyKey>,
        begun: bool,
    ) -> Result<Box<AcceptedMessage>> {
        self.discard_staged(begun).await?;
        match self.find_replay(key).await? {
            Some(seen) => self.engine.accepted_replay(seen).await,
            None => Ok(self.acceptance()),
        }
    }

    async fn find_replay(&self, key: Option<IdempotencyKey>) -> Result<Option<IdempotencyRecord>> {
        match key {
            Some(key) => Ok(self
                .engine
                .journal
                .store
                .find_by_key(&self.scope, &key)
                .await?),
            None => Ok(None),
        }
    }

    /// What a message gets that its task has no place for: the task if it was taken before, as its key says, else a refusal.
    async fn replay_or(
        &self,
        key: Option<IdempotencyKey>,
        refusal: Error,
    ) -> Result<Box<AcceptedMessage>> {
        match self.find_replay(key).await? {
            Some(_) => Ok(self.acceptance()),
            None => Err(refusal),
        }
    }

    /// Whether the task would be larger than it may be.
    fn exceeds_task_size(&self, message: &Arc<Message>) -> bool {
        let most = self.engine.settings.max_task_bytes;
        self.task_bytes
            .saturating_add(Event::Message(message.clone()).memory_size())
            > most
    }

    /// Forgets what was planned and not written.
    async fn discard_staged(&mut self, begun: bool) -> Result<()> {
        if begun {
            self.turn_permit = None;
        }
        self.refresh().await
    }
}
