//! Settings of one agent override those of the engine, and do not affect other agents.

use super::super::settings::AgentSettings;
use super::harness::*;
use super::*;

/// Creates an engine with two agents: `own` has settings of its own, `other` those of the engine.
fn two_agents(
    store: &Arc<Memory>,
    own: AgentSettings,
    all: Settings,
    clock: &Arc<ManualClock>,
) -> Engine {
    let agents = AgentRegistry::new([
        registration("own", ScriptedAgent::default(), own),
        registration("other", ScriptedAgent::default(), AgentSettings::default()),
    ]);
    build_engine(store.clone(), agents, all, clock.clone())
}

async fn start_for(engine: &Engine, agent: &str, text: &str) -> Box<AcceptedMessage> {
    let mut call = call();
    call.scope.agent = agent.into();
    within_deadline(engine.start(call, initial_message(text)))
        .await
        .unwrap()
}

/// Creates the same task for both agents.
async fn start_for_both(engine: &Engine, text: &str) -> [Box<AcceptedMessage>; 2] {
    [
        start_for(engine, "own", text).await,
        start_for(engine, "other", text).await,
    ]
}

async fn state(engine: &Engine, head: &Head) -> TaskState {
    let head = engine.find(&head.scope, &head.id).await.unwrap().unwrap();
    check_invariants(engine, &head).await.status.state
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn max_turn_time_of_an_agent_overrides_that_of_the_engine() {
    let store = Arc::default();
    let clock = ManualClock::starting_at(1_000);
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
        let engine = two_agents(&store, own, all, &clock);
        let before = tokio::time::Instant::now();
        let [own, other] = start_for_both(&engine, "hang").await;
        assert_eq!(
            within_deadline(engine.await_turn_result(own))
                .await
                .unwrap()
                .status
                .state,
            TaskState::Failed
        );
        assert_eq!(before.elapsed(), SECOND);
        let failed = tokio::time::timeout(100 * SECOND, engine.await_turn_result(other))
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
async fn on_restart_of_an_agent_overrides_that_of_the_engine() {
    let store = Arc::default();
    let clock = ManualClock::starting_at(1_000);
    let own = AgentSettings {
        on_restart: Some(RestartPolicy::RunAgain { attempts: 2 }),
        ..AgentSettings::default()
    };
    let engine = two_agents(&store, own.clone(), Settings::default(), &clock);
    let heads = start_for_both(&engine, "say hang")
        .await
        .map(|accepted| accepted.head);
    yield_until_idle().await;
    shut_down(&engine).await;
    for expected in [TaskState::Working, TaskState::Failed] {
        let engine = two_agents(&store, own.clone(), Settings::default(), &clock);
        within_deadline(engine.recover()).await.unwrap();
        yield_until_idle().await;
        assert_eq!(state(&engine, &heads[0]).await, expected);
        assert_eq!(state(&engine, &heads[1]).await, TaskState::Failed);
        shut_down(&engine).await;
    }
}

#[tokio::test(start_paused = true)]
async fn seed_2_26_the_text_of_an_input_timeout_names_it() {
    let age = Duration::from_secs(300);
    let by_policy = Settings {
        on_waiting: UnansweredPolicy::FailAfter(age),
        ..Settings::default()
    };
    let by_limit = Settings {
        max_parked_age: Some(age),
        ..Settings::default()
    };
    for (settings, command, missing) in [
        (by_policy, "ask", "input"),
        (by_limit.clone(), "ask", "input"),
        (by_limit, "auth", "authorization"),
    ] {
        let store = Arc::default();
        let clock = ManualClock::starting_at(1_000);
        let engine = two_agents(&store, AgentSettings::default(), settings, &clock);
        let [accepted, _] = start_for_both(&engine, command).await;
        let head = accepted.head.clone();
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap();
        yield_until_idle().await;
        tokio::time::advance(age + SECOND).await;
        clock.advance_to(302_000);
        within_deadline(engine.sweep()).await.unwrap();
        yield_until_idle().await;
        let (task, _) = engine.task(&head).await.unwrap();
        let message = task.status.message.as_ref().unwrap();
        assert_eq!(message.text(), format!("{missing} timeout after 300 s"));
        assert_eq!(task.status.state, TaskState::Failed);
    }
}

#[tokio::test(start_paused = true)]
async fn on_waiting_of_an_agent_overrides_that_of_the_engine() {
    for (policy, expected) in [
        (UnansweredPolicy::FailAfter(SECOND), TaskState::Failed),
        (
            UnansweredPolicy::ContinueAfter(SECOND),
            TaskState::Completed,
        ),
    ] {
        let store = Arc::default();
        let clock = ManualClock::starting_at(1_000);
        let own = AgentSettings {
            on_waiting: Some(policy),
            ..AgentSettings::default()
        };
        let engine = two_agents(&store, own, Settings::default(), &clock);
        let [own, other] = start_for_both(&engine, "ask").await;
        let heads = [own.head.clone(), other.head.clone()];
        for accepted in [own, other] {
            within_deadline(engine.await_turn_result(accepted))
                .await
                .unwrap();
        }
        yield_until_idle().await;
        tokio::time::advance(2 * SECOND).await;
        clock.advance_to(3_000);
        within_deadline(engine.sweep()).await.unwrap();
        yield_until_idle().await;
        assert_eq!(state(&engine, &heads[0]).await, expected);
        assert_eq!(state(&engine, &heads[1]).await, TaskState::InputRequired);
    }
    // An agent may wait without limit although the engine has one.
    let store = Arc::default();
    let clock = ManualClock::starting_at(1_000);
    let own = AgentSettings {
        on_waiting: Some(UnansweredPolicy::Stay),
        ..AgentSettings::default()
    };
    let all = Settings {
        on_waiting: UnansweredPolicy::FailAfter(SECOND),
        ..Settings::default()
    };
    let engine = two_agents(&store, own, all, &clock);
    let heads = start_for_both(&engine, "ask")
        .await
        .map(|accepted| accepted.head);
    yield_until_idle().await;
    tokio::time::advance(2 * SECOND).await;
    clock.advance_to(3_000);
    within_deadline(engine.sweep()).await.unwrap();
    yield_until_idle().await;
    assert_eq!(state(&engine, &heads[0]).await, TaskState::InputRequired);
    assert_eq!(state(&engine, &heads[1]).await, TaskState::Failed);
}
