//! Several engines on one shared store (R11, R18, R21–R25).

use super::harness::*;
use super::network_store::NetworkStore;
use super::*;
use crate::bus::ClusterBus;
use crate::bus::test_network::{TestNetwork, TestNotifier};
use crate::model::Version;
use crate::store::{Holder, MemoryReplica};

const LEASE: Duration = Duration::from_secs(3);

/// Time after which a silent replica is evicted and its tasks are taken over.
const TAKEOVER: Duration = Duration::from_secs(5);

/// Replicas on one store, with a bus between them.
struct Cluster {
    first: MemoryReplica,
    network: Arc<TestNetwork>,
    settings: Settings,
    replicas: u64,
}

/// One engine with its agent and its connection to the store.
struct Replica {
    engine: Engine,
    agent: ScriptedAgent,
    store: Arc<NetworkStore>,
    notifier: Arc<TestNotifier>,
}

impl Cluster {
    fn new(settings: Settings) -> Self {
        let time = Timestamp::from_millis(1_000_000).unwrap();
        Self {
            first: Memory::shared(LEASE, time),
            network: Arc::default(),
            settings,
            replicas: 0,
        }
    }

    /// Creates two replicas that have joined.
    async fn pair(settings: Settings) -> (Replica, Replica) {
        let mut cluster = Self::new(settings);
        (cluster.join().await, cluster.join().await)
    }

    /// Adds a replica and waits until it has joined.
    async fn join(&mut self) -> Replica {
        let replica = self.add();
        replica.run_membership();
        within_deadline(replica.engine.inner.lease.wait_until_valid()).await;
        replica
    }

    /// Adds a replica that has not joined.
    fn add(&mut self) -> Replica {
        self.replicas += 1;
        let store = NetworkStore::new(self.first.replica());
        let agent = ScriptedAgent::default();
        let notifier = self.network.notifier(4096);
        let engine = Engine::new(EngineConfig {
            store: store.clone(),
            bus: Arc::new(ClusterBus::new(notifier.clone(), self.replicas)),
            agents: AgentRegistry::single(agent.clone()),
            clock: Arc::new(ReplicaClock {
                replica: self.replicas,
                ids: AtomicU64::new(0),
            }),
            settings: self.settings.clone(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        Replica {
            engine,
            agent,
            store,
            notifier,
        }
    }
}

/// Constant clock with ids that are unique among replicas.
struct ReplicaClock {
    replica: u64,
    ids: AtomicU64,
}

impl Clock for ReplicaClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000_000).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn new_id(&self, _: Timestamp) -> Arc<str> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}-{id:06}", self.replica).into()
    }
}

impl Replica {
    fn run_membership(&self) {
        let engine = self.engine.clone();
        let stop = engine.inner.stop.clone();
        let tracker = engine.inner.tracker.clone();
        let membership = async move { match engine.run_membership().await {} };
        tracker.spawn(crate::rt::cancel::run_until(stop, Box::pin(membership)));
    }

    /// Returns the head of a task as this replica sees it.
    async fn head(&self, task: &Head) -> Head {
        let found = within_deadline(self.engine.find(&task.scope, &task.id)).await;
        found.unwrap().unwrap()
    }

    /// Ends the process without a departure.
    async fn kill(&self) {
        shut_down(&self.engine).await;
    }

    /// Waits until a task has ended, and returns it.
    async fn await_end(&self, task: &Head) -> Task {
        let mut follow = self.engine.follow(task, Seq(0));
        let mut log = crate::engine::folded_log::FoldedLog::empty();
        while !log.task.is_ended() {
            for entry in within_lease(follow.next()).await.unwrap() {
                assert_eq!(entry.seq.0, log.position.0 + 1, "no gap and no repeat");
                log.apply(&entry).unwrap();
            }
        }
        Arc::unwrap_or_clone(log.task)
    }

    async fn send_to(&self, task: &Head, text: &str) -> Result<Task> {
        let head = self.head(task).await;
        send_to(&self.engine, &head, text).await
    }

    async fn cancel(&self, task: &Head) -> Result<Task> {
        let head = self.head(task).await;
        within_lease(self.engine.cancel(&head, None)).await
    }
}

