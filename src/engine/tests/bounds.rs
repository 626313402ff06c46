//! What must hold when much comes at once, when a store comes back, and for each agent of several.

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::settings::AgentSettings;
use super::super::staff::Staff;
use super::world::*;
use super::*;

#[tokio::test(start_paused = true)]
async fn r25_a_turn_that_a_failing_store_cut_off_runs_again_if_the_policy_says_so() {
    let (store, agent) = (Arc::new(Faulty::default()), Obeys::default());
    let settings = Settings {
        on_restart: Restart::RunAgain { attempts: 3 },
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent.clone(), settings);
    let head = start(&engine, "gate say done").await.head;
    settle_down().await;
    store.break_down(Fault::Before);
    agent.gate.add_permits(2);
    settle_down().await;
    store.heal();
    tokio::time::sleep(Duration::from_secs(60)).await;
    settle_down().await;
    assert_eq!(
        lawful(&engine, &head).await.status.state,
        TaskState::Completed
    );
    assert_eq!(agent.heard().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_taken_meanwhile_is_there_when_they_come_again_and_no_agent_has_run() {
    let agent = Obeys::default();
    let engine = engine_on(Arc::new(Memory::new()), agent.clone(), Settings::default());
    let named = |text| Opening {
        alias: Some("a".into()),
        ..opening(text)
    };
    soon(engine.start(call(), named("done"))).await.unwrap();
    let refused = model::Error::from(soon(engine.start(call(), named("done"))).await.unwrap_err());
    assert_eq!(
        (refused.kind(), refused.retry_after().is_some()),
        (ErrorKind::Unavailable, true)
    );
    assert_eq!(agent.heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r25_those_who_wait_behind_a_failed_read_are_not_told_that_the_task_is_gone() {
    let store = Arc::new(Faulty::gated());
    let settings = Settings {
        max_resting_bytes: 0,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), Obeys::default(), settings);
    let (head, _) = send(&engine, "ask").await;
    quiet(&engine).await;
    store.hold_reads(true);
    let next = store.calls() + 1;
    let mut answers = JoinSet::new();
    for _ in 0..2 {
        let (engine, head) = (engine.clone(), head.clone());
        answers.spawn(async move {
            engine
                .resume(call(), &head, message("done"), None)
                .await
                .map(drop)
        });
    }
    settle_down().await;
    store.fail(next..next + 3, Fault::Before);
    store.hold_reads(false);
    store.let_pass(100);
    for answer in soon(answers.join_all()).await {
        assert!(!matches!(answer, Err(Error::Gone)), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s67_answers_to_questions_wait_no_more_than_new_tasks_do() {
    let settings = Settings {
        max_turns: 1,
        max_waiting_turns: 2,
        ..Settings::default()
    };
    let engine = engine_on(Arc::new(Memory::new()), Obeys::default(), settings);
    let mut heads = Vec::new();
    for _ in 0..20 {
        heads.push(send(&engine, "ask").await.0);
    }
    let busy = start(&engine, "hang").await.head;
    let mut taken = 0;
    for head in &heads {
        match soon(engine.resume(call(), head, message("done"), None)).await {
            Ok(_) => taken += 1,
            Err(error) => assert!(matches!(error, Error::Overloaded), "{error:?}"),
        }
    }
    assert_eq!(taken, 2);
    soon(engine.cancel(&busy, None)).await.unwrap();
    quiet(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r25_a_reader_does_not_wait_for_ever_for_a_store_that_hangs() {
    let store = Arc::new(Faulty::gated());
    let engine = engine_on(store.clone(), Obeys::default(), Settings::default());
    let (head, _) = send(&engine, "ask").await;
    quiet(&engine).await;
    let mut follow = engine.follow(&head, Seq(0));
    store.hold_reads(true);
    let told = timeout(Settings::default().store_timeout * 2, follow.next())
        .await
        .expect("in time");
    assert!(matches!(told, Err(Error::Lost)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn ended_tasks_do_not_pile_up_between_two_sweeps() {
    let store = Arc::new(Memory::new());
    let settings = Settings {
        max_tasks: Some(200),
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), Obeys::default(), settings);
    let house = engine.clone();
    let mut keeping = JoinSet::new();
    keeping.spawn(async move { house.keep_house().await });
    for _ in 0..2_000 {
        send(&engine, "done").await;
        settle_down().await;
        assert!(store.count_ended().await.unwrap() <= 400);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_has_all_its_turns_holds_up_no_other() {
    let (one, two) = (Obeys::default(), Obeys::default());
    let few = AgentSettings {
        max_turns: Some(1),
        ..AgentSettings::default()
    };
    let staff = Staff::new([
        ("one".into(), Arc::new(one.clone()) as _, few),
        (
            "two".into(),
            Arc::new(two.clone()) as _,
            AgentSettings::default(),
        ),
    ]);
    let engine = engine_of_staff(Arc::new(Memory::new()), staff);
    let to = |agent: &str| {
        let mut call = call();
        call.scope.agent = agent.into();
        call
    };
    let first = soon(engine.start(to("one"), opening("hang")))
        .await
        .unwrap()
        .head;
    let second = soon(engine.start(to("one"), opening("hang")))
        .await
        .unwrap()
        .head;
    settle_down().await;
    assert_eq!((one.running(&first.id), one.running(&second.id)), (1, 0));
    let other = soon(engine.start(to("two"), opening("done")))
        .await
        .unwrap();
    assert_eq!(
        soon(engine.settled(other)).await.unwrap().status.state,
        TaskState::Completed
    );
    // The place comes back with the end of the turn, however it ends.
    soon(engine.cancel(&first, None)).await.unwrap();
    settle_down().await;
    assert_eq!(one.running(&second.id), 1);
    soon(engine.cancel(&second, None)).await.unwrap();
    let third = soon(engine.start(to("one"), opening("panic")))
        .await
        .unwrap();
    assert_eq!(
        soon(engine.settled(third)).await.unwrap().status.state,
        TaskState::Failed
    );
    let fourth = soon(engine.start(to("one"), opening("done")))
        .await
        .unwrap();
    assert_eq!(
        soon(engine.settled(fourth)).await.unwrap().status.state,
        TaskState::Completed
    );
    // One that is served no longer fails its tasks.
    let gone = soon(engine.start(to("three"), opening("done")))
        .await
        .unwrap();
    assert_eq!(
        soon(engine.settled(gone)).await.unwrap().status.state,
        TaskState::Failed
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_not_kept_goes_with_its_turn_though_its_caller_has_left() {
    let (store, agent) = (Arc::new(Memory::null()), Obeys::default());
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    for (text, state) in [
        ("gate done", TaskState::Completed),
        ("gate ask", TaskState::InputRequired),
    ] {
        let accepted = start(&engine, text).await;
        let mut caller = Box::pin(engine.concluded(accepted));
        assert!(
            timeout(Duration::from_secs(1), &mut caller).await.is_err(),
            "it waits for the turn"
        );
        assert_eq!(store.unfinished(None, 9).await.unwrap().len(), 1);
        drop(caller);
        agent.gate.add_permits(1);
        settle_down().await;
        assert_eq!(store.unfinished(None, 9).await.unwrap().len(), 0, "{text}");
        assert_eq!(store.count_ended().await.unwrap(), 0, "{text}");
        let waited = start(&engine, text).await;
        agent.gate.add_permits(1);
        assert_eq!(
            soon(engine.concluded(waited)).await.unwrap().status.state,
            state
        );
        assert_eq!(store.unfinished(None, 9).await.unwrap().len(), 0, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_not_kept_is_not_taken_from_an_agent_that_waits_for_credentials() {
    let (store, agent) = (Arc::new(Memory::null()), Obeys::default());
    let engine = engine_on(store, agent.clone(), Settings::default());
    let accepted = start(&engine, "login gate done").await;
    let mut caller = Box::pin(engine.concluded(accepted));
    assert!(
        timeout(Duration::from_secs(1), &mut caller).await.is_err(),
        "it waits for the turn"
    );
    agent.gate.add_permits(1);
    assert_eq!(
        soon(caller).await.unwrap().status.state,
        TaskState::Completed
    );
}
