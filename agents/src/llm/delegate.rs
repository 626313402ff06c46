//! Another agent as a tool: a task of its own, that knows whose work it is part of.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use attache::jws::Signer;
use attache::model::{
    CancelTaskRequest, GetTaskRequest, Message, Object, Secret, SendMessageRequest,
    SendMessageResponse, Task, TaskId, TaskState,
};
use attache::{Client, ClientBuilder, TaskStream, Turn};
use tokio::sync::OnceCell;

use super::history::LlmStep;
use crate::caller_propagation::{self, CallerPropagation};
use crate::circuit_breaker::CircuitBreaker;
use crate::lineage::{Cost, DelegationLimits, Lineage};

/// How long a call may take whose time nobody has limited.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);

/// After so many failures in a row it is left alone, for so long.
const BREAKER_FAILURES: u32 = 5;
const BREAKER_PAUSE: Duration = Duration::from_secs(30);

/// Another agent.
pub(super) struct Delegate {
    url: String,
    builder: ClientBuilder,
    client: OnceCell<Client>,
    propagation: CallerPropagation,
    breaker: CircuitBreaker,
}

/// What another agent is asked to do.
pub(super) enum DelegateRequest {
    Start(String),
    Answer(TaskId, Box<Message>),
    Follow(TaskId),
}

/// Where a task of another agent has come to.
pub(super) enum DelegateOutcome {
    Completed(String),
    /// It did not work out, in words for the model.
    Failed(String),
    /// It asks the caller something, or for credentials.
    Question {
        task: TaskId,
        words: String,
        needs_auth: bool,
    },
}

