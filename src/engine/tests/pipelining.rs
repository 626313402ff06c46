//! Pipelined writes: a batch is sent before the previous one is durable.

use super::harness::*;
use super::*;

/// Number of chunks that the agent writes.
const CHUNKS: usize = 40;

/// Size of the queue: much smaller than the number of chunks.
const SMALL_QUEUE: usize = 4;

fn small_queue() -> Settings {
    Settings {
        max_queued_events: SMALL_QUEUE,
        ..Settings::default()
    }
}

/// Agent that waits for the gate, then writes numbered chunks without a pause.
fn counting_agent(gate: Arc<Semaphore>) -> impl Agent {
    move |turn: Turn| {
        let gate = gate.clone();
        async move {
            gate.acquire().await?.forget();
            let mut writer = turn.writer("numbers");
            for number in 0..CHUNKS {
                writer.write(format!("{number} ")).await;
            }
            Ok::<_, Failure>(Outcome::Completed)
        }
    }
}

/// Starts an agent on a store that holds all writes: two batches are in flight.
async fn blocked_engine() -> (Arc<FaultyStore>, Engine, Box<AcceptedMessage>) {
    let store = Arc::new(FaultyStore::gated());
    let gate = Arc::new(Semaphore::new(0));
    let engine = engine_on(store.clone(), counting_agent(gate.clone()), small_queue());
    let accepted = start(&engine, "go").await;
    yield_until_idle().await;
    store.hold_writes(true);
    gate.add_permits(1);
    yield_until_idle().await;
    assert_eq!(
        store.held_writes(),
        2,
        "the first batch, and the full one after it"
    );
    (store, engine, accepted)
}

fn numbers(count: usize) -> String {
    (0..count).map(|number| format!("{number} ")).collect()
}

fn text(task: &Task) -> String {
    task.artifacts
        .first()
        .map(|artifact| artifact.as_text())
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_is_sent_before_the_first_is_durable_and_is_visible_only_after_it() {
    let (store, engine, accepted) = blocked_engine().await;
    let mut follow = engine.follow(&accepted.head, Seq(0));
    let opened = follow.next().await.unwrap().last().unwrap().seq;
    assert!(follow.try_next().await.unwrap().is_empty());
    store.release_writes(1);
    yield_until_idle().await;
    let seen = follow.next().await.unwrap();
    assert_eq!(
        seen.last().unwrap().seq,
        Seq(opened.0 + SMALL_QUEUE as u64),
        "only durable entries are visible"
    );
    store.release_writes(100);
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(
        (task.status.state, text(&task)),
        (TaskState::Completed, numbers(CHUNKS))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_takes_effect_between_two_batches_of_an_agent_that_never_pauses() {
    let (store, engine, accepted) = blocked_engine().await;
    let cancel = engine.cancel(&accepted.head, None);
    let canceled = async {
        yield_until_idle().await;
        store.release_writes(100);
    };
    let (canceled, ()) = tokio::join!(cancel, canceled);
    let task = canceled.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    let count = text(&task).split_whitespace().count();
    assert!(count < CHUNKS, "{count} of {CHUNKS}");
    assert_eq!(text(&task), numbers(count));
}

#[tokio::test(start_paused = true)]
async fn r18_in_flight_batches_are_rewritten_in_order_after_a_foreign_append() {
    let (store, engine, accepted) = blocked_engine().await;
    let at = accepted.log.position;
    let note = Event::Ignored {
        reason: "by another process".to_owned(),
    };
    store
        .append_externally(&accepted.head, at, note.clone())
        .await;
    store.hold_writes(false);
    store.release_writes(2);
    let head = accepted.head.clone();
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(
        (task.status.state, text(&task)),
        (TaskState::Completed, numbers(CHUNKS))
    );
    let entries = engine.follow(&head, at).next().await.unwrap();
    assert_eq!(entries[0].event, note);
    assert_eq!(check_invariants(&engine, &head).await, task);
}

#[tokio::test(start_paused = true)]
async fn a_long_log_gets_snapshots_although_its_agent_never_pauses() {
    let store = Arc::new(FaultyStore::gated());
    let written = Arc::new(Semaphore::new(0));
    let all = written.clone();
    let agent = move |turn: Turn| {
        let all = all.clone();
        async move {
            let mut writer = turn.writer("long");
            for _ in 0..10_000 {
                writer.write("piece").await;
            }
            all.add_permits(1);
            std::future::pending().await
        }
    };
    let engine = engine_on(store.clone(), agent, Settings::default());
    start(&engine, "go").await;
    store.hold_writes(true);
    // Writes complete one by one: while one is in flight, the next is queued after it.
    for _ in 0..200 {
        store.release_writes(1);
        yield_until_idle().await;
        if written.available_permits() > 0 {
            break;
        }
    }
    assert_eq!(written.available_permits(), 1, "all chunks were written");
    assert!(
        store.snapshots_saved.load(Ordering::SeqCst) >= 2,
        "after 2,048 entries, and after twice as many"
    );
}

#[tokio::test(start_paused = true)]
async fn events_written_while_the_store_hangs_count_as_activity() {
    let agent = |turn: Turn| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..2 {
            turn.say("still here").await;
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        Ok::<_, Failure>(Outcome::Completed)
    };
    let store = Arc::new(FaultyStore::gated());
    let silence = Duration::from_secs(60);
    let store_timeout = Duration::from_secs(600);
    let settings = Settings {
        max_silence: Some(silence),
        store_timeout,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent, settings);
    let accepted = start(&engine, "go").await;
    store.hold_writes(true);
    tokio::time::sleep(Duration::from_secs(65)).await;
    store.hold_writes(false);
    store.release_writes(1);
    let result = timeout(Duration::from_secs(600), engine.await_turn_result(accepted))
        .await
        .unwrap();
    let task = result.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{:?}", task.status);
}

#[tokio::test(start_paused = true)]
async fn r25_if_one_of_two_batches_fails_the_log_has_no_gap_and_one_end() {
    for fault in [FaultTiming::Before, FaultTiming::After] {
        for number in 1..12 {
            let store = Arc::new(FaultyStore::default());
            let gate = Arc::new(Semaphore::new(1));
            let engine = engine_on(store.clone(), counting_agent(gate), small_queue());
            // A write returns late, so that the next batch is sent before that.
            store.delay_acknowledgements();
            let next = store.calls() + number;
            store.fail(next..next + 1, fault);
            let Ok(accepted) = engine.start(call(), initial_message("go")).await else {
                continue;
            };
            let head = accepted.head.clone();
            wait_until_idle(&engine).await;
            store.stop_failing();
            check_idle(&engine).await;
            let (task, _) = engine.task(&head).await.unwrap();
            let count = text(&task).split_whitespace().count();
            assert_eq!(text(&task), numbers(count), "{fault:?} of {number}");
            let ends = |entry: &&SharedEntry| matches!(&entry.event, Event::Status { status, .. } if status.state.is_terminal());
            let entries = engine.follow(&head, Seq(0)).next().await.unwrap();
            assert_eq!(
                entries.iter().filter(ends).count(),
                1,
                "{fault:?} of {number}"
            );
            assert!(
                entries
                    .iter()
                    .map(|entry| entry.seq.0)
                    .eq(1..=entries.len() as u64)
            );
        }
    }
}
