//! Batches that follow one another to the store before the first of them is durable.

use super::harness::*;
use super::*;

/// So many numbered pieces, and a queue that holds few of them.
const PIECES: usize = 40;
const SMALL_QUEUE: usize = 4;

fn small_queue() -> Settings {
    Settings {
        max_queued_events: SMALL_QUEUE,
        ..Settings::default()
    }
}

/// Once it is let go, writes numbered pieces without a pause of its own.
fn counting_agent(gate: Arc<Semaphore>) -> impl Agent {
    move |turn: Turn| {
        let gate = gate.clone();
        async move {
            gate.acquire().await?.forget();
            let mut writer = turn.writer("numbers");
            for number in 0..PIECES {
                writer.write(format!("{number} ")).await;
            }
            Ok::<_, Failure>(Outcome::Completed)
        }
    }
}

/// An agent that has begun to write, and a store that takes nothing down yet: two batches are on their way.
async fn blocked_engine() -> (Arc<FaultyStore>, Engine, Box<AcceptedMessage>) {
    let (store, gate) = (Arc::new(FaultyStore::gated()), Arc::new(Semaphore::new(0)));
    let engine = engine_on(store.clone(), counting_agent(gate.clone()), small_queue());
    let accepted = start(&engine, "go").await;
    yield_until_idle().await;
    store.hold_writes(true);
    gate.add_permits(1);
    yield_until_idle().await;
    assert_eq!(
        store.held_writes(),
        2,
        "the first batch, and the one that was full behind it"
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
        "only what is durable is seen"
    );
    store.release_writes(100);
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(
        (task.status.state, text(&task)),
        (TaskState::Completed, numbers(PIECES))
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
    let said = text(&task).split_whitespace().count();
    assert!(said < PIECES, "{said} of {PIECES}");
    assert_eq!(text(&task), numbers(said));
}

#[tokio::test(start_paused = true)]
async fn r18_in_flight_batches_are_rewritten_in_order_after_a_foreign_append() {
    let (store, engine, accepted) = blocked_engine().await;
    let at = accepted.log.position;
    let note = Event::Ignored {
        reason: "from elsewhere".to_owned(),
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
        (TaskState::Completed, numbers(PIECES))
    );
    let entries = engine.follow(&head, at).next().await.unwrap();
    assert_eq!(entries[0].event, note);
    assert_eq!(check_invariants(&engine, &head).await, task);
}

#[tokio::test(start_paused = true)]
async fn a_long_log_gets_snapshots_although_its_agent_never_pauses() {
    let (store, said) = (Arc::new(FaultyStore::gated()), Arc::new(Semaphore::new(0)));
    let all = said.clone();
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
    // One after the other, as a disk does: while one is written, the next waits behind it.
    for _ in 0..200 {
        store.release_writes(1);
        yield_until_idle().await;
        if said.available_permits() > 0 {
            break;
        }
    }
    assert_eq!(said.available_permits(), 1, "all of it was said");
    assert!(
        store.snapshots_saved.load(Ordering::SeqCst) >= 2,
        "after 2,048, and after twice that"
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
    let (silence, store_timeout) = (Duration::from_secs(60), Duration::from_secs(600));
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
    let settled = timeout(Duration::from_secs(600), engine.await_turn_result(accepted))
        .await
        .unwrap();
    let task = settled.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{:?}", task.status);
}

#[tokio::test(start_paused = true)]
async fn r25_where_one_of_two_batches_fails_the_log_has_no_gap_and_its_task_has_one_end() {
    for fault in [FaultTiming::Before, FaultTiming::After] {
        for number in 1..12 {
            let (store, gate) = (
                Arc::new(FaultyStore::default()),
                Arc::new(Semaphore::new(1)),
            );
            let engine = engine_on(store.clone(), counting_agent(gate), small_queue());
            // Whoever writes hears of it later, so that the next batch is there before that.
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
            let said = text(&task).split_whitespace().count();
            assert_eq!(text(&task), numbers(said), "{fault:?} of {number}");
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
