//! Replies of operations that took effect, within the byte budget.
//!
//! The budget never turns such a reply into an error: the client would not learn the id of its task. The task is read again
//! when the budget allows it. After `outgoing_timeout` the reply is the task without its content.

use super::{Service, TaskEventStream};
use crate::engine;
use crate::model::{Call, Task};
use crate::rt::{Reservation, is_counted};

/// Task of a reply, and its part of the byte budget. Boxed: future size.
pub(super) type CountedTask = (Task, Option<Box<Reservation>>);

impl Service {
    /// Returns the task that an operation has created or changed, with at most `history_length` messages.
    ///
    /// Waits up to `outgoing_timeout` for the byte budget, and does not hold the task meanwhile. Then it is the current
    /// task, or the task without its content if the budget is still exhausted.
    pub(super) async fn count_task(
        &self,
        call: &Call,
        mut task: Task,
        history_length: Option<i32>,
    ) -> CountedTask {
        task.limit_history(history_length);
        let bytes = task.memory_size();
        if !is_counted(bytes) {
            return (task, None);
        }
        match self.options.outgoing.try_reserve(&call.caller_key(), bytes) {
            Ok(reservation) => (task, Some(Box::new(reservation))),
            Err(_) => {
                let summary = task.without_content();
                drop(task);
                // Boxed: future size.
                Box::pin(self.reread_task(call, summary, bytes, history_length)).await
            }
        }
    }

    /// Reads a task again when the byte budget allows it. Returns `summary` if it does not, or if the task was deleted.
    async fn reread_task(
        &self,
        call: &Call,
        summary: Task,
        bytes: usize,
        history_length: Option<i32>,
    ) -> CountedTask {
        let outgoing = &self.options.outgoing;
        let Ok(reservation) = outgoing.reserve(&call.caller_key(), bytes).await else {
            return (summary, None);
        };
        match self.current_task(call, &summary).await {
            Ok(Some(mut task)) => {
                task.limit_history(history_length);
                (task, Some(Box::new(reservation)))
            }
            Ok(None) => (summary, None),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(task = %summary.id, error, "task not read again; reply without content");
                (summary, None)
            }
        }
    }

    async fn current_task(&self, call: &Call, task: &Task) -> engine::Result<Option<Task>> {
        let Some(head) = self.engine.find(&call.scope, &task.id).await? else {
            return Ok(None);
        };
        let (task, _) = self.engine.task(&head).await?;
        Ok(Some(std::sync::Arc::unwrap_or_clone(task)))
    }

    /// Counts the pages of a stream, and its first event: a snapshot that the budget does not allow is sent without content.
    pub(super) fn count_stream(&self, stream: TaskEventStream) -> TaskEventStream {
        stream
            .with_budget(&self.options.outgoing)
            .with_counted_snapshot()
    }
}
