//! Where logs rest.
//!
//! A log is a list of numbered entries that only grows. A store keeps it and finds it again; it never folds one,
//! and knows no rule of the protocol.

mod codec;
mod conformance;
mod lru_cache;
mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::model::{
    ContextId, Entry, Event, Message, PushConfig, PushConfigId, Scope, Seq, Task, TaskId,
    TaskState, Timestamp, TraceContext, Version,
};

pub use conformance::conformance;
pub(crate) use lru_cache::LruCache;
pub use memory::Memory;
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;

/// Something that a store does, on its way.
pub(crate) type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of anything a store does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Keeps the logs of tasks.
///
/// A [`Head`] comes only from `create`, `find`, `list` and the sweeps, so nobody reads a log without having passed a
/// scope. Every method but the sweeps stays within the scope it is given, or the one of the head.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Whether tasks outlive the process. One that keeps them in memory is bounded unless told otherwise.
    fn is_durable(&self) -> bool {
        true
    }

    /// Whether a task is there when its turn is over. Where it is not, an agent answers with messages alone.
    fn keeps_tasks(&self) -> bool {
        true
    }

    /// Whether others than the server that it was given to may add to a log. Where they do not, a batch may be given to [`append`](Self::append)
    /// before the one in front of it is durable: a store that says so takes them in the order in which their futures are polled
    /// for the first time, and needs no second look at one of them to finish the one in front of it.
    fn has_external_writers(&self) -> bool {
        true
    }

    /// Whether writes get through, as far as the store knows: where the last one failed it tries again.
    ///
    /// # Errors
    /// They do not, and why in a word that anybody may read.
    async fn check_health(&self) -> Result<(), HealthProblem> {
        Ok(())
    }

    /// Opens a log with its first batch, idempotency key, alias and push configuration: one commit, all or none,
    /// durable on return.
    ///
    /// The same key in the same scope finds the first task instead; another body under it is `KeyReused`.
    /// `Conflict` when anybody has the id, or the scope has the alias. A key that was seen goes before both.
    async fn create(&self, task: &NewTask) -> Result<CreateResult>;

    /// Adds a batch after `at`, all or none, durable on return; `Conflict` when the log has moved on.
    ///
    /// Batches of many tasks may share one commit: a conflict is that batch's alone. A key that the scope has seen
    /// adds nothing and is `AlreadyApplied`, or `KeyReused` with another body, wherever the log stands. After any other
    /// error the batch is there whole or not at all: read before trying again.
    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq>;

    /// Entries after `after`, oldest first, at most `limit` of them; none for a task that was removed.
    async fn read(&self, task: &Head, after: Seq, limit: usize) -> Result<Vec<Entry>>;

    /// By id, else by the alias a client chose; a task of another scope is as good as none.
    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>>;

    /// Where the log of a task of the scope ends, from a store that can tell without waiting; by the id alone. `None` says
    /// nothing, not even that there is no such task. Like everything a store gives, it is as new as whatever was
    /// acknowledged before.
    fn position(&self, _scope: &Scope, _task: &TaskId) -> Option<Seq> {
        None
    }

    /// The task that a key of the scope made or continued, and the turn that was recorded with it; `None` for a key
    /// that was not seen; `KeyReused` with another body.
    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>>;

    /// The tasks that match, newest status first, ties by id from the last, and how many there are in all.
    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage>;

    /// Tasks of every scope that have not ended, by id, after the given one. For the engine's own sweeps.
    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>>;

    /// Those of them that have work left, and so are not [`parked`](Batch::parked). For the engine's own sweeps. A store that
    /// does not tell them apart gives all of them.
    async fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        self.list_unfinished(after, limit).await
    }

    /// Tasks of the scope that are [`parked`](Batch::parked), oldest status first; none from a store that does not tell.
    async fn list_parked(&self, _scope: &Scope, _limit: usize) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }

    /// The newest time that is recorded with any task, or one not much older; `None` where nothing is recorded, or from a
    /// store that does not tell. A clock that says more may be right, or wrong.
    async fn latest_time(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// Tasks of every scope that ended before this time, oldest first. For the engine's own sweeps.
    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>>;

    /// How many tasks of every scope have ended.
    async fn count_ended(&self) -> Result<u64>;

    /// How many tasks all callers of a tenant have of an agent; `None` from a store that does not tell, with which no tenant
    /// has a quota.
    async fn count_tasks(&self, _agent: &str, _tenant: &str) -> Result<Option<TaskCounts>> {
        Ok(None)
    }

    /// Keeps the fold of a log up to `at` to shorten later reads, unless a newer one is kept. A cache: losing it
    /// costs time only.
    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()>;

    /// The newest fold that was kept, and the position it stands for.
    async fn load_snapshot(&self, task: &Head) -> Result<Option<(Seq, Snapshot)>>;

    /// Forgets tasks with all that belongs to them. A reader in the middle of one ends as if cut.
    async fn remove(&self, tasks: &[Head]) -> Result<()>;

    /// Registers a webhook, in the place of the one of the same id. For a task that was removed it does nothing.
    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()>;

    /// The webhooks of a task, oldest first.
    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>>;

    /// Removes a webhook; one that is not there is as good as removed.
    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()>;

    /// Webhooks of every scope that stand so, in the order in which they were registered, after the given number. For
    /// those who deliver alone.
    async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>>;

    /// A webhook, and how far the deliveries to it are.
    ///
    /// One that came with its task begins with the first entry, one that came later behind the entry that was the last
    /// then. One that takes the place of another goes on where that was, whatever had become of it.
    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>>;

    /// Records how far the deliveries to a webhook are. Does nothing, and says so with `false`, when it is not there any
    /// more or was registered anew.
    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool>;
}

