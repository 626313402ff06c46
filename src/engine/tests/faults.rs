//! R25: a store that fails at any call. Nothing that was acknowledged is lost, every task gets its end, nobody hangs.

use super::world::*;
use super::*;

/// Long enough for every pause between attempts; time is paused, so it costs nothing.
const LONG: Duration = Duration::from_secs(600);

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    timeout(LONG, future).await.expect("nobody waits for ever")
}

/// Calls until there is an answer; each refusal must be a clear one.
async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    for _ in 0..4000 {
        match patiently(ask()).await {
            Err(Error::Ended(state)) => return Err(Error::Ended(state)),
            Err(Error::Gone) => return Err(Error::Gone),
            Err(error) => {
                let error = model::Error::from(error);
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.retry_after().is_some());
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            done => return done,
        }
    }
    panic!("the store works again, the engine does not");
}

async fn settled(engine: &Engine, accepted: Box<Accepted>) -> Task {
    let head = accepted.head.clone();
    match patiently(engine.settled(accepted)).await {
        Ok(task) => task,
        Err(_) => insist(async || {
            let (task, _) = engine.task(&head).await?;
            let rests = task.is_ended() || task.status.state.is_interrupted();
            if rests {
                Ok(Arc::unwrap_or_clone(task))
            } else {
                Err(Error::Lost)
            }
        })
        .await
        .unwrap(),
    }
}

