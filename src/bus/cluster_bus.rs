//! Bus between the replicas of one store, over a [`Notifier`].
//!
//! A replica with followers of another replica's task sends its interest. The holder then announces commits of that task. So a
//! client that stays on the replica of its task causes no messages. Commands to another replica's task, takeovers and removals
//! are announced to all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::channels::Channels;
use super::message::{Content, Message, MessageKind, Record, TaskHash, max_records};
use super::outbox::Outbox;
use super::{Bus, BusFuture, BusHost};
use crate::model::{Seq, TaskId, Timestamp};
use crate::rt::lock;
use crate::store::{Notification, Notifier};
use crate::telemetry::metrics;

/// Pause between two messages. Records of one task are merged meanwhile.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(2);

/// Pause after a message that could not be sent.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Longest time that sending a message may take.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time for sending what is left when this replica leaves.
const DEPARTURE_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which the interest in followed tasks is sent again.
const INTEREST_INTERVAL: Duration = Duration::from_secs(10);

/// How long a holder announces to replicas that have sent their interest.
const INTEREST_LIFETIME: Duration = Duration::from_secs(30);

/// Maximum number of tasks in which other replicas are interested. Followers of further ones depend on polling.
const MAX_INTERESTS: usize = 1 << 16;

/// How long the last commit of a task is remembered, for an interest that was sent before the commit was. It is also the
/// interval of polling, which finds older ones.
const RECENT_COMMITS_LIFETIME: Duration = Duration::from_secs(2);

/// Maximum number of remembered commits. Beyond it, every interest is answered.
const MAX_RECENT_COMMITS: usize = 1 << 14;

/// Number of rotations of the remembered commits per interest interval.
const ROTATIONS_PER_INTEREST: u64 = INTEREST_INTERVAL.as_secs() / RECENT_COMMITS_LIFETIME.as_secs();

/// Bus between the replicas of one store.
pub(crate) struct ClusterBus {
    /// Distinguishes the messages of this bus from those of others. Not the replica id, which changes after an eviction.
    id: u64,
    notifier: Arc<dyn Notifier>,
    channels: Mutex<Channels>,
    state: Mutex<ExchangeState>,
    /// The outbox has records.
    has_records: Notify,
    is_up: AtomicBool,
    gaps: watch::Sender<u64>,
}

/// What this replica exchanges with others.
#[derive(Default)]
struct ExchangeState {
    outbox: Outbox,
    /// Tasks in which other replicas are interested, and until when.
    interests: HashMap<TaskHash, Instant>,
    /// Tasks of which this replica has requested announcements.
    requested: BTreeSet<TaskHash>,
    recent_commits: RecentCommits,
}

/// Last commits of tasks in which no replica was interested, in two generations.
#[derive(Default)]
struct RecentCommits {
    current: BTreeMap<TaskHash, Seq>,
    previous: BTreeMap<TaskHash, Seq>,
    /// Whether commits are missing.
    is_incomplete: bool,
    was_incomplete: bool,
}

impl RecentCommits {
    fn insert(&mut self, task: TaskHash, position: Seq) {
        if self.current.len() < MAX_RECENT_COMMITS {
            self.current.insert(task, position);
        } else {
            self.is_incomplete = true;
        }
    }

    /// Returns the last commit of a task. 0 if it is not known whether there was one.
    fn get(&self, task: TaskHash) -> Option<Seq> {
        let known = self.current.get(&task).or_else(|| self.previous.get(&task));
        let is_incomplete = self.is_incomplete || self.was_incomplete;
        known.copied().or(is_incomplete.then_some(Seq(0)))
    }

    /// Forgets the older generation.
    fn rotate(&mut self) {
        self.previous = std::mem::take(&mut self.current);
        self.was_incomplete = std::mem::take(&mut self.is_incomplete);
    }
}

impl ClusterBus {
    /// Creates a bus. `id` is unique among the replicas. Messages are exchanged while [`run`](Bus::run) is polled.
    pub(crate) fn new(notifier: Arc<dyn Notifier>, id: u64) -> Self {
        Self {
            id,
            notifier,
            channels: Mutex::default(),
            state: Mutex::default(),
            has_records: Notify::new(),
            is_up: AtomicBool::new(true),
            gaps: watch::Sender::new(0),
        }
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        lock(&self.channels)
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        lock(&self.state)
    }

    /// Queues a record for all replicas.
    fn queue(&self, state: &mut ExchangeState, kind: MessageKind, record: Record) {
        state.outbox.add(kind, record);
        self.has_records.notify_one();
    }

    async fn send_messages(&self, host: &dyn BusHost) -> Infallible {
        loop {
            if self.send_message(host.now()).await {
                continue;
            }
            self.has_records.notified().await;
        }
    }

    /// Sends the next message and waits for the time of another. Returns whether there was one.
    async fn send_message(&self, now: Timestamp) -> bool {
        let Some(content) = self.take_content() else {
            return false;
        };
        if self.publish(&content, now).await {
            sleep(MESSAGE_INTERVAL).await;
        } else {
            // The replicas that it concerns have noticed no gap.
            self.state().outbox.restore(&content);
            sleep(RETRY_INTERVAL).await;
        }
        true
    }

    fn take_content(&self) -> Option<Content> {
        let max_records = max_records(self.notifier.max_bytes());
        self.state().outbox.next(max_records)
    }

    async fn publish(&self, content: &Content, now: Timestamp) -> bool {
        let message = Message {
            sender: self.id,
            sent: now,
            content: content.clone(),
        };
        let bytes = message.encode();
        let published = timeout(PUBLISH_TIMEOUT, self.notifier.publish(&bytes)).await;
        let is_published = matches!(published, Ok(Ok(())));
        if is_published {
            metrics::record_bus_message("sent", content.kind.as_str());
        }
        is_published
    }

