//! Overload, recovery of the store, limits per agent, and ephemeral tasks.

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::agent_registry::AgentRegistry;
use super::super::settings::AgentSettings;
use super::harness::*;
use super::*;

#[tokio::test(start_paused = true)]
async fn r25_a_turn_interrupted_by_a_failing_store_follows_on_restart() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let settings = Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 3 },
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent.clone(), settings);
    let head = start(&engine, "gate say done").await.head;
    yield_until_idle().await;
    store.fail_all(FaultTiming::Before);
    agent.gate.add_permits(2);
    yield_until_idle().await;
    store.stop_failing();
    tokio::time::sleep(Duration::from_secs(60)).await;
    yield_until_idle().await;
    assert_eq!(
        check_invariants(&engine, &head).await.status.state,
        TaskState::Completed
    );
    assert_eq!(agent.received().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_concurrently_created_id_is_found_by_the_retry_and_no_agent_has_run() {
    let agent = ScriptedAgent::default();
    let engine = engine_on(Arc::new(Memory::new()), agent.clone(), Settings::default());
    let named = |text| InitialMessage {
        alias: Some("a".into()),
        ..initial_message(text)
    };
    within_deadline(engine.start(call(), named("done")))
        .await
        .unwrap();
    let refused = model::Error::from(
        within_deadline(engine.start(call(), named("done")))
            .await
            .unwrap_err(),
    );
    assert_eq!(
        (refused.kind(), refused.retry_after().is_some()),
        (ErrorKind::Unavailable, true)
    );
    assert_eq!(agent.received().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r25_a_failed_read_is_not_reported_as_a_deleted_task() {
    let store = Arc::new(FaultyStore::gated());
    let settings = Settings {
        task_cache_bytes: 0,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), ScriptedAgent::default(), settings);
    let (head, _) = send(&engine, "ask").await;
    wait_until_idle(&engine).await;
    store.hold_reads(true);
    let next = store.calls() + 1;
    let mut answers = JoinSet::new();
    for _ in 0..2 {
        let engine = engine.clone();
        let head = head.clone();
        answers.spawn(async move {
            engine
                .continue_task(call(), &head, message("done"), None)
                .await
                .map(drop)
        });
    }
    yield_until_idle().await;
    store.fail(next..next + 3, FaultTiming::Before);
    store.hold_reads(false);
    store.release_writes(100);
    for answer in within_deadline(answers.join_all()).await {
        assert!(!matches!(answer, Err(Error::Deleted)), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s67_answers_count_towards_max_waiting_turns() {
    let settings = Settings {
        max_turns: 1,
        max_waiting_turns: 2,
        ..Settings::default()
    };
    let engine = engine_on(Arc::new(Memory::new()), ScriptedAgent::default(), settings);
    let mut heads = Vec::new();
    for _ in 0..20 {
        heads.push(send(&engine, "ask").await.0);
    }
    let busy = start(&engine, "hang").await.head;
    let mut taken = 0;
    for head in &heads {
        match within_deadline(engine.continue_task(call(), head, message("done"), None)).await {
            Ok(_) => taken += 1,
            Err(error) => assert!(matches!(error, Error::Overloaded), "{error:?}"),
        }
    }
    assert_eq!(taken, 2);
    within_deadline(engine.cancel(&busy, None)).await.unwrap();
    wait_until_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r25_a_reader_of_a_hanging_store_times_out() {
    let store = Arc::new(FaultyStore::gated());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (head, _) = send(&engine, "ask").await;
    wait_until_idle(&engine).await;
    let mut follow = engine.follow(&head, Seq(0));
    store.hold_reads(true);
    let result = timeout(Settings::default().store_timeout * 2, follow.next())
        .await
        .expect("within the deadline");
    assert!(matches!(result, Err(Error::StoreUnavailable)), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn ended_tasks_beyond_the_limit_trigger_a_sweep() {
    let store = Arc::new(Memory::new());
    let settings = Settings {
        max_tasks: Some(200),
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), ScriptedAgent::default(), settings);
    let maintenance = engine.clone();
    let mut keeping = JoinSet::new();
    keeping.spawn(async move { maintenance.run_maintenance().await });
    for _ in 0..2_000 {
        send(&engine, "done").await;
        yield_until_idle().await;
        assert!(store.count_ended().await.unwrap() <= 400);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_at_its_turn_limit_blocks_no_other() {
    let one = ScriptedAgent::default();
    let two = ScriptedAgent::default();
    let few = AgentSettings {
        max_turns: Some(1),
        ..AgentSettings::default()
    };
    let agents = AgentRegistry::new([
        registration("one", one.clone(), few),
        registration("two", two.clone(), AgentSettings::default()),
    ]);
    let engine = engine_with_agents(Arc::new(Memory::new()), agents);
    let to = |agent: &str| {
        let mut call = call();
        call.scope.agent = agent.into();
        call
    };
    let first = within_deadline(engine.start(to("one"), initial_message("hang")))
        .await
        .unwrap()
        .head;
    let second = within_deadline(engine.start(to("one"), initial_message("hang")))
        .await
        .unwrap()
        .head;
    yield_until_idle().await;
    assert_eq!((one.running(&first.id), one.running(&second.id)), (1, 0));
    let other = within_deadline(engine.start(to("two"), initial_message("done")))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(other))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
    // The permit is released at the end of the turn, however it ends.
    within_deadline(engine.cancel(&first, None)).await.unwrap();
    yield_until_idle().await;
    assert_eq!(one.running(&second.id), 1);
    within_deadline(engine.cancel(&second, None)).await.unwrap();
    let third = within_deadline(engine.start(to("one"), initial_message("panic")))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(third))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Failed
    );
    let fourth = within_deadline(engine.start(to("one"), initial_message("done")))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(fourth))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
    // Tasks of an agent that is not registered fail.
    let removed = within_deadline(engine.start(to("three"), initial_message("done")))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(removed))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Failed
    );
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_task_is_deleted_after_its_turn_though_its_caller_disconnected() {
    let store = Arc::new(Memory::ephemeral());
    let agent = ScriptedAgent::default();
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    for (text, state) in [
        ("gate done", TaskState::Completed),
        ("gate ask", TaskState::InputRequired),
    ] {
        let accepted = start(&engine, text).await;
        let mut caller = Box::pin(engine.await_turn_end_and_delete(accepted));
        assert!(
            timeout(Duration::from_secs(1), &mut caller).await.is_err(),
            "the call waits for the turn"
        );
        assert_eq!(store.list_unfinished(None, 9).await.unwrap().len(), 1);
        drop(caller);
        agent.gate.add_permits(1);
        yield_until_idle().await;
        assert_eq!(
            store.list_unfinished(None, 9).await.unwrap().len(),
            0,
            "{text}"
        );
        assert_eq!(store.count_ended().await.unwrap(), 0, "{text}");
        let waited = start(&engine, text).await;
        agent.gate.add_permits(1);
        assert_eq!(
            within_deadline(engine.await_turn_end_and_delete(waited))
                .await
                .unwrap()
                .status
                .state,
            state
        );
        assert_eq!(
            store.list_unfinished(None, 9).await.unwrap().len(),
            0,
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_task_is_not_deleted_while_its_agent_waits_for_credentials() {
    let store = Arc::new(Memory::ephemeral());
    let agent = ScriptedAgent::default();
    let engine = engine_on(store, agent.clone(), Settings::default());
    let accepted = start(&engine, "login gate done").await;
    let mut caller = Box::pin(engine.await_turn_end_and_delete(accepted));
    assert!(
        timeout(Duration::from_secs(1), &mut caller).await.is_err(),
        "the call waits for the turn"
    );
    agent.gate.add_permits(1);
    assert_eq!(
        within_deadline(caller).await.unwrap().status.state,
        TaskState::Completed
    );
}
