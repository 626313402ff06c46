//! Invariants of every log, under random actions of agents, callers and clocks.

use proptest::prelude::*;

use super::harness::*;
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Message(String),
    Cancel,
    Check,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    const WORDS: [&str; 14] = [
        "say", "write", "chunk", "close", "meta", "login", "empty", "yield", "ask", "auth",
        "reject", "fail", "error", "done",
    ];
    let script = prop::collection::vec(prop::sample::select(&WORDS[..]), 0..8);
    prop_oneof![
        5 => script.prop_map(|words| Step::Message(words.join(" "))),
        1 => Just(Step::Message("say listen say".to_owned())),
        1 => Just(Step::Message("write hang".to_owned())),
        2 => Just(Step::Cancel),
        2 => Just(Step::Check),
        2 => Just(Step::Wait),
    ]
}

async fn run_steps(steps: Vec<Step>, settings: Settings, gated: bool, snapshot_min_entries: u64) {
    let store = Arc::new(if gated {
        FaultyStore::gated()
    } else {
        FaultyStore::default()
    });
    let engine = engine_with(
        store.clone(),
        ScriptedAgent::default(),
        settings,
        ManualClock::drifting(),
    );
    let engine = with_snapshot_min_entries(engine, snapshot_min_entries);
    let accepted = start(&engine, "say ask").await;
    let head = accepted.head.clone();
    let following = Box::pin(follow_to_end(engine.follow(&head, Seq(0))));
    let mut callers = tokio::task::JoinSet::new();
    let reader = callers.spawn(async move { drop(following.await) });
    store.hold_writes(gated);
    for step in steps {
        let engine = engine.clone();
        let head = head.clone();
        match step {
            Step::Message(text) => {
                callers.spawn(async move { drop(send_to(&engine, &head, &text).await) });
            }
            Step::Cancel => {
                callers.spawn(async move { drop(engine.cancel(&head, None).await) });
            }
            Step::Check => drop(check_invariants(&engine, &head).await),
            Step::Wait => yield_until_idle().await,
        }
        if gated {
            store.release_writes(1);
        }
    }
    store.hold_writes(false);
    store.release_writes(10_000);
    yield_until_idle().await;
    let _ = within_deadline(engine.cancel(&head, None)).await;
    wait_until_idle(&engine).await;
    let task = check_invariants(&engine, &head).await;
    assert!(task.is_ended());
    check_idle(&engine).await;
    let _ = reader;
    while let Some(caller) = within_deadline(callers.join_next()).await {
        caller.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r32_the_visible_task_is_the_fold_of_its_log(
        steps in prop::collection::vec(step(), 0..14),
        tail in prop::sample::select(&[1_usize, 4, 1024][..]),
        task_cache in prop::sample::select(&[0_usize, 16 << 20][..]),
        snapshot_min_entries in prop::sample::select(&[1_u64, 8, 256][..]),
        gated: bool,
    ) {
        let settings = Settings {
            max_tail_entries: tail,
            task_cache_bytes: task_cache,
            max_queued_events: 3,
            ..Settings::default()
        };
        runtime().block_on(run_steps(steps, settings, gated, snapshot_min_entries));
    }

    #[test]
    fn r32_results_do_not_depend_on_snapshots(steps in prop::collection::vec(step(), 0..10)) {
        let run_steps = |snapshots| runtime().block_on(run_steps_with_restarts(&steps, snapshots));
        prop_assert_eq!(run_steps(SnapshotMode::Save), run_steps(SnapshotMode::Discard));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

/// Runs the steps; each `Wait` restarts the process. Returns the final log, and the tasks seen on the way.
async fn run_steps_with_restarts(
    steps: &[Step],
    snapshots: SnapshotMode,
) -> (Vec<String>, Vec<TaskSummary>) {
    let store = Arc::new(FaultyStore::with_snapshots(snapshots));
    let clock = ManualClock::starting_at(1_000);
    let settings = || Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 3 },
        ..Settings::default()
    };
    let process = || {
        with_snapshot_min_entries(
            engine_with(
                store.clone(),
                ScriptedAgent::default(),
                settings(),
                clock.clone(),
            ),
            1,
        )
    };
    let mut engine = process();
    let mut seen = Vec::new();
    let head = start(&engine, "say yield ask").await.head;
    for step in steps {
        match step {
            Step::Message(text) => drop(
                within_deadline(engine.continue_task(call(), &head, message(text), None)).await,
            ),
            Step::Cancel => drop(within_deadline(engine.cancel(&head, None)).await),
            Step::Check => seen.push(summarize(&check_invariants(&engine, &head).await)),
            Step::Wait => {
                shut_down(&engine).await;
                engine = process();
                within_deadline(engine.recover()).await.unwrap();
            }
        }
        yield_until_idle().await;
    }
    seen.push(summarize(&check_invariants(&engine, &head).await));
    (log_summary(&engine, &head).await, seen)
}

/// State, messages and artifacts of a task, without ids, some of which are random.
type TaskSummary = (TaskState, Vec<String>, Vec<String>);

fn summarize(task: &Task) -> TaskSummary {
    let messages = task
        .history
        .iter()
        .chain(&task.status.message)
        .map(|message| message.text());
    let artifacts = task.artifacts.iter().map(|artifact| artifact.as_text());
    (task.status.state, messages.collect(), artifacts.collect())
}
