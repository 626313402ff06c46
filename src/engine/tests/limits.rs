//! Every bound: how many, how much, how long.

use super::world::*;
use super::*;

fn obeying(settings: Settings) -> Engine {
    engine_on(Arc::new(Memory::new()), Obeys::default(), settings)
}

fn why(task: &Task) -> String {
    task.status.message.as_ref().unwrap().text()
}

#[tokio::test(start_paused = true)]
async fn tasks_beyond_the_turns_wait_as_submitted_and_beyond_that_are_refused() {
    let engine = obeying(Settings {
        max_turns: 2,
        max_waiting_turns: 3,
        ..Settings::default()
    });
    let mut tasks = Vec::new();
    for number in 0..5 {
        let accepted = start(&engine, "hang").await;
        let state = if number < 2 {
            TaskState::Working
        } else {
            TaskState::Submitted
        };
        assert_eq!(accepted.log.task.status.state, state);
        assert_eq!(accepted.log.turn_runs(), number < 2);
        tasks.push(accepted.head);
    }
    let refused = soon(engine.start(call(), opening("hang")))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Overloaded));
    let refused = model::Error::from(refused);
    assert_eq!(
        (refused.kind(), refused.retry_after().is_some()),
        (ErrorKind::Unavailable, true)
    );
    assert_eq!(
        engine
            .journal
            .store
            .list(
                &super::scope(),
                &Query {
                    limit: 9,
                    ..Query::default()
                }
            )
            .await
            .unwrap()
            .total,
        5
    );
    soon(engine.cancel(&tasks[0], None)).await.unwrap();
    settle_down().await;
    tasks.push(start(&engine, "hang").await.head);
    for head in &tasks[1..] {
        soon(engine.cancel(head, None)).await.unwrap();
    }
    quiet(&engine).await;
    assert_eq!(at_rest(&engine).await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn those_who_come_at_once_while_the_store_is_slow_are_counted_too() {
    let store = Arc::new(Faulty::gated());
    let settings = Settings {
        max_turns: 1,
        max_waiting_turns: 2,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), Obeys::default(), settings);
    store.hold(true);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let engine = engine.clone();
        callers.spawn(async move { engine.start(call(), opening("yield done")).await.map(drop) });
    }
    settle_down().await;
    store.hold(false);
    store.let_pass(100);
    let answers = soon(callers.join_all()).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    quiet(&engine).await;
    assert_eq!(at_rest(&engine).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_for_one_task_are_bounded() {
    let engine = obeying(Settings {
        max_waiting_messages: 3,
        ..Settings::default()
    });
    let head = start(&engine, "hang").await.head;
    for _ in 0..3 {
        soon(engine.resume(call(), &head, message("more"), None))
            .await
            .unwrap();
    }
    let refused = soon(engine.resume(call(), &head, message("too much"), None)).await;
    assert!(matches!(refused, Err(Error::Overloaded)));
    assert_eq!(lawful(&engine, &head).await.history.len(), 4);
    soon(engine.cancel(&head, None)).await.unwrap();
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn wishes_that_a_slow_store_keeps_waiting_are_bounded() {
    let store = Arc::new(Faulty::gated());
    let settings = Settings {
        max_waiting_messages: 4,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), Obeys::default(), settings);
    let (head, _) = send(&engine, "ask").await;
    store.hold(true);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (engine, head) = (engine.clone(), head.clone());
        callers.spawn(async move {
            engine
                .resume(call(), &head, message("ask"), None)
                .await
                .map(drop)
        });
    }
    settle_down().await;
    store.hold(false);
    store.let_pass(1_000);
    let answers = soon(callers.join_all()).await;
    // One is being recorded, four wait.
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
    assert!(
        answers
            .iter()
            .flat_map(|answer| answer.as_ref().err())
            .all(|error| matches!(error, Error::Overloaded))
    );
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r44_an_agent_that_speaks_faster_than_the_log_waits_for_it() {
    let store = Arc::new(Faulty::gated());
    let said = Arc::new(AtomicU64::new(0));
    let count = said.clone();
    let agent = move |turn: Turn| {
        let said = count.clone();
        async move {
            for _ in 0..10_000 {
                turn.say("more").await;
                said.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Outcome::Completed)
        }
    };
    let settings = Settings {
        max_queued_events: 64,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent, settings);
    store.hold(true);
    store.let_pass(1);
    let accepted = start(&engine, "go").await;
    for writes in 1..=3 {
        settle_down().await;
        // Written, being written, on its way behind that, and gathered meanwhile.
        assert!(
            said.load(Ordering::Relaxed) <= 64 * (writes + 3),
            "{said:?}"
        );
        store.let_pass(1);
    }
    store.hold(false);
    store.let_pass(1);
    let task = soon(engine.settled(accepted)).await.unwrap();
    assert_eq!(task.history.len(), 10_001);
    assert!(store.largest.load(Ordering::Relaxed) <= 64 + 3);
}

#[tokio::test(start_paused = true)]
async fn r44_metadata_that_waits_for_the_next_status_counts_too() {
    let agent = |turn: Turn| async move {
        turn.auth_required("credentials, please").await;
        for number in 0..100 {
            tokio::task::yield_now().await;
            turn.metadata(
                [(number.to_string(), &*"x".repeat(10_000))]
                    .into_iter()
                    .collect(),
            )
            .await;
        }
        Ok(Outcome::Completed)
    };
    let settings = Settings {
        max_task_bytes: 100_000,
        ..Settings::default()
    };
    let engine = engine_on(Arc::new(Memory::new()), agent, settings);
    let head = start(&engine, "go").await.head;
    quiet(&engine).await;
    let task = lawful(&engine, &head).await;
    let expected = (TaskState::Failed, "Agent execution failed (too-large)");
    assert_eq!((task.status.state, &*why(&task)), expected);
}

#[tokio::test(start_paused = true)]
async fn r44_a_task_that_grows_too_large_fails_and_what_it_has_is_within_its_bound() {
    let agent = |turn: Turn| async move {
        let size = turn.text().parse::<usize>()?;
        let mut writer = turn.writer("long");
        for _ in 0..1_000 {
            writer.write("x".repeat(size)).await;
        }
        Ok(Outcome::Completed)
    };
    let settings = Settings {
        max_task_bytes: 1_000_000,
        ..Settings::default()
    };
    let engine = engine_on(Arc::new(Memory::new()), agent, settings);
    let (_, task) = send(&engine, "100").await;
    assert_eq!(task.status.state, TaskState::Completed);
    // Little by little, and all at once.
    for size in ["10000", "2000000"] {
        let (head, task) = send(&engine, size).await;
        assert_eq!(
            (task.status.state, &*why(&task)),
            (TaskState::Failed, "Agent execution failed (too-large)")
        );
        assert_eq!(task.metadata, Some(reason::metadata("too-large")));
        assert!(lawful(&engine, &head).await.weight() <= 1_000_000);
        assert_eq!(task.artifacts.is_empty(), size == "2000000");
    }
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn s72_a_message_that_would_make_its_task_too_large_is_refused_and_nothing_is_written() {
    let engine = obeying(Settings {
        max_task_bytes: 100_000,
        ..Settings::default()
    });
    let long = "x".repeat(60_000);
    let (head, _) = send(&engine, "ask").await;
    soon(engine.resume(call(), &head, message(&format!("ask {long}")), None))
        .await
        .unwrap();
    quiet(&engine).await;
    let before = lawful(&engine, &head).await;
    let refused = soon(engine.resume(call(), &head, message(&long), None))
        .await
        .err()
        .unwrap();
    assert!(matches!(refused, Error::TooLarge), "{refused:?}");
    let refused = model::Error::from(refused);
    assert_eq!(refused.kind(), ErrorKind::PayloadTooLarge);
    assert!(refused.message().contains("max_task_bytes"), "{refused}");
    assert_eq!(lawful(&engine, &head).await, before);
    let refused = soon(engine.start(call(), opening(&long.repeat(2))))
        .await
        .err();
    assert!(matches!(refused, Some(Error::TooLarge)), "{refused:?}");
    soon(engine.cancel(&head, None)).await.unwrap();
    quiet(&engine).await;
    assert_eq!(at_rest(&engine).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r44_the_tail_of_a_task_is_bounded_in_bytes_and_readers_miss_nothing() {
    let settings = Settings {
        max_tail_bytes: 50_000,
        ..Settings::default()
    };
    let followed = Arc::new(Semaphore::new(0));
    let gate = followed.clone();
    let agent = move |turn: Turn| {
        let gate = gate.clone();
        async move {
            gate.acquire().await?.forget();
            for number in 0..100 {
                turn.write("result", format!("{number} {}", "x".repeat(10_000)))
                    .await;
            }
            std::future::pending().await
        }
    };
    let engine = engine_on(Arc::new(Memory::new()), agent, settings);
    let head = start(&engine, "go").await.head;
    let mut follow = engine.follow(&head, Seq(0));
    followed.add_permits(1);
    settle_down().await;
    let live = engine.journal.registry.get(&head.id).unwrap();
    let (_, at) = engine.task(&head).await.unwrap();
    assert!(
        live.after(Seq(at.0 - 4), 9)
            .is_some_and(|tail| tail.len() == 4)
    );
    assert!(
        live.after(Seq(at.0 - 6), 9).is_none(),
        "it is not in memory any more"
    );
    let mut seen = Vec::new();
    while seen.last() != Some(&at) {
        seen.extend(
            soon(follow.next())
                .await
                .unwrap()
                .iter()
                .map(|entry| entry.seq),
        );
    }
    assert!(seen.iter().map(|seq| seq.0).eq(1..=at.0), "{seen:?}");
    soon(engine.cancel(&head, None)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_nobody_follows_is_not_kept_and_whoever_comes_later_misses_nothing() {
    let agent = Obeys::default();
    let engine = engine_on(Arc::new(Memory::new()), agent.clone(), Settings::default());
    let head = start(&engine, "chunk gate chunk yield chunk gate chunk hang")
        .await
        .head;
    agent.gate.add_permits(1);
    settle_down().await;
    let live = engine.journal.registry.get(&head.id).unwrap();
    assert!(live.log().is_none(), "nobody has asked");
    let (task, at) = engine.task(&head).await.unwrap();
    assert_eq!(task.artifacts[0].as_text(), "piecepiecepiece");
    assert!(
        live.after(Seq(at.0 - 1), 9).is_none(),
        "it is not in memory"
    );
    let mut follow = engine.follow(&head, Seq(0));
    agent.gate.add_permits(1);
    settle_down().await;
    assert!(
        live.after(at, 9).is_some_and(|tail| tail.len() == 1),
        "what comes while somebody follows is"
    );
    let mut seen = Vec::new();
    while seen.last() != Some(&(at.0 + 1)) {
        seen.extend(
            soon(follow.next())
                .await
                .unwrap()
                .iter()
                .map(|entry| entry.seq.0),
        );
    }
    assert!(seen.iter().copied().eq(1..=at.0 + 1), "{seen:?}");
    assert_eq!(
        live.log().unwrap().task.artifacts[0].as_text(),
        "piece".repeat(4)
    );
    soon(engine.cancel(&head, None)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r44_a_turn_that_takes_too_long_fails() {
    let engine = obeying(Settings {
        max_turn_time: Some(Duration::from_secs(3)),
        ..Settings::default()
    });
    let before = tokio::time::Instant::now();
    for text in ["hang", "say write hang", "listen"] {
        let (head, task) = send(&engine, text).await;
        assert_eq!(
            (task.status.state, &*why(&task)),
            (TaskState::Failed, "Agent execution failed (deadline)")
        );
        assert_eq!(
            lawful(&engine, &head).await.artifacts.len(),
            usize::from(text.contains("write"))
        );
    }
    assert_eq!(before.elapsed(), Duration::from_secs(9));
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r44_an_agent_that_is_silent_too_long_fails_and_one_that_speaks_does_not() {
    let agent = |turn: Turn| async move {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            turn.say("still here").await;
        }
        match turn.text().as_str() {
            "hang" => std::future::pending().await,
            _ => Ok(Outcome::Completed),
        }
    };
    let settings = Settings {
        max_silence: Some(Duration::from_secs(3)),
        ..Settings::default()
    };
    let engine = engine_on(Arc::new(Memory::new()), agent, settings);
    let before = tokio::time::Instant::now();
    let patient = |accepted| timeout(Duration::from_secs(60), engine.settled(accepted));
    let task = patient(start(&engine, "end").await).await.unwrap().unwrap();
    assert_eq!(
        (task.status.state, before.elapsed()),
        (TaskState::Completed, Duration::from_secs(10))
    );
    let task = patient(start(&engine, "hang").await)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(why(&task), "Agent execution failed (inactivity)");
    assert_eq!(before.elapsed(), Duration::from_secs(23));
}

#[tokio::test(start_paused = true)]
async fn limits_beyond_all_time_are_none() {
    let forever = Some(Duration::MAX);
    let settings = Settings {
        max_turn_time: forever,
        max_silence: forever,
        cancel_grace: Duration::MAX,
        ..Settings::default()
    };
    let engine = obeying(settings);
    assert_eq!(
        send(&engine, "say yield done").await.1.status.state,
        TaskState::Completed
    );
    let head = start(&engine, "listen say done").await.head;
    settle_down().await;
    assert_eq!(
        soon(engine.cancel(&head, None)).await.unwrap().status.state,
        TaskState::Canceled
    );
}

#[tokio::test(start_paused = true)]
async fn r44_a_fault_of_the_agent_fails_its_task_and_nothing_else() {
    let engine = obeying(Settings::default());
    let other = start(&engine, "hang").await.head;
    for (text, kind) in [
        ("panic", "panic"),
        ("say panic", "panic"),
        ("yield panic", "panic"),
        ("error", "Error"),
    ] {
        let (head, task) = send(&engine, text).await;
        assert_eq!(
            (task.status.state, why(&task)),
            (
                TaskState::Failed,
                format!("Agent execution failed ({kind})")
            )
        );
        assert_eq!(words(&engine, &head).await.last().unwrap(), "end");
    }
    assert_eq!(
        lawful(&engine, &other).await.status.state,
        TaskState::Working
    );
    soon(engine.cancel(&other, None)).await.unwrap();
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn s77_what_is_said_after_the_turn_has_nobody_to_hear_it_and_nobody_waits() {
    let (send_turn, mut turns) = tokio::sync::mpsc::channel(4);
    let agent = move |turn: Turn| {
        let send_turn = send_turn.clone();
        async move {
            send_turn.send(turn.clone()).await?;
            if turn.text() == "hang" {
                std::future::pending::<()>().await;
            }
            Ok(Outcome::Completed)
        }
    };
    let store = Arc::new(Faulty::default());
    let engine = engine_on(
        store.clone(),
        agent,
        Settings {
            max_queued_events: 2,
            ..Settings::default()
        },
    );
    let (head, task) = self::send(&engine, "done").await;
    let lost = start(&engine, "hang").await.head;
    settle_down().await;
    store.break_down(Fault::Before);
    assert!(soon(engine.cancel(&lost, None)).await.is_err());
    settle_down().await;
    store.heal();
    for _ in 0..2 {
        let turn = soon(turns.recv()).await.unwrap();
        for _ in 0..10 {
            soon(turn.say("too late")).await;
        }
    }
    settle_down().await;
    assert_eq!(lawful(&engine, &head).await, task);
    // That it was said is recorded, once for a turn however often it was.
    let log = words(&engine, &head).await;
    assert_eq!(log[log.len() - 3..], ["completed", "end", "ignored"]);
}

#[tokio::test(start_paused = true)]
async fn s77_what_an_earlier_turn_says_during_a_later_one_is_recorded_as_ignored() {
    let (send_turn, mut turns) = tokio::sync::mpsc::channel(4);
    let agent = move |turn: Turn| {
        let send_turn = send_turn.clone();
        async move {
            send_turn.send(turn.clone()).await?;
            match turn.text().as_str() {
                "ask" => Ok(Outcome::ask("which?")),
                _ => std::future::pending().await,
            }
        }
    };
    let engine = engine_on(Arc::new(Memory::new()), agent, Settings::default());
    let (head, _) = self::send(&engine, "ask").await;
    soon(engine.resume(call(), &head, message("hang"), None))
        .await
        .unwrap();
    let earlier = soon(turns.recv()).await.unwrap();
    for _ in 0..3 {
        soon(earlier.write("late", "text")).await;
    }
    settle_down().await;
    let task = lawful(&engine, &head).await;
    assert_eq!(
        (task.artifacts.len(), task.status.state),
        (0, TaskState::Working)
    );
    let log = words(&engine, &head).await;
    assert_eq!(
        log.iter().filter(|word| *word == "ignored").count(),
        1,
        "{log:?}"
    );
    soon(engine.cancel(&head, None)).await.unwrap();
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_is_seen_at_work_unless_its_turn_is_over_at_once() {
    let engine = obeying(Settings::default());
    for (text, expected) in [
        (
            "write done",
            &["turn", "artifact false true", "completed", "end"][..],
        ),
        ("yield done", &["turn", "working", "completed", "end"]),
        (
            "write yield done",
            &["turn", "working", "artifact false true", "completed", "end"],
        ),
        // It says so itself.
        ("say yield done", &["turn", "working", "completed", "end"]),
    ] {
        let (head, _) = send(&engine, text).await;
        assert_eq!(words(&engine, &head).await[2..], *expected, "{text}");
    }
    quiet(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn s72_whether_a_message_is_too_large_depends_on_nothing_else() {
    let settings = |max_turns| Settings {
        max_task_bytes: 10_000,
        max_turns,
        ..Settings::default()
    };
    let (free, busy) = (obeying(settings(1_000)), obeying(settings(1)));
    start(&busy, "hang").await;
    let mut refused = 0;
    for size in (8_000..10_000).step_by(20) {
        let text = format!("hang {}", "x".repeat(size));
        let there = soon(free.start(call(), opening(&text))).await.is_err();
        assert_eq!(
            soon(busy.start(call(), opening(&text))).await.is_err(),
            there,
            "{size}"
        );
        refused += usize::from(there);
    }
    assert!(
        (1..100).contains(&refused),
        "some are, and some are not: {refused}"
    );
}
