//! Another process appends to the log of a running task (R18, R21, R22).

use super::harness::*;
use super::*;
use crate::model::TaskStatus;
use crate::store::{Batch, WriterRole};

/// An engine whose store has external writers. The test plays the other process.
struct SharedLog {
    engine: Engine,
    agent: ScriptedAgent,
}

fn shared_log(settings: Settings) -> SharedLog {
    let agent = ScriptedAgent::default();
    SharedLog {
        engine: engine_on(
            Arc::new(FaultyStore::with_external_writers()),
            agent.clone(),
            settings,
        ),
        agent,
    }
}

impl SharedLog {
    /// Appends like another process. With `announce`, the engine is notified.
    async fn write(&self, head: &Head, mut events: Vec<Event>, announce: bool) {
        let mut log = self
            .engine
            .inner
            .journal
            .load_for_runner(head)
            .await
            .unwrap();
        let at = log.position;
        let time = Timestamp::from_millis(1_000).unwrap();
        events
            .iter_mut()
            .for_each(|event| log.apply_next(time, event));
        let status = &log.task.status;
        let status_time = status.timestamp.unwrap();
        let state = status.state;
        let parked = log.is_parked();
        let batch = Batch {
            time,
            events,
            state,
            status_time,
            parked,
            key: None,
            turn: 0,
            writer: WriterRole::Holder,
        };
        let at = self
            .engine
            .inner
            .journal
            .store
            .append(head, at, &batch)
            .await
            .unwrap();
        if announce {
            self.engine.inner.journal.announce(&head.id, at);
        }
    }

    async fn check_idle(&self) {
        wait_until_idle(&self.engine).await;
        check_idle(&self.engine).await;
    }
}

fn cancel() -> Event {
    Event::CancelRequested { metadata: None }
}

fn status(state: TaskState) -> Event {
    Event::Status {
        status: TaskStatus::new(state),
        metadata: None,
    }
}

fn message_event(text: &str) -> Event {
    Event::Message(Arc::new(message(text)))
}

