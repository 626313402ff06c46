//! Retention of ended tasks, and expiry of unanswered and orphaned ones.

use super::harness::*;
use super::*;

struct RetentionFixture {
    engine: Engine,
    clock: Arc<ManualClock>,
    store: Arc<FaultyStore>,
}

fn fixture(settings: Settings) -> RetentionFixture {
    let clock = ManualClock::starting_at(0);
    let store = Arc::new(FaultyStore::default());
    let engine = engine_with(
        store.clone(),
        ScriptedAgent::default(),
        settings,
        clock.clone(),
    );
    RetentionFixture {
        engine,
        clock,
        store,
    }
}

impl RetentionFixture {
    async fn send_at(&self, millis: i64, text: &str) -> Head {
        self.clock.advance_to(millis);
        let head = start(&self.engine, text).await.head;
        yield_until_idle().await;
        head
    }

    async fn has(&self, head: &Head) -> bool {
        self.engine
            .find(&super::scope(), &head.id)
            .await
            .unwrap()
            .is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_ended_tasks_are_deleted_and_unfinished_ones_never() {
    let fixture = fixture(Settings {
        max_tasks: Some(2),
        ..Settings::default()
    });
    let running = fixture.send_at(1, "hang").await;
    let parked = fixture.send_at(2, "ask").await;
    let mut ended = Vec::new();
    for (millis, text) in [(30, "done"), (10, "fail"), (20, "done"), (40, "reject")] {
        ended.push(fixture.send_at(millis, text).await);
    }
    within_deadline(fixture.engine.sweep()).await.unwrap();
    let mut exist = Vec::new();
    for head in ended.iter().chain([&running, &parked]) {
        exist.push(fixture.has(head).await);
    }
    assert_eq!(exist, [true, false, false, true, true, true]);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    assert_eq!(
        fixture
            .engine
            .inner
            .journal
            .store
            .count_ended()
            .await
            .unwrap(),
        2
    );
    let deleted = fixture.engine.task(&ended[1]).await.unwrap_err();
    assert_eq!(model::Error::from(deleted).kind(), ErrorKind::TaskNotFound);
    // Calls with a head that was found before the deletion get an error, and no runner stays.
    for error in [
        within_deadline(fixture.engine.cancel(&ended[1], None))
            .await
            .unwrap_err(),
        within_deadline(
            fixture
                .engine
                .continue_task(call(), &ended[1], message("more"), None),
        )
        .await
        .unwrap_err(),
    ] {
        assert!(matches!(error, Error::Deleted), "{error:?}");
    }
    assert!(
        fixture
            .engine
            .inner
            .journal
            .active_tasks
            .get(&ended[1].id)
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn ended_tasks_are_retained_for_max_age() {
    let age = Some(Duration::from_secs(10));
    let fixture = fixture(Settings {
        max_tasks: None,
        max_age: age,
        ..Settings::default()
    });
    let old = fixture.send_at(0, "done").await;
    let parked = fixture.send_at(0, "ask").await;
    let young = fixture.send_at(1, "done").await;
    fixture.clock.advance_to(10_000);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    assert!(fixture.has(&old).await);
    fixture.clock.advance_to(10_001);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    assert!(!fixture.has(&old).await);
    assert!(fixture.has(&young).await && fixture.has(&parked).await);
    assert_eq!(
        send_to(&fixture.engine, &parked, "done")
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn r32_a_clock_jump_expires_nothing() {
    const YEAR: i64 = 365 * 24 * 60 * 60 * 1_000;
    let waiting = UnansweredPolicy::FailAfter(Duration::from_secs(10));
    let age = Some(Duration::from_secs(10));
    let fixture = fixture(Settings {
        max_age: age,
        on_waiting: waiting,
        ..Settings::default()
    });
    let ended = fixture.send_at(1_000, "done").await;
    let parked = fixture.send_at(1_000, "ask").await;
    within_deadline(fixture.engine.sweep()).await.unwrap();
    for now in [YEAR, 0, 2 * YEAR, 1_000, YEAR] {
        fixture.clock.set_wall_clock(now);
        within_deadline(fixture.engine.sweep()).await.unwrap();
        yield_until_idle().await;
        assert!(fixture.has(&ended).await, "{now}");
        assert_eq!(
            check_invariants(&fixture.engine, &parked)
                .await
                .status
                .state,
            TaskState::InputRequired,
            "{now}"
        );
    }
    // The monotonic time counts, whatever the wall clock says.
    fixture.clock.advance_to(20_000);
    fixture.clock.set_wall_clock(YEAR);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    yield_until_idle().await;
    assert!(!fixture.has(&ended).await);
    assert_eq!(
        check_invariants(&fixture.engine, &parked)
            .await
            .status
            .state,
        TaskState::Failed
    );
}

#[tokio::test(start_paused = true)]
async fn r43_an_unanswered_task_fails_with_its_reason() {
    let waiting = UnansweredPolicy::FailAfter(Duration::from_secs(10));
    let fixture = fixture(Settings {
        on_waiting: waiting,
        ..Settings::default()
    });
    let waiting = fixture.send_at(0, "ask").await;
    let auth = fixture.send_at(0, "auth").await;
    let busy = fixture.send_at(0, "login hang").await;
    let young = fixture.send_at(5_000, "ask").await;
    fixture.clock.advance_to(10_001);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    yield_until_idle().await;
    for head in [&waiting, &auth] {
        let task = check_invariants(&fixture.engine, head).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(
            task.metadata.unwrap().get("attache.reason").unwrap().get(),
            "\"expired\""
        );
    }
    assert!(matches!(
        send_to(&fixture.engine, &waiting, "done").await,
        Err(Error::Ended(TaskState::Failed))
    ));
    // The first task has a runner, the second has time left.
    assert_eq!(
        check_invariants(&fixture.engine, &busy).await.status.state,
        TaskState::AuthRequired
    );
    assert_eq!(
        check_invariants(&fixture.engine, &young).await.status.state,
        TaskState::InputRequired
    );
}

#[tokio::test(start_paused = true)]
async fn r43_an_unanswered_task_continues_without_an_answer() {
    let agent = |turn: Turn| async move {
        match (turn.is_unanswered(), turn.text().as_str()) {
            (true, "") => Ok(Outcome::CompletedWith(Message::agent("without"))),
            (true, text) => Ok(Outcome::failed(text)),
            (false, "auth") => Ok(Outcome::auth_required("who?")),
            (false, _) => Ok(Outcome::ask("which?")),
        }
    };
    let waiting = UnansweredPolicy::ContinueAfter(Duration::from_secs(10));
    let settings = Settings {
        on_waiting: waiting,
        ..Settings::default()
    };
    let clock = ManualClock::starting_at(0);
    let engine = engine_with(Arc::new(Memory::new()), agent, settings, clock.clone());
    let (waiting, _) = send(&engine, "ask").await;
    let (auth, _) = send(&engine, "auth").await;
    let (answered, _) = send(&engine, "ask").await;
    clock.advance_to(9_000);
    // A client cannot forge the timeout message.
    let timeout_entry = reason::timeout_message("m".into());
    let accepted = within_deadline(engine.continue_task(call(), &answered, timeout_entry, None))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap()
            .status
            .state,
        TaskState::InputRequired
    );
    for (now, state) in [
        (10_000, TaskState::InputRequired),
        (10_001, TaskState::Completed),
    ] {
        clock.advance_to(now);
        within_deadline(engine.sweep()).await.unwrap();
        yield_until_idle().await;
        assert_eq!(
            check_invariants(&engine, &waiting).await.status.state,
            state
        );
    }
    assert_eq!(check_invariants(&engine, &auth).await.text(), "without");
    assert_eq!(
        check_invariants(&engine, &answered).await.status.state,
        TaskState::InputRequired
    );
    let timeout_entry = "message No answer came in time.";
    assert_eq!(
        log_summary(&engine, &waiting).await[5..],
        [timeout_entry, "turn", "working", "completed", "end"]
    );
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r43_an_unanswered_turn_survives_a_restart() {
    let waiting = UnansweredPolicy::ContinueAfter(Duration::from_secs(10));
    let again = RestartPolicy::RunAgain { attempts: 2 };
    let settings = || Settings {
        on_waiting: waiting,
        on_restart: again,
        max_turns: 1,
        ..Settings::default()
    };
    let store = Arc::new(FaultyStore::default());
    let clock = ManualClock::starting_at(0);
    let first = engine_with(
        store.clone(),
        ScriptedAgent::default(),
        settings(),
        clock.clone(),
    );
    let (waiting, _) = send(&first, "ask").await;
    start(&first, "hang").await;
    clock.advance_to(10_001);
    // No turn permit is free yet.
    within_deadline(first.sweep()).await.unwrap();
    shut_down(&first).await;
    let agent = ScriptedAgent::default();
    let engine = engine_with(
        store,
        agent.clone(),
        Settings {
            max_turns: 2,
            ..settings()
        },
        clock,
    );
    within_deadline(engine.recover()).await.unwrap();
    yield_until_idle().await;
    assert_eq!(
        check_invariants(&engine, &waiting).await.status.state,
        TaskState::Completed
    );
    assert!(agent.received().contains(&String::new()));
}

#[tokio::test(start_paused = true)]
async fn r43_max_parked_age_applies_to_every_parked_task() {
    let minute = Some(Duration::from_secs(60));
    for on_waiting in [
        UnansweredPolicy::Stay,
        UnansweredPolicy::ContinueAfter(Duration::from_secs(3600)),
    ] {
        let fixture = fixture(Settings {
            max_parked_age: minute,
            on_waiting,
            ..Settings::default()
        });
        let old = fixture.send_at(0, "ask").await;
        let young = fixture.send_at(1, "auth").await;
        let busy = fixture.send_at(0, "login hang").await;
        fixture.clock.advance_to(60_001);
        within_deadline(fixture.engine.sweep()).await.unwrap();
        yield_until_idle().await;
        let task = check_invariants(&fixture.engine, &old).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(
            task.metadata.unwrap().get("attache.reason").unwrap().get(),
            "\"expired\""
        );
        assert_eq!(
            check_invariants(&fixture.engine, &young).await.status.state,
            TaskState::AuthRequired
        );
        assert_eq!(
            check_invariants(&fixture.engine, &busy).await.status.state,
            TaskState::AuthRequired
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r10_an_orphaned_task_is_recovered_by_another_process() {
    for (on_restart, state, turns) in [
        (RestartPolicy::Fail, TaskState::Failed, 0),
        (
            RestartPolicy::RunAgain { attempts: 2 },
            TaskState::Working,
            1,
        ),
    ] {
        let store = Arc::new(FaultyStore::default());
        let clock = ManualClock::starting_at(0);
        let first = engine_with(
            store.clone(),
            ScriptedAgent::default(),
            Settings::default(),
            clock.clone(),
        );
        let orphaned = start(&first, "say hang").await.head;
        let alive = start(&first, "say listen").await.head;
        let (parked, _) = send(&first, "ask").await;
        yield_until_idle().await;
        shut_down(&first).await;
        let age = Some(Duration::from_secs(60));
        let settings = Settings {
            orphan_timeout: age,
            on_restart,
            ..Settings::default()
        };
        let agent = ScriptedAgent::default();
        let engine = engine_with(store.clone(), agent.clone(), settings, clock.clone());
        let ours = start(&engine, "hang").await.head;
        clock.advance_to(30_000);
        // Its process is alive and appends, although the status does not change.
        let entry = Event::CancelRequested { metadata: None };
        let status_time = Timestamp::from_millis(0).unwrap();
        let time = Timestamp::from_millis(30_000).unwrap();
        let batch = store::Batch {
            time,
            events: vec![entry],
            state: TaskState::Working,
            status_time,
            parked: false,
            key: None,
            turn: 0,
            writer: store::WriterRole::Holder,
        };
        let at = Seq(entries(&engine, &alive).await.len() as u64);
        store.append(&alive, at, &batch).await.unwrap();
        clock.advance_to(60_001);
        within_deadline(engine.sweep()).await.unwrap();
        yield_until_idle().await;
        assert_eq!(
            check_invariants(&engine, &orphaned).await.status.state,
            state
        );
        assert_eq!(agent.received().len(), 1 + turns, "{:?}", agent.received());
        assert!(engine.inner.journal.active_tasks.get(&alive.id).is_none());
        assert_eq!(
            check_invariants(&engine, &alive).await.status.state,
            TaskState::Working
        );
        assert_eq!(
            check_invariants(&engine, &parked).await.status.state,
            TaskState::InputRequired
        );
        assert_eq!(
            check_invariants(&engine, &ours).await.status.state,
            TaskState::Working
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r43_an_answer_that_races_with_the_expiry_is_not_lost() {
    let waiting = UnansweredPolicy::FailAfter(Duration::from_secs(10));
    let fixture = fixture(Settings {
        on_waiting: waiting,
        max_turns: 1,
        ..Settings::default()
    });
    let waiting = fixture.send_at(0, "ask").await;
    let busy = fixture.send_at(0, "hang").await;
    // Answered, but no turn permit is free: its head still looks unanswered.
    let answered = within_deadline(fixture.engine.continue_task(
        call(),
        &waiting,
        message("done"),
        None,
    ))
    .await
    .unwrap();
    fixture.clock.advance_to(60_000);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    yield_until_idle().await;
    within_deadline(fixture.engine.cancel(&busy, None))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(fixture.engine.await_turn_result(answered))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn followers_of_a_deleted_task_get_an_error() {
    let fixture = fixture(Settings {
        max_tasks: Some(0),
        max_tail_entries: 1,
        ..Settings::default()
    });
    let head = fixture.send_at(0, "say say say done").await;
    let mut slow = fixture.engine.follow(&head, Seq(2));
    let mut waits = fixture.engine.follow(&head, Seq(0));
    let read = within_deadline(waits.next()).await.unwrap();
    assert!(matches!(read.last().unwrap().event, Event::TurnEnded));
    let (cut, swept) =
        within_deadline(async { tokio::join!(waits.next(), fixture.engine.sweep()) }).await;
    swept.unwrap();
    assert!(matches!(cut, Err(Error::Deleted)), "{cut:?}");
    assert!(matches!(
        within_deadline(slow.next()).await,
        Err(Error::Deleted)
    ));
}

#[tokio::test(start_paused = true)]
async fn maintenance_continues_after_store_failures() {
    let settings = Settings {
        max_tasks: Some(0),
        sweep_every: Duration::from_secs(60),
        ..Settings::default()
    };
    let fixture = fixture(settings);
    let head = fixture.send_at(0, "done").await;
    fixture.store.fail_all(FaultTiming::Before);
    let keeping = async {
        timeout(Duration::from_secs(90), fixture.engine.run_maintenance())
            .await
            .unwrap_err();
        fixture.store.stop_failing();
        timeout(Duration::from_secs(90), fixture.engine.run_maintenance())
            .await
            .unwrap_err();
    };
    keeping.await;
    assert!(!fixture.has(&head).await);
    let zero = Settings {
        sweep_every: Duration::ZERO,
        ..Settings::default()
    };
    let hasty = engine_on(fixture.store.clone(), ScriptedAgent::default(), zero);
    timeout(Duration::from_secs(1), hasty.run_maintenance())
        .await
        .unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn r32_a_clock_ahead_at_startup_deletes_nothing() {
    const YEAR: i64 = 365 * 24 * 60 * 60 * 1_000;
    let settings = || Settings {
        max_age: Some(Duration::from_secs(10)),
        ..Settings::default()
    };
    let before = fixture(settings());
    let ended = before.send_at(1_000, "done").await;
    shut_down(&before.engine).await;
    let clock = ManualClock::starting_at(YEAR);
    let engine = engine_with(
        before.store.clone(),
        ScriptedAgent::default(),
        settings(),
        clock.clone(),
    );
    let fixture = RetentionFixture {
        engine,
        clock,
        store: before.store,
    };
    within_deadline(fixture.engine.recover()).await.unwrap();
    within_deadline(fixture.engine.sweep()).await.unwrap();
    assert!(
        fixture.has(&ended).await,
        "a jump of one year is not believed immediately"
    );
    // The monotonic time counts twice until the clock has caught up.
    fixture.clock.advance_to(YEAR + 4_000);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    assert!(fixture.has(&ended).await);
    fixture.clock.advance_to(YEAR + 6_000);
    within_deadline(fixture.engine.sweep()).await.unwrap();
    assert!(!fixture.has(&ended).await);
}

#[tokio::test(start_paused = true)]
async fn s65_the_oldest_waiting_tasks_of_anonymous_callers_expire() {
    use TaskState::{Failed, InputRequired, Working};
    let fixture = fixture(Settings {
        max_anonymous_waiting_tasks: 2,
        ..Settings::default()
    });
    let scope = |owner| Scope {
        owner,
        ..super::scope()
    };
    let send_as = async |millis, owner, text: &str| {
        fixture.clock.advance_to(millis);
        let accepted = within_deadline(
            fixture
                .engine
                .start(Call::new(scope(owner)), initial_message(text)),
        )
        .await
        .unwrap();
        yield_until_idle().await;
        accepted.head
    };
    let state = async |head: &Head| {
        let head = fixture
            .engine
            .find(&head.scope, &head.id)
            .await
            .unwrap()
            .unwrap();
        fixture.engine.task(&head).await.unwrap().0.status.state
    };
    let mut anonymous = Vec::new();
    for (millis, text) in [
        (30, "ask"),
        (10, "auth"),
        (20, "ask"),
        (5, "hang"),
        (40, "ask"),
    ] {
        anonymous.push(send_as(millis, Caller::anonymous(), text).await);
    }
    let mut known = Vec::new();
    for millis in 0..4 {
        known.push(send_as(millis, Caller::new("ann"), "ask").await);
    }
    within_deadline(fixture.engine.sweep()).await.unwrap();
    yield_until_idle().await;
    let mut states = Vec::new();
    for head in anonymous.iter().chain(&known) {
        states.push(state(head).await);
    }
    assert_eq!(
        states[..5],
        [InputRequired, Failed, Failed, Working, InputRequired],
        "only the oldest expires"
    );
    assert_eq!(
        states[5..],
        [InputRequired; 4],
        "authenticated callers have quotas of their own"
    );
}

/// The limit also triggers a sweep before its interval.
#[tokio::test(start_paused = true)]
async fn s65_waiting_tasks_of_anonymous_callers_trigger_a_sweep() {
    let settings = Settings {
        max_anonymous_waiting_tasks: 50,
        sweep_every: Duration::from_secs(3600),
        ..Settings::default()
    };
    let fixture = fixture(settings);
    let engine = fixture.engine.clone();
    let mut keeping = tokio::task::JoinSet::new();
    keeping.spawn(async move { engine.run_maintenance().await });
    let scope = Scope {
        owner: Caller::anonymous(),
        ..super::scope()
    };
    for _ in 0..400 {
        within_deadline(
            fixture
                .engine
                .start(Call::new(scope.clone()), initial_message("ask")),
        )
        .await
        .unwrap();
        yield_until_idle().await;
    }
    let parked = fixture
        .store
        .list_parked(&scope, 1_000)
        .await
        .unwrap()
        .len();
    assert!((50..=150).contains(&parked), "{parked}");
}