/// What is known of a task without reading its log.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// The task.
    pub id: TaskId,
    /// Whose it is.
    pub scope: Scope,
    /// Its conversation.
    pub context_id: ContextId,
    /// The position of its last entry when this was made.
    pub position: Seq,
    /// Its state then.
    pub state: TaskState,
    /// When it took that state.
    pub status_time: Timestamp,
}

/// A task to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Its id, which nobody has yet.
    pub id: TaskId,
    /// Whose it is.
    pub scope: Scope,
    /// Its conversation.
    pub context_id: ContextId,
    /// The name that a client of the first days gave it.
    pub alias: Option<TaskId>,
    /// A webhook, registered before anything happens.
    pub config: Option<Box<PushRegistration>>,
    /// The beginning of its log, and the key under which it can be found again.
    pub batch: Batch,
}

impl NewTask {
    /// What its head is when its first batch ends at a position.
    #[must_use]
    pub fn head(&self, position: Seq) -> Head {
        Head {
            id: self.id.clone(),
            scope: self.scope.clone(),
            context_id: self.context_id.clone(),
            position,
            state: self.batch.state,
            status_time: self.batch.status_time,
        }
    }
}

/// A log that was opened, or found.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateResult {
    /// It is new.
    Created(Head),
    /// The key had been used with the same body: this is the task it made or continued.
    Replayed(IdempotencyRecord),
}

/// What became of a message that was sent under a key.
#[derive(Debug, Clone, PartialEq)]
pub struct IdempotencyRecord {
    /// The task that it made or continued, as it stands now.
    pub head: Head,
    /// The [`Batch::turn`] it was recorded with; 0 where the file is older than that.
    pub turn: u64,
}

/// What one commit adds to a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// When it was recorded.
    pub time: Timestamp,
    /// What happened, in order; numbered from the position it is added after.
    pub events: Vec<Event>,
    /// The state of the task behind it.
    pub state: TaskState,
    /// When the task took that state.
    pub status_time: Timestamp,
    /// Whether the task then waits for somebody outside and has nothing else to do: no message, no turn.
    pub parked: bool,
    /// The key of the message in it, if the caller gave one.
    pub key: Option<IdempotencyKey>,
    /// The number of the turn that takes that message: kept with the key, and nothing that a store need understand.
    pub turn: u64,
}

impl Batch {
    /// The entries it becomes when it was added after `at`.
    pub fn into_entries(self, at: Seq) -> impl Iterator<Item = Entry> {
        let time = self.time;
        let numbered = self.events.into_iter().zip(at.0 + 1..);
        numbered.map(move |(event, seq)| Entry {
            seq: Seq(seq),
            time,
            event,
        })
    }

    /// The entries it becomes when it is added after `at`.
    pub fn entries(&self, at: Seq) -> impl Iterator<Item = Entry> {
        let numbered = self.events.iter().zip(at.0 + 1..);
        numbered.map(|(event, seq)| Entry {
            seq: Seq(seq),
            time: self.time,
            event: event.clone(),
        })
    }
}