/// Waits longer than an eviction takes.
async fn within_lease<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(120), future)
        .await
        .expect("within the deadline")
}

fn run_again() -> Settings {
    Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 3 },
        ..Settings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn r21_a_message_to_another_replicas_task_has_its_turn_there() {
    let (holder, other) = Cluster::pair(Settings::default()).await;
    let first = start(&holder.engine, "gate ask").await;
    let task = first.head.clone();
    let head = other.head(&task).await;
    assert_eq!(head.holder, Holder::Remote);
    let second = within_deadline(
        other
            .engine
            .continue_task(call(), &head, message("done"), None),
    )
    .await
    .unwrap();
    assert_eq!(second.turn(), 2);
    holder.agent.gate.add_permits(1);
    let answered = within_deadline(other.engine.await_turn_result(second)).await;
    assert_eq!(answered.unwrap().status.state, TaskState::Completed);
    assert_eq!(holder.agent.received(), ["gate ask", "done"]);
    assert!(other.agent.received().is_empty());
    assert_eq!(
        log_summary(&other.engine, &task).await,
        [
            "created",
            "message gate ask",
            "turn",
            "working",
            "message done",
            "input_required",
            "end",
            "turn",
            "working",
            "completed",
            "end"
        ]
    );
    assert!(matches!(
        other.send_to(&task, "late").await,
        Err(Error::Ended(TaskState::Completed))
    ));
}

#[tokio::test(start_paused = true)]
async fn r21_a_remote_message_keeps_its_version_and_extensions() {
    let (holder, other) = Cluster::pair(Settings::default()).await;
    let task = start(&holder.engine, "gate ask").await.head;
    let head = other.head(&task).await;
    let mut remote = call();
    remote.version = Version::V03;
    remote.extensions.push("urn:e".into());
    within_deadline(
        other
            .engine
            .continue_task(remote, &head, message("hang"), None),
    )
    .await
    .unwrap();
    let head = holder.head(&task).await;
    let log = within_deadline(holder.engine.inner.journal.log(&head)).await;
    let log = log.unwrap();
    let metadata = log.call_metadata(2).unwrap();
    assert_eq!(metadata.version, Version::V03);
    assert_eq!(metadata.extensions, ["urn:e"]);
    assert!(
        log.call_metadata(1).is_none(),
        "a plain call is not recorded"
    );
}

#[tokio::test(start_paused = true)]
async fn r21_the_limits_of_a_task_apply_to_remote_messages() {
    let settings = Settings {
        max_waiting_messages: 2,
        max_task_bytes: 20_000,
        ..Settings::default()
    };
    let (holder, other) = Cluster::pair(settings).await;
    let task = start(&holder.engine, "hang").await.head;
    let head = other.head(&task).await;
    let send = async |text: &str, key| {
        within_deadline(
            other
                .engine
                .continue_task(call(), &head, message(text), key),
        )
        .await
    };
    let large = "x".repeat(30_000);
    assert!(matches!(send(&large, None).await, Err(Error::TooLarge)));
    let first = send("one", key("k", 1)).await.unwrap();
    let again = send("one", key("k", 1)).await.unwrap();
    assert_eq!(again.turn(), first.turn(), "a repeated key is not recorded");
    let reused = send("other", key("k", 2)).await;
    assert!(matches!(reused, Err(Error::Store(store::Error::KeyReused))));
    send("two", None).await.unwrap();
    assert!(matches!(send("three", None).await, Err(Error::Overloaded)));
    assert_eq!(
        log_summary(&other.engine, &task).await[4..],
        ["message one", "message two"]
    );
}

#[tokio::test(start_paused = true)]
async fn r21_a_cancel_on_another_replica_ends_the_turn_with_its_grace() {
    let (holder, other) = Cluster::pair(Settings::default()).await;
    for (text, entries) in [
        ("hang", &["cancel", "canceled", "end"][..]),
        (
            "listen write",
            &["cancel", "artifact false true", "canceled", "end"][..],
        ),
    ] {
        let task = start(&holder.engine, text).await.head;
        yield_until_idle().await;
        let canceled = other.cancel(&task).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        assert_eq!(log_summary(&other.engine, &task).await[4..], *entries);
        let again = other.cancel(&task).await;
        assert!(matches!(again, Err(Error::Ended(TaskState::Canceled))));
    }
    assert_eq!(holder.agent.received(), ["hang", "listen write"]);
}

