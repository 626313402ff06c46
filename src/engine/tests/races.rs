//! Races on several threads, repeated: all observers agree on the winner.

use tokio::task::JoinSet;

use super::harness::*;
use super::*;

const ROUNDS: usize = 1_000;

fn racing(store: Arc<dyn Store>, agent: impl Agent, settings: Settings) -> Engine {
    engine_on(
        store,
        agent,
        Settings {
            max_tasks: Some(u64::MAX),
            ..settings
        },
    )
}

/// Runs the races on a store. `$store` returns it with a guard for its files.
macro_rules! races {
    ($($name:ident),* $(,)?) => {
        macro_rules! on {
            ($store:expr) => {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                    async fn $name() {
                        let (store, _keep) = $store;
                        super::$name(store).await;
                    }
                )*
            };
        }
    };
}

races!(
    r18_cancel_and_completion_agree,
    r14_duplicates_race_to_one_task_and_one_turn,
    r17_a_repeated_answer_is_applied_once,
    r03_a_reader_that_joins_between_two_events_misses_and_repeats_nothing,
    r05_r07_a_hundred_readers_see_two_thousand_events_in_one_order,
    messages_at_once_take_one_turn_each_in_the_order_of_the_log,
    a_message_that_races_with_parking_has_its_turn,
    many_tasks_share_few_turn_permits_and_all_complete,
    a_cached_task_is_as_new_as_every_acknowledged_write,
);

mod memory {
    use super::*;

    on!((Arc::new(Memory::new()), ()));
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use crate::store::Sqlite;
    use crate::store::sqlite::{Options, Synchronous};

    use super::*;

    /// Without fsync: the test does not simulate power loss, and 1,000 rounds would need 1,000 flushes.
    fn store() -> (Arc<dyn Store>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            synchronous: Synchronous::Normal,
            ..Options::default()
        };
        (
            Arc::new(Sqlite::open(folder.path().join("a.db"), options).unwrap()),
            folder,
        )
    }

    on!(store());
}

async fn r18_cancel_and_completion_agree(store: Arc<dyn Store>) {
    let agent = ScriptedAgent::default();
    let engine = racing(store, agent.clone(), Settings::default());
    let mut ends = [0; 2];
    for round in 0..ROUNDS {
        let text = [
            "gate done",
            "gate yield done",
            "gate say yield done",
            "gate yield yield yield say done",
        ];
        let accepted = start(&engine, text[round % text.len()]).await;
        let head = accepted.head.clone();
        let mut race = JoinSet::new();
        agent.gate.add_permits(1);
        for _ in 0..2 {
            let engine = engine.clone();
            let head = head.clone();
            race.spawn(async move { engine.cancel(&head, None).await });
        }
        let settled = within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap();
        let canceled = within_deadline(race.join_all()).await;
        let task = check_invariants(&engine, &head).await;
        assert!(task.is_ended());
        assert_eq!(settled.status, task.status);
        let won = task.status.state == TaskState::Canceled;
        for answer in canceled {
            match answer {
                Ok(canceled) => assert_eq!(canceled.status, task.status),
                Err(Error::Ended(state)) => assert_eq!(state, task.status.state),
                Err(error) => panic!("{error:?}"),
            }
        }
        ends[usize::from(won)] += 1;
    }
    wait_until_idle(&engine).await;
    assert_eq!(check_idle(&engine).await.len(), ROUNDS);
    assert!(ends[0] > 0 && ends[1] > 0, "no race: {ends:?}");
}

async fn r14_duplicates_race_to_one_task_and_one_turn(store: Arc<dyn Store>) {
    let agent = ScriptedAgent::default();
    let engine = racing(store, agent.clone(), Settings::default());
    for round in 0..ROUNDS / 2 {
        let name = format!("key-{round}");
        let text = ["say done", "yield say ask"][round % 2];
        let mut race = JoinSet::new();
        for _ in 0..4 {
            let engine = engine.clone();
            let name = name.clone();
            race.spawn(async move {
                let accepted = engine
                    .start(
                        call(),
                        InitialMessage {
                            key: key(&name, 1),
                            ..initial_message(text)
                        },
                    )
                    .await?;
                engine.await_turn_result(accepted).await
            });
        }
        let tasks = within_deadline(race.join_all()).await;
        let first = tasks[0].as_ref().unwrap();
        for task in &tasks {
            assert_eq!(task.as_ref().unwrap(), first);
        }
        let other = engine
            .start(
                call(),
                InitialMessage {
                    key: key(&name, 2),
                    ..initial_message(text)
                },
            )
            .await;
        assert!(matches!(other, Err(Error::Store(store::Error::KeyReused))));
    }
    wait_until_idle(&engine).await;
    assert_eq!(check_idle(&engine).await.len(), ROUNDS / 2);
    assert_eq!(agent.received().len(), ROUNDS / 2);
}

