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

use super::offer::Verb;
use super::said;
use super::{Faced, McpFace};
use crate::llm::clean;

/// How much is passed on of what an agent says about how it goes.
const MAX_WORDS: usize = 1 << 10;

/// Arguments of a call.
struct Given(Map<String, Value>);

impl McpFace {
    pub(super) async fn answer(
        &self,
        verb: Verb,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let given = Given(arguments);
        if let Verb::Send(at) = verb {
            let mut message = given.message()?;
            message.context_id = given.text("context_id")?.map(Into::into);
            let stream = self
                .agent(at)
                .client
                .stream(SendMessageRequest::new(message))
                .await?;
            return self.follow(at, stream, context).await;
        }
        let task: TaskId = given
            .text("task_id")?
            .ok_or_else(|| Error::invalid("task_id", "is missing"))?
            .into();
        let at = self.whose(&task).await?;
        let client = &self.agent(at).client;
        match verb {
            Verb::Wait => {
                let known = self.look(at, &task).await?;
                if known.status.state.is_terminal() || known.status.state.is_interrupted() {
                    return Ok(said::task(&self.agent(at).name, &known));
                }
                self.follow(at, client.follow(task, None), context).await
            }
            Verb::Continue => {
                let message = given.message()?.in_task(task);
                let stream = client.stream(SendMessageRequest::new(message)).await?;
                self.follow(at, stream, context).await
            }
            Verb::Cancel => {
                let task = client
                    .cancel_task(CancelTaskRequest {
                        id: task,
                        ..Default::default()
                    })
                    .await?;
                Ok(said::canceled(&self.agent(at).name, &task))
            }
            Verb::Get | Verb::Send(_) => Ok(said::task(
                &self.agent(at).name,
                &self.look(at, &task).await?,
            )),
        }
    }

    fn agent(&self, at: usize) -> &Faced {
        &self.0.agents[at]
    }

    /// The agent that a task is of. One of an earlier life of ours is looked for.
    async fn whose(&self, task: &TaskId) -> Result<usize> {
        if let Some(at) = self.remembered(task) {
            return Ok(at);
        }
        let mut why = Error::from(ErrorKind::TaskNotFound);
        for at in 0..self.0.agents.len() {
            match self.look(at, task).await {
                Ok(_) => return Ok(at),
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {}
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn look(&self, at: usize, task: &TaskId) -> Result<attache::model::Task> {
        let request = GetTaskRequest {
            id: task.clone(),
            ..GetTaskRequest::default()
        };
        let task = self.agent(at).client.get_task(request).await?;
        self.remember(&task.id, at);
        Ok(task)
    }

    /// Waits for a task: to its end, to its question, or as long as we wait. Only a cancel stops it.
    async fn follow(
        &self,
        at: usize,
        mut stream: TaskStream,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult> {
        let name = &self.agent(at).name;
        let mut enough = pin!(sleep(self.0.wait));
        let mut told = 0;
        loop {
            let event = tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    drop(stream.cancel_on_drop());
                    return Ok(said::error("the call was cancelled, and its task with it"));
                }
                event = stream.next() => event,
                () = &mut enough => break,
            };
            let Some(event) = event else { break };
            let event = event?;
            if let Some(task) = stream.task() {
                self.remember(&task.id, at);
                if task.status.state.is_interrupted() {
                    break;
                }
            }
            match event {
                StreamResponse::Message(message) => return Ok(said::message(name, &message)),
                event => tell(context, &event, &mut told).await,
            }
        }
        match stream.task() {
            Some(task) if task.status.state.is_terminal() => {
                // The stream may have told of less than there is.
                let finished = stream.finish().await?;
                Ok(match &finished {
                    SendMessageResponse::Task(task) => said::task(name, task),
                    SendMessageResponse::Message(message) => said::message(name, message),
                })
            }
            Some(task) => Ok(said::task(name, task)),
            None => Err(ErrorKind::DeadlineExceeded.into()),
        }
    }
}

/// Tells whoever wants to know how the work goes.
async fn tell(context: &RequestContext<RoleServer>, event: &StreamResponse, told: &mut u32) {
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
        .map(|words| clean(&words, MAX_WORDS))
        .filter(|words| !words.is_empty())
    else {
        return;
    };
    *told += 1;
    let progress = ProgressNotificationParam::new(token, f64::from(*told)).with_message(words);
    // Whoever has left needs no word.
    let _ = context.peer.notify_progress(progress).await;
}

impl Given {
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
