//! Tests of the engine without a server: memory store, manual clock, scripted agents.

mod cancel;
mod cluster;
mod external_writers;
mod fairness;
mod faults;
pub(crate) mod harness;
mod invariants;
mod limits;
mod network_store;
mod overload;
mod pipelining;
mod policies;
mod races;
mod recovery;
mod retention;
mod snapshots;
mod turns;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use crate::agent::{Agent, Failure, Outcome, Turn};
use crate::model::{self, Caller, ErrorKind, Event, MessageId, TaskState, Timestamp};
use crate::store::{self, Memory, ReadLimit};

struct FixedClock(AtomicU64);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn new_id(&self, _: Timestamp) -> Arc<str> {
        format!("id-{}", self.0.fetch_add(1, Ordering::Relaxed) + 1).into()
    }
}

/// Agent that runs one turn per permit, asks until it receives `stop`, and records the messages it received.
#[derive(Clone)]
struct AskingAgent {
    permits: Arc<Semaphore>,
    received: Arc<Mutex<Vec<String>>>,
}

impl Agent for AskingAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        self.permits.acquire().await?.forget();
        self.received.lock().unwrap().push(turn.text());
        turn.say("thinking").await;
        match turn.text().as_str() {
            "stop" => Ok(Outcome::Completed),
            text => Ok(Outcome::ask(format!("after {text}?"))),
        }
    }
}

fn asking_agent(permits: usize) -> AskingAgent {
    AskingAgent {
        permits: Arc::new(Semaphore::new(permits)),
        received: Arc::default(),
    }
}

fn engine(agent: impl Agent) -> Engine {
    let store = Arc::new(Memory::new());
    let clock = Arc::new(FixedClock(AtomicU64::new(0)));
    let agents = AgentRegistry::single(agent);
    harness::build_engine(store, agents, Settings::default(), clock)
}

pub(crate) fn call() -> Call {
    Call::new(scope())
}

pub(crate) fn scope() -> Scope {
    Scope {
        agent: "test".into(),
        tenant: "".into(),
        owner: Caller::anonymous(),
    }
}

pub(crate) async fn within_deadline<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), future)
        .await
        .expect("within the deadline")
}

#[tokio::test]
async fn a_turn_is_recorded_from_start_to_end() {
    let engine = engine(asking_agent(1));
    let accepted = engine
        .start(call(), InitialMessage::from(Message::user("stop")))
        .await
        .unwrap();
    let head = accepted.head.clone();
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.status.timestamp, Timestamp::from_millis(1_000));
    let entries = engine
        .inner
        .journal
        .follow(&head, Seq(0))
        .next()
        .await
        .unwrap();
    let events: Vec<_> = entries.iter().map(|entry| &entry.event).collect();
    let [
        Event::Created { id, .. },
        Event::Message(_),
        Event::TurnStarted,
        Event::Status { status, .. },
        Event::Status { .. },
        Event::TurnEnded,
    ] = events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(id.as_str(), "id-1");
    assert_eq!(status.message.as_ref().unwrap().message_id.as_str(), "id-3");
}

#[tokio::test]
async fn messages_take_their_turns_in_order_and_each_caller_gets_its_own_end() {
    let agent = asking_agent(0);
    let engine = engine(agent.clone());
    let first = engine
        .start(call(), InitialMessage::from(Message::user("one")))
        .await
        .unwrap();
    let head = first.head.clone();
    let second = engine
        .continue_task(call(), &head, Message::user("two"), None)
        .await
        .unwrap();
    let third = engine
        .continue_task(call(), &head, Message::user("stop"), None)
        .await
        .unwrap();
    let late = engine
        .continue_task(call(), &head, Message::user("late"), None)
        .await
        .unwrap();
    agent.permits.add_permits(4);
    let result = |task: Task| {
        (
            task.status.state,
            task.status.message.map(|message| message.text()),
        )
    };
    let expected = |text: &str| (TaskState::InputRequired, Some(text.to_owned()));
    assert_eq!(
        result(
            within_deadline(engine.await_turn_result(second))
                .await
                .unwrap()
        ),
        expected("after two?")
    );
    assert_eq!(
        result(
            within_deadline(engine.await_turn_result(first))
                .await
                .unwrap()
        ),
        expected("after one?")
    );
    assert_eq!(
        result(
            within_deadline(engine.await_turn_result(third))
                .await
                .unwrap()
        )
        .0,
        TaskState::Completed
    );
    assert_eq!(
        result(
            within_deadline(engine.await_turn_result(late))
                .await
                .unwrap()
        )
        .0,
        TaskState::Completed
    );
    assert_eq!(*agent.received.lock().unwrap(), ["one", "two", "stop"]);
    let refused = engine
        .continue_task(call(), &head, Message::user("more"), None)
        .await;
    assert!(matches!(refused, Err(Error::Ended(TaskState::Completed))));
}

#[tokio::test]
async fn an_answered_question_runs_a_turn_before_the_next_result() {
    let engine = engine(asking_agent(2));
    let accepted = engine
        .start(call(), InitialMessage::from(Message::user("one")))
        .await
        .unwrap();
    let head = accepted.head.clone();
    within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    let accepted = engine
        .continue_task(call(), &head, Message::user("stop"), None)
        .await
        .unwrap();
    assert_eq!(accepted.log.task.status.state, TaskState::Working);
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let texts: Vec<_> = task.history.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["one", "thinking", "after one?", "stop", "thinking"]);
}

#[tokio::test]
async fn a_task_outlives_its_caller() {
    let agent = asking_agent(0);
    let engine = engine(agent.clone());
    let accepted = engine
        .start(call(), InitialMessage::from(Message::user("stop")))
        .await
        .unwrap();
    let head = accepted.head.clone();
    drop(accepted);
    agent.permits.add_permits(1);
    engine.inner.tracker.close();
    within_deadline(engine.inner.tracker.wait()).await;
    assert_eq!(
        engine.task(&head).await.unwrap().0.status.state,
        TaskState::Completed
    );
}

#[tokio::test]
async fn an_engine_that_stops_drops_its_turns() {
    let engine = engine(asking_agent(0));
    engine
        .start(call(), InitialMessage::from(Message::user("stop")))
        .await
        .unwrap();
    engine.inner.stop.cancel();
    engine.inner.tracker.close();
    within_deadline(engine.inner.tracker.wait()).await;
    assert!(matches!(
        engine
            .start(call(), InitialMessage::from(Message::user("x")))
            .await,
        Err(Error::ShuttingDown)
    ));
}