async fn r17_a_repeated_answer_is_applied_once(store: Arc<dyn Store>) {
    let agent = ScriptedAgent::default();
    let engine = racing(store, agent.clone(), Settings::default());
    for round in 0..ROUNDS / 2 {
        let (head, _) = send(&engine, "ask").await;
        let text = ["say done", "yield say ask"][round % 2];
        let answer = message(text);
        let mut race = JoinSet::new();
        for _ in 0..4 {
            let engine = engine.clone();
            let head = head.clone();
            let answer = answer.clone();
            race.spawn(async move {
                let name = format!("key-{}", head.id);
                let accepted = engine
                    .continue_task(call(), &head, answer, key(&name, 1))
                    .await?;
                engine.await_turn_result(accepted).await
            });
        }
        for task in within_deadline(race.join_all()).await {
            let task = task.unwrap();
            let state = [TaskState::Completed, TaskState::InputRequired][round % 2];
            assert_eq!(task.status.state, state);
            assert_eq!(
                task.history
                    .iter()
                    .filter(|sent| sent.message_id == answer.message_id)
                    .count(),
                1
            );
        }
        let name = format!("key-{}", head.id);
        let other = engine
            .continue_task(call(), &head, message("other"), key(&name, 2))
            .await;
        assert!(
            matches!(other, Err(Error::Store(store::Error::KeyReused))),
            "{other:?}"
        );
    }
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
    assert_eq!(agent.received().len(), ROUNDS);
}

