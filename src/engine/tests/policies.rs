//! What one agent may do where that is not what all may: every policy, with a neighbour that has none of its own.

use super::super::settings::AgentSettings;
use super::world::*;
use super::*;

/// An engine with two agents: `own` has policies of its own, `other` those of all.
fn two(store: &Arc<Memory>, own: AgentSettings, all: Settings, clock: &Arc<Hands>) -> Engine {
    let staff = Staff::new([
        ("own".into(), Arc::new(Obeys::default()) as _, own),
        (
            "other".into(),
            Arc::new(Obeys::default()) as _,
            AgentSettings::default(),
        ),
    ]);
    let owned = (TaskTracker::new(), CancellationToken::new());
    Engine::new(
        store.clone(),
        Arc::new(Local::default()),
        staff,
        clock.clone(),
        all,
        owned,
    )
}

async fn begin(engine: &Engine, agent: &str, text: &str) -> Box<Accepted> {
    let mut call = call();
    call.scope.agent = agent.into();
    soon(engine.start(call, opening(text))).await.unwrap()
}

/// Begins the same with both.
async fn begin_both(engine: &Engine, text: &str) -> [Box<Accepted>; 2] {
    [
        begin(engine, "own", text).await,
        begin(engine, "other", text).await,
    ]
}

async fn state(engine: &Engine, head: &Head) -> TaskState {
    let head = engine.find(&head.scope, &head.id).await.unwrap().unwrap();
    lawful(engine, &head).await.status.state
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_turn_of_one_agent_may_take_less_long_than_all_may() {
    let (store, clock) = (Arc::default(), Hands::at(1_000));
    for own in [
        AgentSettings {
            max_turn_time: Some(SECOND),
            ..AgentSettings::default()
        },
        AgentSettings {
            max_silence: Some(SECOND),
            ..AgentSettings::default()
        },
    ] {
        let all = Settings {
            max_turn_time: Some(60 * SECOND),
            max_silence: Some(60 * SECOND),
            ..Settings::default()
        };
        let engine = two(&store, own, all, &clock);
        let before = tokio::time::Instant::now();
        let [own, other] = begin_both(&engine, "hang").await;
        assert_eq!(
            soon(engine.settled(own)).await.unwrap().status.state,
            TaskState::Failed
        );
        assert_eq!(before.elapsed(), SECOND);
        let failed = tokio::time::timeout(100 * SECOND, engine.settled(other))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (failed.status.state, before.elapsed()),
            (TaskState::Failed, 60 * SECOND)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn turns_of_one_agent_run_again_after_a_restart_and_those_of_others_fail() {
    let (store, clock) = (Arc::default(), Hands::at(1_000));
    let own = AgentSettings {
        on_restart: Some(Restart::RunAgain { attempts: 2 }),
        ..AgentSettings::default()
    };
    let engine = two(&store, own.clone(), Settings::default(), &clock);
    let heads = begin_both(&engine, "say hang")
        .await
        .map(|accepted| accepted.head);
    settle_down().await;
    kill(&engine).await;
    for expected in [TaskState::Working, TaskState::Failed] {
        let engine = two(&store, own.clone(), Settings::default(), &clock);
        soon(engine.recover()).await.unwrap();
        settle_down().await;
        assert_eq!(state(&engine, &heads[0]).await, expected);
        assert_eq!(state(&engine, &heads[1]).await, TaskState::Failed);
        kill(&engine).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_agent_waits_less_long_for_an_answer_than_all_do() {
    for (policy, expected) in [
        (Waiting::FailAfter(SECOND), TaskState::Failed),
        (Waiting::ContinueAfter(SECOND), TaskState::Completed),
    ] {
        let (store, clock) = (Arc::default(), Hands::at(1_000));
        let own = AgentSettings {
            on_waiting: Some(policy),
            ..AgentSettings::default()
        };
        let engine = two(&store, own, Settings::default(), &clock);
        let [own, other] = begin_both(&engine, "ask").await;
        let heads = [own.head.clone(), other.head.clone()];
        for accepted in [own, other] {
            soon(engine.settled(accepted)).await.unwrap();
        }
        settle_down().await;
        tokio::time::advance(2 * SECOND).await;
        clock.set(3_000);
        soon(engine.sweep()).await.unwrap();
        settle_down().await;
        assert_eq!(state(&engine, &heads[0]).await, expected);
        assert_eq!(state(&engine, &heads[1]).await, TaskState::InputRequired);
    }
    // And one may wait for ever where all wait only so long.
    let (store, clock) = (Arc::default(), Hands::at(1_000));
    let own = AgentSettings {
        on_waiting: Some(Waiting::Stay),
        ..AgentSettings::default()
    };
    let all = Settings {
        on_waiting: Waiting::FailAfter(SECOND),
        ..Settings::default()
    };
    let engine = two(&store, own, all, &clock);
    let heads = begin_both(&engine, "ask")
        .await
        .map(|accepted| accepted.head);
    settle_down().await;
    tokio::time::advance(2 * SECOND).await;
    clock.set(3_000);
    soon(engine.sweep()).await.unwrap();
    settle_down().await;
    assert_eq!(state(&engine, &heads[0]).await, TaskState::InputRequired);
    assert_eq!(state(&engine, &heads[1]).await, TaskState::Failed);
}
