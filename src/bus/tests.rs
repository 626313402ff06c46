//! Tests of the bus between replicas, with paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::message::{Content, Message, MessageKind, Record, TaskHash};
use super::test_network::{TestNetwork, TestNotifier};
use super::{Bus, BusHost, ClusterBus};
use crate::model::{Seq, TaskId, Timestamp};
use crate::store::Notification;

/// Time in which a message certainly arrives.
const DELIVERY: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Host {
    heartbeats: AtomicUsize,
}

impl BusHost for Host {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn request_heartbeat(&self) {
        self.heartbeats.fetch_add(1, Ordering::Relaxed);
    }
}

/// Running bus of one replica.
struct Replica {
    bus: Arc<ClusterBus>,
    notifier: Arc<TestNotifier>,
    host: Arc<Host>,
    running: AbortOnDropHandle<()>,
}

impl Replica {
    fn start(network: &Arc<TestNetwork>, id: u64) -> Self {
        Self::with_limit(network, id, 4096)
    }

    fn with_limit(network: &Arc<TestNetwork>, id: u64, max_bytes: usize) -> Self {
        let notifier = network.notifier(max_bytes);
        let bus = Arc::new(ClusterBus::new(notifier.clone(), id));
        let host = Arc::new(Host::default());
        let running = {
            let bus = bus.clone();
            let host = host.clone();
            TaskTracker::new().spawn(async move { match bus.run(&*host).await {} })
        };
        Self {
            bus,
            notifier,
            host,
            running: AbortOnDropHandle::new(running),
        }
    }

    /// Subscribes to a task of another replica.
    fn follow(&self, task: &TaskId) -> watch::Receiver<Seq> {
        let mut receiver = self.bus.watch(task);
        receiver.mark_unchanged();
        self.bus.request_announcements(task);
        receiver
    }
}

fn task(number: usize) -> TaskId {
    format!("task-{number}").into()
}

/// Waits for an announcement and returns its position.
async fn announced(receiver: &mut watch::Receiver<Seq>) -> Seq {
    let changed = timeout(DELIVERY, receiver.changed()).await;
    changed.expect("announced").unwrap();
    *receiver.borrow()
}

/// Decodes the messages that were sent since the last call.
fn sent(network: &TestNetwork) -> Vec<Content> {
    let messages = network.take_sent();
    let decoded = messages.iter().map(|bytes| Message::decode(bytes).unwrap());
    decoded.map(|message| message.content).collect()
}

fn kinds(network: &TestNetwork) -> Vec<MessageKind> {
    let sent = sent(network);
    sent.iter().map(|content| content.kind).collect()
}

#[tokio::test(start_paused = true)]
async fn commits_are_announced_to_replicas_with_followers_alone() {
    let network = Arc::<TestNetwork>::default();
    let holder = Replica::start(&network, 1);
    let other = Replica::start(&network, 2);
    let mut local = holder.bus.watch(&task(1));
    holder.bus.announce(&task(1), Seq(1));
    assert_eq!(announced(&mut local).await, Seq(1));
    sleep(DELIVERY).await;
    assert_eq!(kinds(&network), [], "no replica is interested");
    sleep(Duration::from_secs(10)).await;
    let mut followed = other.follow(&task(1));
    let mut unrelated = other.bus.watch(&task(2));
    sleep(DELIVERY).await;
    assert_eq!(kinds(&network), [MessageKind::Interest]);
    assert!(!followed.has_changed().unwrap(), "nothing was missed");
    holder.bus.announce(&task(1), Seq(2));
    holder.bus.announce(&task(2), Seq(2));
    assert_eq!(announced(&mut followed).await, Seq(2));
    assert_eq!(kinds(&network), [MessageKind::Announce]);
    assert!(!unrelated.has_changed().unwrap());
    // A command to another replica's task needs no interest.
    holder.bus.announce_to_all(&task(2), Seq(3));
    assert_eq!(announced(&mut unrelated).await, Seq(3));
    assert_eq!(kinds(&network), [MessageKind::Broadcast]);
    assert_eq!(other.host.heartbeats.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_commit_between_the_read_and_the_interest_is_announced() {
    let network = Arc::<TestNetwork>::default();
    let holder = Replica::start(&network, 1);
    let other = Replica::start(&network, 2);
    sleep(DELIVERY).await;
    holder.bus.announce(&task(1), Seq(7));
    sleep(Duration::from_secs(1)).await;
    let mut followed = other.follow(&task(1));
    assert_eq!(announced(&mut followed).await, Seq(7));
    // More commits than are remembered: every interest is answered.
    for number in 0..40_000 {
        holder.bus.announce(&task(number), Seq(1));
    }
    let mut followed = other.follow(&task(39_999));
    announced(&mut followed).await;
}

#[tokio::test(start_paused = true)]
async fn interest_lasts_as_long_as_its_followers() {
    let network = Arc::<TestNetwork>::default();
    let holder = Replica::start(&network, 1);
    let other = Replica::start(&network, 2);
    let mut followed = other.follow(&task(1));
    for position in 1..10 {
        sleep(Duration::from_secs(20)).await;
        holder.bus.announce(&task(1), Seq(position));
        assert_eq!(announced(&mut followed).await, Seq(position));
    }
    drop(followed);
    sleep(Duration::from_secs(60)).await;
    network.take_sent();
    holder.bus.announce(&task(1), Seq(10));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(kinds(&network), []);
}

#[tokio::test(start_paused = true)]
async fn announcements_are_merged_and_messages_are_limited() {
    let network = Arc::<TestNetwork>::default();
    let holder = Replica::start(&network, 1);
    let other = Replica::with_limit(&network, 2, 100);
    let mut followed = other.follow(&task(1));
    sleep(DELIVERY).await;
    network.take_sent();
    for position in 1..=1_000 {
        holder.bus.announce(&task(1), Seq(position));
    }
    assert_eq!(announced(&mut followed).await, Seq(1_000));
    let messages = sent(&network);
    let task_1 = Record {
        task: TaskHash::from(&task(1)),
        position: Seq(1_000),
    };
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].records, [task_1]);
    let receivers: Vec<_> = (2..12).map(|number| other.follow(&task(number))).collect();
    sleep(Duration::from_millis(50)).await;
    let messages = sent(&network);
    let records = messages.iter().map(|content| content.records.len());
    assert_eq!(
        records.collect::<Vec<_>>(),
        [4, 4, 2],
        "the limit of its notifier"
    );
    drop(receivers);
}

