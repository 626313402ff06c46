//! Test harness: a store with injected faults, an agent that executes scripts, a manual clock.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::super::folded_log::FoldedLog;
use super::super::*;
use crate::agent::{Agent, ArtifactWriter, Failure, Outcome, Turn};
use crate::bus::LocalBus;
use crate::hooks::HookChain;
use crate::model::{Artifact, Entry, Event, Json, PushConfigId, TaskState, Timestamp};
use crate::store::{
    self, Batch, CreateResult, IdempotencyRecord, Memory, NewTask, ReadLimit, Snapshot, Webhook,
    WebhookFilter, WriterRole,
};

pub(crate) use super::{call, scope, within_deadline};

/// Clock that is set by the test. A drifting one changes with each reading.
pub(crate) struct ManualClock {
    now: AtomicI64,
    /// Monotonic time in milliseconds.
    elapsed: AtomicI64,
    drifts: bool,
    ids: AtomicU64,
}

impl ManualClock {
    pub(crate) fn starting_at(now: i64) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicI64::new(now),
            elapsed: AtomicI64::new(now),
            drifts: false,
            ids: AtomicU64::new(0),
        })
    }

    /// Creates a clock that jumps by up to five minutes, in both directions, with each reading.
    pub(super) fn drifting() -> Arc<Self> {
        Arc::new(Self {
            now: AtomicI64::new(1_000_000),
            elapsed: AtomicI64::new(0),
            drifts: true,
            ids: AtomicU64::new(0),
        })
    }

    /// Advances the wall clock and the monotonic time to this time.
    pub(crate) fn advance_to(&self, now: i64) {
        self.set_wall_clock(now);
        self.elapsed.store(now, Ordering::Relaxed);
    }

    /// Sets the wall clock. The monotonic time does not change.
    pub(super) fn set_wall_clock(&self, now: i64) {
        self.now.store(now, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let mut now = self.now.load(Ordering::Relaxed);
        if self.drifts {
            now = self.now.fetch_add(7_919, Ordering::Relaxed) + now * 31 % 600_000 - 300_000;
        }
        Timestamp::from_millis(now).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed.load(Ordering::Relaxed).unsigned_abs())
    }

    fn new_id(&self, _: Timestamp) -> Arc<str> {
        format!("id-{:06}", self.ids.fetch_add(1, Ordering::Relaxed) + 1).into()
    }
}

/// Whether a failing call fails before or after it is applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FaultTiming {
    Before,
    After,
}

/// Treatment of snapshots by a store.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) enum SnapshotMode {
    #[default]
    Save,
    /// Snapshots are dropped.
    Discard,
    /// Saving a snapshot never completes.
    Hang,
}

/// Memory store that counts its calls, and can fail or block them.
#[derive(Default)]
pub(crate) struct FaultyStore {
    memory: Memory,
    calls: AtomicU64,
    faults: Mutex<Option<(std::ops::Range<u64>, FaultTiming)>>,
    writes_held: AtomicBool,
    reads_held: AtomicBool,
    gate: Option<Semaphore>,
    held_writes: AtomicU64,
    writes: AtomicU64,
    panics: AtomicU64,
    deletes_listed: AtomicBool,
    acknowledges_late: AtomicBool,
    /// Largest number of events in one batch.
    pub(super) largest: AtomicU64,
    /// Number of entries read.
    pub(super) entries_read: AtomicU64,
    /// Number of snapshots passed to `save_snapshot`.
    pub(super) snapshots_saved: AtomicU64,
    snapshot_mode: SnapshotMode,
    has_external_writers: bool,
    /// Task whose log cannot be read.
    damaged: Mutex<Option<TaskId>>,
}

impl FaultyStore {
    /// Creates a store that reports external writers.
    pub(super) fn with_external_writers() -> Self {
        Self {
            has_external_writers: true,
            ..Self::default()
        }
    }

    /// Damages the log of a task.
    pub(crate) fn damage(&self, task: &TaskId) {
        *self.damaged.lock().unwrap() = Some(task.clone());
    }

