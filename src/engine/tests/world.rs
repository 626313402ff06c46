//! What the tests are made of: a store that can fail, an agent that does what the message says, a clock with hands.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::super::log::Log;
use super::super::*;
use crate::agent::{Agent, Failure, Outcome, Turn, Writer};
use crate::bus::Local;
use crate::model::{Artifact, Entry, Event, Json, PushConfigId, TaskState, Timestamp};
use crate::store::{self, Batch, Folded, Memory, NewTask, Opened, Push, Seen, Which};

pub(crate) use super::{call, scope, soon};

/// A clock that is set by hand, and wanders if told to.
pub(crate) struct Hands {
    now: AtomicI64,
    /// What has really passed, in milliseconds.
    passed: AtomicI64,
    wanders: bool,
    ids: AtomicU64,
}

impl Hands {
    pub(crate) fn at(now: i64) -> Arc<Self> {
        let (now, passed) = (AtomicI64::new(now), AtomicI64::new(now));
        Arc::new(Self {
            now,
            passed,
            wanders: false,
            ids: AtomicU64::new(0),
        })
    }

    /// Goes forth and back by as much as five minutes at every look.
    pub(super) fn wandering() -> Arc<Self> {
        let (now, passed) = (AtomicI64::new(1_000_000), AtomicI64::new(0));
        Arc::new(Self {
            now,
            passed,
            wanders: true,
            ids: AtomicU64::new(0),
        })
    }

    /// So late it is now: that much has passed.
    pub(crate) fn set(&self, now: i64) {
        self.jump(now);
        self.passed.store(now, Ordering::Relaxed);
    }

    /// Somebody has set the clock: nothing has passed.
    pub(super) fn jump(&self, now: i64) {
        self.now.store(now, Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        let mut now = self.now.load(Ordering::Relaxed);
        if self.wanders {
            now = self.now.fetch_add(7_919, Ordering::Relaxed) + now * 31 % 600_000 - 300_000;
        }
        Timestamp::from_millis(now).unwrap()
    }

    fn passed(&self) -> Duration {
        Duration::from_millis(self.passed.load(Ordering::Relaxed).unsigned_abs())
    }

    fn id(&self) -> Arc<str> {
        format!("id-{:06}", self.ids.fetch_add(1, Ordering::Relaxed) + 1).into()
    }
}

/// Whether a call that fails has done its work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    Before,
    After,
}

/// What a store makes of the folds that it is to keep.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) enum Keeps {
    #[default]
    All,
    /// None: it is a cache that is always empty.
    Nothing,
    /// It never comes to an end with one.
    Forever,
}

/// A memory store that counts its calls, fails some of them, and can be held up.
#[derive(Default)]
pub(crate) struct Faulty {
    memory: Memory,
    calls: AtomicU64,
    faults: Mutex<Option<(std::ops::Range<u64>, Fault)>>,
    held: AtomicBool,
    reads_held: AtomicBool,
    gate: Option<Semaphore>,
    asked: AtomicU64,
    writes: AtomicU64,
    panics: AtomicU64,
    forgets: AtomicBool,
    lags: AtomicBool,
    /// The most events that came in one batch.
    pub(super) largest: AtomicU64,
    /// How many entries were read.
    pub(super) entries_read: AtomicU64,
    /// How often a fold was to be kept.
    pub(super) folds: AtomicU64,
    keeps: Keeps,
    shared: bool,
}

impl Faulty {
    /// One that other processes write to.
    pub(super) fn shared() -> Self {
        Self {
            shared: true,
            ..Self::default()
        }
    }

    /// Fails the calls of these numbers, the first is 1.
    pub(crate) fn failing(calls: std::ops::Range<u64>, fault: Fault) -> Self {
        Self {
            faults: Mutex::new(Some((calls, fault))),
            ..Self::default()
        }
    }

    pub(super) fn keeping(keeps: Keeps) -> Self {
        Self {
            keeps,
            ..Self::default()
        }
    }

    /// Panics at the write of this number, the first is 1.
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

    /// Forgets the last task of every page it gives out, as a sweep may in that moment.
    pub(crate) fn forget_listed(&self) {
        self.forgets.store(true, Ordering::SeqCst);
    }

    /// From now on whoever writes hears of it a second after it is there for others to find.
    pub(crate) fn lag(&self) {
        self.lags.store(true, Ordering::SeqCst);
    }

    /// How many writes there were.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Adds to a log past everything, as somebody else would.
    pub(super) async fn write_past(&self, head: &Head, at: Seq, event: Event) {
        let (state, time) = (TaskState::Working, Timestamp::from_millis(1_000).unwrap());
        let batch = Batch {
            time,
            events: vec![event],
            state,
            status_time: time,
            parked: false,
            key: None,
            turn: 0,
        };
        self.memory.append(head, at, &batch).await.unwrap();
    }

