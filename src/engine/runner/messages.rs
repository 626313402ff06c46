//! Acceptance of messages: checks, commit, and replay of repeated messages.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{CommitPoint, Runner, RunnerResult, RunnerStop};
use crate::engine::inbox::{IncomingMessage, RunnerCommand};
use crate::engine::{AcceptedMessage, Error, Result, reason};
use crate::model::{Call, Event, Message};
use crate::store::{self, IdempotencyKey, IdempotencyRecord};
use crate::telemetry::metrics;

/// A message that may be recorded, and the channel for the reply to its sender.
pub(super) struct CheckedMessage {
    pub(super) call: Call,
    pub(super) message: Arc<Message>,
    pub(super) key: Option<IdempotencyKey>,
    deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Box<AcceptedMessage>>>,
}

impl CheckedMessage {
    /// Returns the command that the message came from.
    pub(super) fn into_command(self) -> RunnerCommand {
        RunnerCommand::Message(Box::new(IncomingMessage {
            call: self.call,
            message: Arc::unwrap_or_clone(self.message),
            key: self.key,
            deadline: self.deadline,
            reply: self.reply,
        }))
    }
}

/// Outcome of the commit of a message.
enum MessageOutcome {
    /// The message is durable.
    Accepted(Box<AcceptedMessage>),
    /// The sender gets this reply; the runner continues.
    Replied(Result<Box<AcceptedMessage>>),
    /// The sender gets the error `reply`; the runner stops.
    Stopped { reply: Error, stop: RunnerStop },
}

impl Runner {
    /// Records a message and replies to its sender. Its turn runs after those of earlier messages.
    pub(in crate::engine) async fn accept_message(
        &mut self,
        incoming: IncomingMessage,
    ) -> RunnerResult {
        self.turns.client = incoming.call.client;
        let is_idle = self.log.next_message().is_none();
        let Some(checked) = self.check_message(incoming, is_idle).await else {
            return Ok(());
        };
        let events = self.message_events(&checked.message, &checked.call);
        self.stage_message(events);
        // A sender that has disconnected does not undo the message.
        match self.commit_message(&checked, is_idle).await {
            MessageOutcome::Accepted(accepted) => {
                let turn = self.log.newest_turn();
                self.turns.calls.push_back((turn, checked.call));
                let _ = checked.reply.send(Ok(accepted));
                Ok(())
            }
            MessageOutcome::Replied(result) => {
                let _ = checked.reply.send(result);
                Ok(())
            }
            MessageOutcome::Stopped {
                reply: _,
                stop: RunnerStop::Superseded,
            } => {
                self.hand_over(checked.into_command());
                Err(RunnerStop::Superseded)
            }
            MessageOutcome::Stopped { reply: error, stop } => {
                let _ = checked.reply.send(Err(error));
                Err(stop)
            }
        }
    }

    /// Checks a message against the state of the task and its limits. Replies to the sender of a refused one.
    pub(super) async fn check_message(
        &mut self,
        incoming: IncomingMessage,
        is_idle: bool,
    ) -> Option<CheckedMessage> {
        let IncomingMessage {
            call,
            mut message,
            key,
            deadline,
            reply,
        } = incoming;
        if let Some(refusal) = self.refusal(deadline, is_idle) {
            let result = if matches!(refusal, Error::Ended(_)) {
                self.replay_or(key, refusal).await
            } else {
                Err(refusal)
            };
            let _ = reply.send(result);
            return None;
        }
        reason::strip_reason(&mut message);
        let message = Arc::new(self.with_task_ids(message));
        if self.exceeds_task_size(&message) {
            metrics::record_limit_hit("max_task_bytes");
            let _ = reply.send(self.replay_or(key, Error::TooLarge).await);
            return None;
        }
        Some(CheckedMessage {
            call,
            message,
            key,
            deadline,
            reply,
        })
    }

    /// Returns the events that record a message: the message, its trace context, and its call on a shared store.
    pub(super) fn message_events(&self, message: &Arc<Message>, call: &Call) -> Vec<Event> {
        let trace = call.trace.clone().map(Event::TraceContext);
        let metadata = self.engine.call_metadata(call).map(Event::CallMetadata);
        [Event::Message(message.clone())]
            .into_iter()
            .chain(trace)
            .chain(metadata)
            .collect()
    }

