//! What a call of the face does.

use std::pin::pin;

use attache::model::{
    CancelTaskRequest, GetTaskRequest, Message, Part, SendMessageRequest, SendMessageResponse,
    StreamResponse, TaskId,
};
use attache::{Error, ErrorKind, Result, TaskStream};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ProgressNotificationParam};
use rmcp::service::RequestContext;
use serde_json::{Map, Value};
use tokio::time::sleep;

use super::results;
use super::tool_list::ToolAction;
use super::{ExposedAgent, McpServer};
use crate::llm::sanitize;

/// How much is passed on of what an agent says about how it goes.
const MAX_MESSAGE: usize = 1 << 10;

/// Arguments of a call.
struct ToolArguments(Map<String, Value>);

impl McpServer {
    pub(super) async fn handle_call(
        &self,
        action: ToolAction,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let arguments = ToolArguments(arguments);
        if let ToolAction::Send(agent_index) = action {
            let mut message = arguments.message()?;
            message.context_id = arguments.text("context_id")?.map(Into::into);
            let stream = self
                .agent(agent_index)
                .client
                .stream(SendMessageRequest::new(message))
                .await?;
            return self.wait_for_task(agent_index, stream, context).await;
        }
        let task: TaskId = arguments
            .text("task_id")?
            .ok_or_else(|| Error::invalid("task_id", "is missing"))?
            .into();
        let agent_index = self.find_owner(&task).await?;
        let client = &self.agent(agent_index).client;
        match action {
            ToolAction::Wait => {
                let known = self.get_task(agent_index, &task).await?;
                if known.status.state.is_terminal() || known.status.state.is_interrupted() {
                    return Ok(results::task_result(&self.agent(agent_index).name, &known));
                }
                self.wait_for_task(agent_index, client.follow(task, None), context)
                    .await
            }
            ToolAction::Continue => {
                let message = arguments.message()?.in_task(task);
                let stream = client.stream(SendMessageRequest::new(message)).await?;
                self.wait_for_task(agent_index, stream, context).await
            }
            ToolAction::Cancel => {
                let task = client
                    .cancel_task(CancelTaskRequest {
                        id: task,
                        ..Default::default()
                    })
                    .await?;
                Ok(results::canceled_result(
                    &self.agent(agent_index).name,
                    &task,
                ))
            }
            ToolAction::Get | ToolAction::Send(_) => Ok(results::task_result(
                &self.agent(agent_index).name,
                &self.get_task(agent_index, &task).await?,
            )),
        }
    }

    fn agent(&self, agent_index: usize) -> &ExposedAgent {
        &self.0.agents[agent_index]
    }

    /// The agent that a task is of. One of an earlier life of ours is looked for.
    async fn find_owner(&self, task: &TaskId) -> Result<usize> {
        if let Some(agent_index) = self.known_owner(task) {
            return Ok(agent_index);
        }
        let mut why = Error::from(ErrorKind::TaskNotFound);
        for agent_index in 0..self.0.agents.len() {
            match self.get_task(agent_index, task).await {
                Ok(_) => return Ok(agent_index),
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {}
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn get_task(&self, agent_index: usize, task: &TaskId) -> Result<attache::model::Task> {
        let request = GetTaskRequest {
            id: task.clone(),
            ..GetTaskRequest::default()
        };
        let task = self.agent(agent_index).client.get_task(request).await?;
        self.record_owner(&task.id, agent_index);
        Ok(task)
    }

    /// Waits for a task: to its end, to its question, or as long as we wait. Only a cancel stops it.
    async fn wait_for_task(
        &self,
        agent_index: usize,
        mut stream: TaskStream,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let name = &self.agent(agent_index).name;
        let mut wait_timeout = pin!(sleep(self.0.wait));
        let mut progress_count = 0;
        loop {
            let event = tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    drop(stream.cancel_on_drop());
                    return Ok(results::error_result("the call was cancelled, and its task with it"));
                }
                event = stream.next() => event,
                () = &mut wait_timeout => break,
            };
            let Some(event) = event else { break };
            let event = event?;
            if let Some(task) = stream.task() {
                self.record_owner(&task.id, agent_index);
                if task.status.state.is_interrupted() {
                    break;
                }
            }
            match event {
                StreamResponse::Message(message) => {
                    return Ok(results::message_result(name, &message));
                }
                event => notify_progress(context, &event, &mut progress_count).await,
            }
        }
        match stream.task() {
            Some(task) if task.status.state.is_terminal() => {
                // The stream may have told of less than there is.
                let finished = stream.finish().await?;
                Ok(match &finished {
                    SendMessageResponse::Task(task) => results::task_result(name, task),
                    SendMessageResponse::Message(message) => results::message_result(name, message),
                })
            }
            Some(task) => Ok(results::task_result(name, task)),
            None => Err(ErrorKind::DeadlineExceeded.into()),
        }
    }
}

/// Tells whoever wants to know how the work goes.
async fn notify_progress(
    context: &RequestContext<RoleServer>,
    event: &StreamResponse,
    progress_count: &mut u32,
) {
    let Some(token) = context.meta.get_progress_token() else {
        return;
    };
    let words = match event {
        StreamResponse::StatusUpdate(update) => {
            update.status.message.as_ref().map(|message| message.text())
        }
        StreamResponse::ArtifactUpdate(update) => Some(update.artifact.as_text()),
        StreamResponse::Task(_) | StreamResponse::Message(_) => None,
    };
    let Some(words) = words
        .map(|words| sanitize(&words, MAX_MESSAGE))
        .filter(|words| !words.is_empty())
    else {
        return;
    };
    *progress_count += 1;
    let progress =
        ProgressNotificationParam::new(token, f64::from(*progress_count)).with_message(words);
    // Whoever has left needs no word.
    let _ = context.peer.notify_progress(progress).await;
}

impl ToolArguments {
    fn text(&self, name: &'static str) -> Result<Option<String>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(Error::invalid(name, "must be a text")),
        }
    }

    fn message(&self) -> Result<Message> {
        let text = self
            .text("message")?
            .ok_or_else(|| Error::invalid("message", "is missing"))?;
        let message = Message::user(text);
        match self.0.get("data") {
            None | Some(Value::Null) => Ok(message),
            Some(data @ Value::Object(_)) => Ok(message.part(Part::data(data.clone()))),
            Some(_) => Err(Error::invalid("data", "must be an object")),
        }
    }
}
