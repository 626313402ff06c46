//! Agent that forwards every message to another A2A agent, over any version and binding.
//!
//! [`RemotePeer`] discovers and calls the remote agent. [`EventForwarder`] copies its events into our task.
//! [`RemoteTaskLink`] records which remote task belongs to ours, so that a restart continues with the same one.

mod card_pin;
mod event_forwarder;
mod failure;
mod peer;
mod settings;
mod task_link;

use std::fmt;

use attache::jws::Signer;
use attache::model::{
    CancelTaskRequest, ContextId, ErrorKind, Message, Role, SendMessageRequest, Task, TaskId,
    TaskState,
};
use attache::{Agent, Client, Error, Failure, Outcome, TaskStream, Turn};
use tokio::time::{Instant, timeout_at};

use crate::lineage::Lineage;
use event_forwarder::{EventForwarder, forwarded_message, status_outcome};
use failure::error_outcome;
use peer::RemotePeer;
pub use settings::{RemoteBinding, RemoteFileEncoding, RemoteSettings, RemoteVersion};
use task_link::RemoteTaskLink;

/// Number of earlier tasks of a conversation that are searched for the remote context id.
const MAX_CONTEXT_TASKS: usize = 20;

/// Agent that forwards every message to another A2A agent.
///
/// Status updates, artifact chunks and questions of the remote agent become those of our task. An answer to a question
/// continues the remote task, and a cancel cancels it.
///
/// The link to the remote task is stored in our task's metadata under `attache.remote`. After a restart the agent
/// resumes the remote task and does not send the message again. This needs the restart policy
/// [`RestartPolicy::RunAgain`](attache::RestartPolicy::RunAgain).
///
/// ```
/// use attache_agents::{RemoteAgent, RemoteSettings};
/// let settings = RemoteSettings { url: "https://agent.example.com".to_owned(), ..RemoteSettings::default() };
/// let agent = RemoteAgent::new(settings)?;
/// # Ok::<(), attache_agents::RemoteSettingsError>(())
/// ```
#[derive(Debug)]
pub struct RemoteAgent {
    peer: RemotePeer,
}

/// Error for invalid settings of a [`RemoteAgent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettingsError {
    /// Invalid key.
    pub key: &'static str,
    reason: String,
}

/// Result of opening the stream for a turn.
enum OpenedStream {
    /// The message was sent.
    Sent {
        stream: Box<TaskStream>,
        /// Whether the turn was canceled while the message was sent.
        is_canceled: bool,
    },
    /// An earlier attempt of the turn sent the message.
    Resumed(Box<TaskStream>),
    /// An earlier attempt may have sent the message, and the remote agent is not idempotent.
    DeliveryUnknown,
}

impl RemoteAgent {
    /// Creates an agent. The remote agent is discovered at the first turn.
    ///
    /// # Errors
    /// The URL has no host or a scheme other than `http` and `https`, or a header is invalid.
    pub fn new(settings: RemoteSettings) -> Result<Self, RemoteSettingsError> {
        Ok(Self {
            peer: RemotePeer::new(settings)?,
        })
    }

    /// Signs delegation tokens that name the caller, if `forward_caller` is set.
    ///
    /// The remote server accepts them if it [trusts our delegation](attache::auth::Access::trust_delegation).
    #[must_use]
    pub fn with_signer(mut self, signer: &Signer) -> Self {
        self.peer.set_signer(signer.clone());
        self
    }

    /// Sends the message, or resumes the remote task of an earlier attempt, and forwards all events.
    async fn forward_turn(
        &self,
        turn: &Turn,
        client: &Client,
        lineage: &Lineage,
        deadline: Instant,
    ) -> Result<Outcome, Error> {
        let link = self.link(turn);
        let opened = self.open_stream(turn, client, &link, lineage).await?;
        let (mut stream, is_resumed, mut is_canceled) = match opened {
            OpenedStream::Sent {
                stream,
                is_canceled,
            } => (stream, false, is_canceled),
            OpenedStream::Resumed(stream) => (stream, true, false),
            OpenedStream::DeliveryUnknown => return Ok(delivery_unknown()),
        };
        let mut forwarder = EventForwarder::new(turn, link);
        loop {
            let item = tokio::select! {
                biased;
                () = turn.cancelled(), if !is_canceled => {
                    is_canceled = true;
                    None
                }
                item = timeout_at(deadline, Box::pin(stream.next())) => Some(item),
            };
            match item {
                None => {}
                Some(Ok(Some(event))) => {
                    let event = event?;
                    forwarder.forward(event, stream.task().is_some()).await;
                }
                Some(Ok(None)) => return Ok(stream_outcome(&stream, &forwarder)),
                Some(Err(_)) => {
                    cancel_streamed_task(client, &stream).await;
                    return Err(ErrorKind::DeadlineExceeded.into());
                }
            }
            // If the cancel arrived before the remote task was known, it is sent after the first event.
            if is_canceled && cancel_streamed_task(client, &stream).await {
                return Ok(Outcome::Completed);
            }
            if is_resumed && is_input_required(&stream) {
                return Ok(stream_outcome(&stream, &forwarder));
            }
        }
    }

    /// Returns the link of the task, or a new one.
    fn link(&self, turn: &Turn) -> RemoteTaskLink {
        let peer = self.peer.peer_id();
        let mut link = RemoteTaskLink::from_task(turn.task(), peer)
            .unwrap_or_else(|| RemoteTaskLink::new(peer));
        link.caller = self
            .peer
            .propagation()
            .signed_caller(turn)
            .map(str::to_owned);
        link
    }