#[tokio::test(start_paused = true)]
async fn a_gap_repeats_the_interest_and_is_reported() {
    let network = Arc::<TestNetwork>::default();
    let holder = Replica::start(&network, 1);
    let other = Replica::start(&network, 2);
    let mut gaps = other.bus.gaps().unwrap();
    network.lose(true);
    let mut followed = other.follow(&task(1));
    sleep(DELIVERY).await;
    network.lose(false);
    assert_eq!(kinds(&network), [MessageKind::Interest]);
    other.notifier.inject(Notification::Down);
    sleep(DELIVERY).await;
    assert!(!other.bus.is_up());
    assert!(gaps.has_changed().unwrap(), "polling starts at once");
    gaps.mark_unchanged();
    other.notifier.inject(Notification::Gap);
    sleep(DELIVERY).await;
    assert!(other.bus.is_up());
    assert!(gaps.has_changed().unwrap());
    assert_eq!(kinds(&network), [MessageKind::Interest]);
    holder.bus.announce(&task(1), Seq(1));
    assert_eq!(announced(&mut followed).await, Seq(1));
}

#[tokio::test(start_paused = true)]
async fn records_of_a_refused_message_are_sent_later() {
    let network = Arc::<TestNetwork>::default();
    let holder = Replica::start(&network, 1);
    let other = Replica::start(&network, 2);
    let mut watched = holder.bus.watch(&task(1));
    other.notifier.refuse(true);
    other.bus.announce_to_all(&task(1), Seq(4));
    sleep(Duration::from_secs(1)).await;
    other.bus.announce_to_all(&task(1), Seq(5));
    assert!(!watched.has_changed().unwrap());
    other.notifier.refuse(false);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(announced(&mut watched).await, Seq(5));
    assert_eq!(kinds(&network).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_kinds_damaged_and_repeated_messages_do_no_harm() {
    let network = Arc::<TestNetwork>::default();
    let holder = Replica::start(&network, 1);
    let other = Replica::start(&network, 2);
    let message = Message {
        sender: 3,
        sent: Timestamp::default(),
        content: Content {
            kind: MessageKind::Broadcast,
            records: Vec::new(),
        },
    };
    let mut unknown = message.encode();
    unknown[1] = b'R';
    for bytes in [Vec::new(), vec![1], unknown, vec![0xff; 300]] {
        other.notifier.inject(Notification::Message(bytes));
    }
    network.repeat(true);
    let mut followed = other.follow(&task(1));
    sleep(DELIVERY).await;
    holder.bus.announce(&task(1), Seq(1));
    assert_eq!(announced(&mut followed).await, Seq(1));
    sleep(DELIVERY).await;
    assert_eq!(*followed.borrow(), Seq(1));
}

#[tokio::test(start_paused = true)]
async fn a_departure_sends_the_rest_and_triggers_heartbeats() {
    let network = Arc::<TestNetwork>::default();
    let leaving = Replica::start(&network, 1);
    let other = Replica::start(&network, 2);
    let mut followed = other.follow(&task(1));
    sleep(DELIVERY).await;
    network.take_sent();
    drop(leaving.running);
    leaving.bus.announce(&task(1), Seq(3));
    leaving.bus.announce_departure(Timestamp::default()).await;
    assert_eq!(
        kinds(&network),
        [MessageKind::Announce, MessageKind::Departure]
    );
    assert_eq!(announced(&mut followed).await, Seq(3));
    sleep(DELIVERY).await;
    assert_eq!(other.host.heartbeats.load(Ordering::Relaxed), 1);
}
