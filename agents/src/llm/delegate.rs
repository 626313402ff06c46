//! Another agent as a tool: a task of its own, that knows whose work it is part of.

use std::collections::BTreeMap;
use std::fmt;

use attache::model::{
    Message, Object, Role, Secret, SendMessageRequest, SendMessageResponse, TaskId, TaskState,
};
use attache::{Client, ClientBuilder, TaskStream, Turn};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::steps::Step;

/// Under this key a message says whose work it is part of.
const LINEAGE: &str = "urn:attache:ext:lineage:v1";
/// How long a line is believed at most.
const MAX_PATH: usize = 64;

/// Another agent.
pub(super) struct Delegate {
    url: String,
    builder: ClientBuilder,
    client: OnceCell<Client>,
}

/// Where a piece of work comes from. What others say of it is never believed to our advantage: our own limits hold, and
/// it can only add to what is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Lineage {
    /// How many agents stand before this one.
    depth: u32,
    /// Whom they called, the first one first.
    path: Vec<String>,
}

/// What another agent is asked to do.
pub(super) enum Errand {
    Begin(String),
    Answer(TaskId, Box<Message>),
    Follow(TaskId),
}

/// Where a task of another agent has come to.
pub(super) enum Came {
    Done(String),
    /// It asks the caller something.
    Asks(String),
}

impl Lineage {
    /// Of the message that the task began with.
    pub(super) fn of(turn: &Turn) -> Self {
        let first = turn.task().history.iter().find(|message| message.role == Role::User);
        let said = first.and_then(|first| first.metadata.as_ref()?.get(LINEAGE)?.read::<Self>().ok());
        let mut lineage = said.unwrap_or_default();
        lineage.path.truncate(MAX_PATH);
        lineage.depth = lineage.depth.max(u32::try_from(lineage.path.len()).unwrap_or(u32::MAX));
        lineage
    }

    /// One more agent behind this one, if there may be.
    fn further(&self, url: &str, max_depth: u32) -> Result<Self, String> {
        if self.path.iter().any(|called| called == url) {
            return Err(
                "refused: this agent already works on the same request, and would be called in a circle"
                    .to_owned(),
            );
        }
        let depth = self.depth.saturating_add(1);
        if depth >= max_depth {
            return Err(format!("refused: there may be at most {max_depth} agents behind each other"));
        }
        Ok(Self { depth, path: self.path.iter().cloned().chain([url.to_owned()]).collect() })
    }
}

impl Delegate {
    pub(super) fn new(url: &str, headers: &BTreeMap<String, Secret>) -> Result<Self, String> {
        let parsed = url.parse().map_err(|_| "agent must be a url".to_owned())?;
        attache::Http::check(&parsed).map_err(|_| "agent must begin with http:// or https://".to_owned())?;
        let mut builder = Client::builder();
        for (name, value) in headers {
            let wrong = |_| format!("`{name}` cannot be sent as a header");
            builder = builder.header(name, value.expose()).map_err(wrong)?;
        }
        Ok(Self { url: url.trim_end_matches('/').to_owned(), builder, client: OnceCell::new() })
    }

    /// Does an errand, to the end of the other's task or to its question. Dropped before, it cancels that task.
    pub(super) async fn run(
        &self,
        turn: &Turn,
        id: &str,
        errand: Errand,
        max_depth: u32,
    ) -> Result<Came, String> {
        let request = match errand {
            Errand::Begin(text) => {
                // Before anything is sent to anybody.
                let lineage = Lineage::of(turn).further(&self.url, max_depth)?;
                Some(message(turn, id, text, &lineage))
            }
            Errand::Answer(task, answer) => {
                let parts = answer.parts;
                Some(Message { parts, ..Message::user("") }.in_task(task))
            }
            Errand::Follow(ref task) => {
                return self.follow(self.client(turn).await?.follow(task.clone(), None)).await;
            }
        };
        let client = self.client(turn).await?;
        let Some(request) = request else { return Err("there is nothing to ask".to_owned()) };
        let stream = client.stream(SendMessageRequest::new(request)).await.map_err(lost)?;
        self.told(turn, id, stream).await
    }

    /// Writes down whose task it is as soon as that is known: after a restart it is followed, not begun again.
    async fn told(&self, turn: &Turn, id: &str, stream: TaskStream) -> Result<Came, String> {
        let mut stream = stream.cancel_on_drop();
        while stream.task().is_none() {
            match stream.next().await {
                Some(told) => drop(told.map_err(lost)?),
                None => break,
            }
        }
        if let Some(task) = stream.task() {
            Step::Delegated { id: id.to_owned(), task: task.id.clone() }.tell(turn).await;
        }
        self.follow(stream).await
    }

    async fn follow(&self, stream: TaskStream) -> Result<Came, String> {
        let task = match stream.cancel_on_drop().finish().await.map_err(lost)? {
            SendMessageResponse::Message(message) => return Ok(Came::Done(message.text())),
            SendMessageResponse::Task(task) => task,
        };
        let words = task.status.message.as_ref().map(|message| message.text()).unwrap_or_default();
        match task.status.state {
            TaskState::Completed => Ok(Came::Done(task.text())),
            TaskState::InputRequired | TaskState::AuthRequired => Ok(Came::Asks(words)),
            state => {
                let state = state.as_str().trim_start_matches("TASK_STATE_").to_lowercase();
                Err(format!("the agent's task ended as {state}: {words}"))
            }
        }
    }

    async fn client(&self, turn: &Turn) -> Result<Client, String> {
        let client =
            self.client.get_or_try_init(|| self.builder.discover(&self.url)).await.map_err(lost)?.clone();
        Ok(match turn.trace() {
            Some(trace) => client.with_trace(trace),
            None => client,
        })
    }
}

/// The work, as part of ours.
fn message(turn: &Turn, id: &str, text: String, lineage: &Lineage) -> Message {
    let mut metadata = Object::new();
    metadata.insert(LINEAGE, serde_json::to_value(lineage).unwrap_or_default());
    Message {
        message_id: format!("{}-{id}", turn.task_id()).into(),
        reference_task_ids: vec![turn.task_id().clone()],
        metadata: Some(metadata),
        ..Message::user(text)
    }
}

/// Why another agent gave no answer, in words for the model.
fn lost(error: attache::Error) -> String {
    format!("the agent gave no answer: {}", error.message())
}

impl fmt::Debug for Delegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delegate").field(&self.url).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s59_nobody_is_called_in_a_circle() {
        let a = Lineage::default().further("http://b", 8).unwrap();
        let b = a.further("http://a", 8).unwrap();
        assert!(b.further("http://b", 8).unwrap_err().contains("circle"));
        assert!(b.further("http://c", 8).is_ok());
        assert!(b.further("http://c", 3).unwrap_err().contains("at most 3"));
    }
}
