//! Batches that follow one another to the store before the first of them is durable.

use super::world::*;
use super::*;

/// So many numbered pieces, and a queue that holds few of them.
const PIECES: usize = 40;
const FEW: usize = 4;

fn few() -> Settings {
    Settings {
        max_queued_events: FEW,
        ..Settings::default()
    }
}

/// Once it is let go, writes numbered pieces without a pause of its own.
fn counts(gate: Arc<Semaphore>) -> impl Agent {
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
async fn held_up() -> (Arc<Faulty>, Engine, Box<Accepted>) {
    let (store, gate) = (Arc::new(Faulty::gated()), Arc::new(Semaphore::new(0)));
    let engine = engine_on(store.clone(), counts(gate.clone()), few());
    let accepted = start(&engine, "go").await;
    settle_down().await;
    store.hold(true);
    gate.add_permits(1);
    settle_down().await;
    assert_eq!(
        store.asked(),
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
async fn a_batch_that_is_full_follows_one_that_is_not_durable_and_nobody_sees_it_before() {
    let (store, engine, accepted) = held_up().await;
    let mut follow = engine.follow(&accepted.head, Seq(0));
    let opened = follow.next().await.unwrap().last().unwrap().seq;
    assert!(follow.ready().await.unwrap().is_empty());
    store.let_pass(1);
    settle_down().await;
    let seen = follow.next().await.unwrap();
    assert_eq!(
        seen.last().unwrap().seq,
        Seq(opened.0 + FEW as u64),
        "only what is durable is seen"
    );
    store.let_pass(100);
    let task = soon(engine.settled(accepted)).await.unwrap();
    assert_eq!(
        (task.status.state, text(&task)),
        (TaskState::Completed, numbers(PIECES))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_heard_between_two_batches_of_an_agent_that_never_pauses() {
    let (store, engine, accepted) = held_up().await;
    let cancel = engine.cancel(&accepted.head, None);
    let canceled = async {
        settle_down().await;
        store.let_pass(100);
    };
    let (canceled, ()) = tokio::join!(cancel, canceled);
    let task = canceled.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    let said = text(&task).split_whitespace().count();
    assert!(said < PIECES, "{said} of {PIECES}");
    assert_eq!(text(&task), numbers(said));
}

#[tokio::test(start_paused = true)]
async fn r18_what_is_on_its_way_when_somebody_else_writes_comes_behind_that_in_order() {
    let (store, engine, accepted) = held_up().await;
    let at = accepted.log.at;
    let note = Event::Ignored {
        reason: "from elsewhere".to_owned(),
    };
    store.write_past(&accepted.head, at, note.clone()).await;
    store.hold(false);
    store.let_pass(2);
    let head = accepted.head.clone();
    let task = soon(engine.settled(accepted)).await.unwrap();
    assert_eq!(
        (task.status.state, text(&task)),
        (TaskState::Completed, numbers(PIECES))
    );
    let entries = engine.follow(&head, at).next().await.unwrap();
    assert_eq!(entries[0].event, note);
    assert_eq!(lawful(&engine, &head).await, task);
}

#[tokio::test(start_paused = true)]
async fn the_fold_of_a_long_log_is_kept_although_its_agent_never_pauses() {
    let (store, said) = (Arc::new(Faulty::gated()), Arc::new(Semaphore::new(0)));
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
    store.hold(true);
    // One after the other, as a disk does: while one is written, the next waits behind it.
    for _ in 0..200 {
        store.let_pass(1);
        settle_down().await;
        if said.available_permits() > 0 {
            break;
        }
    }
    assert_eq!(said.available_permits(), 1, "all of it was said");
    assert!(
        store.folds.load(Ordering::SeqCst) >= 2,
        "after 2,048, and after twice that"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_speaks_while_the_store_hangs_is_not_silent() {
    let agent = |turn: Turn| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..2 {
            turn.say("still here").await;
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        Ok::<_, Failure>(Outcome::Completed)
    };
    let store = Arc::new(Faulty::gated());
    let (silence, patience) = (Duration::from_secs(60), Duration::from_secs(600));
    let settings = Settings {
        max_silence: Some(silence),
        store_timeout: patience,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent, settings);
    let accepted = start(&engine, "go").await;
    store.hold(true);
    tokio::time::sleep(Duration::from_secs(65)).await;
    store.hold(false);
    store.let_pass(1);
    let settled = timeout(Duration::from_secs(600), engine.settled(accepted))
        .await
        .unwrap();
    let task = settled.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{:?}", task.status);
}

#[tokio::test(start_paused = true)]
async fn r25_where_one_of_two_batches_fails_the_log_has_no_gap_and_its_task_has_one_end() {
    for fault in [Fault::Before, Fault::After] {
        for number in 1..12 {
            let (store, gate) = (Arc::new(Faulty::default()), Arc::new(Semaphore::new(1)));
            let engine = engine_on(store.clone(), counts(gate), few());
            // Whoever writes hears of it later, so that the next batch is there before that.
            store.lag();
            let next = store.calls() + number;
            store.fail(next..next + 1, fault);
            let Ok(accepted) = engine.start(call(), opening("go")).await else {
                continue;
            };
            let head = accepted.head.clone();
            quiet(&engine).await;
            store.heal();
            at_rest(&engine).await;
            let (task, _) = engine.task(&head).await.unwrap();
            let said = text(&task).split_whitespace().count();
            assert_eq!(text(&task), numbers(said), "{fault:?} of {number}");
            let ends = |entry: &&Recorded| matches!(&entry.event, Event::Status { status, .. } if status.state.is_terminal());
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