    async fn open_stream(
        &self,
        turn: &Turn,
        client: &Client,
        link: &RemoteTaskLink,
        lineage: &Lineage,
    ) -> Result<OpenedStream, Error> {
        if turn.attempt() > 1 {
            if let Some(id) = link.task_id.clone().filter(|_| link.is_delivered(turn)) {
                return Ok(OpenedStream::Resumed(Box::new(client.follow(id, None))));
            }
            if !self.peer.settings().idempotent {
                return Ok(OpenedStream::DeliveryUnknown);
            }
        }
        let request = Box::pin(self.request(turn, link, lineage)).await;
        // Not interrupted by a cancel: the remote task must be known to be canceled.
        let mut opening = Box::pin(client.stream(request));
        let mut is_canceled = false;
        let stream = tokio::select! {
            biased;
            () = turn.cancelled() => {
                is_canceled = true;
                opening.await
            }
            stream = &mut opening => stream,
        };
        Ok(OpenedStream::Sent {
            stream: Box::new(stream?),
            is_canceled,
        })
    }

    /// Returns the message with ids and metadata as the remote agent knows them.
    async fn request(
        &self,
        turn: &Turn,
        link: &RemoteTaskLink,
        lineage: &Lineage,
    ) -> SendMessageRequest {
        let peer = self.peer.peer_id();
        let context_id = match link.context_id.clone() {
            Some(context) => Some(context),
            None => self.remote_context(turn).await,
        };
        let mut reference_task_ids = Vec::new();
        for task in turn.referenced_tasks().await {
            let link = RemoteTaskLink::from_task(&task, peer);
            reference_task_ids.extend(link.and_then(|link| link.task_id));
        }
        let mut message = Message {
            role: Role::User,
            task_id: link.task_id.clone(),
            context_id,
            reference_task_ids,
            ..turn.message().clone()
        };
        let mut metadata = message
            .metadata
            .as_ref()
            .and_then(task_link::without_reserved_keys)
            .unwrap_or_default();
        lineage.write(&mut metadata);
        message.metadata = Some(metadata);
        message.into()
    }

    /// Returns the remote context id of this conversation, from the newest task that has one.
    async fn remote_context(&self, turn: &Turn) -> Option<ContextId> {
        let earlier = turn.context_tasks(MAX_CONTEXT_TASKS).await;
        earlier
            .iter()
            .rev()
            .find_map(|task| RemoteTaskLink::from_task(task, self.peer.peer_id())?.context_id)
    }
}

/// Returns the outcome for a message that an interrupted attempt may or may not have sent.
fn delivery_unknown() -> Outcome {
    Outcome::failed(
        "a restart interrupted the delivery to the remote agent; send the message again",
    )
}

fn stream_outcome(stream: &TaskStream, forwarder: &EventForwarder<'_>) -> Outcome {
    match (stream.task(), stream.message()) {
        (Some(task), _) if task.status.state == TaskState::Completed => {
            completed_outcome(forwarder.missing_answer(task))
        }
        (Some(task), _) => status_outcome(&task.status),
        (None, Some(message)) => completed_outcome(forwarded_message(&message)),
        (None, None) => Outcome::failed("the remote agent broke off"),
    }
}

fn completed_outcome(answer: Option<Message>) -> Outcome {
    answer.map_or(Outcome::Completed, Outcome::CompletedWith)
}

fn is_input_required(stream: &TaskStream) -> bool {
    stream
        .task()
        .is_some_and(|task| task.status.state == TaskState::InputRequired)
}

/// Cancels the task of a stream. Returns `false` if the stream has not named its task yet.
async fn cancel_streamed_task(client: &Client, stream: &TaskStream) -> bool {
    let Some(task) = stream.task() else {
        return false;
    };
    cancel_remote_task(client, &task.id).await;
    true
}

async fn cancel_remote_task(client: &Client, id: &TaskId) {
    let request = CancelTaskRequest {
        id: id.clone(),
        ..Default::default()
    };
    if let Err(error) = client.cancel_task(request).await {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(error, "the remote agent did not cancel its task");
    }
}

impl Agent for RemoteAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        if !self.peer.breaker().try_acquire() {
            return Ok(Outcome::failed(
                "the remote agent is not available: too many consecutive failures, try again later",
            ));
        }
        // Checked before anything is sent.
        let lineage = match self.peer.child_lineage(&turn) {
            Ok(lineage) => lineage,
            Err(reason) => return Ok(Outcome::rejected(reason)),
        };
        let deadline = Instant::now() + self.peer.settings().timeout;
        // Boxed: the first poll runs deep in the caller's stack, and the futures of the client are large.
        let forwarded = match Box::pin(self.peer.client(&turn, &lineage)).await {
            Ok(client) => Box::pin(self.forward_turn(&turn, &client, &lineage, deadline)).await,
            Err(error) => Err(error),
        };
        self.peer.breaker().record_result(forwarded.as_ref().err());
        forwarded.or_else(|error| {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(task = %turn.task_id(), error = cause, "the remote agent failed");
            self.peer.clear_client();
            Ok(error_outcome(&error))
        })
    }

    async fn on_canceled(&self, task: &Task) {
        let link = RemoteTaskLink::from_task(task, self.peer.peer_id()).unwrap_or_default();
        let Some(id) = link.task_id else { return };
        match self.peer.client_for_cancel(link.caller.as_deref()).await {
            Ok(client) => cancel_remote_task(&client, &id).await,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "the remote agent is not available");
            }
        }
    }

    /// Returns `true`: a message has side effects and must not be sent twice for one turn.
    fn needs_durable_start(&self) -> bool {
        true
    }
}

impl fmt::Display for RemoteSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for RemoteSettingsError {}