#[tokio::test(start_paused = true)]
async fn r18_a_task_canceled_by_another_process_stays_canceled_and_its_turn_stops() {
    for announce in [true, false] {
        let shared_log = shared_log(Settings::default());
        let accepted = start(&shared_log.engine, "gate say write hang").await;
        let head = accepted.head.clone();
        yield_until_idle().await;
        shared_log
            .write(&head, vec![cancel(), status(TaskState::Canceled)], announce)
            .await;
        if !announce {
            // The next append of the agent conflicts with it.
            shared_log.agent.gate.add_permits(1);
        }
        yield_until_idle().await;
        assert_eq!(shared_log.agent.running(&head.id), 0, "the turn stops");
        let late: &[&str] = if announce {
            &[]
        } else {
            &["ignored", "ignored"]
        };
        assert_eq!(
            log_summary(&shared_log.engine, &head).await[4..],
            [&["cancel", "canceled"], late, &["end"]].concat()
        );
        let task = within_deadline(shared_log.engine.await_turn_result(accepted))
            .await
            .unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
        assert_eq!(check_invariants(&shared_log.engine, &head).await, task);
        shared_log.check_idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r18_an_end_that_meets_another_end_in_the_log_is_ignored() {
    let shared_log = shared_log(Settings::default());
    let accepted = start(&shared_log.engine, "gate done").await;
    let head = accepted.head.clone();
    let failed = vec![status(TaskState::Failed), Event::TurnEnded];
    shared_log.write(&head, failed, false).await;
    shared_log.agent.gate.add_permits(1);
    let task = within_deadline(shared_log.engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    shared_log.check_idle().await;
    // The other process has ended the turn. It is not ended again.
    assert_eq!(
        log_summary(&shared_log.engine, &head).await[4..],
        ["failed", "end", "ignored"]
    );
}

#[tokio::test(start_paused = true)]
async fn r21_a_foreign_cancel_request_reaches_the_turn() {
    let shared_log = shared_log(Settings::default());
    let awaits_cancel = start(&shared_log.engine, "listen write hang").await.head;
    let hangs = start(&shared_log.engine, "hang").await.head;
    yield_until_idle().await;
    for head in [&awaits_cancel, &hangs] {
        shared_log.write(head, vec![cancel()], true).await;
    }
    yield_until_idle().await;
    assert_eq!(
        log_summary(&shared_log.engine, &hangs).await[4..],
        ["cancel", "canceled", "end"]
    );
    // An agent that awaits the cancellation has its grace period.
    assert_eq!(
        log_summary(&shared_log.engine, &awaits_cancel).await[4..],
        ["cancel", "artifact false true"]
    );
    let task = within_deadline(shared_log.engine.cancel(&awaits_cancel, None))
        .await
        .unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(
        log_summary(&shared_log.engine, &awaits_cancel).await[6..],
        ["canceled", "end"]
    );
    shared_log.check_idle().await;
}

#[tokio::test(start_paused = true)]
async fn r21_a_foreign_cancel_reaches_a_task_that_waits_for_its_turn() {
    let shared_log = shared_log(Settings {
        max_turns: 1,
        ..Settings::default()
    });
    let busy = start(&shared_log.engine, "hang").await.head;
    let first = start(&shared_log.engine, "done").await;
    let second = start(&shared_log.engine, "done").await;
    yield_until_idle().await;
    shared_log
        .write(
            &first.head,
            vec![cancel(), status(TaskState::Canceled)],
            true,
        )
        .await;
    shared_log.write(&second.head, vec![cancel()], true).await;
    for accepted in [first, second] {
        let task = within_deadline(shared_log.engine.await_turn_result(accepted))
            .await
            .unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
    }
    assert_eq!(shared_log.agent.received(), ["hang"]);
    within_deadline(shared_log.engine.cancel(&busy, None))
        .await
        .unwrap();
    shared_log.check_idle().await;
}

#[tokio::test(start_paused = true)]
async fn r21_a_message_appended_by_another_process_has_its_turn() {
    for announce in [true, false] {
        let shared_log = shared_log(Settings::default());
        let accepted = start(&shared_log.engine, "gate say ask").await;
        let head = accepted.head.clone();
        shared_log
            .write(&head, vec![message_event("say done")], announce)
            .await;
        let ours = within_deadline(shared_log.engine.continue_task(
            call(),
            &head,
            message("late"),
            None,
        ))
        .await
        .unwrap();
        shared_log.agent.gate.add_permits(1);
        assert_eq!(
            within_deadline(shared_log.engine.await_turn_result(accepted))
                .await
                .unwrap()
                .status
                .state,
            TaskState::InputRequired
        );
        assert_eq!(
            within_deadline(shared_log.engine.await_turn_result(ours))
                .await
                .unwrap()
                .status
                .state,
            TaskState::Completed
        );
        assert_eq!(shared_log.agent.received(), ["gate say ask", "say done"]);
        shared_log.check_idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r22_a_turn_restarted_by_another_process_supersedes_ours() {
    for announce in [true, false] {
        let shared_log = shared_log(Settings::default());
        let accepted = start(&shared_log.engine, "gate say write done").await;
        let head = accepted.head.clone();
        yield_until_idle().await;
        shared_log
            .write(&head, vec![Event::TurnStarted], announce)
            .await;
        if !announce {
            shared_log.agent.gate.add_permits(1);
        }
        yield_until_idle().await;
        assert_eq!(shared_log.agent.running(&head.id), 0, "our turn stops");
        assert!(
            shared_log
                .engine
                .inner
                .journal
                .active_tasks
                .get(&head.id)
                .is_none()
        );
        assert_eq!(
            log_summary(&shared_log.engine, &head).await[2..],
            ["turn", "working", "turn"],
            "and appends nothing more"
        );
        shared_log
            .write(
                &head,
                vec![status(TaskState::Completed), Event::TurnEnded],
                true,
            )
            .await;
        let task = within_deadline(shared_log.engine.await_turn_result(accepted))
            .await
            .unwrap();
        assert_eq!(task.status.state, TaskState::Completed);
        shared_log.check_idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r22_calls_to_a_superseded_runner_are_refused_as_unavailable() {
    let shared_log = shared_log(Settings::default());
    let head = start(&shared_log.engine, "hang").await.head;
    yield_until_idle().await;
    shared_log
        .write(&head, vec![Event::TurnStarted], false)
        .await;
    let error = within_deadline(shared_log.engine.continue_task(
        call(),
        &head,
        message("more"),
        None,
    ))
    .await
    .unwrap_err();
    assert_eq!(model::Error::from(error).kind(), ErrorKind::Unavailable);
    assert_eq!(
        log_summary(&shared_log.engine, &head).await[2..],
        ["turn", "working", "turn"]
    );
    shared_log
        .write(
            &head,
            vec![status(TaskState::Completed), Event::TurnEnded],
            true,
        )
        .await;
    shared_log.check_idle().await;
}
