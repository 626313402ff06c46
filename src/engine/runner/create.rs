//! Creation of a task's log with its first batch.

use tokio::sync::oneshot;

use super::pipeline::LogState;
use super::{CommitPoint, Runner, RunnerResult};
use crate::engine::journal::SizedBatch;
use crate::engine::{AcceptedMessage, Error, Result};
use crate::model::{ContextId, TaskId};
use crate::store::{
    self, CreateResult, IdempotencyKey, IdempotencyRecord, NewTask, PushRegistration,
};
use crate::telemetry::metrics::{self, Stopwatch};

/// Parameters of the creation, besides the first batch.
pub(super) struct CreateParams {
    pub(super) context_id: ContextId,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) alias: Option<TaskId>,
    pub(super) config: Option<Box<PushRegistration>>,
    pub(super) is_followed: bool,
    pub(super) reply: CreateReply,
}

/// Channel for the reply to the sender of the initial message.
type CreateReply = oneshot::Sender<Result<Box<AcceptedMessage>>>;

/// A creation that was handed to the store.
struct PendingCreate {
    task: NewTask,
    bytes: usize,
    is_followed: bool,
    reply: CreateReply,
    started: Stopwatch,
}

/// Outcome of a creation.
pub(super) enum CreateOutcome {
    /// The log exists, and the sender has its reply.
    Created,
    /// No log was created: the sender was answered with an earlier task or with a refusal.
    Answered,
}

/// Result of the store, after the log's state was updated.
enum CreateCompletion {
    Done(CreateOutcome),
    /// The idempotency key belongs to an earlier message. The sender gets that message's task.
    Replay {
        reply: CreateReply,
        record: IdempotencyRecord,
    },
}

impl Runner {
    /// Creates the log with all staged events, and replies to the sender of the initial message.
    pub(super) async fn create(&mut self, point: CommitPoint) -> RunnerResult<CreateOutcome> {
        let Some(pending) = self.prepare_create(point) else {
            return Ok(CreateOutcome::Answered);
        };
        let create = self.engine.inner.journal.create(&pending.task);
        let result = self.await_commit(create).await;
        match self.complete_create(*pending, result, point)? {
            CreateCompletion::Done(outcome) => Ok(outcome),
            CreateCompletion::Replay { reply, record } => {
                // Boxed: future size.
                let replay = Box::pin(self.engine.accepted_replay(record)).await;
                let _ = reply.send(replay);
                Ok(CreateOutcome::Answered)
            }
        }
    }

    /// Takes the staged events for the creation. `None` if it was tried before.
    fn prepare_create(&mut self, point: CommitPoint) -> Option<Box<PendingCreate>> {
        let params = self.pipeline.take_create_params()?;
        let SizedBatch { batch, bytes } = self.pipeline.take_batch(&self.log, params.key);
        if point == CommitPoint::Interim {
            // Claimed before the task can be found, so that no other runner starts.
            self.inbox = Some(
                self.engine
                    .inner
                    .journal
                    .active_tasks
                    .claim(&self.id, &self.scope),
            );
        }
        let task = NewTask {
            id: self.id.clone(),
            scope: self.scope.clone(),
            context_id: params.context_id,
            alias: params.alias,
            config: params.config,
            batch,
        };
        Some(Box::new(PendingCreate {
            task,
            bytes,
            is_followed: params.is_followed,
            reply: params.reply,
            started: Stopwatch::start(),
        }))
    }

    fn complete_create(
        &mut self,
        pending: PendingCreate,
        result: store::Result<CreateResult>,
        point: CommitPoint,
    ) -> RunnerResult<CreateCompletion> {
        match result {
            Ok(CreateResult::Created(head)) => {
                self.pipeline.log_state = LogState::Open(head);
                self.reply_created(pending, point);
                Ok(CreateCompletion::Done(CreateOutcome::Created))
            }
            Ok(CreateResult::Replayed(record)) => {
                self.next_command();
                Ok(CreateCompletion::Replay {
                    reply: pending.reply,
                    record,
                })
            }
            // Refused: nothing was written, and there is no task.
            Err(
                error @ (store::Error::Conflict
                | store::Error::Fenced
                | store::Error::AlreadyApplied
                | store::Error::KeyReused),
            ) => {
                self.next_command();
                let _ = pending.reply.send(Err(error.into()));
                Ok(CreateCompletion::Done(CreateOutcome::Answered))
            }
            Err(error @ (store::Error::Failed(_) | store::Error::Damaged(_))) => {
                let _ = pending.reply.send(Err(error.into()));
                Err(Error::StoreUnavailable.into())
            }
        }
    }

    /// Publishes the first batch, and replies to the sender of the initial message.
    fn reply_created(&mut self, pending: PendingCreate, point: CommitPoint) {
        let PendingCreate {
            task,
            bytes,
            is_followed,
            reply,
            started,
        } = pending;
        let batch = task.batch;
        let count = batch.events.len();
        self.record_commit(&metrics::state_changes(&batch.events), count, &started);
        match point {
            CommitPoint::Interim => {
                // Subscribed before the publication, so that the tail buffers the first batch for the sender.
                let subscription = is_followed.then(|| self.engine.inner.journal.watch(&self.id));
                self.publish_durable(count, Some(SizedBatch { batch, bytes }));
                let _ = reply.send(Ok(self.acceptance()));
                drop(subscription);
            }
            CommitPoint::Final => {
                // The log is complete. Only the sender can have an interest in its entries.
                self.publish_durable(count, None);
                let mut accepted = self.acceptance();
                accepted.batch = is_followed.then_some(SizedBatch { batch, bytes });
                let _ = reply.send(Ok(accepted));
            }
        }
    }
}