/// A log up to one of its positions, folded by the engine: what the log says, without its entries.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// The task.
    pub task: Arc<Task>,
    /// The messages that no turn has answered yet, oldest first.
    pub unanswered: Vec<Arc<Message>>,
    /// The traces of those messages, and of the last one that had any, by the number of their turn.
    pub traces: Vec<(u64, TraceContext)>,
    /// How many turns have ended.
    pub turns_ended: u64,
    /// How often the turn that runs now was begun; none runs at 0.
    pub attempts: u32,
}

/// What makes a message the same message when it is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// The caller's own word; unique within a scope.
    pub text: String,
    /// A digest of what was sent under it.
    pub body: [u8; 32],
}

/// A webhook, and the version of the protocol it was registered in.
#[derive(Debug, Clone, PartialEq)]
pub struct PushRegistration {
    /// The registration; its id is set.
    pub config: PushConfig,
    /// The version in which it is called.
    pub version: Version,
}

/// A webhook of a task, and how far the deliveries to it are.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// Its place in the order in which webhooks were registered.
    pub number: u64,
    /// Changes when it is registered anew.
    pub generation: u64,
    /// The task.
    pub task: Head,
    /// The webhook.
    pub registration: PushRegistration,
    /// How far the deliveries are.
    pub delivery: DeliveryProgress,
}

/// How far the deliveries to a webhook are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeliveryProgress {
    /// The last entry that was delivered, or had not to be.
    pub position: Seq,
    /// How often the next one was tried in vain.
    pub attempts: u32,
    /// When it is tried again.
    pub due: Timestamp,
    /// Whether there is more to come.
    pub state: DeliveryState,
}

/// Whether a webhook is called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeliveryState {
    /// There may be more to deliver.
    #[default]
    Active,
    /// The task has ended, and all of it was delivered.
    Finished,
    /// Given up, for this reason; what was not delivered stays in the log.
    Failed(String),
}

/// Which webhooks are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookFilter {
    /// Those with possibly more to deliver.
    Active,
    /// Those that were given up.
    Failed,
}

/// Which tasks to list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskQuery {
    /// Only of this conversation.
    pub context_id: Option<ContextId>,
    /// Only in this state.
    pub state: Option<TaskState>,
    /// Only with a status of this time or later.
    pub since: Option<Timestamp>,
    /// Only behind this place in the order.
    pub after: Option<(Timestamp, TaskId)>,
    /// At most so many.
    pub limit: usize,
}

impl TaskQuery {
    /// Whether a task passes the filters, wherever it stands in the order.
    pub(crate) fn matches(&self, head: &Head) -> bool {
        self.context_id
            .as_ref()
            .is_none_or(|context_id| *context_id == head.context_id)
            && self.state.is_none_or(|state| state == head.state)
            && self.since.is_none_or(|since| head.status_time >= since)
    }
}

/// A page of tasks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Head>,
    /// All that match, on whatever page.
    pub total: u64,
}

/// How many tasks there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskCounts {
    /// That have not ended.
    pub open: u64,
    /// All that are kept, ended or not.
    pub total: u64,
}

/// Why a store takes no writes. What exactly went wrong is for the log; this is for whoever asks for its health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthProblem {
    /// Hardly any room is left: writes still get through.
    AlmostFull,
    /// No room is left.
    Full,
    /// It can be read, and no more.
    ReadOnly,
    /// What is there cannot be understood.
    Damaged,
    /// Somebody else holds it.
    Locked,
    /// Anything else.
    Failing,
}

impl fmt::Display for HealthProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlmostFull => "the disk is almost full",
            Self::Full => "no room is left",
            Self::ReadOnly => "it is read-only",
            Self::Damaged => "it is damaged",
            Self::Locked => "another program has locked it",
            Self::Failing => "writes fail",
        })
    }
}

/// What went wrong in a store.
#[derive(Debug)]
pub enum Error {
    /// The log has moved on: read, fold, try again.
    Conflict,
    /// The key was seen with the same body: what it stood for is done.
    AlreadyApplied,
    /// The key was seen with another body.
    KeyReused,
    /// The store cannot do its work; the cause is for the log alone.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict => "the log has moved on",
            Self::AlreadyApplied => "the key was seen before",
            Self::KeyReused => "the key was seen with another body",
            Self::Failed(_) => "the store failed",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Conflict | Self::AlreadyApplied | Self::KeyReused => None,
            Self::Failed(cause) => Some(&**cause),
        }
    }
}
