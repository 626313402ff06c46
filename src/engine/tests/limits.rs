//! Limits of counts, sizes and durations.

use super::harness::*;
use super::*;

fn scripted_engine(settings: Settings) -> Engine {
    engine_on(Arc::new(Memory::new()), ScriptedAgent::default(), settings)
}

fn failure_reason(task: &Task) -> String {
    task.status.message.as_ref().unwrap().text()
}

#[tokio::test(start_paused = true)]
async fn tasks_beyond_max_turns_wait_as_submitted_and_beyond_the_queue_are_refused() {
    let engine = scripted_engine(Settings {
        max_turns: 2,
        max_turns_per_caller: Some(2),
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
        assert_eq!(accepted.log.is_turn_running(), number < 2);
        tasks.push(accepted.head);
    }
    let refused = within_deadline(engine.start(call(), initial_message("hang")))
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
            .inner
            .journal
            .store
            .list(
                &super::scope(),
                &TaskQuery {
                    limit: 9,
                    ..TaskQuery::default()
                }
            )
            .await
            .unwrap()
            .total,
        5
    );
    within_deadline(engine.cancel(&tasks[0], None))
        .await
        .unwrap();
    yield_until_idle().await;
    tasks.push(start(&engine, "hang").await.head);
    for head in &tasks[1..] {
        within_deadline(engine.cancel(head, None)).await.unwrap();
    }
    wait_until_idle(&engine).await;
    assert_eq!(check_idle(&engine).await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn concurrent_sends_to_a_slow_store_are_counted() {
    let store = Arc::new(FaultyStore::gated());
    let settings = Settings {
        max_turns: 1,
        max_waiting_turns: 2,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), ScriptedAgent::default(), settings);
    store.hold_writes(true);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let engine = engine.clone();
        callers.spawn(async move {
            engine
                .start(call(), initial_message("yield done"))
                .await
                .map(drop)
        });
    }
    yield_until_idle().await;
    store.hold_writes(false);
    store.release_writes(100);
    let answers = within_deadline(callers.join_all()).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    wait_until_idle(&engine).await;
    assert_eq!(check_idle(&engine).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn waiting_messages_of_one_task_are_bounded() {
    let engine = scripted_engine(Settings {
        max_waiting_messages: 3,
        ..Settings::default()
    });
    let head = start(&engine, "hang").await.head;
    for _ in 0..3 {
        within_deadline(engine.continue_task(call(), &head, message("more"), None))
            .await
            .unwrap();
    }
    let refused =
        within_deadline(engine.continue_task(call(), &head, message("too much"), None)).await;
    assert!(matches!(refused, Err(Error::Overloaded)));
    assert_eq!(check_invariants(&engine, &head).await.history.len(), 4);
    within_deadline(engine.cancel(&head, None)).await.unwrap();
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn commands_that_wait_for_a_slow_store_are_bounded() {
    let store = Arc::new(FaultyStore::gated());
    let settings = Settings {
        max_waiting_messages: 4,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), ScriptedAgent::default(), settings);
    let (head, _) = send(&engine, "ask").await;
    store.hold_writes(true);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let engine = engine.clone();
        let head = head.clone();
        callers.spawn(async move {
            engine
                .continue_task(call(), &head, message("ask"), None)
                .await
                .map(drop)
        });
    }
    yield_until_idle().await;
    store.hold_writes(false);
    store.release_writes(1_000);
    let answers = within_deadline(callers.join_all()).await;
    // One is being recorded, four are in the inbox.
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
    assert!(
        answers
            .iter()
            .flat_map(|answer| answer.as_ref().err())
            .all(|error| matches!(error, Error::Overloaded))
    );
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r44_an_agent_faster_than_its_log_is_slowed_down() {
    let store = Arc::new(FaultyStore::gated());
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let agent = move |turn: Turn| {
        let sent = count.clone();
        async move {
            for _ in 0..10_000 {
                turn.say("more").await;
                sent.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Outcome::Completed)
        }
    };
    let settings = Settings {
        max_queued_events: 64,
        ..Settings::default()
    };
    let engine = engine_on(store.clone(), agent, settings);
    store.hold_writes(true);
    store.release_writes(1);
    let accepted = start(&engine, "go").await;
    for writes in 1..=3 {
        yield_until_idle().await;
        // One batch is durable, one in flight, one pipelined, and one is in the queue.
        assert!(
            sent.load(Ordering::Relaxed) <= 64 * (writes + 3),
            "{sent:?}"
        );
        store.release_writes(1);
    }
    store.hold_writes(false);
    store.release_writes(1);
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(task.history.len(), 10_001);
    assert!(store.largest.load(Ordering::Relaxed) <= 64 + 3);
}

#[tokio::test(start_paused = true)]
async fn r44_held_metadata_counts_towards_the_task_size() {
    let agent = |turn: Turn| async move {
        turn.require_auth("credentials, please").await;
        for number in 0..100 {
            tokio::task::yield_now().await;
            turn.add_metadata(
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
    wait_until_idle(&engine).await;
    let task = check_invariants(&engine, &head).await;
    let expected = (TaskState::Failed, "Agent execution failed (too-large)");
    assert_eq!((task.status.state, &*failure_reason(&task)), expected);
}

#[tokio::test(start_paused = true)]
async fn r44_a_task_that_grows_too_large_fails_and_stays_within_its_bound() {
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
    // In small steps, and in one step.
    for size in ["10000", "2000000"] {
        let (head, task) = send(&engine, size).await;
        assert_eq!(
            (task.status.state, &*failure_reason(&task)),
            (TaskState::Failed, "Agent execution failed (too-large)")
        );
        assert_eq!(task.metadata, Some(reason::metadata("too-large")));
        assert!(check_invariants(&engine, &head).await.memory_size() <= 1_000_000);
        assert_eq!(task.artifacts.is_empty(), size == "2000000");
    }
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn s72_a_message_that_would_make_its_task_too_large_is_refused_and_nothing_is_written() {
    let engine = scripted_engine(Settings {
        max_task_bytes: 100_000,
        ..Settings::default()
    });
    let long = "x".repeat(60_000);
    let (head, _) = send(&engine, "ask").await;
    within_deadline(engine.continue_task(call(), &head, message(&format!("ask {long}")), None))
        .await
        .unwrap();
    wait_until_idle(&engine).await;
    let before = check_invariants(&engine, &head).await;
    let refused = within_deadline(engine.continue_task(call(), &head, message(&long), None))
        .await
        .err()
        .unwrap();
    assert!(matches!(refused, Error::TooLarge), "{refused:?}");
    let refused = model::Error::from(refused);
    assert_eq!(refused.kind(), ErrorKind::PayloadTooLarge);
    assert!(refused.message().contains("max_task_bytes"), "{refused}");
    assert_eq!(check_invariants(&engine, &head).await, before);
    let refused = within_deadline(engine.start(call(), initial_message(&long.repeat(2))))
        .await
        .err();
    assert!(matches!(refused, Some(Error::TooLarge)), "{refused:?}");
    within_deadline(engine.cancel(&head, None)).await.unwrap();
    wait_until_idle(&engine).await;
    assert_eq!(check_idle(&engine).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r44_the_tail_of_a_task_is_bounded_in_bytes_and_readers_miss_nothing() {
    let settings = Settings {
        max_tail_bytes: 50_000,
        ..Settings::default()
    };
    let is_followed = Arc::new(Semaphore::new(0));
    let gate = is_followed.clone();
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
    is_followed.add_permits(1);
    yield_until_idle().await;
    let active = engine.inner.journal.active_tasks.get(&head.id).unwrap();
    let (_, at) = engine.task(&head).await.unwrap();
    assert!(
        active
            .entries_after(Seq(at.0 - 4), ReadLimit::entries(9))
            .is_some_and(|tail| tail.entries.len() == 4)
    );
    assert!(
        active
            .entries_after(Seq(at.0 - 6), ReadLimit::entries(9))
            .is_none(),
        "the entry has left the tail"
    );
    let mut seen = Vec::new();
    while seen.last() != Some(&at) {
        seen.extend(
            within_deadline(follow.next())
                .await
                .unwrap()
                .iter()
                .map(|entry| entry.seq),
        );
    }
    assert!(seen.iter().map(|seq| seq.0).eq(1..=at.0), "{seen:?}");
    within_deadline(engine.cancel(&head, None)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unfollowed_entries_leave_memory_and_later_readers_miss_nothing() {
    let agent = ScriptedAgent::default();
    let engine = engine_on(Arc::new(Memory::new()), agent.clone(), Settings::default());
    let head = start(&engine, "chunk gate chunk yield chunk gate chunk hang")
        .await
        .head;
    agent.gate.add_permits(1);
    yield_until_idle().await;
    let active = engine.inner.journal.active_tasks.get(&head.id).unwrap();
    assert!(active.log().is_none(), "no reader has requested the fold");
    let (task, at) = engine.task(&head).await.unwrap();
    assert_eq!(task.artifacts[0].as_text(), "piecepiecepiece");
    assert!(
        active
            .entries_after(Seq(at.0 - 1), ReadLimit::entries(9))
            .is_none(),
        "unfollowed entries are not buffered"
    );
    let mut follow = engine.follow(&head, Seq(0));
    agent.gate.add_permits(1);
    yield_until_idle().await;
    assert!(
        active
            .entries_after(at, ReadLimit::entries(9))
            .is_some_and(|tail| tail.entries.len() == 1),
        "entries are buffered while a subscriber exists"
    );
    let mut seen = Vec::new();
    while seen.last() != Some(&(at.0 + 1)) {
        seen.extend(
            within_deadline(follow.next())
                .await
                .unwrap()
                .iter()
                .map(|entry| entry.seq.0),
        );
    }
    assert!(seen.iter().copied().eq(1..=at.0 + 1), "{seen:?}");
    assert_eq!(
        active.log().unwrap().task.artifacts[0].as_text(),
        "piece".repeat(4)
    );
    within_deadline(engine.cancel(&head, None)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r44_a_turn_that_takes_too_long_fails() {
    let engine = scripted_engine(Settings {
        max_turn_time: Some(Duration::from_secs(3)),
        ..Settings::default()
    });
    let before = tokio::time::Instant::now();
    for text in ["hang", "say write hang", "listen"] {
        let (head, task) = send(&engine, text).await;
        assert_eq!(
            (task.status.state, &*failure_reason(&task)),
            (TaskState::Failed, "Agent execution failed (deadline)")
        );
        assert_eq!(
            check_invariants(&engine, &head).await.artifacts.len(),
            usize::from(text.contains("write"))
        );
    }
    assert_eq!(before.elapsed(), Duration::from_secs(9));
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r44_an_inactive_agent_fails_and_an_active_one_does_not() {
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
    let patient = |accepted| timeout(Duration::from_secs(60), engine.await_turn_result(accepted));
    let task = patient(start(&engine, "end").await).await.unwrap().unwrap();
    assert_eq!(
        (task.status.state, before.elapsed()),
        (TaskState::Completed, Duration::from_secs(10))
    );
    let task = patient(start(&engine, "hang").await)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(failure_reason(&task), "Agent execution failed (inactivity)");
    assert_eq!(before.elapsed(), Duration::from_secs(23));
}

#[tokio::test(start_paused = true)]
async fn durations_beyond_the_clock_mean_no_limit() {
    let forever = Some(Duration::MAX);
    let settings = Settings {
        max_turn_time: forever,
        max_silence: forever,
        cancel_grace: Duration::MAX,
        ..Settings::default()
    };
    let engine = scripted_engine(settings);
    assert_eq!(
        send(&engine, "say yield done").await.1.status.state,
        TaskState::Completed
    );
    let head = start(&engine, "listen say done").await.head;
    yield_until_idle().await;
    assert_eq!(
        within_deadline(engine.cancel(&head, None))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Canceled
    );
}

#[tokio::test(start_paused = true)]
async fn r44_an_agent_failure_fails_only_its_task() {
    let engine = scripted_engine(Settings::default());
    let other = start(&engine, "hang").await.head;
    for (text, kind) in [
        ("panic", "panic"),
        ("say panic", "panic"),
        ("yield panic", "panic"),
        ("error", "Error"),
    ] {
        let (head, task) = send(&engine, text).await;
        assert_eq!(
            (task.status.state, failure_reason(&task)),
            (
                TaskState::Failed,
                format!("Agent execution failed ({kind})")
            )
        );
        assert_eq!(log_summary(&engine, &head).await.last().unwrap(), "end");
    }
    assert_eq!(
        check_invariants(&engine, &other).await.status.state,
        TaskState::Working
    );
    within_deadline(engine.cancel(&other, None)).await.unwrap();
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn s77_events_after_the_turn_are_ignored_and_do_not_block() {
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
    let store = Arc::new(FaultyStore::default());
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
    yield_until_idle().await;
    store.fail_all(FaultTiming::Before);
    assert!(within_deadline(engine.cancel(&lost, None)).await.is_err());
    yield_until_idle().await;
    store.stop_failing();
    for _ in 0..2 {
        let turn = within_deadline(turns.recv()).await.unwrap();
        for _ in 0..10 {
            within_deadline(turn.say("too late")).await;
        }
    }
    yield_until_idle().await;
    assert_eq!(check_invariants(&engine, &head).await, task);
    // Late events are recorded as ignored, once per turn.
    let log = log_summary(&engine, &head).await;
    assert_eq!(log[log.len() - 3..], ["completed", "end", "ignored"]);
}

#[tokio::test(start_paused = true)]
async fn s77_events_of_an_earlier_turn_during_a_later_one_are_recorded_as_ignored() {
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
    within_deadline(engine.continue_task(call(), &head, message("hang"), None))
        .await
        .unwrap();
    let earlier = within_deadline(turns.recv()).await.unwrap();
    for _ in 0..3 {
        within_deadline(earlier.write("late", "text")).await;
    }
    yield_until_idle().await;
    let task = check_invariants(&engine, &head).await;
    assert_eq!(
        (task.artifacts.len(), task.status.state),
        (0, TaskState::Working)
    );
    let log = log_summary(&engine, &head).await;
    assert_eq!(
        log.iter().filter(|word| *word == "ignored").count(),
        1,
        "{log:?}"
    );
    within_deadline(engine.cancel(&head, None)).await.unwrap();
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_is_shown_as_working_unless_its_turn_completes_immediately() {
    let engine = scripted_engine(Settings::default());
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
        // The agent sets the status itself.
        ("say yield done", &["turn", "working", "completed", "end"]),
    ] {
        let (head, _) = send(&engine, text).await;
        assert_eq!(log_summary(&engine, &head).await[2..], *expected, "{text}");
    }
    wait_until_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn s72_the_size_check_does_not_depend_on_load() {
    let settings = |max_turns| Settings {
        max_task_bytes: 10_000,
        max_turns,
        ..Settings::default()
    };
    let free = scripted_engine(settings(1_000));
    let busy = scripted_engine(settings(1));
    start(&busy, "hang").await;
    let mut refused = 0;
    for size in (8_000..10_000).step_by(20) {
        let text = format!("hang {}", "x".repeat(size));
        let is_refused = within_deadline(free.start(call(), initial_message(&text)))
            .await
            .is_err();
        assert_eq!(
            within_deadline(busy.start(call(), initial_message(&text)))
                .await
                .is_err(),
            is_refused,
            "{size}"
        );
        refused += usize::from(is_refused);
    }
    assert!(
        (1..100).contains(&refused),
        "some are refused, some are not: {refused}"
    );
}
