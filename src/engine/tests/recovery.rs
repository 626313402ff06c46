//! R10, R12, R43: what becomes of tasks when a process ends and another one finds their logs.

use super::world::*;
use super::*;

/// Two processes, one after the other, on one store.
async fn restart(
    store: &Arc<Faulty>,
    agent: &Obeys,
    first: Settings,
    then: Settings,
    scripts: &[&str],
) -> (Engine, Vec<Head>) {
    let engine = engine_on(store.clone(), agent.clone(), first);
    let mut heads = Vec::new();
    for script in scripts {
        heads.push(start(&engine, script).await.head);
    }
    settle_down().await;
    kill(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), then);
    soon(engine.recover()).await.unwrap();
    (engine, heads)
}

fn reason(task: &Task) -> Option<String> {
    task.metadata
        .as_ref()?
        .get("attache.reason")
        .map(|reason| reason.get().to_owned())
}

#[tokio::test(start_paused = true)]
async fn r10_a_turn_that_was_cut_off_fails_and_says_so() {
    let (store, agent) = (Arc::new(Faulty::default()), Obeys::default());
    let settings = Settings::default;
    let (engine, heads) = restart(
        &store,
        &agent,
        settings(),
        settings(),
        &["say hang", "hang", "login hang"],
    )
    .await;
    quiet(&engine).await;
    for head in &heads {
        let task = lawful(&engine, head).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(reason(&task).as_deref(), Some("\"interrupted\""));
        assert_eq!(
            task.status.message.unwrap().text(),
            "Agent execution failed (interrupted)"
        );
        assert_eq!(words(&engine, head).await.last().unwrap(), "end");
    }
    assert_eq!(at_rest(&engine).await.len(), 3);
    assert_eq!(agent.heard().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn r10_a_turn_runs_again_as_often_as_allowed() {
    let (store, agent) = (Arc::new(Faulty::default()), Obeys::default());
    let settings = || Settings {
        on_restart: Restart::RunAgain { attempts: 3 },
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent.clone(), settings());
    let head = start(&engine, "say hang").await.head;
    kill(&engine).await;
    for attempt in 2..=3 {
        let engine = engine_on(store.clone(), agent.clone(), settings());
        soon(engine.recover()).await.unwrap();
        settle_down().await;
        assert_eq!(agent.heard().len(), attempt);
        assert_eq!(
            lawful(&engine, &head).await.status.state,
            TaskState::Working
        );
        kill(&engine).await;
    }
    let engine = engine_on(store.clone(), agent.clone(), settings());
    soon(engine.recover()).await.unwrap();
    quiet(&engine).await;
    assert_eq!(lawful(&engine, &head).await.status.state, TaskState::Failed);
    assert_eq!(agent.heard().len(), 3);
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r10_an_attempt_is_recorded_before_it_runs() {
    let (store, agent) = (Arc::new(Faulty::gated()), Obeys::default());
    let settings = || Settings {
        on_restart: Restart::RunAgain { attempts: 9 },
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent.clone(), settings());
    start(&engine, "say hang").await;
    kill(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), settings());
    store.hold(true);
    soon(engine.recover()).await.unwrap();
    settle_down().await;
    assert_eq!(agent.heard().len(), 1);
    store.let_pass(1);
    settle_down().await;
    assert_eq!(agent.heard().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn r43_a_parked_task_stays_parked_and_can_be_answered() {
    let (store, agent) = (Arc::new(Faulty::default()), Obeys::default());
    let settings = Settings::default;
    let (engine, heads) = restart(
        &store,
        &agent,
        settings(),
        settings(),
        &["ask", "yield auth"],
    )
    .await;
    quiet(&engine).await;
    let states: Vec<_> = at_rest(&engine)
        .await
        .into_iter()
        .map(|task| task.status.state)
        .collect();
    assert_eq!(states, [TaskState::InputRequired, TaskState::AuthRequired]);
    for head in &heads {
        assert_eq!(
            answer(&engine, head, "done").await.unwrap().status.state,
            TaskState::Completed
        );
        assert!(matches!(
            answer(&engine, head, "again").await,
            Err(Error::Ended(_))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn r10_messages_that_waited_take_their_turns_in_order() {
    let (store, agent) = (Arc::new(Faulty::default()), Obeys::default());
    let settings = || Settings {
        on_restart: Restart::RunAgain { attempts: 2 },
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
    // Nobody has begun on these when the process ends.
    let submitted = start(&engine, "1 ask").await.head;
    soon(engine.resume(call(), &submitted, message("2 done"), None))
        .await
        .unwrap();
    soon(engine.resume(call(), &parked, message("3 done"), None))
        .await
        .unwrap();
    assert_eq!(
        lawful(&engine, &submitted).await.status.state,
        TaskState::Submitted
    );
    assert_eq!(agent.heard(), ["ask", "login hang"]);
    kill(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), settings());
    soon(engine.recover()).await.unwrap();
    settle_down().await;
    let mut heard = agent.heard().split_off(2);
    heard.sort();
    assert_eq!(heard, ["1 ask", "2 done", "3 done", "login hang"]);
    for head in [&submitted, &parked] {
        assert_eq!(
            lawful(&engine, head).await.status.state,
            TaskState::Completed
        );
    }
    soon(engine.cancel(&busy, None)).await.unwrap();
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r12_a_message_that_nobody_began_on_is_no_silence() {
    let (store, agent) = (Arc::new(Faulty::default()), Obeys::default());
    let engine = engine_on(
        store.clone(),
        agent.clone(),
        Settings {
            max_turns: 1,
            ..Settings::default()
        },
    );
    let (parked, _) = send(&engine, "ask").await;
    start(&engine, "hang").await;
    let submitted = start(&engine, "done").await.head;
    soon(engine.resume(call(), &parked, message("done"), None))
        .await
        .unwrap();
    kill(&engine).await;
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    soon(engine.recover()).await.unwrap();
    quiet(&engine).await;
    for head in [&submitted, &parked] {
        let task = lawful(&engine, head).await;
        assert_eq!(
            (task.status.state, reason(&task).as_deref()),
            (TaskState::Failed, Some("\"interrupted\""))
        );
    }
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r25_a_log_that_cannot_be_read_at_the_start_is_recovered_later() {
    let (store, agent) = (Arc::new(Faulty::default()), Obeys::default());
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    let head = start(&engine, "say hang").await.head;
    kill(&engine).await;
    for fault in [Fault::Before, Fault::After] {
        let engine = engine_on(store.clone(), agent.clone(), Settings::default());
        store.break_down(fault);
        assert!(soon(engine.recover()).await.is_err());
        store.heal();
    }
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    // The time and the sweep itself pass, every read after them fails for a while.
    let next = store.calls() + 3;
    store.fail(next..next + 5, Fault::Before);
    soon(engine.recover()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    quiet(&engine).await;
    assert_eq!(lawful(&engine, &head).await.status.state, TaskState::Failed);
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_told_when_an_engine_stops() {
    let engine = engine_on(
        Arc::new(Memory::new()),
        Obeys::default(),
        Settings::default(),
    );
    let accepted = start(&engine, "hang").await;
    let (parked, _) = send(&engine, "ask").await;
    let mut follow = engine.follow(&parked, Seq(0));
    soon(follow.next()).await.unwrap();
    let ((settled, followed), ()) = soon(async {
        tokio::join!(
            async { tokio::join!(engine.settled(accepted), follow.next()) },
            kill(&engine)
        )
    })
    .await;
    assert!(
        matches!(settled, Err(Error::Stopped | Error::Lost)),
        "{settled:?}"
    );
    assert!(matches!(followed, Err(Error::Stopped)), "{followed:?}");
    assert!(matches!(
        soon(engine.cancel(&parked, None)).await,
        Err(Error::Stopped)
    ));
}

/// Talks to an engine whose store goes down at some call and stays down; gives what was acknowledged.
async fn talk(engine: &Engine) -> Vec<(TaskId, MessageId)> {
    let mut taken = Vec::new();
    for (first, second) in [
        ("say yield ask", "yield write done"),
        ("write", ""),
        ("say hang", "done"),
    ] {
        let first = message(first);
        let Ok(accepted) = soon(engine.start(call(), Opening::from(first.clone()))).await else {
            continue;
        };
        let head = accepted.head.clone();
        taken.push((head.id.clone(), first.message_id));
        settle_down().await;
        let second = message(second);
        if let Ok(accepted) = soon(engine.resume(call(), &head, second.clone(), None)).await {
            taken.push((accepted.head.id, second.message_id));
        }
        settle_down().await;
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn r10_r12_a_process_that_ends_at_any_call_leaves_nothing_without_an_end() {
    let whole = Arc::new(Faulty::default());
    talk(&engine_on(
        whole.clone(),
        Obeys::default(),
        Settings::default(),
    ))
    .await;
    let policies = [
        Restart::Fail,
        Restart::RunAgain { attempts: 1 },
        Restart::RunAgain { attempts: 3 },
    ];
    for fault in [Fault::Before, Fault::After] {
        for (first, policy) in
            (1..=whole.calls() + 1).flat_map(|first| policies.map(|policy| (first, policy)))
        {
            let settings = || Settings {
                on_restart: policy,
                ..Settings::default()
            };
            let store = Arc::new(Faulty::failing(first..u64::MAX, fault));
            let engine = engine_on(store.clone(), Obeys::default(), settings());
            let taken = talk(&engine).await;
            kill(&engine).await;
            // The new process meets a store that fails once more, at one call or another.
            let again = store.calls() + first % 7;
            store.fail(again..again + 2, fault);
            let engine = engine_on(store.clone(), Obeys::default(), settings());
            while soon(engine.recover()).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(600)).await;
            store.heal();
            for head in engine.journal.store.unfinished(None, 100).await.unwrap() {
                let runs = engine.journal.registry.get(&head.id).is_some();
                assert!(head.state.is_interrupted() || runs, "a silent {head:?}");
                let _ = soon(engine.cancel(&head, None)).await;
            }
            quiet(&engine).await;
            let context = format!("{fault:?} {first} {policy:?}");
            let tasks = at_rest(&engine).await;
            for (task, message) in taken {
                let task = tasks.iter().find(|known| known.id == task).expect(&context);
                assert!(task.is_ended(), "{context}: {task:?}");
                let times = task
                    .history
                    .iter()
                    .filter(|said| said.message_id == message)
                    .count();
                assert_eq!(times, 1, "{context}: {task:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r10_only_so_many_tasks_are_seen_to_at_once() {
    let (store, agent) = (Arc::new(Faulty::gated()), Obeys::default());
    let engine = engine_on(store.clone(), agent.clone(), Settings::default());
    let mut heads = Vec::new();
    for _ in 0..600 {
        heads.push(start(&engine, "hang").await.head);
    }
    kill(&engine).await;
    let engine = engine_on(store.clone(), agent, Settings::default());
    store.hold_reads(true);
    let recovering = engine.clone();
    let mut recovered = tokio::task::JoinSet::new();
    recovered.spawn(async move { recovering.recover().await });
    // The time and the first page of them, and then nothing is read.
    store.let_pass(2);
    settle_down().await;
    let seen_to = heads
        .iter()
        .filter(|head| engine.journal.registry.get(&head.id).is_some())
        .count();
    assert_eq!(seen_to, 256);
    store.hold_reads(false);
    store.let_pass(10_000);
    soon(recovered.join_next()).await.unwrap().unwrap().unwrap();
    quiet(&engine).await;
    let tasks = at_rest(&engine).await;
    assert_eq!(tasks.len(), 600);
    assert!(
        tasks
            .iter()
            .all(|task| task.status.state == TaskState::Failed)
    );
}