    /// How many writes have come since they are held.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Writes wait for a permit once it is held.
    pub(super) fn gated() -> Self {
        Self {
            gate: Some(Semaphore::new(0)),
            ..Self::default()
        }
    }

    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    pub(super) fn hold_reads(&self, held: bool) {
        self.reads_held.store(held, Ordering::SeqCst);
    }

    pub(super) fn let_pass(&self, writes: usize) {
        self.gate.iter().for_each(|gate| gate.add_permits(writes));
    }

    /// Fails every call from now on, until it is healed.
    pub(super) fn break_down(&self, fault: Fault) {
        self.fail(0..u64::MAX, fault);
    }

    pub(crate) fn fail(&self, calls: std::ops::Range<u64>, fault: Fault) {
        *self.faults.lock().unwrap() = Some((calls, fault));
    }

    pub(crate) fn heal(&self) {
        *self.faults.lock().unwrap() = None;
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn write<T>(&self, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
        if self.held.load(Ordering::SeqCst) {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        self.wait(&self.held).await;
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        assert_ne!(
            number,
            self.panics.load(Ordering::SeqCst),
            "a store that panics"
        );
        let written = self.count(work).await;
        if self.lags.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        written
    }

    async fn read<T>(&self, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
        self.wait(&self.reads_held).await;
        self.count(work).await
    }

    async fn wait(&self, held: &AtomicBool) {
        if held.load(Ordering::SeqCst)
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
            Some(Fault::Before) => Err(failed()),
            Some(Fault::After) => {
                let _ = work.await;
                Err(failed())
            }
        }
    }
}

fn failed() -> store::Error {
    store::Error::Failed("out of order".into())
}

#[async_trait]
impl Store for Faulty {
    fn is_shared(&self) -> bool {
        self.shared
    }

    async fn create(&self, task: &NewTask) -> store::Result<Opened> {
        self.largest
            .fetch_max(task.batch.events.len() as u64, Ordering::Relaxed);
        self.write(self.memory.create(task)).await
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> store::Result<Seq> {
        self.largest
            .fetch_max(batch.events.len() as u64, Ordering::Relaxed);
        self.write(self.memory.append(task, at, batch)).await
    }

    async fn read(&self, task: &Head, after: Seq, limit: usize) -> store::Result<Vec<Entry>> {
        let entries = self.read(self.memory.read(task, after, limit)).await?;
        self.entries_read
            .fetch_add(entries.len() as u64, Ordering::SeqCst);
        Ok(entries)
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> store::Result<Option<Head>> {
        self.read(self.memory.find(scope, task)).await
    }

    async fn seen(&self, scope: &Scope, key: &Key) -> store::Result<Option<Seen>> {
        self.read(self.memory.seen(scope, key)).await
    }

    async fn list(&self, scope: &Scope, query: &Query) -> store::Result<Page> {
        let page = self.read(self.memory.list(scope, query)).await?;
        if self.forgets.load(Ordering::SeqCst) {
            self.memory
                .remove(page.tasks.last().map_or(&[], std::slice::from_ref))
                .await?;
        }
        Ok(page)
    }

    async fn unfinished(&self, after: Option<&TaskId>, limit: usize) -> store::Result<Vec<Head>> {
        self.read(self.memory.unfinished(after, limit)).await
    }

    async fn with_work(&self, after: Option<&TaskId>, limit: usize) -> store::Result<Vec<Head>> {
        self.read(self.memory.with_work(after, limit)).await
    }

    async fn parked(&self, scope: &Scope, limit: usize) -> store::Result<Vec<Head>> {
        self.read(self.memory.parked(scope, limit)).await
    }

    async fn newest(&self) -> store::Result<Option<Timestamp>> {
        self.read(self.memory.newest()).await
    }

    async fn ended(&self, before: Timestamp, limit: usize) -> store::Result<Vec<Head>> {
        self.read(self.memory.ended(before, limit)).await
    }

    async fn count_ended(&self) -> store::Result<u64> {
        self.read(self.memory.count_ended()).await
    }

    async fn tally(&self, agent: &str, tenant: &str) -> store::Result<Option<store::Tally>> {
        self.read(self.memory.tally(agent, tenant)).await
    }

    async fn keep(&self, task: &Head, at: Seq, folded: &Folded) -> store::Result<()> {
        self.folds.fetch_add(1, Ordering::SeqCst);
        match self.keeps {
            Keeps::All => self.write(self.memory.keep(task, at, folded)).await,
            Keeps::Nothing => Ok(()),
            Keeps::Forever => std::future::pending().await,
        }
    }

    async fn kept(&self, task: &Head) -> store::Result<Option<(Seq, Folded)>> {
        self.read(self.memory.kept(task)).await
    }

    async fn remove(&self, tasks: &[Head]) -> store::Result<()> {
        self.write(self.memory.remove(tasks)).await
    }

    async fn put_config(&self, task: &Head, config: &Registered) -> store::Result<()> {
        self.write(self.memory.put_config(task, config)).await
    }

    async fn configs(&self, task: &Head) -> store::Result<Vec<Registered>> {
        self.read(self.memory.configs(task)).await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> store::Result<()> {
        self.write(self.memory.delete_config(task, id)).await
    }

    async fn pushes(
        &self,
        which: Which,
        after: Option<u64>,
        limit: usize,
    ) -> store::Result<Vec<Push>> {
        self.read(self.memory.pushes(which, after, limit)).await
    }

    async fn push(&self, task: &Head, id: &PushConfigId) -> store::Result<Option<Push>> {
        self.read(self.memory.push(task, id)).await
    }

    async fn record_delivery(&self, push: &Push) -> store::Result<bool> {
        self.write(self.memory.record_delivery(push)).await
    }
}

/// Does what the message says, word by word; completes when there are no more words.
#[derive(Clone)]
pub(crate) struct Obeys {
    /// What a turn that is told `gate` waits for.
    pub(crate) gate: Arc<Semaphore>,
    heard: Arc<Mutex<Vec<String>>>,
    running: Arc<Mutex<BTreeMap<TaskId, u32>>>,
}

impl Default for Obeys {
    fn default() -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            heard: Arc::default(),
            running: Arc::default(),
        }
    }
}

impl Obeys {
    /// The messages that turns were run for, in order.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// How many turns of a task run.
    pub(super) fn running(&self, task: &TaskId) -> u32 {
        self.running
            .lock()
            .unwrap()
            .get(task)
            .copied()
            .unwrap_or_default()
    }

