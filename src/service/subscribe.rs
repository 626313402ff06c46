//! `SubscribeToTask`: a snapshot and live events, or a replay from a position that the client has seen.

use super::tasks::{max_messages, trim_task};
use super::{Service, ServiceResponse, TaskEventStream, stream};
use crate::model::{
    Call, ClientDialect, Error, ErrorKind, Result, Seq, SubscribeToTaskRequest, TaskState,
};
use crate::store::Head;

impl Service {
    /// Streams the events of an existing task.
    ///
    /// With a `Last-Event-ID` in range the stream replays the entries after it. Otherwise it begins with a snapshot.
    ///
    /// # Errors
    /// Unsupported operation: the task has ended and no visible event is left to replay. Unavailable: a stream limit is
    /// reached, or the log is not writable.
    pub(super) async fn subscribe_to_task(
        &self,
        call: &Call,
        request: SubscribeToTaskRequest,
    ) -> Result<ServiceResponse> {
        let head = self.find(call, &request.id).await?;
        let options = &self.options;
        let permit = options
            .stream_limiter
            .acquire(call.caller_key())?
            .for_task(&head.id)?;
        // 01 §6: errors are reported before the stream begins where possible.
        self.engine.check_writable(&head)?;
        if let Some(position) = self.replay_position(call, &head).await? {
            let follow = self.engine.follow(&head, position);
            // Boxed: future size.
            let client = Box::pin(self.client_dialect(call, &head)).await?;
            let stream = TaskEventStream::from_position(&head, client, follow, permit);
            return Ok(self.complete_subscription(stream));
        }
        // Boxed: future size.
        let mut task = Box::pin(self.reserved_view(call, &head)).await?;
        if task.status.state.is_terminal() {
            return Err(task_ended(&head, task.status.state));
        }
        let position = task.position();
        let follow = self.engine.follow(&head, position);
        let history_length = options.limits.clamp_history_length(None);
        let is_whole = task.history.len() <= max_messages(history_length);
        let stream = if task.large_size().is_some() && is_whole {
            TaskEventStream::for_large_task(task, position, follow, permit)
        } else {
            let reservation = task.take_reservation();
            let task = trim_task(&task, history_length, true);
            TaskEventStream::for_subscription(task, position, follow, permit)
                .with_reservation(reservation)
        };
        Ok(self.complete_subscription(stream))
    }

    /// Returns the dialect of the client of a task, which a resumed stream does not begin with. The task is read only for
    /// versions whose writers use it.
    async fn client_dialect(&self, call: &Call, head: &Head) -> Result<Option<ClientDialect>> {
        if !call.version.has_tool_parts() {
            return Ok(None);
        }
        let (task, _) = self.engine.task(head).await?;
        Ok(task.client_dialect())
    }

    fn complete_subscription(&self, stream: TaskEventStream) -> ServiceResponse {
        let stream = stream.with_waiting_timeout(self.options.waiting_stream_timeout);
        self.count_stream(stream).into()
    }

    /// Returns the position to replay from: the client's, if it lies within the log and within `max_replayed_entries`.
    /// `None` also for an ended task without a visible entry after that position.
    async fn replay_position(&self, call: &Call, head: &Head) -> Result<Option<Seq>> {
        let max_replayed = self.options.limits.max_replayed_entries;
        let is_in_range = |seen: &Seq| {
            seen.0 > 0 && *seen <= head.position && head.position.0 - seen.0 <= max_replayed
        };
        let Some(seen) = call.resume_after.filter(is_in_range) else {
            return Ok(None);
        };
        if head.state.is_terminal() && !self.has_visible_entries_after(head, seen).await? {
            return Ok(None);
        }
        Ok(Some(seen))
    }

    /// Whether the log of an ended task has an entry after `seen` that streams report.
    ///
    /// All entries are in the store. The notification of the last ones may still be on its way; this waits for it.
    async fn has_visible_entries_after(&self, head: &Head, mut seen: Seq) -> Result<bool> {
        let mut follow = self.engine.follow(head, seen);
        while seen < head.position {
            let entries = follow.next().await?;
            if entries.iter().any(stream::is_visible_entry) {
                return Ok(true);
            }
            seen = entries.last().map_or(head.position, |entry| entry.seq);
        }
        Ok(false)
    }
}

fn task_ended(head: &Head, state: TaskState) -> Error {
    Error::new(ErrorKind::UnsupportedOperation)
        .with_message("the task has ended; there is nothing to subscribe to")
        .with_detail("taskId", head.id.as_str())
        .with_detail("state", state.as_str())
}