impl Delegate {
    pub(super) fn new(
        url: &str,
        headers: &BTreeMap<String, Secret>,
        forward_caller: bool,
    ) -> Result<Self, String> {
        let parsed = url.parse().map_err(|_| "agent must be a url".to_owned())?;
        attache::HttpClient::check(&parsed)
            .map_err(|_| "agent must begin with http:// or https://".to_owned())?;
        let mut builder = Client::builder();
        for (name, value) in headers {
            let wrong = |_| format!("`{name}` cannot be sent as a header");
            builder = builder.header(name, value.expose()).map_err(wrong)?;
        }
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            builder,
            client: OnceCell::new(),
            propagation: CallerPropagation {
                forward_caller,
                signer: None,
            },
            breaker: CircuitBreaker::new(BREAKER_FAILURES, BREAKER_PAUSE),
        })
    }

    /// Signs for whom it calls.
    pub(super) fn set_signer(&mut self, signer: Signer) {
        self.propagation.signer = Some(signer);
    }

    /// Does an errand, to the end of the other's task or to its question; gives what that task has cost. Dropped before, it
    /// cancels that task.
    ///
    /// # Errors
    /// Why nothing came of it, in words for the model.
    pub(super) async fn run(
        &self,
        turn: &Turn,
        id: &str,
        request: DelegateRequest,
        limits: &DelegationLimits,
    ) -> Result<(DelegateOutcome, Cost), String> {
        let time = limits.remaining.time.unwrap_or(DEFAULT_TIMEOUT);
        let about = caller_propagation::OutgoingCall {
            lineage: None,
            time,
        };
        match request {
            DelegateRequest::Start(text) => {
                // Before anything is sent to anybody.
                let lineage = Lineage::from_turn(turn).extend(&self.url, limits)?;
                if !self.breaker.try_acquire() {
                    return Err(
                        "the agent is not available, and is left alone for a while".to_owned()
                    );
                }
                let about = caller_propagation::OutgoingCall {
                    lineage: Some(&lineage),
                    time,
                };
                self.send(turn, id, message(turn, id, text, &lineage), about)
                    .await
            }
            DelegateRequest::Answer(task, answer) => {
                let client = self.client(turn, about).await?;
                let now = client.get_task(GetTaskRequest {
                    id: task.clone(),
                    ..Default::default()
                });
                match Box::pin(now).await {
                    // It went on without the answer, or heard it before we were cut off.
                    Ok(now) if !now.status.state.is_interrupted() => {
                        self.follow(client.follow(task, None)).await
                    }
                    _ => {
                        let parts = answer.parts;
                        let answer = Message {
                            parts,
                            ..Message::user("")
                        }
                        .in_task(task);
                        self.send(turn, id, answer, about).await
                    }
                }
            }
            DelegateRequest::Follow(task) => {
                self.follow(self.client(turn, about).await?.follow(task, None))
                    .await
            }
        }
    }

    /// For whom it is signed that we call, if it is.
    pub(super) fn caller<'a>(&self, turn: &'a Turn) -> Option<&'a str> {
        self.propagation.caller(turn)
    }

    /// Asks for a task to be stopped that was begun for somebody.
    pub(super) async fn cancel(&self, id: &TaskId, caller: Option<&str>) -> Result<(), String> {
        let client = self
            .propagation
            .attach_caller(self.discovered_client().await?, caller)
            .map_err(|error| self.record_error(&error))?;
        let asked = client.cancel_task(CancelTaskRequest {
            id: id.clone(),
            ..Default::default()
        });
        Box::pin(asked)
            .await
            .map(drop)
            .map_err(|error| self.record_error(&error))
    }

    /// Writes down whose task it is as soon as that is known: after a restart it is followed, not begun again.
    async fn send(
        &self,
        turn: &Turn,
        id: &str,
        message: Message,
        about: caller_propagation::OutgoingCall<'_>,
    ) -> Result<(DelegateOutcome, Cost), String> {
        // The same for every try of the same turn, and for no other.
        let place = turn
            .task()
            .history
            .iter()
            .rposition(|said| **said == *turn.message());
        let key = format!("{}:{id}:{}", turn.task_id(), place.unwrap_or(0));
        let client = self
            .client(turn, about)
            .await?
            .with_header("Idempotency-Key", &key)
            .map_err(|error| self.record_error(&error))?;
        let stream = Box::pin(client.stream(SendMessageRequest::new(message)))
            .await
            .map_err(|error| self.record_error(&error))?;
        let mut stream = stream.cancel_on_drop();
        while stream.task().is_none() {
            match Box::pin(stream.next()).await {
                Some(told) => drop(told.map_err(|error| self.record_error(&error))?),
                None => break,
            }
        }
        if let Some(task) = stream.task() {
            let caller = self.caller(turn).map(str::to_owned);
            LlmStep::Delegated {
                id: id.to_owned(),
                task: task.id.clone(),
                caller,
            }
            .publish(turn)
            .await;
        }
        self.follow(stream).await
    }

    async fn follow(&self, stream: TaskStream) -> Result<(DelegateOutcome, Cost), String> {
        let ended = Box::pin(stream.cancel_on_drop().finish())
            .await
            .map_err(|error| self.record_error(&error))?;
        self.breaker.record_result(None);
        match ended {
            SendMessageResponse::Message(message) => {
                Ok((DelegateOutcome::Completed(message.text()), Cost::default()))
            }
            SendMessageResponse::Task(task) => {
                Ok((delegate_outcome(&task), Cost::from_task(&task)))
            }
        }
    }

    /// A client for one turn, with what goes along with its message.
    async fn client(
        &self,
        turn: &Turn,
        about: caller_propagation::OutgoingCall<'_>,
    ) -> Result<Client, String> {
        self.propagation
            .client(self.discovered_client().await?, turn, about)
            .map_err(|error| self.record_error(&error))
    }

    /// Why it gave no answer, in words for the model.
    fn record_error(&self, error: &attache::Error) -> String {
        self.breaker.record_result(Some(error));
        format!("the agent gave no answer: {}", error.message())
    }

    /// It took longer than it may.
    pub(super) fn record_timeout(&self) {
        self.breaker.record_failure();
    }

    async fn discovered_client(&self) -> Result<Client, String> {
        // On the heap, like every exchange here: it is deep itself.
        let found = self
            .client
            .get_or_try_init(|| Box::pin(self.builder.discover(&self.url)));
        found
            .await
            .map_err(|error| self.record_error(&error))
            .cloned()
    }
}

/// Where a task has come to.
fn delegate_outcome(task: &Task) -> DelegateOutcome {
    let words = task
        .status
        .message
        .as_ref()
        .map(|message| message.text())
        .unwrap_or_default();
    match task.status.state {
        TaskState::Completed => DelegateOutcome::Completed(task.text()),
        TaskState::InputRequired => DelegateOutcome::Question {
            task: task.id.clone(),
            words,
            needs_auth: false,
        },
        TaskState::AuthRequired => DelegateOutcome::Question {
            task: task.id.clone(),
            words,
            needs_auth: true,
        },
        state => {
            let state = state
                .as_str()
                .trim_start_matches("TASK_STATE_")
                .to_lowercase();
            DelegateOutcome::Failed(format!("the agent's task ended as {state}: {words}"))
        }
    }
}

/// The work, as part of ours.
fn message(turn: &Turn, id: &str, text: String, lineage: &Lineage) -> Message {
    let mut metadata = Object::new();
    lineage.write(&mut metadata);
    Message {
        message_id: format!("{}-{id}", turn.task_id()).into(),
        reference_task_ids: vec![turn.task_id().clone()],
        metadata: Some(metadata),
        ..Message::user(text)
    }
}

impl fmt::Debug for Delegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delegate").field(&self.url).finish()
    }
}
