//! Store failures at any call (R25): no acknowledged message is lost, every task ends, no caller hangs.

use super::harness::*;
use super::*;

/// Longer than any retry delay. Time is paused, so waiting costs nothing.
const LONG_DEADLINE: Duration = Duration::from_secs(600);

async fn within_long_deadline<T>(future: impl Future<Output = T>) -> T {
    timeout(LONG_DEADLINE, future)
        .await
        .expect("within the long deadline")
}

/// Retries a call until it succeeds. Each error in between must be `Unavailable` with a retry delay.
async fn retry_until_ok<T>(mut operation: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    for _ in 0..4000 {
        match within_long_deadline(operation()).await {
            Err(Error::Ended(state)) => return Err(Error::Ended(state)),
            Err(Error::Deleted) => return Err(Error::Deleted),
            Err(error) => {
                let error = model::Error::from(error);
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.retry_after().is_some());
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            done => return done,
        }
    }
    panic!("the engine does not recover although the store works");
}

async fn turn_result(engine: &Engine, accepted: Box<AcceptedMessage>) -> Task {
    let head = accepted.head.clone();
    match within_long_deadline(engine.await_turn_result(accepted)).await {
        Ok(task) => task,
        Err(_) => retry_until_ok(async || {
            let (task, _) = engine.task(&head).await?;
            let has_result = task.is_ended() || task.status.state.is_interrupted();
            if has_result {
                Ok(Arc::unwrap_or_clone(task))
            } else {
                Err(Error::StoreUnavailable)
            }
        })
        .await
        .unwrap(),
    }
}

/// Runs a task of two turns with idempotency keys, a canceled task, a quick one, and one without a waiting caller.
/// Returns the acknowledged messages by task.
async fn scenario(engine: &Engine) -> Vec<(TaskId, MessageId)> {
    let mut acknowledged = Vec::new();
    let first = message("say yield ask");
    let initial_message = || InitialMessage {
        key: key("first", 1),
        ..InitialMessage::from(first.clone())
    };
    let accepted = retry_until_ok(async || engine.start(call(), initial_message()).await)
        .await
        .unwrap();
    let head = accepted.head.clone();
    acknowledged.push((head.id.clone(), first.message_id.clone()));
    let mut readers = tokio::task::JoinSet::new();
    readers.spawn(follow_to_end(engine.follow(&head, Seq(0))));
    turn_result(engine, accepted).await;
    let second = message("say write yield say done");
    let resumed = retry_until_ok(async || {
        engine
            .continue_task(call(), &head, second.clone(), key("second", 2))
            .await
    })
    .await;
    if let Ok(accepted) = resumed {
        acknowledged.push((head.id.clone(), second.message_id.clone()));
        let task = turn_result(engine, accepted).await;
        assert!(task.is_ended(), "{task:?}");
        // A message that ended the task, sent again with its key, is answered with that task.
        let again = retry_until_ok(async || {
            engine
                .continue_task(call(), &head, second.clone(), key("second", 2))
                .await
        })
        .await;
        assert_eq!(again.unwrap().into_task().0.status, task.status);
    }
    if let Ok(accepted) =
        within_long_deadline(engine.start(call(), super::harness::initial_message("write"))).await
    {
        acknowledged.push((
            accepted.head.id.clone(),
            accepted.log.task.history[0].message_id.clone(),
        ));
    }
    if let Ok(accepted) =
        within_long_deadline(engine.start(call(), super::harness::initial_message("say hang")))
            .await
    {
        let head = accepted.head.clone();
        acknowledged.push((
            head.id.clone(),
            accepted.log.task.history[0].message_id.clone(),
        ));
        let waiting = message("say done");
        if let Ok(accepted) =
            within_long_deadline(engine.continue_task(call(), &head, waiting.clone(), None)).await
        {
            acknowledged.push((accepted.head.id, waiting.message_id));
        }
        let canceled = retry_until_ok(async || engine.cancel(&head, None).await).await;
        assert!(
            matches!(canceled, Ok(_) | Err(Error::Ended(_))),
            "{canceled:?}"
        );
    }
    for seen in readers.join_all().await {
        assert!(
            seen.iter()
                .map(|entry| entry.seq.0)
                .eq(1..=seen.len() as u64),
            "{seen:?}"
        );
    }
    acknowledged
}

