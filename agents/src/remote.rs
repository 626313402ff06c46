//! Another A2A agent behind ours: any version and binding in, any out.

mod card_pin;
mod event_forwarder;
mod failure;
mod peer;
mod settings;
mod task_link;

use std::fmt;
use std::pin::pin;

use attache::jws::Signer;
use attache::model::{
    CancelTaskRequest, ContextId, ErrorKind, Message, Role, SendMessageRequest, StreamResponse,
    Task, TaskId, TaskState,
};
use attache::{Agent, Client, Error, Failure, Outcome, TaskStream, Turn};
use tokio::time::{Instant, timeout_at};

use crate::lineage::Lineage;
use event_forwarder::{EventForwarder, forwarded_message, status_outcome};
use failure::error_outcome;
use peer::RemotePeer;
pub use settings::{RemoteBinding, RemoteSettings, RemoteVersion};
use task_link::RemoteTaskLink;

/// How many tasks of a conversation are looked at for what the other agent calls that conversation.
const MAX_CONTEXT_TASKS: usize = 20;

/// Passes every message on to another A2A agent, and everything that it says back: statuses, pieces of results,
/// questions. An answer to a question continues the task there, and a cancel cancels it.
///
/// Which task there belongs to which here is kept in the metadata of ours, under `attache.remote`: after a restart the
/// task is followed where it was, and the message is not sent again. For that the agent has to be served with
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

/// Settings that no agent can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettingsError {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl RemoteAgent {
    /// An agent before another one, which need not be there yet.
    ///
    /// # Errors
    /// The url is not one of HTTP, or a header cannot be sent.
    pub fn new(settings: RemoteSettings) -> Result<Self, RemoteSettingsError> {
        Ok(Self {
            peer: RemotePeer::new(settings)?,
        })
    }

    /// Signs for whom it calls, if the settings say that it tells (`forward_caller`): the other agent believes it if it has
    /// our server as a [node](attache::auth::Access::node).
    #[must_use]
    pub fn with_signer(mut self, signer: &Signer) -> Self {
        self.peer.set_signer(signer.clone());
        self
    }

    /// Works the turn there, and passes on what is said.
    async fn forward_turn(
        &self,
        turn: &Turn,
        client: &Client,
        lineage: &Lineage,
        deadline: Instant,
    ) -> Result<Outcome, Error> {
        let known = RemoteTaskLink::from_task(turn.task(), self.peer.peer_id());
        let mut link = known.unwrap_or_else(|| RemoteTaskLink::new(self.peer.peer_id()));
        link.caller = self.peer.propagation().caller(turn).map(str::to_owned);
        let (mut stream, is_resumed, mut is_cancelling) =
            match (link.task_id.clone(), turn.attempt()) {
                (Some(id), 2..) if link.is_delivered(turn) => {
                    (client.follow(id, None), true, false)
                }
                (_, 2..) if !self.peer.settings().idempotent => return Ok(delivery_unknown()),
                _ => {
                    let request = Box::pin(self.request(turn, &link, lineage)).await;
                    let (opened, is_cancelling) =
                        run_to_completion(turn, Box::pin(client.stream(request))).await;
                    (opened?, false, is_cancelling)
                }
            };
        let mut forwarder = EventForwarder::new(turn, link);
        loop {
            let item = tokio::select! {
                biased;
                () = turn.cancelled(), if !is_cancelling => {
                    is_cancelling = true;
                    None
                }
                item = timeout_at(deadline, Box::pin(stream.next())) => Some(item),
            };
            match item {
                None => {}
                Some(Ok(Some(event))) => {
                    let event = event?;
                    if let StreamResponse::Message(message) = &event {
                        let said = forwarded_message(message);
                        forwarder.forward(event).await;
                        return Ok(said.map_or(Outcome::Completed, Outcome::CompletedWith));
                    }
                    forwarder.forward(event).await;
                }
                Some(Ok(None)) => return Ok(stream_outcome(&stream)),
                Some(Err(_)) => {
                    request_cancel(client, &stream).await;
                    return Err(ErrorKind::DeadlineExceeded.into());
                }
            }
            // Also of a cancel that came before anything was heard of a task there.
            if is_cancelling && request_cancel(client, &stream).await {
                return Ok(Outcome::Completed);
            }
            if is_resumed
                && stream
                    .task()
                    .is_some_and(|task| task.status.state == TaskState::InputRequired)
            {
                return Ok(stream_outcome(&stream));
            }
        }
    }

    async fn request(
        &self,
        turn: &Turn,
        link: &RemoteTaskLink,
        lineage: &Lineage,
    ) -> SendMessageRequest {
        let context_id = match link.context_id.clone() {
            Some(context) => Some(context),
            None => self.remote_context(turn).await,
        };
        let mut reference_task_ids = Vec::new();
        for task in turn.referenced_tasks().await {
            reference_task_ids.extend(
                RemoteTaskLink::from_task(&task, self.peer.peer_id()).and_then(|link| link.task_id),
            );
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

    /// What the other agent calls this conversation.
    async fn remote_context(&self, turn: &Turn) -> Option<ContextId> {
        let earlier = turn.context_tasks(MAX_CONTEXT_TASKS).await;
        earlier
            .iter()
            .rev()
            .find_map(|task| RemoteTaskLink::from_task(task, self.peer.peer_id())?.context_id)
    }
}

/// Does something to its end, and says whether a cancel came meanwhile: what it makes must be known to be canceled.
async fn run_to_completion<T>(turn: &Turn, work: impl Future<Output = T>) -> (T, bool) {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        () = turn.cancelled() => (work.await, true),
        done = &mut work => (done, false),
    }
}