/// A conversation of two turns under keys, a canceled task, a quick one and a dialogue that nobody waits for. Gives
/// the messages that were acknowledged, by their task.
async fn scenario(engine: &Engine) -> Vec<(TaskId, MessageId)> {
    let mut taken = Vec::new();
    let first = message("say yield ask");
    let opening = || Opening {
        key: key("first", 1),
        ..Opening::from(first.clone())
    };
    let accepted = insist(async || engine.start(call(), opening()).await)
        .await
        .unwrap();
    let head = accepted.head.clone();
    taken.push((head.id.clone(), first.message_id.clone()));
    let mut readers = tokio::task::JoinSet::new();
    readers.spawn(follow_to_end(engine.follow(&head, Seq(0))));
    settled(engine, accepted).await;
    let second = message("say write yield say done");
    let resumed = insist(async || {
        engine
            .resume(call(), &head, second.clone(), key("second", 2))
            .await
    })
    .await;
    if let Ok(accepted) = resumed {
        taken.push((head.id.clone(), second.message_id.clone()));
        let task = settled(engine, accepted).await;
        assert!(task.is_ended(), "{task:?}");
        // Sent again under its key, a message that ended the task gets that task.
        let again = insist(async || {
            engine
                .resume(call(), &head, second.clone(), key("second", 2))
                .await
        })
        .await;
        assert_eq!(again.unwrap().into_task().0.status, task.status);
    }
    if let Ok(accepted) = patiently(engine.start(call(), super::world::opening("write"))).await {
        taken.push((
            accepted.head.id.clone(),
            accepted.log.task.history[0].message_id.clone(),
        ));
    }
    if let Ok(accepted) = patiently(engine.start(call(), super::world::opening("say hang"))).await {
        let head = accepted.head.clone();
        taken.push((
            head.id.clone(),
            accepted.log.task.history[0].message_id.clone(),
        ));
        let waiting = message("say done");
        if let Ok(accepted) = patiently(engine.resume(call(), &head, waiting.clone(), None)).await {
            taken.push((accepted.head.id, waiting.message_id));
        }
        let canceled = insist(async || engine.cancel(&head, None).await).await;
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
    taken
}

#[tokio::test(start_paused = true)]
async fn r25_a_store_that_fails_at_any_call_loses_nothing_and_nobody_hangs() {
    let whole = Arc::new(Faulty::default());
    let engine = engine_on(whole.clone(), Obeys::default(), Settings::default());
    scenario(&engine).await;
    quiet(&engine).await;
    let calls = whole.calls();
    assert!(calls > 10, "{calls}");
    for fault in [Fault::Before, Fault::After] {
        for length in [1, 2, 5, 40] {
            for first in 1..=calls {
                let store = Arc::new(Faulty::failing(first..first + length, fault));
                let engine = engine_on(store.clone(), Obeys::default(), Settings::default());
                let taken = scenario(&engine).await;
                store.heal();
                tokio::time::sleep(LONG).await;
                settle_down().await;
                let context = format!("{fault:?} {first}+{length}");
                let tasks = at_rest(&engine).await;
                for (task, message) in taken {
                    let task = tasks.iter().find(|known| known.id == task).expect(&context);
                    let times = task
                        .history
                        .iter()
                        .filter(|said| said.message_id == message)
                        .count();
                    assert_eq!(times, 1, "{context}: {task:?}");
                    assert!(task.is_ended(), "{context}: {task:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r25_a_store_that_panics_at_any_write_loses_nothing_and_nobody_hangs() {
    let whole = Arc::new(Faulty::default());
    let engine = engine_on(whole.clone(), Obeys::default(), Settings::default());
    scenario(&engine).await;
    quiet(&engine).await;
    assert!(whole.writes() > 5, "{}", whole.writes());
    for write in 1..=whole.writes() {
        let engine = engine_on(
            Arc::new(Faulty::panicking(write)),
            Obeys::default(),
            Settings::default(),
        );
        let taken = scenario(&engine).await;
        tokio::time::sleep(LONG).await;
        let tasks = at_rest(&engine).await;
        for (task, message) in taken {
            let task = tasks
                .iter()
                .find(|known| known.id == task)
                .expect("it was acknowledged");
            assert_eq!(
                task.history
                    .iter()
                    .filter(|said| said.message_id == message)
                    .count(),
                1
            );
            assert!(task.is_ended(), "write {write}: {task:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_runner_panicked_can_be_canceled_or_has_failed_without_a_restart() {
    let store = Arc::new(Faulty::default());
    let engine = engine_on(store.clone(), Obeys::default(), Settings::default());
    let (asked, _) = send(&engine, "ask").await;
    let accepted = start(&engine, "hang").await;
    let mut follow = engine.follow(&accepted.head, accepted.log.at);
    for head in [&accepted.head, &asked] {
        store.panic_next();
        let error = soon(engine.resume(call(), head, message("more"), None))
            .await
            .unwrap_err();
        assert_eq!(model::Error::from(error).kind(), ErrorKind::Unavailable);
    }
    assert!(matches!(soon(follow.next()).await, Err(Error::Lost)));
    let failed = insist(async || engine.cancel(&accepted.head, None).await)
        .await
        .unwrap_err();
    assert!(
        matches!(failed, Error::Ended(TaskState::Failed)),
        "{failed:?}"
    );
    // Nothing ran there, and nothing was added: it goes on waiting.
    let canceled = insist(async || engine.cancel(&asked, None).await)
        .await
        .unwrap();
    assert_eq!(
        (canceled.status.state, canceled.history.len()),
        (TaskState::Canceled, 2)
    );
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r25_while_the_store_is_down_everybody_is_told_at_once() {
    let store = Arc::new(Faulty::default());
    let engine = engine_on(store.clone(), Obeys::default(), Settings::default());
    let accepted = start(&engine, "hang").await;
    let head = accepted.head.clone();
    let mut follow = engine.follow(&head, accepted.log.at);
    store.break_down(Fault::Before);
    let lost = |error: &Error| matches!(error, Error::Lost | Error::Store(_));
    let error = soon(engine.resume(call(), &head, message("more"), None))
        .await
        .unwrap_err();
    assert!(lost(&error), "{error:?}");
    for _ in 0..3 {
        let error = soon(engine.cancel(&head, None)).await.unwrap_err();
        assert!(lost(&error), "{error:?}");
        let error = soon(engine.resume(call(), &head, message("more"), None))
            .await
            .unwrap_err();
        assert!(lost(&error), "{error:?}");
        assert!(lost(
            &soon(engine.start(call(), opening("say")))
                .await
                .unwrap_err()
        ));
        assert!(lost(&soon(follow.next()).await.unwrap_err()));
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert!(lost(&soon(engine.settled(accepted)).await.unwrap_err()));
    assert_eq!(engine.turns.available_permits(), engine.settings.max_turns);
    store.heal();
    let seen = patiently(follow_to_end(follow)).await;
    assert!(!seen.is_empty());
    tokio::time::sleep(LONG).await;
    let tasks = at_rest(&engine).await;
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0].status.state, TaskState::Failed);
    assert_eq!(
        send(&engine, "say").await.1.status.state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn r25_a_question_that_was_recorded_after_all_can_be_answered() {
    // The second call is the commit that parks the task.
    let store = Arc::new(Faulty::failing(2..3, Fault::After));
    let engine = engine_on(store.clone(), Obeys::default(), Settings::default());
    let accepted = start(&engine, "say yield ask").await;
    let head = accepted.head.clone();
    assert!(soon(engine.settled(accepted)).await.is_err());
    tokio::time::sleep(LONG).await;
    let (task, _) = engine.task(&head).await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired);
    assert_eq!(
        answer(&engine, &head, "done").await.unwrap().status.state,
        TaskState::Completed
    );
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r16_a_key_with_another_body_is_no_fault_of_the_store() {
    let engine = engine_on(
        Arc::new(Memory::new()),
        Obeys::default(),
        Settings::default(),
    );
    let keyed = |body| Opening {
        key: key("k", body),
        ..opening("say")
    };
    let first = soon(engine.start(call(), keyed(1))).await.unwrap();
    soon(engine.settled(first)).await.unwrap();
    let refused = engine.start(call(), keyed(2)).await.unwrap_err();
    assert!(matches!(refused, Error::Store(store::Error::KeyReused)));
    // At once, and without a pause for a store that is well.
    assert_eq!(at_rest(&engine).await.len(), 1);
    assert!(engine.tracker.is_empty());
}

#[tokio::test(start_paused = true)]
async fn r25_a_store_that_hangs_holds_nobody_up_for_ever() {
    let store = Arc::new(Faulty::gated());
    let settings = Settings {
        max_turn_time: Some(Duration::from_secs(120)),
        store_timeout: Duration::from_secs(30),
        cancel_grace: Duration::from_secs(5),
        ..Settings::default()
    };
    let agent = Obeys::default();
    let engine = engine_on(store.clone(), agent.clone(), settings);
    // The store hangs where the first one speaks, and where the other one takes a message.
    let accepted = start(&engine, "gate say hang").await;
    let (speaks, takes) = (accepted.head.clone(), start(&engine, "hang").await.head);
    let mut follow = engine.follow(&speaks, accepted.log.at);
    store.hold(true);
    agent.gate.add_permits(1);
    settle_down().await;
    let before = tokio::time::Instant::now();
    let waited = |result: Result<()>, seconds| {
        let error = model::Error::from(result.unwrap_err());
        assert_eq!(
            (error.kind(), before.elapsed().as_secs()),
            (ErrorKind::Unavailable, seconds)
        );
    };
    let more = |head| engine.resume(call(), head, message("more"), None);
    tokio::join!(
        async { waited(engine.start(call(), opening("say")).await.map(drop), 30) },
        async { waited(more(&speaks).await.map(drop), 30) },
        async { waited(more(&takes).await.map(drop), 30) },
        async { waited(engine.cancel(&speaks, None).await.map(drop), 35) },
        async { waited(follow.next().await.map(drop), 30) },
        async { waited(patiently(engine.settled(accepted)).await.map(drop), 30) },
    );
    // The turns keep their limit, although nobody can write that down yet.
    assert_eq!(
        (agent.running(&speaks.id), agent.running(&takes.id)),
        (1, 1)
    );
    tokio::time::sleep(Duration::from_secs(86)).await;
    assert_eq!(
        (agent.running(&speaks.id), agent.running(&takes.id)),
        (0, 0)
    );
    assert_eq!(
        words(&engine, &speaks).await,
        ["created", "message gate say hang", "turn", "working"]
    );
    store.hold(false);
    store.let_pass(100);
    let seen = patiently(follow_to_end(follow)).await;
    assert!(!seen.is_empty());
    quiet(&engine).await;
    // What nobody had begun to record is not recorded later, behind the back of those who were told.
    assert_eq!(
        words(&engine, &speaks).await[3..],
        ["working", "working", "failed", "end"]
    );
    // What was begun is there whole.
    assert_eq!(
        words(&engine, &takes).await[4..],
        ["message more", "failed", "end"]
    );
    assert_eq!(at_rest(&engine).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn r25_a_store_that_hangs_while_it_is_read_is_unavailable() {
    let store = Arc::new(Faulty::gated());
    let engine = engine_on(store.clone(), Obeys::default(), Settings::default());
    let (head, _) = send(&engine, "ask").await;
    store.hold_reads(true);
    let patient = Query {
        limit: 9,
        ..Query::default()
    };
    assert!(matches!(
        patiently(engine.find(&super::scope(), &head.id)).await,
        Err(Error::Lost)
    ));
    assert!(matches!(
        patiently(engine.list(&super::scope(), &patient)).await,
        Err(Error::Lost)
    ));
    assert!(matches!(
        patiently(engine.task(&head)).await,
        Err(Error::Lost)
    ));
    assert!(matches!(
        patiently(engine.cancel(&head, None)).await,
        Err(Error::Lost)
    ));
    store.hold_reads(false);
    store.let_pass(100);
    settle_down().await;
    assert_eq!(
        answer(&engine, &head, "done").await.unwrap().status.state,
        TaskState::Completed
    );
    quiet(&engine).await;
    at_rest(&engine).await;
}
