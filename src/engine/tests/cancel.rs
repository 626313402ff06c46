//! Cancellation in every state of a task (R18 to R20).

use tokio::sync::{Notify, oneshot};

use super::harness::*;
use super::*;
use crate::model::Object;

fn scripted_engine(settings: Settings) -> (Engine, ScriptedAgent) {
    let agent = ScriptedAgent::default();
    (
        engine_on(Arc::new(Memory::new()), agent.clone(), settings),
        agent,
    )
}

/// Agent that never returns, and signals when it is dropped.
struct HangingAgent {
    started: Arc<Notify>,
    dropped: Mutex<Option<oneshot::Sender<()>>>,
}

impl Agent for HangingAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        struct DropSignal(Option<oneshot::Sender<()>>);
        impl Drop for DropSignal {
            fn drop(&mut self) {
                self.0.take().unwrap().send(()).unwrap();
            }
        }
        let _signal = DropSignal(self.dropped.lock().unwrap().take());
        turn.say("started").await;
        self.started.notify_one();
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn r20_an_agent_that_ignores_cancellation_is_dropped_immediately() {
    let (dropped, mut drop_signal) = oneshot::channel();
    let started = Arc::new(Notify::new());
    let agent = HangingAgent {
        started: started.clone(),
        dropped: Mutex::new(Some(dropped)),
    };
    let engine = engine_on(Arc::new(Memory::new()), agent, Settings::default());
    let accepted = start(&engine, "go").await;
    within_deadline(started.notified()).await;
    let before = tokio::time::Instant::now();
    let metadata: Object = [("why", crate::model::Json::from("too slow"))]
        .into_iter()
        .collect();
    let task = within_deadline(engine.cancel(&accepted.head, Some(metadata.clone())))
        .await
        .unwrap();
    drop_signal
        .try_recv()
        .expect("the agent is dropped before the cancel returns");
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(task.status.state, TaskState::Canceled);
    let log = entries(&engine, &accepted.head).await;
    assert!(log.iter().any(|entry| entry.event
        == Event::CancelRequested {
            metadata: Some(metadata.clone())
        }));
    assert_eq!(
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap()
            .status,
        task.status
    );
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r20_an_agent_that_awaits_cancellation_may_finish_and_the_task_is_still_canceled() {
    let (engine, _) = scripted_engine(Settings::default());
    let head = start(&engine, "say listen write done").await.head;
    yield_until_idle().await;
    let task = within_deadline(engine.cancel(&head, None)).await.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(
        log_summary(&engine, &head).await[3..],
        [
            "working",
            "cancel",
            "artifact false true",
            "canceled",
            "end"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn r20_an_agent_that_awaits_cancellation_and_does_not_stop_is_dropped_after_the_grace() {
    let (engine, _) = scripted_engine(Settings {
        cancel_grace: Duration::from_secs(5),
        ..Settings::default()
    });
    let head = start(&engine, "listen say hang").await.head;
    yield_until_idle().await;
    let before = tokio::time::Instant::now();
    let (first, second, message) = within_deadline(async {
        tokio::join!(
            engine.cancel(&head, None),
            engine.cancel(&head, None),
            engine.continue_task(call(), &head, message("late"), None)
        )
    })
    .await;
    assert_eq!(before.elapsed(), Duration::from_secs(5));
    let first = first.unwrap();
    assert_eq!(first.status.state, TaskState::Canceled);
    assert_eq!(second.unwrap().status, first.status);
    assert_eq!(
        within_deadline(engine.await_turn_result(message.unwrap()))
            .await
            .unwrap()
            .status,
        first.status
    );
    let cancels = log_summary(&engine, &head)
        .await
        .into_iter()
        .filter(|word| word == "cancel")
        .count();
    assert_eq!(cancels, 1);
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r19_a_task_that_waits_for_its_turn_or_for_an_answer_is_canceled() {
    let (engine, agent) = scripted_engine(Settings {
        max_turns: 1,
        ..Settings::default()
    });
    let (parked, _) = send(&engine, "ask").await;
    let busy = start(&engine, "hang").await.head;
    let queued = start(&engine, "done").await;
    let behind = within_deadline(engine.continue_task(call(), &queued.head, message("more"), None))
        .await
        .unwrap();
    for head in [&parked, &queued.head] {
        let task = within_deadline(engine.cancel(head, None)).await.unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
    }
    assert_eq!(
        within_deadline(engine.await_turn_result(behind))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Canceled
    );
    assert_eq!(
        within_deadline(engine.await_turn_result(queued))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Canceled
    );
    assert_eq!(agent.received(), ["ask", "hang"]);
    within_deadline(engine.cancel(&busy, None)).await.unwrap();
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn r19_an_ended_task_is_not_canceled_again() {
    let (engine, _) = scripted_engine(Settings::default());
    let (done, task) = send(&engine, "say done").await;
    for _ in 0..2 {
        let refused = within_deadline(engine.cancel(&done, None)).await;
        assert!(matches!(refused, Err(Error::Ended(TaskState::Completed))));
    }
    assert_eq!(check_invariants(&engine, &done).await, task);
    let (waiting, _) = send(&engine, "ask").await;
    within_deadline(engine.cancel(&waiting, None))
        .await
        .unwrap();
    assert!(matches!(
        within_deadline(engine.cancel(&waiting, None)).await,
        Err(Error::Ended(TaskState::Canceled))
    ));
    check_idle(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn s77_an_ended_task_accepts_no_message() {
    let (engine, agent) = scripted_engine(Settings::default());
    for text in ["done", "fail", "reject", "error", "panic"] {
        let (head, task) = send(&engine, text).await;
        assert!(
            matches!(send_to(&engine, &head, "more").await, Err(Error::Ended(state)) if state == task.status.state)
        );
        assert_eq!(check_invariants(&engine, &head).await, task);
    }
    assert_eq!(agent.received().len(), 5);
}

/// Agent that sends events without end.
async fn write_forever(turn: Turn) -> Result<Outcome, Failure> {
    loop {
        turn.say("more").await;
    }
}

#[tokio::test]
async fn r20_an_agent_that_never_pauses_is_canceled() {
    let engine = engine_on(Arc::new(Memory::new()), write_forever, Settings::default());
    let accepted = start(&engine, "go").await;
    let task = within_deadline(engine.cancel(&accepted.head, None))
        .await
        .unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test]
async fn r44_an_agent_that_never_pauses_meets_its_deadline() {
    let settings = Settings {
        max_turn_time: Some(Duration::from_millis(20)),
        ..Settings::default()
    };
    let engine = engine_on(Arc::new(Memory::new()), write_forever, settings);
    let task = send(&engine, "go").await.1;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(
        task.status.message.unwrap().text(),
        "Agent execution failed (deadline)"
    );
}