    /// Returns the reason why a message cannot be accepted now, if there is one.
    fn refusal(&self, deadline: Instant, is_idle: bool) -> Option<Error> {
        if deadline <= Instant::now() {
            // The sender already has this reply.
            return Some(Error::StoreUnavailable);
        }
        if self.log.task.is_ended() {
            return Some(Error::Ended(self.log.task.status.state));
        }
        if self.log.backlog() > self.engine.inner.settings.max_waiting_messages {
            metrics::record_limit_hit("max_waiting_messages");
            return Some(Error::Overloaded);
        }
        if is_idle && !self.can_queue_turn() {
            metrics::record_limit_hit("max_waiting_turns");
            return Some(Error::Overloaded);
        }
        None
    }

    /// Commits a staged message.
    async fn commit_message(&mut self, checked: &CheckedMessage, is_idle: bool) -> MessageOutcome {
        let key = checked.key.clone();
        match self.commit(key.clone(), CommitPoint::Interim).await {
            Ok(()) if self.log.task.is_ended() => {
                MessageOutcome::Replied(Err(Error::Ended(self.log.task.status.state)))
            }
            Ok(()) => MessageOutcome::Accepted(self.acceptance()),
            // A repeated message: nothing was written, and the reply is the task of the first one.
            Err(RunnerStop::Failed(Error::Store(store::Error::AlreadyApplied))) => {
                match self.replay(key, is_idle).await {
                    Ok(accepted) => MessageOutcome::Replied(Ok(accepted)),
                    Err(stop) => MessageOutcome::store_unavailable(stop),
                }
            }
            Err(RunnerStop::Failed(error @ Error::Store(store::Error::KeyReused))) => {
                match self.discard_staged(is_idle).await {
                    Ok(()) => MessageOutcome::Replied(Err(error)),
                    Err(stop) => MessageOutcome::Stopped { reply: error, stop },
                }
            }
            Err(stop) => MessageOutcome::store_unavailable(stop),
        }
    }

    /// Adds the ids of the task and its context.
    pub(super) fn with_task_ids(&self, message: Message) -> Message {
        message
            .in_task(self.id.clone())
            .in_context(self.log.task.context_id.clone())
    }

    /// Stages the events of a message. If the task is idle, also stages the start of its turn, so that readers never see an answered
    /// task that still asks.
    pub(super) fn stage_message(&mut self, events: Vec<Event>) {
        let is_idle = self.log.next_message().is_none();
        self.stage(events);
        if is_idle {
            self.try_begin_turn();
        }
    }

    /// Discards the staged message, and returns the reply to the first one with its key.
    async fn replay(
        &mut self,
        key: Option<IdempotencyKey>,
        has_begun_turn: bool,
    ) -> RunnerResult<Box<AcceptedMessage>> {
        self.discard_staged(has_begun_turn).await?;
        match self.find_replay(key).await? {
            Some(record) => Ok(self.engine.accepted_replay(record).await?),
            None => Ok(self.acceptance()),
        }
    }

    pub(super) async fn find_replay(
        &self,
        key: Option<IdempotencyKey>,
    ) -> Result<Option<IdempotencyRecord>> {
        let Some(key) = key else {
            return Ok(None);
        };
        let store = &self.engine.inner.journal.store;
        Ok(store.find_by_key(&self.scope, &key).await?)
    }

    /// Returns the reply to a message that cannot be accepted: the task if its key was used before, else the refusal.
    pub(super) async fn replay_or(
        &self,
        key: Option<IdempotencyKey>,
        refusal: Error,
    ) -> Result<Box<AcceptedMessage>> {
        match self.find_replay(key).await? {
            Some(_) => Ok(self.acceptance()),
            None => Err(refusal),
        }
    }

    /// Returns whether the task would exceed `max_task_bytes` with this message.
    fn exceeds_task_size(&self, message: &Arc<Message>) -> bool {
        let message_bytes = Event::Message(message.clone()).memory_size();
        self.task_bytes().saturating_add(message_bytes) > self.engine.inner.settings.max_task_bytes
    }

    /// Discards staged events, and the permit if they include the start of a turn.
    async fn discard_staged(&mut self, has_begun_turn: bool) -> RunnerResult {
        if has_begun_turn {
            self.turns.permit = None;
        }
        self.refresh().await
    }
}

impl MessageOutcome {
    fn store_unavailable(stop: RunnerStop) -> Self {
        Self::Stopped {
            reply: Error::StoreUnavailable,
            stop,
        }
    }
}