    async fn receive_messages(&self, host: &dyn BusHost) -> Infallible {
        loop {
            match self.notifier.receive().await {
                Notification::Message(bytes) => self.receive(&bytes, host),
                Notification::Down => self.set_up(false),
                Notification::Gap => {
                    self.set_up(true);
                    self.renew_interests();
                }
            }
        }
    }

    /// Records whether messages reach the other replicas. Polling starts at once in both cases.
    fn set_up(&self, is_up: bool) {
        if self.is_up.swap(is_up, Ordering::Relaxed) != is_up {
            if is_up {
                tracing::info!("the bus between replicas is up");
            } else {
                tracing::warn!("the bus between replicas is down: logs are polled");
            }
        }
        metrics::record_bus_state(is_up);
        self.gaps.send_modify(|gaps| *gaps += 1);
    }

    fn receive(&self, bytes: &[u8], host: &dyn BusHost) {
        let Some(message) = Message::decode(bytes) else {
            return;
        };
        if message.sender == self.id {
            return;
        }
        let Content { kind, records } = message.content;
        metrics::record_bus_message("received", kind.as_str());
        let age = host.now().as_millis() - message.sent.as_millis();
        metrics::record_bus_latency(Duration::from_millis(u64::try_from(age).unwrap_or(0)));
        match kind {
            MessageKind::Announce | MessageKind::Broadcast => {
                let mut channels = self.channels();
                for record in records {
                    channels.announce_hash(record.task, record.position);
                }
            }
            MessageKind::Interest => self.receive_interests(&records),
            MessageKind::Departure => host.request_heartbeat(),
        }
    }

    /// Records the interest of another replica, and answers with commits that it may have missed.
    fn receive_interests(&self, records: &[Record]) {
        let until = Instant::now() + INTEREST_LIFETIME;
        let mut state = self.state();
        for Record { task, .. } in records {
            let is_known = state.interests.contains_key(task);
            if !is_known && state.interests.len() >= MAX_INTERESTS {
                continue;
            }
            state.interests.insert(*task, until);
            if let Some(position) = state.recent_commits.get(*task) {
                let record = Record {
                    task: *task,
                    position,
                };
                self.queue(&mut state, MessageKind::Announce, record);
            }
        }
    }

    /// Sends the interest in followed tasks again, and forgets what has expired. Runs without end.
    async fn expire_and_renew(&self) -> Infallible {
        let mut ticks = interval(RECENT_COMMITS_LIFETIME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 1_u64.. {
            ticks.tick().await;
            self.state().recent_commits.rotate();
            if tick.is_multiple_of(ROTATIONS_PER_INTEREST) {
                let now = Instant::now();
                self.state().interests.retain(|_, until| *until > now);
                self.renew_interests();
            }
        }
        std::future::pending().await
    }

    fn renew_interests(&self) {
        let channels = self.channels();
        let mut state = self.state();
        state
            .requested
            .retain(|task| channels.is_hash_watched(*task));
        let requested: Vec<TaskHash> = state.requested.iter().copied().collect();
        for task in requested {
            let position = Seq(0);
            self.queue(&mut state, MessageKind::Interest, Record { task, position });
        }
    }
}

impl Bus for ClusterBus {
    fn announce(&self, task: &TaskId, at: Seq) {
        self.channels().announce(task, at);
        let record = Record {
            task: TaskHash::from(task),
            position: at,
        };
        let mut state = self.state();
        if state.interests.contains_key(&record.task) {
            self.queue(&mut state, MessageKind::Announce, record);
        } else {
            state.recent_commits.insert(record.task, at);
        }
    }

    fn announce_to_all(&self, task: &TaskId, at: Seq) {
        self.channels().announce(task, at);
        let record = Record {
            task: TaskHash::from(task),
            position: at,
        };
        self.queue(&mut self.state(), MessageKind::Broadcast, record);
    }

    fn announce_locally(&self, task: &TaskId, at: Seq) {
        // As from another replica: the channel may have the position of a task with an equal hash.
        self.channels().announce_hash(TaskHash::from(task), at);
    }

    fn request_announcements(&self, task: &TaskId) {
        let task = TaskHash::from(task);
        let mut state = self.state();
        if state.requested.insert(task) {
            let position = Seq(0);
            self.queue(&mut state, MessageKind::Interest, Record { task, position });
        }
    }

    fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    fn gaps(&self) -> Option<watch::Receiver<u64>> {
        Some(self.gaps.subscribe())
    }

    fn is_watched(&self, task: &TaskId) -> bool {
        self.channels().is_watched(task)
    }

    fn watch(&self, task: &TaskId) -> watch::Receiver<Seq> {
        self.channels().watch(task)
    }

    fn run<'a>(&'a self, host: &'a dyn BusHost) -> BusFuture<'a, Infallible> {
        Box::pin(async move {
            metrics::record_bus_state(self.is_up());
            let send = self.send_messages(host);
            let receive = self.receive_messages(host);
            let renew = self.expire_and_renew();
            let (never, _, _) = tokio::join!(biased; send, receive, renew);
            never
        })
    }

    fn announce_departure(&self, now: Timestamp) -> BusFuture<'_, ()> {
        Box::pin(async move {
            self.state().outbox.add_departure();
            let send_all = async {
                while let Some(content) = self.take_content() {
                    if !self.publish(&content, now).await {
                        return;
                    }
                }
            };
            let _ = timeout(DEPARTURE_TIMEOUT, send_all).await;
        })
    }
}
