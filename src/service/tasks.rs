//! `GetTask`, `ListTasks` and `CancelTask`, and the scoped task lookup that all operations use.

use super::{Service, ServiceResponse, TaskView, cursor};
use crate::engine;
use crate::model::{
    Call, CancelTaskRequest, Error, ErrorKind, GetTaskRequest, ListTasksRequest, ListTasksResponse,
    Message, Response, Result, Task, TaskId, TaskStatus,
};
use crate::rt::{Reservation, is_counted};
use crate::store::Head;

impl Service {
    /// `GetTask`.
    pub(super) async fn get_task(
        &self,
        call: &Call,
        request: GetTaskRequest,
    ) -> Result<ServiceResponse> {
        let head = self.find(call, &request.id).await?;
        let task = self.reserved_view(call, &head).await?;
        Ok(self.trimmed_response(task, &request))
    }

    /// Returns a task for a response. A large one has its part of the byte budget, which covers task and encoding.
    ///
    /// Readers of one large task share its encoding, which counts once. While this waits for the budget, it does not
    /// hold the task.
    ///
    /// # Errors
    /// Unavailable: the budget is exhausted.
    pub(super) async fn reserved_view(&self, call: &Call, head: &Head) -> Result<TaskView> {
        let task = self.engine.task_view(head).await?;
        let Some(bytes) = task.large_size().filter(|_| !task.has_readers()) else {
            return Ok(task);
        };
        let outgoing = &self.options.outgoing;
        let caller = call.caller_key();
        if let Ok(reservation) = outgoing.try_reserve(&caller, 2 * bytes) {
            return Ok(task.with_reservation(reservation));
        }
        drop(task);
        // Boxed: future size.
        let reservation = Box::pin(outgoing.reserve(&caller, 2 * bytes)).await?;
        let task = self.engine.task_view(head).await?;
        Ok(task.with_reservation(reservation))
    }

    /// `GetTask` from the engine's task cache; `None` on a cache miss, or if the byte budget is exhausted.
    pub(super) fn get_cached_task(
        &self,
        call: &Call,
        request: &GetTaskRequest,
    ) -> Option<ServiceResponse> {
        if !self.engine.keeps_tasks() {
            return None;
        }
        let mut task = self.engine.cached_task(&call.scope, &request.id)?;
        if let Some(bytes) = task.large_size().filter(|_| !task.has_readers()) {
            let outgoing = &self.options.outgoing;
            let reserved = outgoing.try_reserve(&call.caller_key(), 2 * bytes);
            task = task.with_reservation(reserved.ok()?);
        }
        Some(self.trimmed_response(task, request))
    }

    /// Trims the history to the requested length. A task that needs no trimming is passed on without a copy.
    fn trimmed_response(&self, mut task: TaskView, request: &GetTaskRequest) -> ServiceResponse {
        let limits = &self.options.limits;
        let history_length = limits.clamp_history_length(request.history_length);
        if task.history.len() <= max_messages(history_length) {
            ServiceResponse::Task(task)
        } else {
            let reservation = task.take_reservation();
            let trimmed = trim_task(&task, history_length, true);
            ServiceResponse::Single(Box::new(Response::Task(trimmed)), reservation)
        }
    }

    /// `ListTasks`: the caller's tasks, newest status first.
    ///
    /// A page ends early when its tasks exceed `max_page_bytes`, or what is left of the byte budget; it has at least one
    /// task. Returns the part of the budget that the page takes.
    ///
    /// # Errors
    /// Unavailable: the store does not respond, or the budget does not allow the first task.
    pub(super) async fn list_tasks(
        &self,
        call: &Call,
        request: ListTasksRequest,
    ) -> Result<(ListTasksResponse, Option<Reservation>)> {
        if !self.engine.keeps_tasks() {
            let empty = ListTasksResponse {
                page_size: request.page_size(),
                ..ListTasksResponse::default()
            };
            return Ok((empty, None));
        }
        let mut query = cursor::store_query(&request)?;
        let page_size = query.limit;
        // One more than requested shows whether there is a next page.
        query.limit += 1;
        let found = self.engine.list(&call.scope, &query).await?;
        let page = self
            .load_page(
                call,
                &request,
                &found.tasks[..found.tasks.len().min(page_size)],
            )
            .await?;
        let end = found.tasks.last();
        let has_more = page
            .last
            .zip(end)
            .is_some_and(|(last, end)| end.id != last.id);
        let next_page_token = page
            .last
            .filter(|_| has_more)
            .map_or_else(String::new, |last| cursor::encode(&request, last));
        let response = ListTasksResponse {
            tasks: page.tasks,
            next_page_token,
            page_size: request.page_size(),
            total_size: i32::try_from(found.total).unwrap_or(i32::MAX),
        };
        Ok((response, page.reservation))
    }

