//! R18, R21, R22: another process writes to the same log.

use super::world::*;
use super::*;
use crate::model::TaskStatus;
use crate::store::Batch;

/// Two hands on one store: the engine, and whoever writes beside it.
struct Both {
    engine: Engine,
    agent: Obeys,
}

fn both(settings: Settings) -> Both {
    let agent = Obeys::default();
    Both {
        engine: engine_on(Arc::new(Faulty::shared()), agent.clone(), settings),
        agent,
    }
}

impl Both {
    /// Adds to a log as another process does; the engine hears of it if it is told.
    async fn write(&self, head: &Head, mut events: Vec<Event>, told: bool) {
        let mut log = self.engine.journal.stored(head).await.unwrap();
        let (at, time) = (log.at, Timestamp::from_millis(1_000).unwrap());
        events.iter_mut().for_each(|event| log.take(time, event));
        let status = &log.task.status;
        let status_time = status.timestamp.unwrap();
        let (state, parked) = (status.state, log.is_parked());
        let batch = Batch {
            time,
            events,
            state,
            status_time,
            parked,
            key: None,
            turn: 0,
        };
        let at = self
            .engine
            .journal
            .store
            .append(head, at, &batch)
            .await
            .unwrap();
        if told {
            self.engine.journal.announce(&head.id, at);
        }
    }

    async fn at_rest(&self) {
        quiet(&self.engine).await;
        at_rest(&self.engine).await;
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

fn said(text: &str) -> Event {
    Event::Message(Arc::new(message(text)))
}

#[tokio::test(start_paused = true)]
async fn r18_a_task_that_was_canceled_elsewhere_stays_so_and_the_turn_stops() {
    for told in [true, false] {
        let both = both(Settings::default());
        let accepted = start(&both.engine, "gate say write hang").await;
        let head = accepted.head.clone();
        settle_down().await;
        both.write(&head, vec![cancel(), status(TaskState::Canceled)], told)
            .await;
        if !told {
            // The next thing the agent says meets it in the log.
            both.agent.gate.add_permits(1);
        }
        settle_down().await;
        assert_eq!(both.agent.running(&head.id), 0, "the turn stops");
        let late: &[&str] = if told { &[] } else { &["ignored", "ignored"] };
        assert_eq!(
            words(&both.engine, &head).await[4..],
            [&["cancel", "canceled"], late, &["end"]].concat()
        );
        let task = soon(both.engine.settled(accepted)).await.unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
        assert_eq!(lawful(&both.engine, &head).await, task);
        both.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r18_an_end_that_meets_another_end_in_the_log_is_ignored() {
    let both = both(Settings::default());
    let accepted = start(&both.engine, "gate done").await;
    let head = accepted.head.clone();
    let failed = vec![status(TaskState::Failed), Event::TurnEnded];
    both.write(&head, failed, false).await;
    both.agent.gate.add_permits(1);
    let task = soon(both.engine.settled(accepted)).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    both.at_rest().await;
    // Its turn was ended there, and is not ended once more.
    assert_eq!(
        words(&both.engine, &head).await[4..],
        ["failed", "end", "ignored"]
    );
}

#[tokio::test(start_paused = true)]
async fn r21_a_cancel_that_was_asked_for_elsewhere_reaches_the_turn() {
    let both = both(Settings::default());
    let listens = start(&both.engine, "listen write hang").await.head;
    let hangs = start(&both.engine, "hang").await.head;
    settle_down().await;
    for head in [&listens, &hangs] {
        both.write(head, vec![cancel()], true).await;
    }
    settle_down().await;
    assert_eq!(
        words(&both.engine, &hangs).await[4..],
        ["cancel", "canceled", "end"]
    );
    // One that listens has its grace.
    assert_eq!(
        words(&both.engine, &listens).await[4..],
        ["cancel", "artifact false true"]
    );
    let task = soon(both.engine.cancel(&listens, None)).await.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(
        words(&both.engine, &listens).await[6..],
        ["canceled", "end"]
    );
    both.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn r21_a_cancel_from_elsewhere_reaches_a_task_that_waits_for_its_turn() {
    let both = both(Settings {
        max_turns: 1,
        ..Settings::default()
    });
    let busy = start(&both.engine, "hang").await.head;
    let (first, second) = (
        start(&both.engine, "done").await,
        start(&both.engine, "done").await,
    );
    settle_down().await;
    both.write(
        &first.head,
        vec![cancel(), status(TaskState::Canceled)],
        true,
    )
    .await;
    both.write(&second.head, vec![cancel()], true).await;
    for accepted in [first, second] {
        let task = soon(both.engine.settled(accepted)).await.unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
    }
    assert_eq!(both.agent.heard(), ["hang"]);
    soon(both.engine.cancel(&busy, None)).await.unwrap();
    both.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn r21_a_message_from_elsewhere_has_its_turn() {
    for told in [true, false] {
        let both = both(Settings::default());
        let accepted = start(&both.engine, "gate say ask").await;
        let head = accepted.head.clone();
        both.write(&head, vec![said("say done")], told).await;
        let ours = soon(both.engine.resume(call(), &head, message("late"), None))
            .await
            .unwrap();
        both.agent.gate.add_permits(1);
        assert_eq!(
            soon(both.engine.settled(accepted))
                .await
                .unwrap()
                .status
                .state,
            TaskState::InputRequired
        );
        assert_eq!(
            soon(both.engine.settled(ours)).await.unwrap().status.state,
            TaskState::Completed
        );
        assert_eq!(both.agent.heard(), ["gate say ask", "say done"]);
        both.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r22_a_turn_that_was_begun_again_elsewhere_is_theirs() {
    for told in [true, false] {
        let both = both(Settings::default());
        let accepted = start(&both.engine, "gate say write done").await;
        let head = accepted.head.clone();
        settle_down().await;
        both.write(&head, vec![Event::TurnStarted], told).await;
        if !told {
            both.agent.gate.add_permits(1);
        }
        settle_down().await;
        assert_eq!(both.agent.running(&head.id), 0, "ours stops");
        assert!(both.engine.journal.registry.get(&head.id).is_none());
        assert_eq!(
            words(&both.engine, &head).await[2..],
            ["turn", "working", "turn"],
            "and adds nothing more"
        );
        both.write(
            &head,
            vec![status(TaskState::Completed), Event::TurnEnded],
            true,
        )
        .await;
        let task = soon(both.engine.settled(accepted)).await.unwrap();
        assert_eq!(task.status.state, TaskState::Completed);
        both.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r22_who_calls_while_the_task_is_overtaken_is_told_to_come_back() {
    let both = both(Settings::default());
    let head = start(&both.engine, "hang").await.head;
    settle_down().await;
    both.write(&head, vec![Event::TurnStarted], false).await;
    let error = soon(both.engine.resume(call(), &head, message("more"), None))
        .await
        .unwrap_err();
    assert_eq!(model::Error::from(error).kind(), ErrorKind::Unavailable);
    assert_eq!(
        words(&both.engine, &head).await[2..],
        ["turn", "working", "turn"]
    );
    both.write(
        &head,
        vec![status(TaskState::Completed), Event::TurnEnded],
        true,
    )
    .await;
    both.at_rest().await;
}