async fn r03_a_reader_that_joins_between_two_events_misses_and_repeats_nothing(
    store: Arc<dyn Store>,
) {
    let settings = Settings {
        max_tail_entries: 4,
        max_queued_events: 2,
        ..Settings::default()
    };
    let engine = racing(store, ScriptedAgent::default(), settings);
    let mut readers = JoinSet::new();
    let mut heads = Vec::new();
    for _ in 0..100 {
        let accepted = start(&engine, &"say yield write yield ".repeat(6)).await;
        let head = accepted.head.clone();
        heads.push(head.clone());
        for _ in 0..10 {
            let engine = engine.clone();
            let head = head.clone();
            readers.spawn(async move {
                tokio::task::yield_now().await;
                let (task, at) = engine.task(&head).await.unwrap();
                let mut task = Arc::unwrap_or_clone(task);
                let mut next = at.0;
                let mut follow = engine.follow(&head, at);
                while !task.is_ended() {
                    for entry in follow.next().await.unwrap() {
                        next += 1;
                        assert_eq!(entry.seq.0, next);
                        task.apply(&entry).unwrap();
                    }
                }
                (head, task)
            });
        }
    }
    while let Some(read) = within_deadline(readers.join_next()).await {
        let (head, task) = read.unwrap();
        // Found again: an old head may return an old task.
        let head = engine.find(&head.scope, &head.id).await.unwrap().unwrap();
        assert_eq!(task, *engine.task(&head).await.unwrap().0);
    }
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

async fn r05_r07_a_hundred_readers_see_two_thousand_events_in_one_order(store: Arc<dyn Store>) {
    let settings = Settings {
        max_tail_entries: 16,
        ..Settings::default()
    };
    let engine = racing(store, ScriptedAgent::default(), settings);
    let head = start(&engine, &format!("yield {}", "say ".repeat(2_000)))
        .await
        .head;
    let mut readers = JoinSet::new();
    for number in 0..100 {
        let mut follow = engine.follow(&head, Seq(0));
        readers.spawn(async move {
            let mut seen = Vec::new();
            loop {
                // R6: slow readers fall behind the tail and block no other.
                for _ in 0..number % 10 * 5 {
                    tokio::task::yield_now().await;
                }
                seen.extend(follow.next().await.unwrap());
                if matches!(
                    seen.last().map(|entry| &entry.event),
                    Some(Event::TurnEnded)
                ) {
                    return seen;
                }
            }
        });
    }
    let log: Vec<_> = {
        wait_until_idle(&engine).await;
        entries(&engine, &head).await
    };
    assert_eq!(log.len(), 2_000 + 6);
    while let Some(seen) = within_deadline(readers.join_next()).await {
        assert!(seen.unwrap().iter().map(|entry| &**entry).eq(log.iter()));
    }
}

async fn messages_at_once_take_one_turn_each_in_the_order_of_the_log(store: Arc<dyn Store>) {
    let agent = ScriptedAgent::default();
    let engine = racing(store, agent.clone(), Settings::default());
    for _ in 0..ROUNDS / 10 {
        let (head, _) = send(&engine, "ask").await;
        let before = agent.received().len();
        let mut race = JoinSet::new();
        for number in 0..8 {
            let engine = engine.clone();
            let head = head.clone();
            race.spawn(
                async move { send_to(&engine, &head, &format!("{number} yield ask")).await },
            );
        }
        for task in within_deadline(race.join_all()).await {
            assert_eq!(task.unwrap().status.state, TaskState::InputRequired);
        }
        let log = entries(&engine, &head).await;
        let texts = log.iter().filter_map(|entry| match &entry.event {
            Event::Message(message) => Some(message.text()),
            _ => None,
        });
        assert_eq!(
            texts.skip(1).collect::<Vec<_>>(),
            agent.received()[before..]
        );
        let turns = |event: &Event| log.iter().filter(|entry| entry.event == *event).count();
        assert_eq!(
            (turns(&Event::TurnStarted), turns(&Event::TurnEnded)),
            (9, 9)
        );
    }
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

async fn a_message_that_races_with_parking_has_its_turn(store: Arc<dyn Store>) {
    let engine = racing(store, ScriptedAgent::default(), Settings::default());
    for round in 0..ROUNDS {
        let head = start(&engine, ["ask", "yield ask", "yield yield ask"][round % 3])
            .await
            .head;
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            send_to(&engine, &head, "yield done")
                .await
                .unwrap()
                .status
                .state,
            TaskState::Completed
        );
        let turns = log_summary(&engine, &head)
            .await
            .into_iter()
            .filter(|word| word == "turn")
            .count();
        assert_eq!(turns, 2);
    }
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

async fn many_tasks_share_few_turn_permits_and_all_complete(store: Arc<dyn Store>) {
    let engine = racing(
        store,
        ScriptedAgent::default(),
        Settings {
            max_turns: 3,
            ..Settings::default()
        },
    );
    let mut race = JoinSet::new();
    for number in 0..300 {
        let engine = engine.clone();
        race.spawn(async move {
            let accepted = engine
                .start(call(), initial_message("yield say ask"))
                .await
                .unwrap();
            let head = accepted.head.clone();
            engine.await_turn_result(accepted).await.unwrap();
            if number % 3 == 0 {
                engine.cancel(&head, None).await.unwrap()
            } else {
                send_to(&engine, &head, "yield done").await.unwrap()
            }
        });
    }
    for task in within_deadline(race.join_all()).await {
        assert!(task.is_ended());
    }
    wait_until_idle(&engine).await;
    assert_eq!(check_idle(&engine).await.len(), 300);
}

/// Readers fill the cache while messages change the task. After each reply, the cached and the found task include it.
async fn a_cached_task_is_as_new_as_every_acknowledged_write(store: Arc<dyn Store>) {
    let engine = racing(store, ScriptedAgent::default(), Settings::default());
    let (head, _) = send(&engine, "ask").await;
    let stop = CancellationToken::new();
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let engine = engine.clone();
        let id = head.id.clone();
        let stop = stop.clone();
        readers.spawn(async move {
            let mut hits = 0;
            let mut newest = 0;
            while !stop.is_cancelled() {
                let length = match engine.cached_task(&scope(), &id) {
                    Some(task) => {
                        hits += 1;
                        task.history.len()
                    }
                    None => {
                        let head = engine.find(&scope(), &id).await.unwrap().unwrap();
                        engine.task_view(&head).await.unwrap().history.len()
                    }
                };
                assert!(length >= newest, "a reader never goes back in time");
                newest = length;
                tokio::task::yield_now().await;
            }
            hits
        });
    }
    for round in 0..ROUNDS / 2 {
        let text = ["ask", "say ask"][round % 2];
        let replied = send_to(&engine, &head, text).await.unwrap();
        for _ in 0..3 {
            if let Some(cached) = engine.cached_task(&scope(), &head.id) {
                assert_eq!(cached.history.len(), replied.history.len());
            }
            let found = engine.find(&scope(), &head.id).await.unwrap().unwrap();
            let view = within_deadline(engine.task_view(&found)).await.unwrap();
            assert_eq!(view.history.len(), replied.history.len());
        }
    }
    stop.cancel();
    let hits: usize = within_deadline(readers.join_all()).await.into_iter().sum();
    assert!(hits > 0, "no read was served from the cache");
    wait_until_idle(&engine).await;
    engine
        .inner
        .journal
        .delete(std::slice::from_ref(&head))
        .await
        .unwrap();
    assert!(engine.cached_task(&scope(), &head.id).is_none());
    assert!(engine.find(&scope(), &head.id).await.unwrap().is_none());
}
