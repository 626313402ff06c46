//! Another A2A agent as a tool: every call is a task of that agent.

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
use crate::caller_propagation::{CallerPropagation, OutgoingCall};
use crate::circuit_breaker::CircuitBreaker;
use crate::cost::Cost;
use crate::delegation_limits::DelegationLimits;
use crate::lineage::Lineage;
use crate::outgoing::{URL_RULE, invalid_header, parse_url};

/// Timeout of a call whose budget has no time limit.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Number of consecutive failures that open the circuit breaker.
const BREAKER_FAILURES: u32 = 5;
/// Time during which an open circuit breaker refuses calls.
const BREAKER_PAUSE: Duration = Duration::from_secs(30);

/// Agent that work is delegated to.
pub(super) struct Delegate {
    url: String,
    builder: ClientBuilder,
    /// Client, once the agent is discovered.
    client: OnceCell<Client>,
    propagation: CallerPropagation,
    breaker: CircuitBreaker,
}

/// Request to a delegate.
pub(super) enum DelegateRequest {
    /// Starts a task with this text.
    Start(String),
    /// Sends the caller's answer to a task.
    Answer(TaskId, Box<Message>),
    /// Waits for a task that was started before.
    Follow(TaskId),
}

/// State in which the task of a delegate stopped.
pub(super) enum DelegateOutcome {
    /// The task is completed, with this text.
    Completed(String),
    /// The task failed; the reason is written for the model.
    Failed(String),
    /// The task waits for input or credentials of the caller.
    Question {
        task: TaskId,
        text: String,
        needs_auth: bool,
    },
}

impl Delegate {
    pub(super) fn new(
        url: &str,
        headers: &BTreeMap<String, Secret>,
        forward_caller: bool,
    ) -> Result<Self, String> {
        parse_url(url).map_err(|_| format!("agent {URL_RULE}"))?;
        let mut builder = Client::builder();
        for (name, value) in headers {
            builder = builder
                .header(name, value.expose())
                .map_err(|_| invalid_header(name))?;
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

    /// Sets the key that signs delegation tokens.
    pub(super) fn set_signer(&mut self, signer: Signer) {
        self.propagation.signer = Some(signer);
    }

    /// Executes a request up to the end of the delegate's task or its next question. Returns the cost of the task too.
    ///
    /// Dropping the future cancels the task.
    ///
    /// # Errors
    /// The agent is not available, or the limits forbid the call. The message is written for the model.
    pub(super) async fn run(
        &self,
        turn: &Turn,
        call_id: &str,
        request: DelegateRequest,
        limits: &DelegationLimits,
    ) -> Result<(DelegateOutcome, Cost), String> {
        let call = OutgoingCall {
            lineage: None,
            timeout: limits.remaining.time.unwrap_or(DEFAULT_TIMEOUT),
        };
        match request {
            DelegateRequest::Start(text) => self.start(turn, call_id, text, call, limits).await,
            DelegateRequest::Answer(task, answer) => {
                self.answer(turn, call_id, task, *answer, call).await
            }
            DelegateRequest::Follow(task) => {
                let client = self.client(turn, call).await?;
                self.follow(client.follow(task, None)).await
            }
        }
    }

    async fn start(
        &self,
        turn: &Turn,
        call_id: &str,
        text: String,
        call: OutgoingCall<'_>,
        limits: &DelegationLimits,
    ) -> Result<(DelegateOutcome, Cost), String> {
        // Checked before anything is sent.
        let lineage = Lineage::from_turn(turn).extend(&self.url, limits)?;
        if !self.breaker.try_acquire() {
            return Err(
                "the agent is not available: too many consecutive failures, try again later"
                    .to_owned(),
            );
        }
        let call = OutgoingCall {
            lineage: Some(&lineage),
            ..call
        };
        let message = start_message(turn, call_id, text, &lineage);
        self.send(turn, call_id, message, call).await
    }

    async fn answer(
        &self,
        turn: &Turn,
        call_id: &str,
        task: TaskId,
        answer: Message,
        call: OutgoingCall<'_>,
    ) -> Result<(DelegateOutcome, Cost), String> {
        let client = self.client(turn, call).await?;
        let request = GetTaskRequest {
            id: task.clone(),
            ..Default::default()
        };
        match Box::pin(client.get_task(request)).await {
            // The delegate continued without the answer, or received it before a restart of ours.
            Ok(current) if !current.status.state.is_interrupted() => {
                self.follow(client.follow(task, None)).await
            }
            _ => {
                let message = Message {
                    parts: answer.parts,
                    ..Message::user("")
                };
                self.send(turn, call_id, message.in_task(task), call).await
            }
        }
    }

    /// Returns the caller named in the delegation token of this turn, if there is one.
    pub(super) fn signed_caller<'a>(&self, turn: &'a Turn) -> Option<&'a str> {
        self.propagation.signed_caller(turn)
    }

