//! Snapshots and caches: reads, resumes and restarts of long logs read few entries, and saving delays no caller.

use super::harness::*;
use super::*;

/// Returns a script that writes `number` chunks and then executes `then`.
fn chunks(number: usize, then: &str) -> String {
    "chunk ".repeat(number) + then
}

fn entries_read(store: &FaultyStore) -> u64 {
    store.entries_read.load(Ordering::SeqCst)
}

fn snapshots_saved(store: &FaultyStore) -> u64 {
    store.snapshots_saved.load(Ordering::SeqCst)
}

async fn find_head(engine: &Engine, head: &Head) -> Head {
    engine.find(&head.scope, &head.id).await.unwrap().unwrap()
}

/// Finds the task and returns its current state.
async fn current_task(engine: &Engine, head: &Head) -> Arc<Task> {
    let head = find_head(engine, head).await;
    engine.task(&head).await.unwrap().0
}

fn text(task: &Task) -> usize {
    task.artifacts
        .iter()
        .map(|artifact| artifact.as_text().len())
        .sum()
}

#[tokio::test(start_paused = true)]
async fn a_task_of_ten_thousand_chunks_is_read_from_its_snapshot() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (head, task) = send(&engine, &chunks(10_000, "done")).await;
    wait_until_idle(&engine).await;
    assert!(
        (1..=6).contains(&snapshots_saved(&store)),
        "{} snapshots were saved",
        snapshots_saved(&store)
    );
    for engine in [
        engine,
        engine_on(store.clone(), ScriptedAgent::default(), Settings::default()),
    ] {
        let before = entries_read(&store);
        assert_eq!(*current_task(&engine, &head).await, task);
        assert!(
            entries_read(&store) - before <= 1,
            "{} entries were read",
            entries_read(&store) - before
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r14_a_replayed_key_does_not_read_the_log() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let first = || InitialMessage {
        key: key("first", 1),
        ..initial_message(&chunks(5_000, "ask"))
    };
    let accepted = within_deadline(engine.start(call(), first()))
        .await
        .unwrap();
    let head = accepted.head.clone();
    within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    let second = message(&chunks(5_000, "ask"));
    let accepted =
        within_deadline(engine.continue_task(call(), &head, second.clone(), key("second", 2)))
            .await
            .unwrap();
    within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    wait_until_idle(&engine).await;
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let head = find_head(&engine, &head).await;
    let before = entries_read(&store);
    let scope = super::scope();
    assert_eq!(
        within_deadline(engine.start(call(), first()))
            .await
            .unwrap()
            .turn(),
        1
    );
    assert_eq!(
        within_deadline(engine.find_replay(&scope, &key("second", 2).unwrap()))
            .await
            .unwrap()
            .unwrap()
            .turn(),
        2
    );
    let again = within_deadline(engine.continue_task(call(), &head, second, key("second", 2)))
        .await
        .unwrap();
    assert_eq!(again.turn(), 2);
    assert!(
        entries_read(&store) - before <= 20,
        "{} entries were read",
        entries_read(&store) - before
    );
}

#[tokio::test(start_paused = true)]
async fn a_running_task_is_read_once_and_copied_once_for_all_readers() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let head = start(&engine, &chunks(3_000, "hang")).await.head;
    yield_until_idle().await;
    let first = current_task(&engine, &head).await;
    assert_eq!(text(&first), 3_000 * "piece".len());
    let before = entries_read(&store);
    let tasks = [
        current_task(&engine, &head).await,
        current_task(&engine, &head).await,
    ];
    assert_eq!(text(&tasks[0]), 3_000 * "piece".len());
    assert!(Arc::ptr_eq(&tasks[0], &tasks[1]));
    within_deadline(engine.continue_task(call(), &head, message("more"), None))
        .await
        .unwrap();
    let later = current_task(&engine, &head).await;
    assert_eq!((tasks[0].history.len(), later.history.len()), (1, 2));
    assert_eq!(entries_read(&store), before);
}

