//! `GetTask`, `ListTasks` and `CancelTask`, and the scoped task lookup that all operations use.

use super::{Service, ServiceResponse, TaskView, cursor};
use crate::engine;
use crate::model::{
    Call, CancelTaskRequest, Error, ErrorKind, GetTaskRequest, ListTasksRequest, ListTasksResponse,
    Response, Result, Task, TaskId,
};
use crate::store::Head;

impl Service {
    /// `GetTask`.
    pub(super) async fn get_task(
        &self,
        call: &Call,
        request: GetTaskRequest,
    ) -> Result<ServiceResponse> {
        let head = self.find(call, &request.id).await?;
        Ok(self.trimmed_response(self.engine.task_view(&head).await?, &request))
    }

    /// `GetTask` from the engine's task cache; `None` on a cache miss.
    pub(super) fn get_cached_task(
        &self,
        call: &Call,
        request: &GetTaskRequest,
    ) -> Option<ServiceResponse> {
        if !self.engine.keeps_tasks() {
            return None;
        }
        let task = self.engine.cached_task(&call.scope, &request.id)?;
        Some(self.trimmed_response(task, request))
    }

    /// Trims the history to the requested length. A task that needs no trimming is passed on without a copy.
    fn trimmed_response(&self, task: TaskView, request: &GetTaskRequest) -> ServiceResponse {
        let limits = &self.options.limits;
        let history_length = limits.clamp_history_length(request.history_length);
        if task.history.len() <= max_messages(history_length) {
            ServiceResponse::Task(task)
        } else {
            ServiceResponse::Single(Response::Task(trim_task(&task, history_length, true)))
        }
    }

    /// `ListTasks`: the caller's tasks, newest status first.
    ///
    /// A page ends early when its tasks exceed `max_page_bytes`; it has at least one task.
    pub(super) async fn list_tasks(
        &self,
        call: &Call,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse> {
        if !self.engine.keeps_tasks() {
            return Ok(ListTasksResponse {
                page_size: request.page_size(),
                ..ListTasksResponse::default()
            });
        }
        let mut query = cursor::store_query(&request)?;
        let page_size = query.limit;
        // One more than requested shows whether there is a next page.
        query.limit += 1;
        let found = self.engine.list(&call.scope, &query).await?;
        let page = self.load_page(&request, &found.tasks, page_size).await?;
        let end = found.tasks.last();
        let has_more = page
            .last
            .zip(end)
            .is_some_and(|(last, end)| end.id != last.id);
        let next_page_token = page
            .last
            .filter(|_| has_more)
            .map_or_else(String::new, |last| cursor::encode(&request, last));
        Ok(ListTasksResponse {
            tasks: page.tasks,
            next_page_token,
            page_size: request.page_size(),
            total_size: i32::try_from(found.total).unwrap_or(i32::MAX),
        })
    }

    /// Loads the tasks of one page. A task deleted since the query is skipped.
    async fn load_page<'a>(
        &self,
        request: &ListTasksRequest,
        heads: &'a [Head],
        page_size: usize,
    ) -> Result<Page<'a>> {
        let limits = &self.options.limits;
        let history_length = limits.clamp_history_length(request.history_length);
        let with_artifacts = request.include_artifacts == Some(true);
        let mut page = Page {
            tasks: Vec::with_capacity(page_size),
            last: None,
        };
        let mut bytes = 0;
        for head in heads.iter().take(page_size) {
            match self.engine.task(head).await {
                Ok((task, _)) => {
                    let task = trim_task(&task, history_length, with_artifacts);
                    bytes += task.memory_size();
                    if bytes > limits.max_page_bytes && !page.tasks.is_empty() {
                        break;
                    }
                    page.tasks.push(task);
                }
                Err(engine::Error::Deleted) => {}
                Err(error) => return Err(error.into()),
            }
            page.last = Some(head);
        }
        Ok(page)
    }

    /// `CancelTask`.
    pub(super) async fn cancel_task(
        &self,
        call: &Call,
        request: CancelTaskRequest,
    ) -> Result<Task> {
        let head = self.find(call, &request.id).await?;
        let canceled = self.engine.cancel(&head, request.metadata).await;
        canceled.map_err(|error| match error {
            engine::Error::Ended(_) => {
                Error::new(ErrorKind::TaskNotCancelable).with_detail("taskId", request.id.as_str())
            }
            error => error.into(),
        })
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

/// Tasks of one `ListTasks` page, and the last head that the page covers.
struct Page<'a> {
    tasks: Vec<Task>,
    last: Option<&'a Head>,
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

/// Number of messages that a history length allows; `None` allows all.
fn max_messages(history_length: Option<i32>) -> usize {
    history_length
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(usize::MAX)
}

pub(super) fn not_found(id: &TaskId) -> Error {
    Error::new(ErrorKind::TaskNotFound).with_detail("taskId", id.as_str())
}