/// A message that may or may not have arrived when we were cut off is not sent again.
fn delivery_unknown() -> Outcome {
    Outcome::failed("it is not known whether the agent behind has got the message; ask again")
}

fn stream_outcome(stream: &TaskStream) -> Outcome {
    stream.task().map_or_else(
        || Outcome::failed("the agent behind broke off"),
        |task| status_outcome(&task.status),
    )
}

/// Asks for the task to be stopped, if there is one; gives whether that was asked.
async fn request_cancel(client: &Client, stream: &TaskStream) -> bool {
    let Some(task) = stream.task() else {
        return false;
    };
    send_cancel(client, &task.id).await;
    true
}

async fn send_cancel(client: &Client, id: &TaskId) {
    let asked = client
        .cancel_task(CancelTaskRequest {
            id: id.clone(),
            ..Default::default()
        })
        .await;
    if let Err(error) = asked {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "the agent behind did not cancel"
        );
    }
}

impl Agent for RemoteAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        if !self.peer.breaker().try_acquire() {
            return Ok(Outcome::failed(
                "the agent behind is not available, and is left alone for a while",
            ));
        }
        // Before anything is sent to anybody.
        let lineage = match self.peer.child_lineage(&turn) {
            Ok(lineage) => lineage,
            Err(why) => return Ok(Outcome::rejected(why)),
        };
        let deadline = Instant::now() + self.peer.settings().timeout;
        // On the heap: a turn begins deep in the stack of whoever called, and a client's exchange is deep itself.
        let worked = match Box::pin(self.peer.client(&turn, &lineage)).await {
            Ok(client) => Box::pin(self.forward_turn(&turn, &client, &lineage, deadline)).await,
            Err(error) => Err(error),
        };
        self.peer.breaker().record_result(worked.as_ref().err());
        worked.or_else(|error| {
            tracing::warn!(task = %turn.task_id(), error = &error as &dyn std::error::Error, "the agent behind failed");
            self.peer.clear_client();
            Ok(error_outcome(&error))
        })
    }

    async fn on_canceled(&self, task: &Task) {
        let link = RemoteTaskLink::from_task(task, self.peer.peer_id()).unwrap_or_default();
        let Some(id) = link.task_id else { return };
        match self.peer.client_for_cancel(link.caller.as_deref()).await {
            Ok(client) => send_cancel(&client, &id).await,
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the agent behind is not there"
                );
            }
        }
    }

    /// What another agent does to the world cannot be done twice.
    fn needs_durable_start(&self) -> bool {
        true
    }
}

impl fmt::Display for RemoteSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for RemoteSettingsError {}
