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
        "say", "write", "chunk", "close", "meta", "login", "empty", "yield", "ask", "auth", "reject", "fail",
        "error", "done",
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

async fn play(steps: Vec<Step>, settings: Settings, gated: bool) {
    let store = Arc::new(if gated { Faulty::gated() } else { Faulty::default() });
    let engine = engine_with(store.clone(), Obeys::default(), settings, Hands::wandering());
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
        gated: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let settings = Settings { max_tail_entries: tail, max_queued_events: 3, ..Settings::default() };
        runtime.block_on(play(steps, settings, gated));
    }
}