    /// Creates a store that fails the calls with these numbers, starting at 1.
    pub(crate) fn failing(calls: std::ops::Range<u64>, fault: FaultTiming) -> Self {
        Self {
            faults: Mutex::new(Some((calls, fault))),
            ..Self::default()
        }
    }

    pub(super) fn with_snapshots(snapshot_mode: SnapshotMode) -> Self {
        Self {
            snapshot_mode,
            ..Self::default()
        }
    }

    /// Creates a store that panics at the write with this number, starting at 1.
    pub(super) fn panicking(write: u64) -> Self {
        Self {
            panics: AtomicU64::new(write),
            ..Self::default()
        }
    }

    /// Panics at the next write.
    pub(super) fn panic_next(&self) {
        self.panics.store(self.writes() + 1, Ordering::SeqCst);
    }

    /// Deletes the last task of every page it returns, like a concurrent sweep.
    pub(crate) fn delete_listed(&self) {
        self.deletes_listed.store(true, Ordering::SeqCst);
    }

    /// Delays the return of each write by one second after it is applied.
    pub(crate) fn delay_acknowledgements(&self) {
        self.acknowledges_late.store(true, Ordering::SeqCst);
    }

    /// Number of writes.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Appends directly to the memory store, like another process.
    pub(super) async fn append_externally(&self, head: &Head, at: Seq, event: Event) {
        let time = Timestamp::from_millis(1_000).unwrap();
        let batch = Batch {
            time,
            events: vec![event],
            state: TaskState::Working,
            status_time: time,
            parked: false,
            key: None,
            turn: 0,
            writer: WriterRole::Holder,
        };
        self.memory.append(head, at, &batch).await.unwrap();
    }

    /// Number of writes since they are held.
    pub(super) fn held_writes(&self) -> u64 {
        self.held_writes.load(Ordering::SeqCst)
    }

    /// Creates a store whose calls, while held, need a permit each.
    pub(super) fn gated() -> Self {
        Self {
            gate: Some(Semaphore::new(0)),
            ..Self::default()
        }
    }

    pub(super) fn hold_writes(&self, writes_held: bool) {
        self.writes_held.store(writes_held, Ordering::SeqCst);
    }

    pub(super) fn hold_reads(&self, writes_held: bool) {
        self.reads_held.store(writes_held, Ordering::SeqCst);
    }

    pub(super) fn release_writes(&self, writes: usize) {
        self.gate.iter().for_each(|gate| gate.add_permits(writes));
    }

    /// Fails every call until [`stop_failing`](Self::stop_failing).
    pub(super) fn fail_all(&self, fault: FaultTiming) {
        self.fail(0..u64::MAX, fault);
    }

    pub(crate) fn fail(&self, calls: std::ops::Range<u64>, fault: FaultTiming) {
        *self.faults.lock().unwrap() = Some((calls, fault));
    }

    pub(crate) fn stop_failing(&self) {
        *self.faults.lock().unwrap() = None;
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn write<T>(&self, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
        if self.writes_held.load(Ordering::SeqCst) {
            self.held_writes.fetch_add(1, Ordering::SeqCst);
        }
        self.wait(&self.writes_held).await;
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        assert_ne!(number, self.panics.load(Ordering::SeqCst), "injected panic");
        let written = self.count(work).await;
        if self.acknowledges_late.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        written
    }

    async fn read<T>(&self, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
        self.wait(&self.reads_held).await;
        self.count(work).await
    }

    async fn wait(&self, writes_held: &AtomicBool) {
        if writes_held.load(Ordering::SeqCst)
            && let Some(gate) = &self.gate
        {
            gate.acquire().await.unwrap().forget();
        }
    }

    async fn count<T>(&self, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = self.faults.lock().unwrap().clone();
        let fault = fault
            .filter(|(calls, _)| calls.contains(&number))
            .map(|(_, fault)| fault);
        match fault {
            None => work.await,
            Some(FaultTiming::Before) => Err(failed()),
            Some(FaultTiming::After) => {
                let _ = work.await;
                Err(failed())
            }
        }
    }
}

fn failed() -> store::Error {
    store::Error::Failed("injected fault".into())
}

#[async_trait]
impl Store for FaultyStore {
    fn has_external_writers(&self) -> bool {
        self.has_external_writers
    }

