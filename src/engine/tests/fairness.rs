//! Fair queueing of turns among callers.

use super::harness::*;
use super::*;
use crate::model::ClientAddress;

fn call_by(owner: &str) -> Call {
    let mut call = call();
    call.scope.owner = Caller::new(owner);
    call
}

/// Returns a call of an anonymous caller.
fn call_from(network: u8) -> Call {
    Call {
        client: Some(ClientAddress::from_ipv6([network; 16])),
        ..call()
    }
}

async fn start_by(engine: &Engine, call: Call, text: &str) -> Box<AcceptedMessage> {
    within_deadline(engine.start(call, initial_message(text)))
        .await
        .unwrap()
}

fn settings(max_turns: usize) -> Settings {
    Settings {
        max_turns,
        ..Settings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn d09_a_caller_with_many_long_turns_leaves_permits_for_others() {
    let agent = ScriptedAgent::default();
    let engine = engine_on(Arc::new(Memory::new()), agent.clone(), settings(64));
    for _ in 0..200 {
        start_by(&engine, call_by("greedy"), "hang").await;
    }
    yield_until_idle().await;
    assert_eq!(agent.received().len(), 32, "half of the permits");
    let quick = start_by(&engine, call_by("modest"), "done").await;
    let task = within_deadline(engine.await_turn_result(quick)).await;
    assert_eq!(task.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn d09_waiting_callers_are_served_in_turn() {
    let agent = ScriptedAgent::default();
    let engine = engine_on(Arc::new(Memory::new()), agent.clone(), settings(1));
    let first = start_by(&engine, call_by("greedy"), "hang").await;
    for number in 0..3 {
        start_by(&engine, call_by("greedy"), &format!("greedy-{number}")).await;
    }
    for name in ["second", "third"] {
        start_by(&engine, call_by(name), name).await;
    }
    within_deadline(engine.cancel(&first.head, None))
        .await
        .unwrap();
    wait_until_idle(&engine).await;
    assert_eq!(
        agent.received(),
        [
            "hang", "greedy-0", "second", "third", "greedy-1", "greedy-2"
        ]
    );
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn d09_anonymous_callers_are_distinguished_by_address() {
    let agent = ScriptedAgent::default();
    let engine = engine_on(Arc::new(Memory::new()), agent.clone(), settings(2));
    for _ in 0..10 {
        start_by(&engine, call_from(1), "hang").await;
    }
    let quick = start_by(&engine, call_from(2), "done").await;
    let task = within_deadline(engine.await_turn_result(quick)).await;
    assert_eq!(task.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn d09_the_limit_of_an_agent_is_shared_among_callers() {
    let agent = ScriptedAgent::default();
    let limits = AgentSettings {
        max_turns: Some(4),
        max_turns_per_caller: Some(3),
        ..AgentSettings::default()
    };
    let agents = AgentRegistry::new([registration("test", agent.clone(), limits)]);
    let engine = engine_with_agents(Arc::new(Memory::new()), agents);
    for _ in 0..10 {
        start_by(&engine, call_by("greedy"), "hang").await;
    }
    yield_until_idle().await;
    assert_eq!(agent.received().len(), 3);
    let quick = start_by(&engine, call_by("modest"), "done").await;
    let task = within_deadline(engine.await_turn_result(quick)).await;
    assert_eq!(task.unwrap().status.state, TaskState::Completed);
}