#[tokio::test(start_paused = true)]
async fn r18_a_remote_cancel_and_a_completion_agree() {
    let (holder, other) = Cluster::pair(Settings::default()).await;
    for round in 0..100 {
        let task = start(&holder.engine, "gate done").await.head;
        let cancel = async {
            for _ in 0..round % 7 {
                tokio::task::yield_now().await;
            }
            other.cancel(&task).await
        };
        let complete = async {
            for _ in 0..round % 11 {
                tokio::task::yield_now().await;
            }
            holder.agent.gate.add_permits(1);
        };
        let (canceled, ()) = tokio::join!(cancel, complete);
        let ended = other.await_end(&task).await.status.state;
        match canceled {
            Ok(task) => assert_eq!((task.status.state, ended), (TaskState::Canceled, ended)),
            Err(Error::Ended(state)) => assert_eq!(state, ended),
            Err(error) => panic!("{error}"),
        }
        check_invariants(&other.engine, &task).await;
        // The permit of a canceled turn is left.
        while let Ok(permit) = holder.agent.gate.try_acquire() {
            permit.forget();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r21_a_parked_task_is_continued_by_any_replica() {
    let (one, other) = Cluster::pair(Settings::default()).await;
    let (task, asked) = send(&one.engine, "ask").await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    assert_eq!(other.head(&task).await.holder, Holder::None);
    let asked = other.send_to(&task, "ask").await.unwrap();
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let done = one.send_to(&task, "done").await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
    assert_eq!(one.agent.received(), ["ask", "done"]);
    assert_eq!(other.agent.received(), ["ask"]);
    let (task, _) = send(&one.engine, "ask").await;
    let canceled = other.cancel(&task).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn r21_messages_to_a_task_that_parks_are_all_answered() {
    let (one, other) = Cluster::pair(Settings::default()).await;
    for round in 0..1_000 {
        let (task, _) = send(&one.engine, "ask").await;
        let send = async |replica: &Replica, yields: usize| {
            let head = replica.head(&task).await;
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            let engine = &replica.engine;
            let accepted = engine
                .continue_task(call(), &head, message("ask"), None)
                .await;
            within_deadline(engine.await_turn_result(accepted.unwrap())).await
        };
        let (first, second) = tokio::join!(send(&one, round % 13), send(&other, round % 17));
        for asked in [first, second] {
            assert_eq!(asked.unwrap().status.state, TaskState::InputRequired);
        }
        yield_until_idle().await;
        let log = log_summary(&one.engine, &task).await;
        let count = |word: &str| log.iter().filter(|entry| *entry == word).count();
        assert_eq!(
            (count("message ask"), count("turn"), count("end")),
            (3, 3, 3),
            "round {round}: {log:?}"
        );
        assert_eq!(one.head(&task).await.holder, Holder::None, "round {round}");
    }
    wait_until_idle_beside_membership(&one).await;
    wait_until_idle_beside_membership(&other).await;
}

/// Checks that no task is active.
async fn wait_until_idle_beside_membership(replica: &Replica) {
    yield_until_idle().await;
    assert!(replica.engine.inner.journal.active_tasks.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn r22_tasks_of_a_killed_replica_end_by_policy() {
    for (settings, state) in [
        (Settings::default(), TaskState::Failed),
        (run_again(), TaskState::Completed),
    ] {
        let (killed, survivor) = Cluster::pair(settings).await;
        let task = start(&killed.engine, "gate say done").await.head;
        let followed = survivor.head(&task).await;
        survivor.agent.gate.add_permits(1);
        let (ended, ()) = tokio::join!(survivor.await_end(&followed), killed.kill());
        assert_eq!(ended.status.state, state);
        assert_eq!(check_invariants(&survivor.engine, &task).await, ended);
    }
}

#[tokio::test(start_paused = true)]
async fn r22_a_task_that_waited_for_a_permit_runs_after_a_takeover() {
    let settings = Settings {
        max_turns: 1,
        ..Settings::default()
    };
    let (killed, survivor) = Cluster::pair(settings).await;
    let running = start(&killed.engine, "hang").await.head;
    let waiting = start(&killed.engine, "done").await.head;
    killed.kill().await;
    let ended = survivor.await_end(&running).await;
    assert_eq!(ended.status.state, TaskState::Failed, "it was interrupted");
    let ended = survivor.await_end(&waiting).await;
    assert_eq!(ended.status.state, TaskState::Completed);
    assert_eq!(survivor.agent.received(), ["done"]);
}

#[tokio::test(start_paused = true)]
async fn r22_a_requested_cancel_survives_its_holder() {
    let (killed, survivor) = Cluster::pair(run_again()).await;
    let task = start(&killed.engine, "listen hang").await.head;
    yield_until_idle().await;
    let cancel = survivor.cancel(&task);
    let kill = async {
        yield_until_idle().await;
        killed.kill().await;
    };
    let (canceled, ()) = tokio::join!(cancel, kill);
    assert_eq!(canceled.unwrap().status.state, TaskState::Canceled);
    assert!(survivor.agent.received().is_empty(), "it is not run again");
    assert_eq!(
        log_summary(&survivor.engine, &task).await[4..],
        ["cancel", "canceled", "end"]
    );
}

#[tokio::test(start_paused = true)]
async fn r11_a_replica_that_leaves_hands_its_tasks_over_at_once() {
    let (leaving, staying) = Cluster::pair(run_again()).await;
    let task = start(&leaving.engine, "gate done").await.head;
    staying.agent.gate.add_permits(1);
    leaving.kill().await;
    let left = tokio::time::Instant::now();
    within_deadline(leaving.engine.leave_cluster())
        .await
        .unwrap();
    let ended = staying.await_end(&task).await;
    assert_eq!(ended.status.state, TaskState::Completed);
    assert!(left.elapsed() <= LEASE / 6, "within one heartbeat");
}

#[tokio::test(start_paused = true)]
async fn r24_a_partitioned_replica_refuses_calls_and_its_turn_is_superseded() {
    let (cut, other) = Cluster::pair(run_again()).await;
    let task = start(&cut.engine, "gate say done").await.head;
    let tracker = &cut.engine.inner.tracker;
    let stream = tracker.spawn(follow_to_end(cut.engine.follow(&task, Seq(0))));
    yield_until_idle().await;
    cut.store.set_connected(false);
    tokio::time::sleep(TAKEOVER).await;
    let refused = cut.engine.start(call(), initial_message("done")).await;
    assert!(matches!(refused, Err(Error::StoreUnavailable)), "at once");
    assert!(cut.engine.check().await.is_err(), "not ready");
    other.agent.gate.add_permits(1);
    let ended = other.await_end(&task).await;
    assert_eq!(ended.status.state, TaskState::Completed);
    // The former holder does not notice before the network is healed.
    cut.agent.gate.add_permits(1);
    cut.store.set_connected(true);
    let seen = within_lease(stream).await.unwrap();
    assert!(
        seen.iter()
            .map(|entry| entry.seq.0)
            .eq(1..=seen.len() as u64)
    );
    assert_eq!(cut.agent.running(&task.id), 0);
    assert_eq!(check_invariants(&cut.engine, &task).await, ended);
    let log = log_summary(&other.engine, &task).await;
    assert_eq!(
        log[2..],
        ["turn", "working", "turn", "working", "completed", "end"],
        "the former holder has appended nothing"
    );
    let (_, done) = send(&cut.engine, "done").await;
    assert_eq!(done.status.state, TaskState::Completed, "under a new id");
}

#[tokio::test(start_paused = true)]
async fn r25_a_turn_continues_after_an_outage_of_the_store() {
    for (policy, attempts) in [(LeaseExpiryPolicy::Pause, 1), (LeaseExpiryPolicy::Stop, 2)] {
        let settings = Settings {
            on_lease_expiry: policy,
            ..run_again()
        };
        let mut cluster = Cluster::new(settings);
        let only = cluster.join().await;
        let task = start(&only.engine, "gate write done").await.head;
        yield_until_idle().await;
        only.store.set_connected(false);
        tokio::time::sleep(Duration::from_secs(12)).await;
        only.agent.gate.add_permits(attempts);
        yield_until_idle().await;
        let running = only.agent.running(&task.id);
        let is_paused = policy == LeaseExpiryPolicy::Pause;
        assert_eq!(running, u32::from(is_paused), "the agent is not polled");
        only.store.set_connected(true);
        let ended = only.await_end(&task).await;
        assert_eq!(ended.status.state, TaskState::Completed);
        let log = log_summary(&only.engine, &task).await;
        let turns = log.iter().filter(|entry| *entry == "turn").count();
        assert_eq!(turns, attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn r23_commands_to_a_superseded_runner_reach_the_new_holder() {
    let (cut, other) = Cluster::pair(run_again()).await;
    let task = start(&cut.engine, "gate ask").await.head;
    yield_until_idle().await;
    let head = cut.head(&task).await;
    cut.store.set_connected(false);
    // Accepted by the runner before its lease has expired, and not durable.
    let engine = cut.engine.clone();
    let queued = cut.engine.inner.tracker.spawn(async move {
        engine
            .continue_task(call(), &head, message("done"), None)
            .await
    });
    tokio::time::sleep(TAKEOVER).await;
    other.agent.gate.add_permits(1);
    yield_until_idle().await;
    assert_eq!(other.head(&task).await.state, TaskState::InputRequired);
    cut.store.set_connected(true);
    let accepted = within_lease(queued).await.unwrap().unwrap();
    let done = within_lease(cut.engine.await_turn_result(accepted)).await;
    assert_eq!(done.unwrap().status.state, TaskState::Completed);
    let log = log_summary(&other.engine, &task).await;
    let messages = log.iter().filter(|entry| *entry == "message done").count();
    assert_eq!(messages, 1, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn r22_a_create_whose_answer_was_lost_is_recovered_by_its_replica() {
    let mut cluster = Cluster::new(run_again());
    let replica = cluster.join().await;
    replica.store.lose_answers(true);
    let created = within_lease(replica.engine.start(
        call(),
        InitialMessage {
            key: key("k", 1),
            ..initial_message("done")
        },
    ))
    .await;
    assert!(created.is_err());
    replica.store.lose_answers(false);
    let heads = async || {
        replica
            .engine
            .list(
                &scope(),
                &TaskQuery {
                    limit: 9,
                    ..TaskQuery::default()
                },
            )
            .await
            .unwrap()
            .tasks
    };
    let task = heads().await.pop().expect("the task was created");
    let ended = replica.await_end(&task).await;
    assert_eq!(ended.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn followers_on_another_replica_share_one_read_per_commit() {
    let (holder, other) = Cluster::pair(Settings::default()).await;
    let task = start(&holder.engine, "gate write gate write gate write done")
        .await
        .head;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..100 {
        streams.spawn(follow_to_end(other.engine.follow(&task, Seq(0))));
    }
    yield_until_idle().await;
    for commit in 0..3 {
        let before = other.store.reads();
        holder.agent.gate.add_permits(1);
        for _ in 0..5 {
            yield_until_idle().await;
        }
        let reads = other.store.reads() - before;
        assert!(reads <= 4, "{reads} reads after commit {commit}");
    }
    for seen in within_deadline(streams.join_all()).await {
        assert!(seen.iter().map(|entry| entry.seq.0).eq(1..=9), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r25_an_engine_starts_without_its_store_and_joins_later() {
    let replica = Cluster::new(Settings::default()).add();
    replica.store.set_connected(false);
    within_deadline(replica.engine.recover()).await.unwrap();
    replica.run_membership();
    let engine = replica.engine.clone();
    let maintenance = async move { match engine.run_maintenance().await {} };
    let stop = replica.engine.inner.stop.clone();
    let tracker = &replica.engine.inner.tracker;
    tracker.spawn(crate::rt::cancel::run_until(stop, Box::pin(maintenance)));
    let refused = within_deadline(replica.engine.start(call(), initial_message("done"))).await;
    assert!(matches!(refused, Err(Error::StoreUnavailable)));
    assert!(within_deadline(replica.engine.check()).await.is_err());
    replica.store.set_connected(true);
    within_lease(replica.engine.inner.lease.wait_until_valid()).await;
    within_deadline(replica.engine.check()).await.unwrap();
    let task = start(&replica.engine, "done").await.head;
    let ended = replica.await_end(&task).await;
    assert_eq!(ended.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn one_replica_sweeps_per_interval() {
    let settings = Settings {
        max_tasks: Some(0),
        ..Settings::default()
    };
    let interval = settings.sweep_every;
    let (one, other) = Cluster::pair(settings).await;
    within_deadline(one.engine.sweep_if_due(interval))
        .await
        .unwrap();
    let task = start(&one.engine, "done").await.head;
    one.await_end(&task).await;
    within_deadline(other.engine.sweep_if_due(interval))
        .await
        .unwrap();
    let found = within_deadline(other.engine.find(&task.scope, &task.id)).await;
    assert!(found.unwrap().is_some(), "the other replica has swept");
    tokio::time::sleep(interval).await;
    within_deadline(other.engine.sweep_if_due(interval))
        .await
        .unwrap();
    let found = within_deadline(other.engine.find(&task.scope, &task.id)).await;
    assert!(found.unwrap().is_none());
}

/// Time between a commit of the holder and its entry at a follower on another replica.
async fn follower_latency(holder: &Replica, other: &Replica) -> Duration {
    let task = start(&holder.engine, "gate write done").await.head;
    let mut follow = other.engine.follow(&task, Seq(0));
    // Up to the state `working`.
    let mut last = 0;
    while last < 4 {
        let entries = within_lease(follow.next()).await.unwrap();
        last = entries.last().unwrap().seq.0;
    }
    // The follower waits, and its interest has arrived.
    let waiting = holder.engine.inner.tracker.spawn(async move {
        let next = within_lease(follow.next()).await.unwrap();
        assert_eq!(next[0].seq.0, 5);
    });
    tokio::time::sleep(Duration::from_millis(3_333)).await;
    let started = tokio::time::Instant::now();
    holder.agent.gate.add_permits(1);
    waiting.await.unwrap();
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn r21_events_and_commands_reach_other_replicas_by_message_or_by_polling() {
    let mut cluster = Cluster::new(Settings::default());
    let holder = cluster.join().await;
    let other = cluster.join().await;
    let by_message = follower_latency(&holder, &other).await;
    assert!(by_message < Duration::from_millis(10), "{by_message:?}");
    // All messages are lost, unnoticed.
    cluster.network.lose(true);
    let by_polling = follower_latency(&holder, &other).await;
    let polling = Duration::from_millis(10)..Duration::from_millis(2_100);
    assert!(polling.contains(&by_polling), "{by_polling:?}");
    let task = start(&holder.engine, "hang").await.head;
    let canceled = other.cancel(&task).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    // The notifiers have noticed it.
    for replica in [&holder, &other] {
        replica.notifier.inject(store::Notification::Down);
    }
    let by_fast_polling = follower_latency(&holder, &other).await;
    assert!(
        by_fast_polling < Duration::from_millis(300),
        "{by_fast_polling:?}"
    );
    cluster.network.lose(false);
    for replica in [&holder, &other] {
        replica.notifier.inject(store::Notification::Gap);
    }
    let by_message = follower_latency(&holder, &other).await;
    assert!(by_message < Duration::from_millis(10), "{by_message:?}");
}

#[tokio::test(start_paused = true)]
async fn a_repeating_network_repeats_no_entry() {
    let mut cluster = Cluster::new(Settings::default());
    cluster.network.repeat(true);
    let holder = cluster.join().await;
    let other = cluster.join().await;
    let task = start(&holder.engine, "gate write gate write done")
        .await
        .head;
    let follow = follow_to_end(other.engine.follow(&task, Seq(0)));
    holder.agent.gate.add_permits(2);
    let seen = within_deadline(follow).await;
    assert!(
        seen.iter()
            .map(|entry| entry.seq.0)
            .eq(1..=seen.len() as u64)
    );
    let late = other.send_to(&task, "late").await;
    assert!(matches!(late, Err(Error::Ended(_))));
}