    async fn obey(&self, turn: &Turn) -> Result<Outcome, Failure> {
        let mut writer: Option<Writer> = None;
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
                    turn.metadata([("word", Json::from("meta"))].into_iter().collect())
                        .await
                }
                "login" => turn.auth_required("log in").await,
                "empty" => turn.artifact(Artifact::default().with_id("empty")).await,
                "yield" => tokio::task::yield_now().await,
                "gate" => self.gate.acquire().await?.forget(),
                "listen" => turn.cancelled().await,
                "hang" => std::future::pending().await,
                "ask" => return Ok(Outcome::ask("which?")),
                "auth" => return Ok(Outcome::needs_auth("who?")),
                "reject" => return Ok(Outcome::rejected("no")),
                "fail" => return Ok(Outcome::failed("broken")),
                "error" => return Err("a fault".into()),
                "panic" => panic!("as told"),
                _ => {}
            }
        }
        Ok(Outcome::Completed)
    }
}

impl Agent for Obeys {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let _running = Running::new(self, turn.task_id());
        self.heard.lock().unwrap().push(turn.text());
        self.obey(&turn).await
    }
}

/// Panics when two turns of one task run at once.
struct Running<'a>(&'a Obeys, TaskId);

impl<'a> Running<'a> {
    fn new(agent: &'a Obeys, id: &TaskId) -> Self {
        let mut running = agent.running.lock().unwrap();
        let turns = running.entry(id.clone()).or_default();
        *turns += 1;
        assert_eq!(*turns, 1, "two turns of one task at once");
        Self(agent, id.clone())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

/// An engine on a store, with a clock that stands still.
pub(super) fn engine_on(store: Arc<dyn Store>, agent: impl Agent, settings: Settings) -> Engine {
    engine_with(store, agent, settings, Hands::at(1_000))
}

/// An engine that nobody shares yet, which keeps the folds of logs of so many entries.
pub(super) fn keeping(mut engine: Engine, long: u64) -> Engine {
    let journal = Arc::get_mut(&mut engine.0).and_then(|parts| Arc::get_mut(&mut parts.journal));
    journal.expect("nobody shares it").long = long;
    engine
}

pub(super) fn engine_of_staff(store: Arc<dyn Store>, staff: Staff) -> Engine {
    let owned = (TaskTracker::new(), CancellationToken::new());
    let (bus, clock) = (Arc::new(Local::default()), Hands::at(1_000));
    Engine::new(store, bus, staff, clock, Settings::default(), owned)
}

pub(crate) fn engine_with(
    store: Arc<dyn Store>,
    agent: impl Agent,
    settings: Settings,
    clock: Arc<Hands>,
) -> Engine {
    let owned = (TaskTracker::new(), CancellationToken::new());
    Engine::new(
        store,
        Arc::new(Local::default()),
        Staff::one(agent),
        clock,
        settings,
        owned,
    )
}

pub(super) fn message(text: &str) -> Message {
    Message::user(text)
}

pub(super) fn opening(text: &str) -> Opening {
    Opening::from(message(text))
}

pub(super) fn key(text: &str, body: u8) -> Option<Key> {
    Some(Key {
        text: text.to_owned(),
        body: [body; 32],
    })
}

/// Sends a text to a new task.
pub(super) async fn start(engine: &Engine, text: &str) -> Box<Accepted> {
    soon(engine.start(call(), opening(text))).await.unwrap()
}

/// Sends a text to a new task and waits for the answer.
pub(crate) async fn send(engine: &Engine, text: &str) -> (Head, Task) {
    let accepted = start(engine, text).await;
    let head = accepted.head.clone();
    (head, soon(engine.settled(accepted)).await.unwrap())
}

/// Sends a text to a task and waits for the answer.
pub(super) async fn answer(engine: &Engine, head: &Head, text: &str) -> Result<Task> {
    let accepted = soon(engine.resume(call(), head, message(text), None)).await?;
    soon(engine.settled(accepted)).await
}

/// Stops an engine as if its process had ended.
pub(super) async fn kill(engine: &Engine) {
    engine.stop.cancel();
    engine.tracker.close();
    soon(engine.tracker.wait()).await;
}

/// Ready when nobody works on anything.
pub(super) async fn quiet(engine: &Engine) {
    engine.tracker.close();
    soon(engine.tracker.wait()).await;
}

/// The whole log, as the store has it.
pub(super) async fn entries(engine: &Engine, head: &Head) -> Vec<Entry> {
    engine
        .journal
        .store
        .read(head, Seq(0), usize::MAX)
        .await
        .unwrap()
}

/// What the log says happened, in a word each.
pub(super) async fn words(engine: &Engine, head: &Head) -> Vec<String> {
    let word = |entry: &Entry| match &entry.event {
        Event::Created { .. } => "created".to_owned(),
        Event::Message(message) => format!("message {}", message.text()),
        Event::Traced(_) => "trace".to_owned(),
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

/// A log, folded from its very beginning.
fn whole(entries: &[Entry]) -> Log {
    let mut log = Log::empty();
    entries.iter().for_each(|entry| log.apply(entry).unwrap());
    log
}

/// Holds at every moment: what the engine shows, and what was kept, is the fold of what the store has, numbered
/// without a gap, with at most one end and no change behind it.
pub(super) async fn lawful(engine: &Engine, head: &Head) -> Task {
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
    let shown = &entries[..usize::try_from(at.0).unwrap()];
    assert_eq!(Task::fold(shown).unwrap().unwrap(), task);
    if let Some((at, folded)) = engine.journal.store.kept(head).await.unwrap() {
        assert_eq!(
            whole(&entries[..usize::try_from(at.0).unwrap()]).folded(),
            folded
        );
    }
    let live = engine
        .journal
        .registry
        .get(&head.id)
        .and_then(|live| live.log());
    if let Some(live) = live.filter(|live| live.at == Seq(entries.len() as u64)) {
        assert_eq!(live.folded(), whole(&entries).folded());
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

/// Holds when nobody works on anything: nothing is held, every task has ended or waits for somebody outside, and
/// the store's short form of each says the same as its log.
pub(super) async fn at_rest(engine: &Engine) -> Vec<Task> {
    let store = &engine.journal.store;
    let mut heads = store.unfinished(None, usize::MAX).await.unwrap();
    heads.extend(store.ended(Timestamp::MAX, usize::MAX).await.unwrap());
    let mut tasks = Vec::new();
    for head in &heads {
        assert!(
            engine.journal.registry.get(&head.id).is_none(),
            "somebody still works on {head:?}"
        );
        let task = lawful(engine, head).await;
        let state = task.status.state;
        assert!(state.is_terminal() || state.is_interrupted(), "{task:?}");
        assert_eq!(
            (head.state, Some(head.status_time)),
            (state, task.status.timestamp)
        );
        let log = engine.journal.stored(head).await.unwrap();
        assert_eq!(log.folded(), whole(&entries(engine, head).await).folded());
        assert!(
            log.waiting().is_none() && (task.is_ended() || !log.turn_runs()),
            "{log:?}"
        );
        tasks.push(task);
    }
    let most = engine.settings.max_turns.min(Semaphore::MAX_PERMITS);
    assert_eq!(
        engine.turns.available_permits(),
        most,
        "leave to run was lost"
    );
    assert_eq!(
        engine.waiting.load(Ordering::SeqCst),
        0,
        "a place in the queue was lost"
    );
    tasks
}

/// Lets everybody else run until nobody can.
pub(super) async fn settle_down() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Follows a log to its end, through every error.
pub(super) async fn follow_to_end(mut follow: Follow) -> Vec<Recorded> {
    let mut seen: Vec<Recorded> = Vec::new();
    loop {
        match follow.next().await {
            Ok(entries) => seen.extend(entries),
            Err(Error::Gone) => return seen,
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