#[tokio::test(start_paused = true)]
async fn followers_read_the_end_from_memory_after_the_runner_retired() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    let accepted = start(&engine, &format!("gate {}", chunks(100, "done"))).await;
    let head = accepted.head.clone();
    let mut followers: Vec<_> = (0..10)
        .map(|_| engine.follow(&head, accepted.log.position))
        .collect();
    agent.gate.add_permits(1);
    wait_until_idle(&engine).await;
    assert!(
        engine.inner.journal.active_tasks.get(&head.id).is_none(),
        "the runner has retired"
    );
    let before = entries_read(&store);
    let end = find_head(&engine, &head).await.position;
    for follow in &mut followers {
        let mut at = accepted.log.position;
        while at < end {
            at = within_deadline(follow.next())
                .await
                .unwrap()
                .last()
                .unwrap()
                .seq;
        }
    }
    assert_eq!(
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
    assert_eq!(entries_read(&store), before);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_sender_reads_the_whole_log_from_memory() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    let initial_message = InitialMessage {
        is_followed: true,
        ..initial_message("chunk gate chunk done")
    };
    let mut accepted = within_deadline(engine.start(call(), initial_message))
        .await
        .unwrap();
    agent.gate.add_permits(1);
    wait_until_idle(&engine).await;
    let before = entries_read(&store);
    let seen = within_deadline(engine.follow_from_start(&mut accepted).next())
        .await
        .unwrap();
    assert!(matches!(seen.first().unwrap().event, Event::Created { .. }));
    assert!(matches!(seen.last().unwrap().event, Event::TurnEnded));
    assert_eq!(entries_read(&store), before);
}