#[tokio::test(start_paused = true)]
async fn r25_a_store_failure_at_any_call_loses_nothing_and_blocks_no_caller() {
    let whole = Arc::new(FaultyStore::default());
    let engine = engine_on(whole.clone(), ScriptedAgent::default(), Settings::default());
    scenario(&engine).await;
    wait_until_idle(&engine).await;
    let calls = whole.calls();
    assert!(calls > 10, "{calls}");
    for fault in [FaultTiming::Before, FaultTiming::After] {
        for length in [1, 2, 5, 40] {
            for first in 1..=calls {
                let store = Arc::new(FaultyStore::failing(first..first + length, fault));
                let engine =
                    engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
                let acknowledged = scenario(&engine).await;
                store.stop_failing();
                tokio::time::sleep(LONG_DEADLINE).await;
                yield_until_idle().await;
                let context = format!("{fault:?} {first}+{length}");
                let tasks = check_idle(&engine).await;
                for (task, message) in acknowledged {
                    let task = tasks.iter().find(|known| known.id == task).expect(&context);
                    let times = task
                        .history
                        .iter()
                        .filter(|sent| sent.message_id == message)
                        .count();
                    assert_eq!(times, 1, "{context}: {task:?}");
                    assert!(task.is_ended(), "{context}: {task:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r25_a_store_panic_at_any_write_loses_nothing_and_blocks_no_caller() {
    let whole = Arc::new(FaultyStore::default());
    let engine = engine_on(whole.clone(), ScriptedAgent::default(), Settings::default());
    scenario(&engine).await;
    wait_until_idle(&engine).await;
    assert!(whole.writes() > 5, "{}", whole.writes());
    for write in 1..=whole.writes() {
        let engine = engine_on(
            Arc::new(FaultyStore::panicking(write)),
            ScriptedAgent::default(),
            Settings::default(),
        );
        let acknowledged = scenario(&engine).await;
        tokio::time::sleep(LONG_DEADLINE).await;
        let tasks = check_idle(&engine).await;
        for (task, message) in acknowledged {
            let task = tasks
                .iter()
                .find(|known| known.id == task)
                .expect("it was acknowledged");
            assert_eq!(
                task.history
                    .iter()
                    .filter(|sent| sent.message_id == message)
                    .count(),
                1
            );
            assert!(task.is_ended(), "write {write}: {task:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_runner_panicked_can_be_canceled_or_has_failed_without_a_restart() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (waiting, _) = send(&engine, "ask").await;
    let accepted = start(&engine, "hang").await;
    let mut follow = engine.follow(&accepted.head, accepted.log.position);
    for head in [&accepted.head, &waiting] {
        store.panic_next();
        let error = within_deadline(engine.continue_task(call(), head, message("more"), None))
            .await
            .unwrap_err();
        assert_eq!(model::Error::from(error).kind(), ErrorKind::Unavailable);
    }
    assert!(matches!(
        within_deadline(follow.next()).await,
        Err(Error::StoreUnavailable)
    ));
    let failed = retry_until_ok(async || engine.cancel(&accepted.head, None).await)
        .await
        .unwrap_err();
    assert!(
        matches!(failed, Error::Ended(TaskState::Failed)),
        "{failed:?}"
    );
    // No turn ran and nothing was appended: the task still waits.
    let canceled = retry_until_ok(async || engine.cancel(&waiting, None).await)
        .await
        .unwrap();
    assert_eq!(
        (canceled.status.state, canceled.history.len()),
        (TaskState::Canceled, 2)
    );
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r25_while_the_store_is_down_calls_are_refused_immediately() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let accepted = start(&engine, "hang").await;
    let head = accepted.head.clone();
    let mut follow = engine.follow(&head, accepted.log.position);
    store.fail_all(FaultTiming::Before);
    let lost = |error: &Error| matches!(error, Error::StoreUnavailable | Error::Store(_));
    let error = within_deadline(engine.continue_task(call(), &head, message("more"), None))
        .await
        .unwrap_err();
    assert!(lost(&error), "{error:?}");
    for _ in 0..3 {
        let error = within_deadline(engine.cancel(&head, None))
            .await
            .unwrap_err();
        assert!(lost(&error), "{error:?}");
        let error = within_deadline(engine.continue_task(call(), &head, message("more"), None))
            .await
            .unwrap_err();
        assert!(lost(&error), "{error:?}");
        assert!(lost(
            &within_deadline(engine.start(call(), initial_message("say")))
                .await
                .unwrap_err()
        ));
        assert!(lost(&within_deadline(follow.next()).await.unwrap_err()));
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert!(lost(
        &within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap_err()
    ));
    assert_eq!(
        engine.inner.turn_permits.free_permits(),
        engine.inner.settings.max_turns
    );
    store.stop_failing();
    let seen = within_long_deadline(follow_to_end(follow)).await;
    assert!(!seen.is_empty());
    tokio::time::sleep(LONG_DEADLINE).await;
    let tasks = check_idle(&engine).await;
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0].status.state, TaskState::Failed);
    assert_eq!(
        send(&engine, "say").await.1.status.state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn r25_a_question_recorded_despite_an_error_can_be_answered() {
    // The second store call is the commit that parks the task.
    let store = Arc::new(FaultyStore::failing(2..3, FaultTiming::After));
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let accepted = start(&engine, "say yield ask").await;
    let head = accepted.head.clone();
    assert!(
        within_deadline(engine.await_turn_result(accepted))
            .await
            .is_err()
    );
    tokio::time::sleep(LONG_DEADLINE).await;
    let (task, _) = engine.task(&head).await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired);
    assert_eq!(
        send_to(&engine, &head, "done").await.unwrap().status.state,
        TaskState::Completed
    );
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r16_a_reused_key_is_not_a_store_failure() {
    let engine = engine_on(
        Arc::new(Memory::new()),
        ScriptedAgent::default(),
        Settings::default(),
    );
    let keyed = |body| InitialMessage {
        key: key("k", body),
        ..initial_message("say")
    };
    let first = within_deadline(engine.start(call(), keyed(1)))
        .await
        .unwrap();
    within_deadline(engine.await_turn_result(first))
        .await
        .unwrap();
    let refused = engine.start(call(), keyed(2)).await.unwrap_err();
    assert!(matches!(refused, Error::Store(store::Error::KeyReused)));
    // Immediately: a working store needs no retry delay.
    assert_eq!(check_idle(&engine).await.len(), 1);
    assert!(engine.inner.tracker.is_empty());
}

#[tokio::test(start_paused = true)]
async fn r25_a_hanging_store_blocks_callers_for_at_most_store_timeout() {
    let store = Arc::new(FaultyStore::gated());
    let settings = Settings {
        max_turn_time: Some(Duration::from_secs(120)),
        store_timeout: Duration::from_secs(30),
        cancel_grace: Duration::from_secs(5),
        ..Settings::default()
    };
    let agent = ScriptedAgent::default();
    let engine = engine_on(store.clone(), agent.clone(), settings);
    // The store hangs at a progress event of the first task, and at a message to the second.
    let accepted = start(&engine, "gate say hang").await;
    let writing = accepted.head.clone();
    let receiving = start(&engine, "hang").await.head;
    let mut follow = engine.follow(&writing, accepted.log.position);
    store.hold_writes(true);
    agent.gate.add_permits(1);
    yield_until_idle().await;
    let before = tokio::time::Instant::now();
    let waited = |result: Result<()>, seconds| {
        let error = model::Error::from(result.unwrap_err());
        assert_eq!(
            (error.kind(), before.elapsed().as_secs()),
            (ErrorKind::Unavailable, seconds)
        );
    };
    let more = |head| engine.continue_task(call(), head, message("more"), None);
    tokio::join!(
        async {
            waited(
                engine.start(call(), initial_message("say")).await.map(drop),
                30,
            )
        },
        async { waited(more(&writing).await.map(drop), 30) },
        async { waited(more(&receiving).await.map(drop), 30) },
        async { waited(engine.cancel(&writing, None).await.map(drop), 35) },
        async { waited(follow.next().await.map(drop), 30) },
        async {
            waited(
                within_long_deadline(engine.await_turn_result(accepted))
                    .await
                    .map(drop),
                30,
            )
        },
    );
    // The turns end at their limit, although the end cannot be recorded yet.
    assert_eq!(
        (agent.running(&writing.id), agent.running(&receiving.id)),
        (1, 1)
    );
    tokio::time::sleep(Duration::from_secs(86)).await;
    assert_eq!(
        (agent.running(&writing.id), agent.running(&receiving.id)),
        (0, 0)
    );
    assert_eq!(
        log_summary(&engine, &writing).await,
        ["created", "message gate say hang", "turn", "working"]
    );
    store.hold_writes(false);
    store.release_writes(100);
    let seen = within_long_deadline(follow_to_end(follow)).await;
    assert!(!seen.is_empty());
    wait_until_idle(&engine).await;
    // A command that timed out before it was handled is not recorded later.
    assert_eq!(
        log_summary(&engine, &writing).await[3..],
        ["working", "working", "failed", "end"]
    );
    // A write that had started is recorded completely.
    assert_eq!(
        log_summary(&engine, &receiving).await[4..],
        ["message more", "failed", "end"]
    );
    assert_eq!(check_idle(&engine).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn r25_a_store_that_hangs_while_it_is_read_is_unavailable() {
    let store = Arc::new(FaultyStore::gated());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    let (head, _) = send(&engine, "ask").await;
    store.hold_reads(true);
    let patient = TaskQuery {
        limit: 9,
        ..TaskQuery::default()
    };
    assert!(matches!(
        within_long_deadline(engine.find(&super::scope(), &head.id)).await,
        Err(Error::StoreUnavailable)
    ));
    assert!(matches!(
        within_long_deadline(engine.list(&super::scope(), &patient)).await,
        Err(Error::StoreUnavailable)
    ));
    assert!(matches!(
        within_long_deadline(engine.task(&head)).await,
        Err(Error::StoreUnavailable)
    ));
    assert!(matches!(
        within_long_deadline(engine.cancel(&head, None)).await,
        Err(Error::StoreUnavailable)
    ));
    store.hold_reads(false);
    store.release_writes(100);
    yield_until_idle().await;
    assert_eq!(
        send_to(&engine, &head, "done").await.unwrap().status.state,
        TaskState::Completed
    );
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}
