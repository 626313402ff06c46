//! What holds of every log, whatever agents, callers and clocks do.

use proptest::prelude::*;

use super::world::*;
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Message(String),
    Cancel,
    Look,
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
        2 => Just(Step::Look),
        2 => Just(Step::Wait),
    ]
}

async fn play(steps: Vec<Step>, settings: Settings, gated: bool, long: u64) {
    let store = Arc::new(if gated {
        Faulty::gated()
    } else {
        Faulty::default()
    });
    let engine = engine_with(
        store.clone(),
        Obeys::default(),
        settings,
        Hands::wandering(),
    );
    let engine = keeping(engine, long);
    let accepted = start(&engine, "say ask").await;
    let head = accepted.head.clone();
    let following = Box::pin(follow_to_end(engine.follow(&head, Seq(0))));
    let mut callers = tokio::task::JoinSet::new();
    let reader = callers.spawn(async move { drop(following.await) });
    store.hold(gated);
    for step in steps {
        let (engine, head) = (engine.clone(), head.clone());
        match step {
            Step::Message(text) => {
                callers.spawn(async move { drop(answer(&engine, &head, &text).await) });
            }
            Step::Cancel => {
                callers.spawn(async move { drop(engine.cancel(&head, None).await) });
            }
            Step::Look => drop(lawful(&engine, &head).await),
            Step::Wait => settle_down().await,
        }
        if gated {
            store.let_pass(1);
        }
    }
    store.hold(false);
    store.let_pass(10_000);
    settle_down().await;
    let _ = soon(engine.cancel(&head, None)).await;
    quiet(&engine).await;
    let task = lawful(&engine, &head).await;
    assert!(task.is_ended());
    at_rest(&engine).await;
    let _ = reader;
    while let Some(caller) = soon(callers.join_next()).await {
        caller.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r32_what_is_shown_is_the_fold_of_the_log(
        steps in prop::collection::vec(step(), 0..14),
        tail in prop::sample::select(&[1_usize, 4, 1024][..]),
        resting in prop::sample::select(&[0_usize, 16 << 20][..]),
        long in prop::sample::select(&[1_u64, 8, 256][..]),
        gated: bool,
    ) {
        let settings = Settings {
            max_tail_entries: tail,
            max_resting_bytes: resting,
            max_queued_events: 3,
            ..Settings::default()
        };
        runtime().block_on(play(steps, settings, gated, long));
    }

    #[test]
    fn r32_without_what_was_kept_all_is_the_same(steps in prop::collection::vec(step(), 0..10)) {
        let play = |keeps| runtime().block_on(play_with_restarts(&steps, keeps));
        prop_assert_eq!(play(Keeps::All), play(Keeps::Nothing));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

/// Each wait is the end of a process, and another one goes on. Gives the log in the end, and what was shown by the way.
async fn play_with_restarts(steps: &[Step], keeps: Keeps) -> (Vec<String>, Vec<Shown>) {
    let (store, clock) = (Arc::new(Faulty::keeping(keeps)), Hands::at(1_000));
    let settings = || Settings {
        on_restart: Restart::RunAgain { attempts: 3 },
        ..Settings::default()
    };
    let process = || {
        keeping(
            engine_with(store.clone(), Obeys::default(), settings(), clock.clone()),
            1,
        )
    };
    let (mut engine, mut shown) = (process(), Vec::new());
    let head = start(&engine, "say yield ask").await.head;
    for step in steps {
        match step {
            Step::Message(text) => {
                drop(soon(engine.resume(call(), &head, message(text), None)).await)
            }
            Step::Cancel => drop(soon(engine.cancel(&head, None)).await),
            Step::Look => shown.push(shown_of(&lawful(&engine, &head).await)),
            Step::Wait => {
                kill(&engine).await;
                engine = process();
                soon(engine.recover()).await.unwrap();
            }
        }
        settle_down().await;
    }
    shown.push(shown_of(&lawful(&engine, &head).await));
    (words(&engine, &head).await, shown)
}

/// A task without its ids, of which some are random.
type Shown = (TaskState, Vec<String>, Vec<String>);

fn shown_of(task: &Task) -> Shown {
    let said = task
        .history
        .iter()
        .chain(&task.status.message)
        .map(|message| message.text());
    let made = task.artifacts.iter().map(|artifact| artifact.as_text());
    (task.status.state, said.collect(), made.collect())
}