#[tokio::test(start_paused = true)]
async fn cancel_and_answer_after_a_restart_start_from_a_snapshot() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (answered, _) = send(&engine, &chunks(5_000, "ask")).await;
    let (canceled, _) = send(&engine, &chunks(5_000, "ask")).await;
    wait_until_idle(&engine).await;
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let before = entries_read(&store);
    let task = send_to(&engine, &answered, "chunk done").await.unwrap();
    assert_eq!(
        (task.status.state, text(&task)),
        (TaskState::Completed, 5_001 * "piece".len())
    );
    let head = find_head(&engine, &canceled).await;
    assert_eq!(
        within_deadline(engine.cancel(&head, None))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Canceled
    );
    assert!(matches!(
        within_deadline(engine.cancel(&head, None)).await,
        Err(Error::Ended(TaskState::Canceled))
    ));
    assert!(
        entries_read(&store) - before <= 20,
        "{} entries were read",
        entries_read(&store) - before
    );
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r43_parked_tasks_are_recovered_from_snapshots() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let engine = engine_on(
        store.clone(),
        agent.clone(),
        Settings {
            max_turns: 1,
            ..Settings::default()
        },
    );
    let (parked, _) = send(&engine, &chunks(5_000, "ask")).await;
    let (answered, _) = send(&engine, &chunks(5_000, "auth")).await;
    let (short, _) = send(&engine, "ask").await;
    start(&engine, "hang").await;
    // Its turn has not started when the process ends.
    within_deadline(engine.continue_task(call(), &answered, message("done"), None))
        .await
        .unwrap();
    shut_down(&engine).await;
    let settings = Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 2 },
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent.clone(), settings);
    let before = entries_read(&store);
    within_deadline(engine.recover()).await.unwrap();
    yield_until_idle().await;
    assert!(
        entries_read(&store) - before <= 20,
        "{} entries were read",
        entries_read(&store) - before
    );
    let states = [&parked, &answered, &short]
        .map(|head| async { current_task(&engine, head).await.status.state });
    let [parked, answered, short] = states;
    assert_eq!(
        (parked.await, short.await),
        (TaskState::InputRequired, TaskState::InputRequired)
    );
    assert_eq!(answered.await, TaskState::Completed);
    shut_down(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r43_parked_tasks_are_not_read_at_startup() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (short, _) = send(&engine, &chunks(100, "ask")).await;
    let (auth, _) = send(&engine, "say auth").await;
    let cut_off = start(&engine, "hang").await.head;
    shut_down(&engine).await;
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let before = entries_read(&store);
    within_deadline(engine.recover()).await.unwrap();
    yield_until_idle().await;
    assert!(
        entries_read(&store) - before <= 5,
        "{} entries were read",
        entries_read(&store) - before
    );
    assert_eq!(
        current_task(&engine, &cut_off).await.status.state,
        TaskState::Failed
    );
    assert_eq!(
        current_task(&engine, &short).await.status.state,
        TaskState::InputRequired
    );
    assert_eq!(
        current_task(&engine, &auth).await.status.state,
        TaskState::AuthRequired
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_log_gets_no_snapshot() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    for script in [
        "done",
        "say write done",
        "yield say ask",
        &chunks(100, "yield done"),
    ] {
        let (head, _) = send(&engine, script).await;
        current_task(&engine, &head).await;
    }
    wait_until_idle(&engine).await;
    assert_eq!(snapshots_saved(&store), 0);
}

#[tokio::test(start_paused = true)]
async fn r25_a_hanging_snapshot_delays_no_call() {
    let store = Arc::new(FaultyStore::with_snapshots(SnapshotMode::Hang));
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (head, _) = send(&engine, &chunks(10_000, "ask")).await;
    let task = send_to(&engine, &head, &chunks(1_000, "done"))
        .await
        .unwrap();
    assert_eq!(text(&task), 11_000 * "piece".len());
    assert_eq!(*current_task(&engine, &head).await, task);
    assert_eq!(snapshots_saved(&store), 1, "one pending snapshot per task");
    for _ in 0..100 {
        send(&engine, &chunks(300, "done")).await;
    }
    assert!(
        snapshots_saved(&store) <= 64,
        "{} snapshots are pending",
        snapshots_saved(&store)
    );
    // A hanging snapshot does not block the shutdown.
    shut_down(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_snapshot_is_saved_by_the_next_reader() {
    let store = Arc::new(FaultyStore::default());
    let engine = with_snapshot_min_entries(
        engine_on(store.clone(), ScriptedAgent::default(), Settings::default()),
        u64::MAX / 16,
    );
    let (head, _) = send(&engine, &chunks(2_000, "done")).await;
    wait_until_idle(&engine).await;
    assert_eq!(snapshots_saved(&store), 0);
    for expected in [2_000..3_000, 0..2] {
        let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
        let before = entries_read(&store);
        current_task(&engine, &head).await;
        wait_until_idle(&engine).await;
        assert!(expected.contains(&(entries_read(&store) - before)));
        assert_eq!(snapshots_saved(&store), 1);
        check_invariants(&engine, &head).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cached_task_is_read_once_until_it_changes() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (head, _) = send(&engine, "say ask").await;
    let first = current_task(&engine, &head).await;
    let old_head = find_head(&engine, &head).await;
    let before = store.calls();
    assert!(Arc::ptr_eq(
        &engine.task(&old_head).await.unwrap().0,
        &first
    ));
    assert_eq!(store.calls(), before);
    send_to(&engine, &head, "say done").await.unwrap();
    let ended = current_task(&engine, &head).await;
    assert_eq!(
        (first.status.state, ended.status.state),
        (TaskState::InputRequired, TaskState::Completed)
    );
    // An old head returns the current task, too.
    assert!(engine.task(&old_head).await.unwrap().0.is_ended());
    let ended = find_head(&engine, &head).await;
    engine
        .inner
        .journal
        .delete(std::slice::from_ref(&ended))
        .await
        .unwrap();
    assert!(matches!(engine.task(&ended).await, Err(Error::Deleted)));
}

#[tokio::test(start_paused = true)]
async fn a_task_deleted_while_it_is_read_is_reported_as_deleted() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (head, _) = send(&engine, "say ask").await;
    let head = find_head(&engine, &head).await;
    let log = engine.inner.journal.log(&head).await.unwrap();
    let task_cache = &engine.inner.journal.task_cache;
    let version = task_cache.begin_read(&head.id);
    engine
        .inner
        .journal
        .delete(std::slice::from_ref(&head))
        .await
        .unwrap();
    task_cache.put(version, &head, &log);
    assert!(
        task_cache.get(&head.id).is_none(),
        "a read that began before the deletion is not cached"
    );
    let refused = send_to(&engine, &head, "done").await;
    assert!(matches!(refused, Err(Error::Deleted)), "{refused:?}");
    assert!(engine.inner.journal.task_cache.get(&head.id).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cached_task_is_never_older_than_an_acknowledged_write() {
    let engine = engine_on(
        Arc::new(Memory::new()),
        ScriptedAgent::default(),
        Settings::default(),
    );
    let (head, asked) = send(&engine, "say ask").await;
    let cached = || engine.cached_task(&head.scope, &head.id);
    let read = async || {
        engine
            .task_view(&find_head(&engine, &head).await)
            .await
            .unwrap()
    };
    let encode = |task: &TaskView, text: &str| {
        String::from_utf8(
            task.encoded(0, |_, out| out.extend_from_slice(text.as_bytes()))
                .into(),
        )
        .unwrap()
    };
    assert!(cached().is_none(), "the task was not read yet");
    assert_eq!(
        (&*read().await, encode(&read().await, "asked")),
        (&asked, "asked".to_owned())
    );
    assert_eq!(encode(&cached().unwrap(), "again"), "asked");
    let ended = send_to(&engine, &head, "say done").await.unwrap();
    assert!(cached().is_none(), "the cached task is outdated");
    assert_eq!(
        (&*read().await, encode(&read().await, "ended")),
        (&ended, "ended".to_owned())
    );
    assert_eq!(
        (&*cached().unwrap(), encode(&cached().unwrap(), "again")),
        (&ended, "ended".to_owned())
    );
    let stranger = Scope {
        owner: Caller::new("stranger"),
        ..head.scope.clone()
    };
    assert!(engine.cached_task(&stranger, &head.id).is_none());
    engine
        .inner
        .journal
        .delete(std::slice::from_ref(&head))
        .await
        .unwrap();
    assert!(cached().is_none() && engine.find(&head.scope, &head.id).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_a_message_is_not_cached() {
    let engine = engine_on(
        Arc::new(Memory::new()),
        ScriptedAgent::default(),
        Settings::default(),
    );
    let (head, _) = send(&engine, "say ask").await;
    let head = find_head(&engine, &head).await;
    let journal = &engine.inner.journal;
    let version = journal.task_cache.begin_read(&head.id);
    let old = journal.log(&head).await.unwrap();
    let ended = send_to(&engine, &head, "say done").await.unwrap();
    journal.task_cache.put(version, &head, &old);
    assert!(engine.cached_task(&head.scope, &head.id).is_none());
    assert_eq!(*current_task(&engine, &head).await, ended);
}

#[tokio::test(start_paused = true)]
async fn heads_in_memory_are_found_without_the_store_and_in_their_scope() {
    let stranger = Scope {
        owner: Caller::new("stranger"),
        ..scope()
    };
    // A task without a runner is cached, and the fold of a running one is in memory.
    for text in ["say ask", "say hang"] {
        let store = Arc::new(FaultyStore::default());
        let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
        let head = start(&engine, text).await.head;
        yield_until_idle().await;
        let stored = store.find(&head.scope, &head.id).await.unwrap().unwrap();
        current_task(&engine, &head).await;
        let before = store.calls();
        assert_eq!(find_head(&engine, &head).await, stored, "{text}");
        assert_eq!(store.calls(), before, "{text}");
        let found = engine.find(&stranger, &head.id).await.unwrap();
        assert_eq!(found, None, "{text}");
        let deleted = std::slice::from_ref(&head);
        engine.inner.journal.delete(deleted).await.unwrap();
        let found = engine.find(&head.scope, &head.id).await.unwrap();
        assert_eq!(found, None, "{text}");
        shut_down(&engine).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bypassed_if_other_processes_write() {
    let store = Arc::new(FaultyStore::with_external_writers());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (head, _) = send(&engine, "say ask").await;
    wait_until_idle(&engine).await;
    current_task(&engine, &head).await;
    let before = store.calls();
    assert!(engine.cached_task(&head.scope, &head.id).is_none());
    find_head(&engine, &head).await;
    assert_eq!(store.calls(), before + 1, "the head comes from the store");
}

#[tokio::test(start_paused = true)]
async fn the_task_cache_can_be_disabled() {
    let store = Arc::new(FaultyStore::default());
    let settings = Settings {
        task_cache_bytes: 0,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), ScriptedAgent::default(), settings);
    let (head, task) = send(&engine, "say done").await;
    for _ in 0..2 {
        let before = entries_read(&store);
        assert_eq!(*current_task(&engine, &head).await, task);
        assert_eq!(entries_read(&store) - before, 6);
    }
}

#[tokio::test(start_paused = true)]
async fn r07_a_reader_that_fell_behind_catches_up_from_the_store() {
    let store = Arc::new(FaultyStore::default());
    let settings = Settings {
        max_tail_entries: 8,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), ScriptedAgent::default(), settings);
    let head = start(&engine, "yield ".repeat(3).as_str()).await.head;
    let mut behind = engine.follow(&head, Seq(0));
    wait_until_idle(&engine).await;
    let long = start(&engine, &chunks(2_500, "hang")).await.head;
    yield_until_idle().await;
    let mut slow = engine.follow(&long, Seq(0));
    let mut seen = Vec::new();
    while seen.len() < 2_504 {
        let entries = within_deadline(slow.next()).await.unwrap();
        assert!(entries.len() <= 1_000, "one page per read");
        seen.extend(entries);
    }
    assert!(seen.iter().map(|entry| entry.seq.0).eq(1..=2_504));
    assert!(entries_read(&store) >= 2_000);
    let before = entries_read(&store);
    within_deadline(engine.continue_task(call(), &long, message("more"), None))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(slow.next()).await.unwrap()[0].seq,
        Seq(2_505)
    );
    assert_eq!(
        entries_read(&store),
        before,
        "a reader that keeps up reads no store"
    );
    // A task that has ended and is no longer active.
    let entries = within_deadline(behind.next()).await.unwrap();
    assert!(matches!(entries.last().unwrap().event, Event::TurnEnded));
    assert!(
        timeout(Duration::from_secs(60), behind.next())
            .await
            .is_err(),
        "no more entries"
    );
    shut_down(&engine).await;
}