    /// Loads the tasks of one page. A task deleted since the query is skipped.
    async fn load_page<'a>(
        &self,
        call: &Call,
        request: &ListTasksRequest,
        heads: &'a [Head],
    ) -> Result<Page<'a>> {
        let mut page = Page {
            tasks: Vec::with_capacity(heads.len()),
            last: None,
            bytes: 0,
            reservation: None,
        };
        for head in heads {
            if let Some(task) = self.load_listed(request, head).await? {
                match self.make_room(call, &mut page, task.memory_size()) {
                    PageRoom::Granted => page.tasks.push(task),
                    PageRoom::Full => break,
                    PageRoom::Exhausted(bytes) => {
                        // Not held while this waits.
                        drop(task);
                        let caller = call.caller_key();
                        let reserved = self.options.outgoing.reserve(&caller, bytes);
                        // Boxed: future size.
                        page.reservation = Some(Box::pin(reserved).await?);
                        page.tasks.extend(self.load_listed(request, head).await?);
                    }
                }
            }
            page.last = Some(head);
        }
        Ok(page)
    }

    /// Loads the requested part of a task. `None`: it was deleted.
    async fn load_listed(&self, request: &ListTasksRequest, head: &Head) -> Result<Option<Task>> {
        let limits = &self.options.limits;
        let history_length = limits.clamp_history_length(request.history_length);
        let with_artifacts = request.include_artifacts == Some(true);
        match self.engine.task(head).await {
            Ok((task, _)) => Ok(Some(trim_task(&task, history_length, with_artifacts))),
            Err(engine::Error::Deleted) => Ok(None),
            // One damaged task does not hide the others.
            Err(error) if error.is_damage() => Ok(Some(damaged_task(head))),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes room for one more task of this size on a page.
    fn make_room(&self, call: &Call, page: &mut Page<'_>, bytes: usize) -> PageRoom {
        let is_first = page.tasks.is_empty();
        let page_bytes = page.bytes + bytes;
        if !is_first && page_bytes > self.options.limits.max_page_bytes {
            return PageRoom::Full;
        }
        let reserved = match &mut page.reservation {
            Some(reservation) => reservation.try_grow(bytes),
            None if !is_counted(page_bytes) => Ok(()),
            None => {
                let caller = call.caller_key();
                let reserved = self.options.outgoing.try_reserve(&caller, page_bytes);
                reserved.map(|reservation| page.reservation = Some(reservation))
            }
        };
        if reserved.is_err() && !is_first {
            return PageRoom::Full;
        }
        page.bytes = page_bytes;
        match reserved {
            Ok(()) => PageRoom::Granted,
            Err(_) => PageRoom::Exhausted(bytes),
        }
    }

    /// `CancelTask`.
    pub(super) async fn cancel_task(
        &self,
        call: &Call,
        request: CancelTaskRequest,
    ) -> Result<ServiceResponse> {
        let head = self.find(call, &request.id).await?;
        let canceled = self.engine.cancel(&head, request.metadata).await;
        let task = canceled.map_err(|error| match error {
            engine::Error::Ended(_) => {
                Error::new(ErrorKind::TaskNotCancelable).with_detail("taskId", request.id.as_str())
            }
            error => error.into(),
        })?;
        let (task, reservation) = self.count_task(call, task, None).await;
        let response = Box::new(Response::Task(task));
        Ok(ServiceResponse::Single(response, reservation))
    }

    /// Looks a task up within the caller's scope. A task of another scope is not found.
    pub(super) async fn find(&self, call: &Call, id: &TaskId) -> Result<Head> {
        if !self.engine.keeps_tasks() {
            return Err(not_found(id));
        }
        self.engine
            .find(&call.scope, id)
            .await?
            .ok_or_else(|| not_found(id))
    }
}

/// Whether a page has room for one more task.
enum PageRoom {
    Granted,
    /// The page ends before the task.
    Full,
    /// The task is the first one, and the byte budget does not allow its size.
    Exhausted(usize),
}

/// Tasks of one `ListTasks` page, and the last head that the page covers.
struct Page<'a> {
    tasks: Vec<Task>,
    last: Option<&'a Head>,
    /// Size of the tasks.
    bytes: usize,
    reservation: Option<Reservation>,
}

/// Copies the requested part of a task. The rest is not cloned.
pub(super) fn trim_task(task: &Task, history_length: Option<i32>, with_artifacts: bool) -> Task {
    let length = max_messages(history_length);
    let artifacts = if with_artifacts {
        task.artifacts.clone()
    } else {
        Vec::new()
    };
    Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        artifacts,
        history: task.history[task.history.len().saturating_sub(length)..].to_vec(),
        metadata: task.metadata.clone(),
    }
}

/// Message of a task whose log is damaged, in lists.
const DAMAGED: &str = "the stored data of the task is damaged";

/// Returns a task whose log is damaged as its head describes it, with the reason as the message of its status.
fn damaged_task(head: &Head) -> Task {
    let mut message = Message::agent(DAMAGED);
    message.message_id = format!("{}-damaged", head.id.as_str()).into();
    message.task_id = Some(head.id.clone());
    message.context_id = Some(head.context_id.clone());
    Task {
        id: head.id.clone(),
        context_id: head.context_id.clone(),
        status: TaskStatus::new(head.state)
            .with_message(message)
            .with_timestamp(head.status_time),
        ..Task::default()
    }
}

/// Number of messages that a history length allows; `None` allows all.
pub(super) fn max_messages(history_length: Option<i32>) -> usize {
    history_length
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(usize::MAX)
}

pub(super) fn not_found(id: &TaskId) -> Error {
    Error::new(ErrorKind::TaskNotFound).with_detail("taskId", id.as_str())
}
