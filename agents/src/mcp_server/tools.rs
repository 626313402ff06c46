//! Execution of tool calls of the MCP server.

use std::pin::pin;

use attache::model::{
    CancelTaskRequest, GetTaskRequest, Message, Part, SendMessageRequest, SendMessageResponse,
    StreamResponse, Task, TaskId,
};
use attache::{Error, ErrorKind, Result, TaskStream};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ProgressNotificationParam};
use rmcp::service::RequestContext;
use serde_json::{Map, Value};
use tokio::time::sleep;

use super::results;
use super::tool_list::{TaskAction, ToolAction};
use super::{ExposedAgent, McpServer};
use crate::llm::sanitize;

/// Maximum size of a progress message.
const MAX_MESSAGE: usize = 1 << 10;

/// Arguments of a call.
pub(super) struct ToolArguments(Map<String, Value>);

impl McpServer {
    /// Executes a call.
    pub(super) async fn handle_call(
        &self,
        action: ToolAction,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let arguments = ToolArguments(arguments);
        match action {
            ToolAction::Send(agent) => self.send(agent, &arguments, context).await,
            ToolAction::Task(action) => self.handle_task_call(action, &arguments, context).await,
            ToolAction::Document(action) => self.handle_document_call(action, &arguments),
        }
    }

    async fn send(
        &self,
        agent: usize,
        arguments: &ToolArguments,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let mut message = arguments.message()?;
        message.context_id = arguments.text("context_id")?.map(Into::into);
        let client = &self.agent(agent).client;
        let stream = client.stream(SendMessageRequest::new(message)).await?;
        self.wait_for_task(agent, stream, context).await
    }

    async fn handle_task_call(
        &self,
        action: TaskAction,
        arguments: &ToolArguments,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let id: TaskId = arguments.required_text("task_id")?.into();
        let agent = self.find_owner(&id).await?;
        let ExposedAgent { name, client, .. } = self.agent(agent);
        match action {
            TaskAction::Get => {
                let task = self.get_task(agent, &id).await?;
                Ok(results::task_result(name, &task))
            }
            TaskAction::Wait => {
                let task = self.get_task(agent, &id).await?;
                let state = task.status.state;
                if state.is_terminal() || state.is_interrupted() {
                    return Ok(results::task_result(name, &task));
                }
                self.wait_for_task(agent, client.follow(id, None), context)
                    .await
            }
            TaskAction::Continue => {
                let message = arguments.message()?.in_task(id);
                let stream = client.stream(SendMessageRequest::new(message)).await?;
                self.wait_for_task(agent, stream, context).await
            }
            TaskAction::Cancel => {
                let request = CancelTaskRequest {
                    id,
                    ..Default::default()
                };
                let task = client.cancel_task(request).await?;
                Ok(results::canceled_result(name, &task))
            }
        }
    }

    fn agent(&self, index: usize) -> &ExposedAgent {
        &self.0.agents[index]
    }

    /// Returns the index of a task's agent. Asks all agents if it is not cached, for example after a restart.
    async fn find_owner(&self, task: &TaskId) -> Result<usize> {
        if let Some(agent) = self.cached_owner(task) {
            return Ok(agent);
        }
        let mut failure = Error::from(ErrorKind::TaskNotFound);
        for agent in 0..self.0.agents.len() {
            match self.get_task(agent, task).await {
                Ok(_) => return Ok(agent),
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn get_task(&self, agent: usize, task: &TaskId) -> Result<Task> {
        let request = GetTaskRequest {
            id: task.clone(),
            ..GetTaskRequest::default()
        };
        let task = self.agent(agent).client.get_task(request).await?;
        self.record_owner(&task.id, agent);
        Ok(task)
    }

    /// Follows a task to its end, to a question, or for the maximum wait time. Only a cancel of the call stops the task.
    async fn wait_for_task(
        &self,
        agent: usize,
        mut stream: TaskStream,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let name = &self.agent(agent).name;
        let mut max_wait = pin!(sleep(self.0.max_wait));
        let mut notifications = 0;
        loop {
            let event = tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    drop(stream.cancel_on_drop());
                    return Ok(results::error_result("the call and its task were canceled"));
                }
                event = stream.next() => event,
                () = &mut max_wait => break,
            };
            let Some(event) = event else { break };
            let event = event?;
            if let Some(task) = stream.task() {
                self.record_owner(&task.id, agent);
                if task.status.state.is_interrupted() {
                    break;
                }
            }
            notify_progress(context, &event, &mut notifications).await;
        }
        stream_result(name, stream).await
    }
}

/// Returns the result for a task that ended, is interrupted or is still running.
async fn stream_result(name: &str, stream: TaskStream) -> Result<CallToolResult> {
    if let Some(message) = stream.message() {
        return Ok(results::message_result(name, &message));
    }
    match stream.task() {
        Some(task) if task.status.state.is_terminal() => {
            // `finish` reads the complete task: the stream may not have contained all artifacts.
            Ok(match &stream.finish().await? {
                SendMessageResponse::Task(task) => results::task_result(name, task),
                SendMessageResponse::Message(message) => results::message_result(name, message),
            })
        }
        Some(task) => Ok(results::task_result(name, task)),
        None => Err(ErrorKind::DeadlineExceeded.into()),
    }
}

/// Sends the text of an event as a progress notification, if the client asked for them.
async fn notify_progress(
    context: &RequestContext<RoleServer>,
    event: &StreamResponse,
    notifications: &mut u32,
) {
    let Some(token) = context.meta.get_progress_token() else {
        return;
    };
    let text = match event {
        StreamResponse::StatusUpdate(update) => {
            update.status.message.as_ref().map(|message| message.text())
        }
        StreamResponse::ArtifactUpdate(update) => Some(update.artifact.as_text()),
        StreamResponse::Message(message) => Some(message.text()),
        StreamResponse::Task(_) => None,
    };
    let text = sanitize(&text.unwrap_or_default(), MAX_MESSAGE);
    if text.is_empty() {
        return;
    }
    *notifications += 1;
    let progress =
        ProgressNotificationParam::new(token, f64::from(*notifications)).with_message(text);
    // Fails only if the client has disconnected.
    let _ = context.peer.notify_progress(progress).await;
}

impl ToolArguments {
    fn text(&self, name: &'static str) -> Result<Option<String>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(Error::invalid(name, "must be a non-empty string")),
        }
    }

    pub(super) fn required_text(&self, name: &'static str) -> Result<String> {
        self.text(name)?
            .ok_or_else(|| Error::invalid(name, "is missing"))
    }

    fn message(&self) -> Result<Message> {
        let message = Message::user(self.required_text("message")?);
        match self.0.get("data") {
            None | Some(Value::Null) => Ok(message),
            Some(data @ Value::Object(_)) => Ok(message.part(Part::data(data.clone()))),
            Some(_) => Err(Error::invalid("data", "must be an object")),
        }
    }
}
