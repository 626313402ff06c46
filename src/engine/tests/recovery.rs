//! Recovery of tasks after the end of a process (R10, R12, R43).

use super::harness::*;
use super::*;

/// Runs two processes, one after the other, on one store.
async fn restart(
    store: &Arc<FaultyStore>,
    agent: &ScriptedAgent,
    first: Settings,
    then: Settings,
    scripts: &[&str],
) -> (Engine, Vec<Head>) {
    let engine = engine_on(store.clone(), agent.clone(), first);
    let mut heads = Vec::new();
    for script in scripts {
        heads.push(start(&engine, script).await.head);
    }
    yield_until_idle().await;
    shut_down(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), then);
    within_deadline(engine.recover()).await.unwrap();
    (engine, heads)
}

fn reason(task: &Task) -> Option<String> {
    task.metadata
        .as_ref()?
        .get("attache.reason")
        .map(|reason| reason.get().to_owned())
}

#[tokio::test(start_paused = true)]
async fn r10_an_interrupted_turn_fails_with_its_reason() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let settings = Settings::default;
    let (engine, heads) = restart(
        &store,
        &agent,
        settings(),
        settings(),
        &["say hang", "hang", "login hang"],
    )
    .await;
    wait_until_idle(&engine).await;
    for head in &heads {
        let task = check_invariants(&engine, head).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(reason(&task).as_deref(), Some("\"interrupted\""));
        assert_eq!(
            task.status.message.unwrap().text(),
            "Agent execution failed (interrupted)"
        );
        assert_eq!(log_summary(&engine, head).await.last().unwrap(), "end");
    }
    assert_eq!(check_idle(&engine).await.len(), 3);
    assert_eq!(agent.received().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn r10_a_turn_is_repeated_up_to_the_attempt_limit() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let settings = || Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 3 },
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent.clone(), settings());
    let head = start(&engine, "say hang").await.head;
    shut_down(&engine).await;
    for attempt in 2..=3 {
        let engine = engine_on(store.clone(), agent.clone(), settings());
        within_deadline(engine.recover()).await.unwrap();
        yield_until_idle().await;
        assert_eq!(agent.received().len(), attempt);
        assert_eq!(
            check_invariants(&engine, &head).await.status.state,
            TaskState::Working
        );
        shut_down(&engine).await;
    }
    let engine = engine_on(store.clone(), agent.clone(), settings());
    within_deadline(engine.recover()).await.unwrap();
    wait_until_idle(&engine).await;
    assert_eq!(
        check_invariants(&engine, &head).await.status.state,
        TaskState::Failed
    );
    assert_eq!(agent.received().len(), 3);
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r10_an_attempt_is_recorded_before_it_runs() {
    let store = Arc::new(FaultyStore::gated());
    let agent = ScriptedAgent::default();
    let settings = || Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 9 },
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent.clone(), settings());
    start(&engine, "say hang").await;
    shut_down(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), settings());
    store.hold_writes(true);
    within_deadline(engine.recover()).await.unwrap();
    yield_until_idle().await;
    assert_eq!(agent.received().len(), 1);
    store.release_writes(1);
    yield_until_idle().await;
    assert_eq!(agent.received().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn r43_a_parked_task_stays_parked_and_can_be_answered() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let settings = Settings::default;
    let (engine, heads) = restart(
        &store,
        &agent,
        settings(),
        settings(),
        &["ask", "yield auth"],
    )
    .await;
    wait_until_idle(&engine).await;
    let states: Vec<_> = check_idle(&engine)
        .await
        .into_iter()
        .map(|task| task.status.state)
        .collect();
    assert_eq!(states, [TaskState::InputRequired, TaskState::AuthRequired]);
    for head in &heads {
        assert_eq!(
            send_to(&engine, head, "done").await.unwrap().status.state,
            TaskState::Completed
        );
        assert!(matches!(
            send_to(&engine, head, "again").await,
            Err(Error::Ended(_))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn r10_waiting_messages_take_their_turns_in_order() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let settings = || Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 2 },
        ..Settings::default()
    };
    let engine = engine_on(
        store.clone(),
        agent.clone(),
        Settings {
            max_turns: 1,
            ..settings()
        },
    );
    let (parked, _) = send(&engine, "ask").await;
    let busy = start(&engine, "login hang").await.head;
    // The turns of these have not started when the process ends.
    let submitted = start(&engine, "1 ask").await.head;
    within_deadline(engine.continue_task(call(), &submitted, message("2 done"), None))
        .await
        .unwrap();
    within_deadline(engine.continue_task(call(), &parked, message("3 done"), None))
        .await
        .unwrap();
    assert_eq!(
        check_invariants(&engine, &submitted).await.status.state,
        TaskState::Submitted
    );
    assert_eq!(agent.received(), ["ask", "login hang"]);
    shut_down(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), settings());
    within_deadline(engine.recover()).await.unwrap();
    yield_until_idle().await;
    let mut received = agent.received().split_off(2);
    received.sort();
    assert_eq!(received, ["1 ask", "2 done", "3 done", "login hang"]);
    for head in [&submitted, &parked] {
        assert_eq!(
            check_invariants(&engine, head).await.status.state,
            TaskState::Completed
        );
    }
    within_deadline(engine.cancel(&busy, None)).await.unwrap();
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r12_a_message_whose_turn_has_not_begun_has_it_after_a_restart() {
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
    let (parked, _) = send(&engine, "ask").await;
    let interrupted = start(&engine, "hang").await.head;
    let submitted = start(&engine, "done").await.head;
    within_deadline(engine.continue_task(call(), &parked, message("done"), None))
        .await
        .unwrap();
    shut_down(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    within_deadline(engine.recover()).await.unwrap();
    wait_until_idle(&engine).await;
    for head in [&submitted, &parked] {
        let task = check_invariants(&engine, head).await;
        assert_eq!(task.status.state, TaskState::Completed);
    }
    let task = check_invariants(&engine, &interrupted).await;
    assert_eq!(
        (task.status.state, reason(&task).as_deref()),
        (TaskState::Failed, Some("\"interrupted\""))
    );
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r25_a_log_unreadable_at_startup_is_recovered_later() {
    let store = Arc::new(FaultyStore::default());
    let agent = ScriptedAgent::default();
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    let head = start(&engine, "say hang").await.head;
    shut_down(&engine).await;
    for fault in [FaultTiming::Before, FaultTiming::After] {
        let engine = engine_on(store.clone(), agent.clone(), Settings::default());
        store.fail_all(fault);
        assert!(within_deadline(engine.recover()).await.is_err());
        store.stop_failing();
    }
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    // The reads of the newest time and of the task list succeed, later ones fail for a while.
    let next = store.calls() + 3;
    store.fail(next..next + 5, FaultTiming::Before);
    within_deadline(engine.recover()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    wait_until_idle(&engine).await;
    assert_eq!(
        check_invariants(&engine, &head).await.status.state,
        TaskState::Failed
    );
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn d16_a_running_task_with_a_damaged_log_ends_as_failed() {
    for failing_calls in [0, 4] {
        let store = Arc::new(FaultyStore::default());
        let agent = ScriptedAgent::default();
        let engine = engine_on(store.clone(), agent.clone(), Settings::default());
        let damaged = start(&engine, "say hang").await.head;
        let other = start(&engine, "say hang").await.head;
        yield_until_idle().await;
        shut_down(&engine).await;
        store.damage(&damaged.id);
        let engine = engine_on(store.clone(), agent.clone(), Settings::default());
        // The reads of the newest time and of the task list succeed, later calls fail for a while.
        let next = store.calls() + 3;
        store.fail(next..next + failing_calls, FaultTiming::Before);
        within_deadline(engine.recover()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        wait_until_idle(&engine).await;
        // The head has the end, and so have lists; the log stays unreadable.
        let head = store.find(&scope(), &damaged.id).await.unwrap().unwrap();
        assert_eq!(head.state, TaskState::Failed);
        assert!(head.position > damaged.position);
        let runnable = store.list_runnable(None, 9).await.unwrap();
        assert!(runnable.is_empty(), "{runnable:?}");
        let error = engine.task(&head).await.unwrap_err();
        assert!(
            matches!(error, Error::Store(store::Error::Damaged(_))),
            "{error:?}"
        );
        // Other tasks are recovered as usual.
        let task = check_invariants(&engine, &other).await;
        assert_eq!(reason(&task).as_deref(), Some("\"interrupted\""));
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_get_an_error_when_the_engine_stops() {
    let engine = engine_on(
        Arc::new(Memory::new()),
        ScriptedAgent::default(),
        Settings::default(),
    );
    let accepted = start(&engine, "hang").await;
    let (parked, _) = send(&engine, "ask").await;
    let mut follow = engine.follow(&parked, Seq(0));
    within_deadline(follow.next()).await.unwrap();
    let ((settled, is_followed), ()) = within_deadline(async {
        tokio::join!(
            async { tokio::join!(engine.await_turn_result(accepted), follow.next()) },
            shut_down(&engine)
        )
    })
    .await;
    assert!(
        matches!(settled, Err(Error::ShuttingDown | Error::StoreUnavailable)),
        "{settled:?}"
    );
    assert!(
        matches!(is_followed, Err(Error::ShuttingDown)),
        "{is_followed:?}"
    );
    assert!(matches!(
        within_deadline(engine.cancel(&parked, None)).await,
        Err(Error::ShuttingDown)
    ));
}

/// Sends messages to an engine whose store fails from some call on. Returns the acknowledged messages.
async fn send_messages(engine: &Engine) -> Vec<(TaskId, MessageId)> {
    let mut taken = Vec::new();
    for (first, second) in [
        ("say yield ask", "yield write done"),
        ("write", ""),
        ("say hang", "done"),
    ] {
        let first = message(first);
        let Ok(accepted) =
            within_deadline(engine.start(call(), InitialMessage::from(first.clone()))).await
        else {
            continue;
        };
        let head = accepted.head.clone();
        taken.push((head.id.clone(), first.message_id));
        yield_until_idle().await;
        let second = message(second);
        if let Ok(accepted) =
            within_deadline(engine.continue_task(call(), &head, second.clone(), None)).await
        {
            taken.push((accepted.head.id, second.message_id));
        }
        yield_until_idle().await;
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn r10_r12_a_process_that_ends_at_any_call_leaves_nothing_without_an_end() {
    let whole = Arc::new(FaultyStore::default());
    send_messages(&engine_on(
        whole.clone(),
        ScriptedAgent::default(),
        Settings::default(),
    ))
    .await;
    let policies = [
        RestartPolicy::Fail,
        RestartPolicy::RunAgain { attempts: 1 },
        RestartPolicy::RunAgain { attempts: 3 },
    ];
    for fault in [FaultTiming::Before, FaultTiming::After] {
        for (first, policy) in
            (1..=whole.calls() + 1).flat_map(|first| policies.map(|policy| (first, policy)))
        {
            let settings = || Settings {
                on_restart: policy,
                ..Settings::default()
            };
            let store = Arc::new(FaultyStore::failing(first..u64::MAX, fault));
            let engine = engine_on(store.clone(), ScriptedAgent::default(), settings());
            let taken = send_messages(&engine).await;
            shut_down(&engine).await;
            // In the new process the store fails once more, at a varying call.
            let again = store.calls() + first % 7;
            store.fail(again..again + 2, fault);
            let engine = engine_on(store.clone(), ScriptedAgent::default(), settings());
            while within_deadline(engine.recover()).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(600)).await;
            store.stop_failing();
            for head in engine
                .inner
                .journal
                .store
                .list_unfinished(None, 100)
                .await
                .unwrap()
            {
                let runs = engine.inner.journal.active_tasks.get(&head.id).is_some();
                assert!(
                    head.state.is_interrupted() || runs,
                    "not recovered: {head:?}"
                );
                let _ = within_deadline(engine.cancel(&head, None)).await;
            }
            wait_until_idle(&engine).await;
            let context = format!("{fault:?} {first} {policy:?}");
            let tasks = check_idle(&engine).await;
            for (task, message) in taken {
                let task = tasks.iter().find(|known| known.id == task).expect(&context);
                assert!(task.is_ended(), "{context}: {task:?}");
                let times = task
                    .history
                    .iter()
                    .filter(|sent| sent.message_id == message)
                    .count();
                assert_eq!(times, 1, "{context}: {task:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r10_concurrent_recoveries_are_bounded() {
    let store = Arc::new(FaultyStore::gated());
    let agent = ScriptedAgent::default();
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    let mut heads = Vec::new();
    for _ in 0..600 {
        heads.push(start(&engine, "hang").await.head);
    }
    shut_down(&engine).await;
    let engine = engine_on(store.clone(), agent, Settings::default());
    store.hold_reads(true);
    let recovering = engine.clone();
    let mut recovered = tokio::task::JoinSet::new();
    recovered.spawn(async move { recovering.recover().await });
    // The reads of the newest time and of the first page succeed, then reads are held.
    store.release_writes(2);
    yield_until_idle().await;
    let seen_to = heads
        .iter()
        .filter(|head| engine.inner.journal.active_tasks.get(&head.id).is_some())
        .count();
    assert_eq!(seen_to, 256);
    store.hold_reads(false);
    store.release_writes(10_000);
    within_deadline(recovered.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    wait_until_idle(&engine).await;
    let tasks = check_idle(&engine).await;
    assert_eq!(tasks.len(), 600);
    assert!(
        tasks
            .iter()
            .all(|task| task.status.state == TaskState::Failed)
    );
}
