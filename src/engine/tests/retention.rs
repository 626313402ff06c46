//! What is kept, for how long, and what those see who come too late.

use super::world::*;
use super::*;

struct House {
    engine: Engine,
    clock: Arc<Hands>,
    store: Arc<Faulty>,
}

fn house(settings: Settings) -> House {
    let (clock, store) = (Hands::at(0), Arc::new(Faulty::default()));
    let engine = engine_with(store.clone(), Obeys::default(), settings, clock.clone());
    House {
        engine,
        clock,
        store,
    }
}

impl House {
    async fn send_at(&self, millis: i64, text: &str) -> Head {
        self.clock.set(millis);
        let head = start(&self.engine, text).await.head;
        settle_down().await;
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
async fn the_oldest_ended_tasks_go_first_and_live_ones_never() {
    let house = house(Settings {
        max_tasks: Some(2),
        ..Settings::default()
    });
    let running = house.send_at(1, "hang").await;
    let parked = house.send_at(2, "ask").await;
    let mut ended = Vec::new();
    for (millis, text) in [(30, "done"), (10, "fail"), (20, "done"), (40, "reject")] {
        ended.push(house.send_at(millis, text).await);
    }
    soon(house.engine.sweep()).await.unwrap();
    let mut there = Vec::new();
    for head in ended.iter().chain([&running, &parked]) {
        there.push(house.has(head).await);
    }
    assert_eq!(there, [true, false, false, true, true, true]);
    soon(house.engine.sweep()).await.unwrap();
    assert_eq!(house.engine.journal.store.count_ended().await.unwrap(), 2);
    let gone = house.engine.task(&ended[1]).await.unwrap_err();
    assert_eq!(model::Error::from(gone).kind(), ErrorKind::TaskNotFound);
    // One who found the task just before: not there, and nobody is left to work on it.
    for error in [
        soon(house.engine.cancel(&ended[1], None))
            .await
            .unwrap_err(),
        soon(
            house
                .engine
                .resume(call(), &ended[1], message("more"), None),
        )
        .await
        .unwrap_err(),
    ] {
        assert!(matches!(error, Error::Gone), "{error:?}");
    }
    assert!(house.engine.journal.registry.get(&ended[1].id).is_none());
}

#[tokio::test(start_paused = true)]
async fn ended_tasks_are_kept_for_a_time() {
    let age = Some(Duration::from_secs(10));
    let house = house(Settings {
        max_tasks: None,
        max_age: age,
        ..Settings::default()
    });
    let old = house.send_at(0, "done").await;
    let parked = house.send_at(0, "ask").await;
    let young = house.send_at(1, "done").await;
    house.clock.set(10_000);
    soon(house.engine.sweep()).await.unwrap();
    assert!(house.has(&old).await);
    house.clock.set(10_001);
    soon(house.engine.sweep()).await.unwrap();
    assert!(!house.has(&old).await);
    assert!(house.has(&young).await && house.has(&parked).await);
    assert_eq!(
        answer(&house.engine, &parked, "done")
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn r32_a_clock_that_jumps_makes_nothing_old() {
    const YEAR: i64 = 365 * 24 * 60 * 60 * 1_000;
    let waiting = Waiting::FailAfter(Duration::from_secs(10));
    let age = Some(Duration::from_secs(10));
    let house = house(Settings {
        max_age: age,
        on_waiting: waiting,
        ..Settings::default()
    });
    let ended = house.send_at(1_000, "done").await;
    let parked = house.send_at(1_000, "ask").await;
    soon(house.engine.sweep()).await.unwrap();
    for now in [YEAR, 0, 2 * YEAR, 1_000, YEAR] {
        house.clock.jump(now);
        soon(house.engine.sweep()).await.unwrap();
        settle_down().await;
        assert!(house.has(&ended).await, "{now}");
        assert_eq!(
            lawful(&house.engine, &parked).await.status.state,
            TaskState::InputRequired,
            "{now}"
        );
    }
    // What really passes counts, whatever the clock says.
    house.clock.set(20_000);
    house.clock.jump(YEAR);
    soon(house.engine.sweep()).await.unwrap();
    settle_down().await;
    assert!(!house.has(&ended).await);
    assert_eq!(
        lawful(&house.engine, &parked).await.status.state,
        TaskState::Failed
    );
}

#[tokio::test(start_paused = true)]
async fn r43_a_task_that_waits_too_long_for_an_answer_fails_and_says_so() {
    let waiting = Waiting::FailAfter(Duration::from_secs(10));
    let house = house(Settings {
        on_waiting: waiting,
        ..Settings::default()
    });
    let asked = house.send_at(0, "ask").await;
    let auth = house.send_at(0, "auth").await;
    let busy = house.send_at(0, "login hang").await;
    let young = house.send_at(5_000, "ask").await;
    house.clock.set(10_001);
    soon(house.engine.sweep()).await.unwrap();
    settle_down().await;
    for head in [&asked, &auth] {
        let task = lawful(&house.engine, head).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(
            task.metadata.unwrap().get("attache.reason").unwrap().get(),
            "\"expired\""
        );
    }
    assert!(matches!(
        answer(&house.engine, &asked, "done").await,
        Err(Error::Ended(TaskState::Failed))
    ));
    // Somebody works on this one, and this one has time left.
    assert_eq!(
        lawful(&house.engine, &busy).await.status.state,
        TaskState::AuthRequired
    );
    assert_eq!(
        lawful(&house.engine, &young).await.status.state,
        TaskState::InputRequired
    );
}

#[tokio::test(start_paused = true)]
async fn r43_a_task_that_waits_too_long_goes_on_without_the_answer() {
    let agent = |turn: Turn| async move {
        match (turn.timed_out(), turn.text().as_str()) {
            (true, "") => Ok(Outcome::CompletedWith(Message::agent("without"))),
            (true, text) => Ok(Outcome::failed(text)),
            (false, "auth") => Ok(Outcome::needs_auth("who?")),
            (false, _) => Ok(Outcome::ask("which?")),
        }
    };
    let waiting = Waiting::ContinueAfter(Duration::from_secs(10));
    let settings = Settings {
        on_waiting: waiting,
        ..Settings::default()
    };
    let clock = Hands::at(0);
    let engine = engine_with(Arc::new(Memory::new()), agent, settings, clock.clone());
    let (asked, _) = send(&engine, "ask").await;
    let (auth, _) = send(&engine, "auth").await;
    let (answered, _) = send(&engine, "ask").await;
    clock.set(9_000);
    // Nobody outside can say that no answer came.
    let silence = reason::silence("m".into());
    let accepted = soon(engine.resume(call(), &answered, silence, None))
        .await
        .unwrap();
    assert_eq!(
        soon(engine.settled(accepted)).await.unwrap().status.state,
        TaskState::InputRequired
    );
    for (now, state) in [
        (10_000, TaskState::InputRequired),
        (10_001, TaskState::Completed),
    ] {
        clock.set(now);
        soon(engine.sweep()).await.unwrap();
        settle_down().await;
        assert_eq!(lawful(&engine, &asked).await.status.state, state);
    }
    assert_eq!(lawful(&engine, &auth).await.text(), "without");
    assert_eq!(
        lawful(&engine, &answered).await.status.state,
        TaskState::InputRequired
    );
    let silence = "message No answer came in time.";
    assert_eq!(
        words(&engine, &asked).await[5..],
        [silence, "turn", "working", "completed", "end"]
    );
    quiet(&engine).await;
    at_rest(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r43_a_turn_that_began_without_an_answer_survives_a_restart() {
    let waiting = Waiting::ContinueAfter(Duration::from_secs(10));
    let again = Restart::RunAgain { attempts: 2 };
    let settings = || Settings {
        on_waiting: waiting,
        on_restart: again,
        max_turns: 1,
        ..Settings::default()
    };
    let (store, clock) = (Arc::new(Faulty::default()), Hands::at(0));
    let first = engine_with(store.clone(), Obeys::default(), settings(), clock.clone());
    let (asked, _) = send(&first, "ask").await;
    start(&first, "hang").await;
    clock.set(10_001);
    // There is no leave to run it yet.
    soon(first.sweep()).await.unwrap();
    kill(&first).await;
    let agent = Obeys::default();
    let engine = engine_with(
        store,
        agent.clone(),
        Settings {
            max_turns: 2,
            ..settings()
        },
        clock,
    );
    soon(engine.recover()).await.unwrap();
    settle_down().await;
    assert_eq!(
        lawful(&engine, &asked).await.status.state,
        TaskState::Completed
    );
    assert!(agent.heard().contains(&String::new()));
}

#[tokio::test(start_paused = true)]
async fn r43_a_parked_task_has_an_age_whatever_it_waits_for() {
    let minute = Some(Duration::from_secs(60));
    for on_waiting in [
        Waiting::Stay,
        Waiting::ContinueAfter(Duration::from_secs(3600)),
    ] {
        let house = house(Settings {
            max_parked_age: minute,
            on_waiting,
            ..Settings::default()
        });
        let (old, young) = (
            house.send_at(0, "ask").await,
            house.send_at(1, "auth").await,
        );
        let busy = house.send_at(0, "login hang").await;
        house.clock.set(60_001);
        soon(house.engine.sweep()).await.unwrap();
        settle_down().await;
        let task = lawful(&house.engine, &old).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(
            task.metadata.unwrap().get("attache.reason").unwrap().get(),
            "\"expired\""
        );
        assert_eq!(
            lawful(&house.engine, &young).await.status.state,
            TaskState::AuthRequired
        );
        assert_eq!(
            lawful(&house.engine, &busy).await.status.state,
            TaskState::AuthRequired
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r10_a_task_that_its_process_left_silent_is_seen_to_by_another() {
    for (on_restart, state, turns) in [
        (Restart::Fail, TaskState::Failed, 0),
        (Restart::RunAgain { attempts: 2 }, TaskState::Working, 1),
    ] {
        let (store, clock) = (Arc::new(Faulty::default()), Hands::at(0));
        let first = engine_with(
            store.clone(),
            Obeys::default(),
            Settings::default(),
            clock.clone(),
        );
        let silent = start(&first, "say hang").await.head;
        let speaks = start(&first, "say listen").await.head;
        let (parked, _) = send(&first, "ask").await;
        settle_down().await;
        kill(&first).await;
        let age = Some(Duration::from_secs(60));
        let settings = Settings {
            max_silent_age: age,
            on_restart,
            ..Settings::default()
        };
        let agent = Obeys::default();
        let engine = engine_with(store.clone(), agent.clone(), settings, clock.clone());
        let ours = start(&engine, "hang").await.head;
        clock.set(30_000);
        // Its process still lives and writes, though the status stays as it was.
        let entry = Event::CancelRequested { metadata: None };
        let (state_then, status_time) = (TaskState::Working, Timestamp::from_millis(0).unwrap());
        let time = Timestamp::from_millis(30_000).unwrap();
        let batch = store::Batch {
            time,
            events: vec![entry],
            state: state_then,
            status_time,
            parked: false,
            key: None,
            turn: 0,
        };
        let at = Seq(entries(&engine, &speaks).await.len() as u64);
        store.append(&speaks, at, &batch).await.unwrap();
        clock.set(60_001);
        soon(engine.sweep()).await.unwrap();
        settle_down().await;
        assert_eq!(lawful(&engine, &silent).await.status.state, state);
        assert_eq!(agent.heard().len(), 1 + turns, "{:?}", agent.heard());
        assert!(engine.journal.registry.get(&speaks.id).is_none());
        assert_eq!(
            lawful(&engine, &speaks).await.status.state,
            TaskState::Working
        );
        assert_eq!(
            lawful(&engine, &parked).await.status.state,
            TaskState::InputRequired
        );
        assert_eq!(
            lawful(&engine, &ours).await.status.state,
            TaskState::Working
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r43_an_answer_that_comes_with_the_expiry_is_not_lost() {
    let waiting = Waiting::FailAfter(Duration::from_secs(10));
    let house = house(Settings {
        on_waiting: waiting,
        max_turns: 1,
        ..Settings::default()
    });
    let asked = house.send_at(0, "ask").await;
    let busy = house.send_at(0, "hang").await;
    // Answered, but no turn is free: it looks as if it still waited.
    let answered = soon(house.engine.resume(call(), &asked, message("done"), None))
        .await
        .unwrap();
    house.clock.set(60_000);
    soon(house.engine.sweep()).await.unwrap();
    settle_down().await;
    soon(house.engine.cancel(&busy, None)).await.unwrap();
    assert_eq!(
        soon(house.engine.settled(answered))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn those_who_follow_a_task_that_is_removed_are_told() {
    let house = house(Settings {
        max_tasks: Some(0),
        max_tail_entries: 1,
        ..Settings::default()
    });
    let head = house.send_at(0, "say say say done").await;
    let mut slow = house.engine.follow(&head, Seq(2));
    let mut waits = house.engine.follow(&head, Seq(0));
    let read = soon(waits.next()).await.unwrap();
    assert!(matches!(read.last().unwrap().event, Event::TurnEnded));
    let (cut, swept) = soon(async { tokio::join!(waits.next(), house.engine.sweep()) }).await;
    swept.unwrap();
    assert!(matches!(cut, Err(Error::Gone)), "{cut:?}");
    assert!(matches!(soon(slow.next()).await, Err(Error::Gone)));
}

#[tokio::test(start_paused = true)]
async fn a_house_is_kept_whatever_the_store_does() {
    let settings = Settings {
        max_tasks: Some(0),
        sweep_every: Duration::from_secs(60),
        ..Settings::default()
    };
    let house = house(settings);
    let head = house.send_at(0, "done").await;
    house.store.break_down(Fault::Before);
    let keeping = async {
        timeout(Duration::from_secs(90), house.engine.keep_house())
            .await
            .unwrap_err();
        house.store.heal();
        timeout(Duration::from_secs(90), house.engine.keep_house())
            .await
            .unwrap_err();
    };
    keeping.await;
    assert!(!house.has(&head).await);
    let zero = Settings {
        sweep_every: Duration::ZERO,
        ..Settings::default()
    };
    let hasty = engine_on(house.store.clone(), Obeys::default(), zero);
    timeout(Duration::from_secs(1), hasty.keep_house())
        .await
        .unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn r32_a_clock_that_is_ahead_at_the_start_deletes_nothing() {
    const YEAR: i64 = 365 * 24 * 60 * 60 * 1_000;
    let settings = || Settings {
        max_age: Some(Duration::from_secs(10)),
        ..Settings::default()
    };
    let before = house(settings());
    let ended = before.send_at(1_000, "done").await;
    kill(&before.engine).await;
    let clock = Hands::at(YEAR);
    let engine = engine_with(
        before.store.clone(),
        Obeys::default(),
        settings(),
        clock.clone(),
    );
    let house = House {
        engine,
        clock,
        store: before.store,
    };
    soon(house.engine.recover()).await.unwrap();
    soon(house.engine.sweep()).await.unwrap();
    assert!(
        house.has(&ended).await,
        "nothing has shown yet that a year has passed"
    );
    // What really passes counts, twice, until the clock is believed.
    house.clock.set(YEAR + 4_000);
    soon(house.engine.sweep()).await.unwrap();
    assert!(house.has(&ended).await);
    house.clock.set(YEAR + 6_000);
    soon(house.engine.sweep()).await.unwrap();
    assert!(!house.has(&ended).await);
}

#[tokio::test(start_paused = true)]
async fn s65_the_oldest_questions_to_strangers_give_way() {
    use TaskState::{Failed, InputRequired, Working};
    let house = house(Settings {
        max_parked_tasks: 2,
        ..Settings::default()
    });
    let scope = |owner| Scope {
        owner,
        ..super::scope()
    };
    let asked = async |millis, owner, text: &str| {
        house.clock.set(millis);
        let accepted = soon(house.engine.start(Call::new(scope(owner)), opening(text)))
            .await
            .unwrap();
        settle_down().await;
        accepted.head
    };
    let state = async |head: &Head| {
        let head = house
            .engine
            .find(&head.scope, &head.id)
            .await
            .unwrap()
            .unwrap();
        house.engine.task(&head).await.unwrap().0.status.state
    };
    let mut strangers = Vec::new();
    for (millis, text) in [
        (30, "ask"),
        (10, "auth"),
        (20, "ask"),
        (5, "hang"),
        (40, "ask"),
    ] {
        strangers.push(asked(millis, Caller::anonymous(), text).await);
    }
    let mut known = Vec::new();
    for millis in 0..4 {
        known.push(asked(millis, Caller::named("ann"), "ask").await);
    }
    soon(house.engine.sweep()).await.unwrap();
    settle_down().await;
    let mut states = Vec::new();
    for head in strangers.iter().chain(&known) {
        states.push(state(head).await);
    }
    assert_eq!(
        states[..5],
        [InputRequired, Failed, Failed, Working, InputRequired],
        "the oldest, and no other"
    );
    assert_eq!(
        states[5..],
        [InputRequired; 4],
        "who is known has an allowance of their own"
    );
}

/// Between two sweeps too.
#[tokio::test(start_paused = true)]
async fn s65_strangers_do_not_pile_up_questions() {
    let settings = Settings {
        max_parked_tasks: 50,
        sweep_every: Duration::from_secs(3600),
        ..Settings::default()
    };
    let house = house(settings);
    let engine = house.engine.clone();
    let mut keeping = tokio::task::JoinSet::new();
    keeping.spawn(async move { engine.keep_house().await });
    let scope = Scope {
        owner: Caller::anonymous(),
        ..super::scope()
    };
    for _ in 0..400 {
        soon(house.engine.start(Call::new(scope.clone()), opening("ask")))
            .await
            .unwrap();
        settle_down().await;
    }
    let parked = house.store.parked(&scope, 1_000).await.unwrap().len();
    assert!((50..=150).contains(&parked), "{parked}");
}
