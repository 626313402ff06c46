//! Another A2A agent behind ours: any version and binding in, any out.

mod approved;
mod failure;
mod passing;
mod peer;
mod record;
mod settings;

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
use failure::in_words;
use passing::{Passing, outcome, words};
use peer::Peer;
use record::Record;
pub use settings::{RemoteBinding, RemoteSettings, RemoteVersion};

/// How many tasks of a conversation are looked at for what the other agent calls that conversation.
const LOOK_BACK: usize = 20;

/// Passes every message on to another A2A agent, and everything that it says back: statuses, pieces of results,
/// questions. An answer to a question continues the task there, and a cancel cancels it.
///
/// Which task there belongs to which here is kept in the metadata of ours, under `attache.remote`: after a restart the
/// task is followed where it was, and the message is not sent again. For that the agent has to be served with
/// [`Restart::RunAgain`](attache::Restart::RunAgain).
///
/// ```
/// use attache_agents::{Remote, RemoteSettings};
/// let settings = RemoteSettings { url: "https://agent.example.com".to_owned(), ..RemoteSettings::default() };
/// let agent = Remote::new(settings)?;
/// # Ok::<(), attache_agents::BadRemote>(())
/// ```
#[derive(Debug)]
pub struct Remote {
    peer: Peer,
}

/// Settings that no agent can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRemote {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl Remote {
    /// An agent before another one, which need not be there yet.
    ///
    /// # Errors
    /// The url is not one of HTTP, or a header cannot be sent.
    pub fn new(settings: RemoteSettings) -> Result<Self, BadRemote> {
        Ok(Self {
            peer: Peer::new(settings)?,
        })
    }

    /// Signs for whom it calls, if the settings say that it tells (`forward_caller`): the other agent believes it if it has
    /// our server as a [node](attache::auth::Access::node).
    #[must_use]
    pub fn signed_by(mut self, signer: &Signer) -> Self {
        self.peer.signed_by(signer.clone());
        self
    }

    /// Works the turn there, and passes on what is said.
    async fn work(
        &self,
        turn: &Turn,
        client: &Client,
        lineage: &Lineage,
        deadline: Instant,
    ) -> Result<Outcome, Error> {
        let known = Record::of(turn.task(), self.peer.name());
        let mut record = known.unwrap_or_else(|| Record::new(self.peer.name()));
        record.caller = self.peer.onward().caller(turn).map(str::to_owned);
        let (mut stream, resumes, mut stopping) = match (record.task_id.clone(), turn.attempt()) {
            (Some(id), 2..) if record.has_arrived(turn) => (client.follow(id, None), true, false),
            (_, 2..) if !self.peer.settings().idempotent => return Ok(lost()),
            _ => {
                let request = Box::pin(self.request(turn, &record, lineage)).await;
                let (opened, stopping) = heeding(turn, Box::pin(client.stream(request))).await;
                (opened?, false, stopping)
            }
        };
        let mut passing = Passing::new(turn, record);
        loop {
            let item = tokio::select! {
                biased;
                () = turn.cancelled(), if !stopping => {
                    stopping = true;
                    None
                }
                item = timeout_at(deadline, Box::pin(stream.next())) => Some(item),
            };
            match item {
                None => {}
                Some(Ok(Some(event))) => {
                    let event = event?;
                    if let StreamResponse::Message(message) = &event {
                        let said = words(message);
                        passing.pass(event).await;
                        return Ok(said.map_or(Outcome::Completed, Outcome::CompletedWith));
                    }
                    passing.pass(event).await;
                }
                Some(Ok(None)) => return Ok(end(&stream)),
                Some(Err(_)) => {
                    stop(client, &stream).await;
                    return Err(ErrorKind::DeadlineExceeded.into());
                }
            }
            // Also of a cancel that came before anything was heard of a task there.
            if stopping && stop(client, &stream).await {
                return Ok(Outcome::Completed);
            }
            if resumes
                && stream
                    .task()
                    .is_some_and(|task| task.status.state == TaskState::InputRequired)
            {
                return Ok(end(&stream));
            }
        }
    }

    async fn request(&self, turn: &Turn, record: &Record, lineage: &Lineage) -> SendMessageRequest {
        let context_id = match record.context_id.clone() {
            Some(context) => Some(context),
            None => self.conversation(turn).await,
        };
        let mut referred = Vec::new();
        for task in turn.referenced_tasks().await {
            referred.extend(Record::of(&task, self.peer.name()).and_then(|record| record.task_id));
        }
        let mut message = Message {
            role: Role::User,
            task_id: record.task_id.clone(),
            context_id,
            reference_task_ids: referred,
            ..turn.message().clone()
        };
        let mut metadata = message
            .metadata
            .as_ref()
            .and_then(record::foreign)
            .unwrap_or_default();
        lineage.write(&mut metadata);
        message.metadata = Some(metadata);
        message.into()
    }

    /// What the other agent calls this conversation.
    async fn conversation(&self, turn: &Turn) -> Option<ContextId> {
        let earlier = turn.context(LOOK_BACK).await;
        earlier
            .iter()
            .rev()
            .find_map(|task| Record::of(task, self.peer.name())?.context_id)
    }
}

/// Does something to its end, and says whether a cancel came meanwhile: what it makes must be known to be canceled.
async fn heeding<T>(turn: &Turn, work: impl Future<Output = T>) -> (T, bool) {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        () = turn.cancelled() => (work.await, true),
        done = &mut work => (done, false),
    }
}

/// A message that may or may not have arrived when we were cut off is not sent again.
fn lost() -> Outcome {
    Outcome::failed("it is not known whether the agent behind has got the message; ask again")
}

fn end(stream: &TaskStream) -> Outcome {
    stream.task().map_or_else(
        || Outcome::failed("the agent behind broke off"),
        |task| outcome(&task.status),
    )
}

/// Asks for the task to be stopped, if there is one; gives whether that was asked.
async fn stop(client: &Client, stream: &TaskStream) -> bool {
    let Some(task) = stream.task() else {
        return false;
    };
    cancel(client, &task.id).await;
    true
}

async fn cancel(client: &Client, id: &TaskId) {
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

impl Agent for Remote {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        if !self.peer.breaker().allows() {
            return Ok(Outcome::failed(
                "the agent behind is not available, and is left alone for a while",
            ));
        }
        // Before anything is sent to anybody.
        let lineage = match self.peer.line(&turn) {
            Ok(lineage) => lineage,
            Err(why) => return Ok(Outcome::rejected(why)),
        };
        let deadline = Instant::now() + self.peer.settings().timeout;
        // On the heap: a turn begins deep in the stack of whoever called, and a client's exchange is deep itself.
        let worked = match Box::pin(self.peer.client(&turn, &lineage)).await {
            Ok(client) => Box::pin(self.work(&turn, &client, &lineage, deadline)).await,
            Err(error) => Err(error),
        };
        self.peer.breaker().note(worked.as_ref().err());
        worked.or_else(|error| {
            tracing::warn!(task = %turn.task_id(), error = &error as &dyn std::error::Error, "the agent behind failed");
            self.peer.forget();
            Ok(in_words(&error))
        })
    }

    async fn canceled(&self, task: &Task) {
        let record = Record::of(task, self.peer.name()).unwrap_or_default();
        let Some(id) = record.task_id else { return };
        match self.peer.late_client(record.caller.as_deref()).await {
            Ok(client) => cancel(&client, &id).await,
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the agent behind is not there"
                );
            }
        }
    }

    /// What another agent does to the world cannot be done twice.
    fn durable_start(&self) -> bool {
        true
    }
}

impl fmt::Display for BadRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadRemote {}