    async fn create(&self, task: &NewTask) -> store::Result<CreateResult> {
        self.largest
            .fetch_max(task.batch.events.len() as u64, Ordering::Relaxed);
        self.write(self.memory.create(task)).await
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> store::Result<Seq> {
        self.largest
            .fetch_max(batch.events.len() as u64, Ordering::Relaxed);
        self.write(self.memory.append(task, at, batch)).await
    }

    async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> store::Result<Vec<Entry>> {
        if self.damaged.lock().unwrap().as_ref() == Some(&task.id) {
            return Err(store::Error::Damaged("injected damage".into()));
        }
        let entries = self.read(self.memory.read(task, after, limit)).await?;
        self.entries_read
            .fetch_add(entries.len() as u64, Ordering::SeqCst);
        Ok(entries)
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> store::Result<Option<Head>> {
        self.read(self.memory.find(scope, task)).await
    }

    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> store::Result<Option<IdempotencyRecord>> {
        self.read(self.memory.find_by_key(scope, key)).await
    }

    async fn remove_keys(&self, before: Timestamp, limit: usize) -> store::Result<usize> {
        self.write(self.memory.remove_keys(before, limit)).await
    }

    async fn list(&self, scope: &Scope, query: &TaskQuery) -> store::Result<TaskPage> {
        let page = self.read(self.memory.list(scope, query)).await?;
        if self.deletes_listed.load(Ordering::SeqCst) {
            self.memory
                .remove(page.tasks.last().map_or(&[], std::slice::from_ref))
                .await?;
        }
        Ok(page)
    }

    async fn list_unfinished(
        &self,
        after: Option<&TaskId>,
        limit: usize,
    ) -> store::Result<Vec<Head>> {
        self.read(self.memory.list_unfinished(after, limit)).await
    }

    async fn list_runnable(
        &self,
        after: Option<&TaskId>,
        limit: usize,
    ) -> store::Result<Vec<Head>> {
        self.read(self.memory.list_runnable(after, limit)).await
    }

    async fn list_parked(&self, scope: &Scope, limit: usize) -> store::Result<Vec<Head>> {
        self.read(self.memory.list_parked(scope, limit)).await
    }

    async fn latest_time(&self) -> store::Result<Option<Timestamp>> {
        self.read(self.memory.latest_time()).await
    }

    async fn list_ended(&self, before: Timestamp, limit: usize) -> store::Result<Vec<Head>> {
        self.read(self.memory.list_ended(before, limit)).await
    }

    async fn count_ended(&self) -> store::Result<u64> {
        self.read(self.memory.count_ended()).await
    }

    async fn count_tasks(
        &self,
        agent: &str,
        tenant: &str,
    ) -> store::Result<Option<store::TaskCounts>> {
        self.read(self.memory.count_tasks(agent, tenant)).await
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, folded: &Snapshot) -> store::Result<()> {
        self.snapshots_saved.fetch_add(1, Ordering::SeqCst);
        match self.snapshot_mode {
            SnapshotMode::Save => {
                self.write(self.memory.save_snapshot(task, at, folded))
                    .await
            }
            SnapshotMode::Discard => Ok(()),
            SnapshotMode::Hang => std::future::pending().await,
        }
    }

    async fn load_snapshot(
        &self,
        task: &Head,
        max_bytes: usize,
    ) -> store::Result<Option<(Seq, Snapshot)>> {
        self.read(self.memory.load_snapshot(task, max_bytes)).await
    }

    async fn remove(&self, tasks: &[Head]) -> store::Result<()> {
        self.write(self.memory.remove(tasks)).await
    }

    async fn put_config(&self, task: &Head, config: &PushRegistration) -> store::Result<()> {
        self.write(self.memory.put_config(task, config)).await
    }

    async fn list_configs(&self, task: &Head) -> store::Result<Vec<PushRegistration>> {
        self.read(self.memory.list_configs(task)).await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> store::Result<()> {
        self.write(self.memory.delete_config(task, id)).await
    }

    async fn list_webhooks(
        &self,
        which: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> store::Result<Vec<Webhook>> {
        self.read(self.memory.list_webhooks(which, after, limit))
            .await
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> store::Result<Option<Webhook>> {
        self.read(self.memory.find_webhook(task, id)).await
    }

    async fn record_delivery(&self, push: &Webhook) -> store::Result<bool> {
        self.write(self.memory.record_delivery(push)).await
    }
}

/// Agent that executes the words of the message one by one, then completes.
#[derive(Clone)]
pub(crate) struct ScriptedAgent {
    /// Permits for the word `gate`.
    pub(crate) gate: Arc<Semaphore>,
    received: Arc<Mutex<Vec<String>>>,
    running: Arc<Mutex<BTreeMap<TaskId, u32>>>,
}

impl Default for ScriptedAgent {
    fn default() -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            received: Arc::default(),
            running: Arc::default(),
        }
    }
}

impl ScriptedAgent {
    /// Texts of the messages whose turns were run, in order.
    pub(super) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    /// Number of running turns of a task.
    pub(super) fn running(&self, task: &TaskId) -> u32 {
        self.running
            .lock()
            .unwrap()
            .get(task)
            .copied()
            .unwrap_or_default()
    }

    async fn run_script(&self, turn: &Turn) -> Result<Outcome, Failure> {
        let mut writer: Option<ArtifactWriter> = None;
        for word in turn.text().split(' ') {
            match word {
                "say" => turn.say("so far").await,
                "write" => turn.write("result", "text").await,
                "chunk" => {
                    writer
                        .get_or_insert_with(|| turn.writer("long"))
                        .write("piece")
                        .await
                }
                "close" => {
                    if let Some(writer) = writer.take() {
                        writer.finish().await;
                    }
                }
                "meta" => {
                    turn.add_metadata([("word", Json::from("meta"))].into_iter().collect())
                        .await
                }
                "login" => turn.require_auth("log in").await,
                "empty" => {
                    turn.add_artifact(Artifact::default().with_id("empty"))
                        .await
                }
                "yield" => tokio::task::yield_now().await,
                "gate" => self.gate.acquire().await?.forget(),
                "listen" => turn.cancelled().await,
                "hang" => std::future::pending().await,
                "ask" => return Ok(Outcome::ask("which?")),
                "auth" => return Ok(Outcome::auth_required("who?")),
                "reject" => return Ok(Outcome::rejected("no")),
                "fail" => return Ok(Outcome::failed("broken")),
                "error" => return Err("scripted error".into()),
                "panic" => panic!("scripted panic"),
                _ => {}
            }
        }
        Ok(Outcome::Completed)
    }
}

impl Agent for ScriptedAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let _running = RunningTurn::new(self, turn.task_id());
        self.received.lock().unwrap().push(turn.text());
        self.run_script(&turn).await
    }
}

/// Guard that panics if two turns of one task run at the same time.
struct RunningTurn<'a>(&'a ScriptedAgent, TaskId);

impl<'a> RunningTurn<'a> {
    fn new(agent: &'a ScriptedAgent, id: &TaskId) -> Self {
        let mut running = agent.running.lock().unwrap();
        let turns = running.entry(id.clone()).or_default();
        *turns += 1;
        assert_eq!(*turns, 1, "two turns of one task at once");
        Self(agent, id.clone())
    }
}

impl Drop for RunningTurn<'_> {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

/// Creates an engine with a constant clock.
pub(super) fn engine_on(store: Arc<dyn Store>, agent: impl Agent, settings: Settings) -> Engine {
    engine_with(store, agent, settings, ManualClock::starting_at(1_000))
}

/// Changes the minimum number of entries for a snapshot. The engine must not be cloned yet.
pub(super) fn with_snapshot_min_entries(mut engine: Engine, snapshot_min_entries: u64) -> Engine {
    let journal =
        Arc::get_mut(&mut engine.inner).and_then(|inner| Arc::get_mut(&mut inner.journal));
    journal
        .expect("the engine is not cloned")
        .snapshot_min_entries = snapshot_min_entries;
    engine
}

/// Creates an engine with several agents.
pub(super) fn engine_with_agents(store: Arc<dyn Store>, agents: AgentRegistry) -> Engine {
    let clock = ManualClock::starting_at(1_000);
    build_engine(store, agents, Settings::default(), clock)
}

/// Creates an engine with a store, agents, settings and clock of its own.
pub(super) fn build_engine(
    store: Arc<dyn Store>,
    agents: AgentRegistry,
    settings: Settings,
    clock: Arc<dyn Clock>,
) -> Engine {
    Engine::new(EngineConfig {
        store,
        bus: Arc::new(LocalBus::default()),
        agents,
        clock,
        settings,
        tracker: TaskTracker::new(),
        stop: CancellationToken::new(),
    })
}

pub(super) fn registration(
    name: &str,
    agent: impl Agent,
    settings: AgentSettings,
) -> AgentRegistration {
    AgentRegistration {
        name: name.into(),
        agent: Arc::new(agent),
        settings,
        hooks: HookChain::default(),
    }
}

pub(crate) fn engine_with(
    store: Arc<dyn Store>,
    agent: impl Agent,
    settings: Settings,
    clock: Arc<ManualClock>,
) -> Engine {
    build_engine(store, AgentRegistry::single(agent), settings, clock)
}

pub(super) fn message(text: &str) -> Message {
    Message::user(text)
}

pub(super) fn initial_message(text: &str) -> InitialMessage {
    InitialMessage::from(message(text))
}

pub(super) fn key(text: &str, body: u8) -> Option<IdempotencyKey> {
    Some(IdempotencyKey {
        text: text.to_owned(),
        body: [body; 32],
        oldest_valid: Timestamp::default(),
    })
}

/// Creates a task with this text.
pub(super) async fn start(engine: &Engine, text: &str) -> Box<AcceptedMessage> {
    within_deadline(engine.start(call(), initial_message(text)))
        .await
        .unwrap()
}

/// Creates a task with this text, and waits for the turn result.
pub(crate) async fn send(engine: &Engine, text: &str) -> (Head, Task) {
    let accepted = start(engine, text).await;
    let head = accepted.head.clone();
    (
        head,
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap(),
    )
}

/// Sends a text to a task, and waits for the turn result.
pub(super) async fn send_to(engine: &Engine, head: &Head, text: &str) -> Result<Task> {
    let accepted = within_deadline(engine.continue_task(call(), head, message(text), None)).await?;
    within_deadline(engine.await_turn_result(accepted)).await
}

/// Stops an engine like the end of its process.
pub(super) async fn shut_down(engine: &Engine) {
    engine.inner.stop.cancel();
    engine.inner.tracker.close();
    within_deadline(engine.inner.tracker.wait()).await;
}

/// Waits until no detached task runs.
pub(super) async fn wait_until_idle(engine: &Engine) {
    engine.inner.tracker.close();
    within_deadline(engine.inner.tracker.wait()).await;
}

/// Returns the whole log from the store.
pub(super) async fn entries(engine: &Engine, head: &Head) -> Vec<Entry> {
    engine
        .inner
        .journal
        .store
        .read(head, Seq(0), ReadLimit::entries(usize::MAX))
        .await
        .unwrap()
}

/// Returns the entries of the log as one or two words each.
pub(super) async fn log_summary(engine: &Engine, head: &Head) -> Vec<String> {
    let word = |entry: &Entry| match &entry.event {
        Event::Created { .. } => "created".to_owned(),
        Event::Message(message) => format!("message {}", message.text()),
        Event::TraceContext(_) => "trace".to_owned(),
        Event::CallMetadata(_) => "call".to_owned(),
        Event::TurnStarted => "turn".to_owned(),
        Event::Status { status, .. } => status
            .state
            .as_str()
            .trim_start_matches("TASK_STATE_")
            .to_lowercase(),
        Event::Artifact {
            append, last_chunk, ..
        } => format!("artifact {append} {last_chunk}"),
        Event::CancelRequested { .. } => "cancel".to_owned(),
        Event::Ignored { .. } => "ignored".to_owned(),
        Event::TurnEnded => "end".to_owned(),
    };
    entries(engine, head).await.iter().map(word).collect()
}

/// Folds a log from its first entry.
fn fold_all(entries: &[Entry]) -> FoldedLog {
    let mut log = FoldedLog::empty();
    entries.iter().for_each(|entry| log.apply(entry).unwrap());
    log
}

/// Checks the invariants that hold at any time.
///
/// The visible task and the snapshot are folds of the stored log. The log is numbered without gaps, and has at most
/// one terminal status and no change after it.
pub(super) async fn check_invariants(engine: &Engine, head: &Head) -> Task {
    let (task, at) = engine.task(head).await.unwrap();
    let task = Arc::unwrap_or_clone(task);
    let entries = entries(engine, head).await;
    assert!(
        entries
            .iter()
            .map(|entry| entry.seq.0)
            .eq(1..=entries.len() as u64),
        "{entries:?}"
    );
    let visible = &entries[..usize::try_from(at.0).unwrap()];
    assert_eq!(Task::fold(visible).unwrap().unwrap(), task);
    if let Some((at, folded)) = engine
        .inner
        .journal
        .store
        .load_snapshot(head, usize::MAX)
        .await
        .unwrap()
    {
        assert_eq!(
            fold_all(&entries[..usize::try_from(at.0).unwrap()]).to_snapshot(),
            folded
        );
    }
    let active = engine
        .inner
        .journal
        .active_tasks
        .get(&head.id)
        .and_then(|active| active.log());
    if let Some(active) = active.filter(|active| active.position == Seq(entries.len() as u64)) {
        assert_eq!(active.to_snapshot(), fold_all(&entries).to_snapshot());
    }
    let ends = |entry: &Entry| matches!(&entry.event, Event::Status { status, .. } if status.state.is_terminal());
    let end = entries.iter().position(ends).unwrap_or(entries.len());
    for late in entries.iter().skip(end + 1) {
        let changes = matches!(
            late.event,
            Event::Status { .. } | Event::Artifact { .. } | Event::Message(_)
        );
        assert!(!changes, "after the end: {late:?}");
    }
    task
}

/// Checks the invariants of an idle engine.
///
/// No task is active, and all permits are released. Every task has ended or is interrupted, and each head agrees with
/// its log.
pub(super) async fn check_idle(engine: &Engine) -> Vec<Task> {
    let store = &engine.inner.journal.store;
    let mut heads = store.list_unfinished(None, usize::MAX).await.unwrap();
    heads.extend(store.list_ended(Timestamp::MAX, usize::MAX).await.unwrap());
    let mut tasks = Vec::new();
    for head in &heads {
        assert!(
            engine.inner.journal.active_tasks.get(&head.id).is_none(),
            "still active: {head:?}"
        );
        let task = check_invariants(engine, head).await;
        let state = task.status.state;
        assert!(state.is_terminal() || state.is_interrupted(), "{task:?}");
        assert_eq!(
            (head.state, Some(head.status_time)),
            (state, task.status.timestamp)
        );
        let log = engine.inner.journal.load_for_runner(head).await.unwrap();
        assert_eq!(
            log.to_snapshot(),
            fold_all(&entries(engine, head).await).to_snapshot()
        );
        assert!(
            log.next_message().is_none() && (task.is_ended() || !log.is_turn_running()),
            "{log:?}"
        );
        tasks.push(task);
    }
    let most = engine.inner.settings.max_turns;
    assert_eq!(
        engine.inner.turn_permits.free_permits(),
        most,
        "a turn permit was lost"
    );
    assert_eq!(
        engine.inner.waiting_turns.load(Ordering::SeqCst),
        0,
        "a waiting slot was lost"
    );
    tasks
}

/// Yields until all other tasks are pending.
pub(super) async fn yield_until_idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Follows a log to its end, and retries after errors.
pub(super) async fn follow_to_end(mut follow: Follow) -> Vec<SharedEntry> {
    let mut seen: Vec<SharedEntry> = Vec::new();
    loop {
        match follow.next().await {
            Ok(entries) => seen.extend(entries),
            Err(Error::Deleted) => return seen,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        if seen
            .iter()
            .any(|entry| matches!(&entry.event, Event::Status { status, .. } if status.state.is_terminal()))
        {
            return seen;
        }
    }
}