    /// Cancels a task that was started on behalf of `caller`.
    pub(super) async fn cancel(&self, id: &TaskId, caller: Option<&str>) -> Result<(), String> {
        let client = self
            .propagation
            .client_for_caller(self.discovered_client().await?, caller)
            .map_err(|error| self.record_error(&error))?;
        let request = CancelTaskRequest {
            id: id.clone(),
            ..Default::default()
        };
        Box::pin(client.cancel_task(request))
            .await
            .map(drop)
            .map_err(|error| self.record_error(&error))
    }

    /// Sends a message and follows its task.
    ///
    /// The first event names the task. Its id is recorded then, so that a restart follows the task instead of repeating it.
    async fn send(
        &self,
        turn: &Turn,
        call_id: &str,
        message: Message,
        call: OutgoingCall<'_>,
    ) -> Result<(DelegateOutcome, Cost), String> {
        let client = self
            .client(turn, call)
            .await?
            .with_header("Idempotency-Key", &idempotency_key(turn, call_id))
            .map_err(|error| self.record_error(&error))?;
        let stream = Box::pin(client.stream(SendMessageRequest::new(message)))
            .await
            .map_err(|error| self.record_error(&error))?;
        let mut stream = stream.cancel_on_drop();
        while stream.task().is_none() {
            match Box::pin(stream.next()).await {
                Some(event) => drop(event.map_err(|error| self.record_error(&error))?),
                None => break,
            }
        }
        if let Some(task) = stream.task() {
            let step = LlmStep::Delegated {
                id: call_id.to_owned(),
                agent: client
                    .card()
                    .map(|card| card.name.clone())
                    .unwrap_or_default(),
                task: task.id.clone(),
                caller: self.signed_caller(turn).map(str::to_owned),
            };
            step.publish(turn).await;
        }
        self.follow(stream).await
    }

    async fn follow(&self, stream: TaskStream) -> Result<(DelegateOutcome, Cost), String> {
        let response = Box::pin(stream.cancel_on_drop().finish())
            .await
            .map_err(|error| self.record_error(&error))?;
        self.breaker.record_success();
        Ok(match response {
            SendMessageResponse::Message(message) => {
                (DelegateOutcome::Completed(message.text()), Cost::default())
            }
            SendMessageResponse::Task(task) => (task_outcome(&task), Cost::from_task(&task)),
        })
    }

    /// Returns a client for one turn, with trace context and delegation token.
    async fn client(&self, turn: &Turn, call: OutgoingCall<'_>) -> Result<Client, String> {
        let client = self.discovered_client().await?;
        self.propagation
            .client_for_turn(client, turn, call)
            .map_err(|error| self.record_error(&error))
    }

    /// Reports an error to the circuit breaker. Returns the message for the model.
    fn record_error(&self, error: &attache::Error) -> String {
        self.breaker.record_result(Some(error));
        format!("the agent gave no answer: {}", error.message())
    }

    /// Reports a timeout to the circuit breaker.
    pub(super) fn record_timeout(&self) {
        self.breaker.record_failure();
    }

    async fn discovered_client(&self) -> Result<Client, String> {
        // Boxed, like all calls here: the futures of the client are large.
        let discovered = self
            .client
            .get_or_try_init(|| Box::pin(self.builder.discover(&self.url)));
        let client = discovered.await;
        client.map_err(|error| self.record_error(&error)).cloned()
    }
}

/// Returns a key that is constant over all attempts of one call and unique to it.
fn idempotency_key(turn: &Turn, call_id: &str) -> String {
    let mut history = turn.task().history.iter();
    let position = history.rposition(|message| **message == *turn.message());
    format!("{}:{call_id}:{}", turn.task_id(), position.unwrap_or(0))
}

fn task_outcome(task: &Task) -> DelegateOutcome {
    let text = task
        .status
        .message
        .as_ref()
        .map(|message| message.text())
        .unwrap_or_default();
    match task.status.state {
        TaskState::Completed => DelegateOutcome::Completed(task.text()),
        state @ (TaskState::InputRequired | TaskState::AuthRequired) => DelegateOutcome::Question {
            task: task.id.clone(),
            text,
            needs_auth: state == TaskState::AuthRequired,
        },
        state => {
            let state = state
                .as_str()
                .trim_start_matches("TASK_STATE_")
                .to_lowercase();
            DelegateOutcome::Failed(format!("the agent's task ended as {state}: {text}"))
        }
    }
}

/// Returns the first message of a delegate's task, which refers to ours.
fn start_message(turn: &Turn, call_id: &str, text: String, lineage: &Lineage) -> Message {
    let mut metadata = Object::new();
    lineage.write(&mut metadata);
    Message {
        message_id: format!("{}-{call_id}", turn.task_id()).into(),
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
