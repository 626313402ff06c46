//! Canceling: 04 §3.5, row by row.

use attache::model::{ErrorKind, StreamResponse, TaskState};
use attache::{Client, Outcome, Server, Settings, Turn};

use super::{
    SteppedJobAgent, TextCommandAgent, begin, cancel, error_kind, get, message, say, stream,
    subscribe, to, wait_until_ended,
};
use crate::harness::everywhere::{card, everywhere, everywhere_on, has_details};

#[tokio::test]
async fn r19_cancel_of_a_running_an_asking_an_ended_and_an_unknown_task() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for text in ["hang", "ask", "auth"] {
                let id = begin(&client, text).await.id;
                let canceled = cancel(&client, &id).await.unwrap();
                assert_eq!(
                    (&canceled.id, canceled.status.state),
                    (&id, TaskState::Canceled)
                );
                assert_eq!(get(&client, &canceled).await, canceled);
                let error = cancel(&client, &id).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
                if has_details(&client) {
                    assert_eq!(
                        error.metadata().collect::<Vec<_>>(),
                        [("taskId", id.as_str())]
                    );
                }
                assert_eq!(get(&client, &canceled).await, canceled);
            }
            for text in ["done", "fail", "reject"] {
                let done = say(&client, text).await;
                assert_eq!(
                    error_kind(cancel(&client, &done.id).await),
                    ErrorKind::TaskNotCancelable
                );
                assert_eq!(get(&client, &done).await, done);
            }
            assert_eq!(
                error_kind(cancel(&client, &"nobody's".into()).await),
                ErrorKind::TaskNotFound
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_task_that_waits_for_its_turn_is_canceled() {
    let led = SteppedJobAgent::new();
    let settings = Settings {
        max_turns: 1,
        ..Default::default()
    };
    let server = || Server::new(card(), led.clone()).settings(settings.clone());
    everywhere_on(server, async |client: Client| {
        let running = begin(&client, "one").await;
        let job = led.next().await;
        let waiting = begin(&client, "two").await;
        assert_eq!(
            cancel(&client, &waiting.id).await.unwrap().status.state,
            TaskState::Canceled
        );
        job.complete();
        wait_until_ended(&client, &running).await;
        assert!(led.is_idle().await, "what was canceled never runs");
    })
    .await;
}

#[tokio::test]
async fn everybody_who_follows_is_told_and_let_go() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let mut sender = stream(&client, message("go")).await;
            let Some(StreamResponse::Task(task)) = sender.next().await else {
                panic!("the task comes first")
            };
            let job = led.next().await;
            let mut follower = subscribe(&client, &task.id).await.unwrap();
            assert_eq!(follower.event_text().await, "task active");
            job.turn.say("on it").await;
            let canceled = cancel(&client, &task.id).await.unwrap();
            assert_eq!(canceled.status.state, TaskState::Canceled);
            assert_eq!(
                sender.event_texts().await,
                ["status working: on it", "status canceled"]
            );
            assert_eq!(
                follower.event_texts().await,
                ["status working: on it", "status canceled"]
            );
            // Whatever the agent says after that is nobody's business.
            job.turn.write("late", "x").await;
            assert!(job.end.is_closed(), "the turn was dropped");
            assert_eq!(get(&client, &task).await, canceled);
            assert_eq!(
                error_kind(client.send_message(to(&task, "more")).await),
                ErrorKind::UnsupportedOperation
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_blocked_caller_gets_the_canceled_task() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let stop = async {
                let job = led.next().await;
                cancel(&client, job.turn.task_id()).await.unwrap()
            };
            let (blocked, canceled) = tokio::join!(say(&client, "go"), stop);
            assert_eq!(blocked, canceled);
        },
    )
    .await;
}

/// All but the first may get either.
#[tokio::test]
async fn of_many_cancels_at_once_each_is_answered() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let id = begin(&client, "hang").await.id;
            let (one, two, three) = tokio::join!(
                cancel(&client, &id),
                cancel(&client, &id),
                cancel(&client, &id)
            );
            let mut canceled = 0;
            for answer in [one, two, three] {
                match answer {
                    Ok(task) => {
                        assert_eq!(task.status.state, TaskState::Canceled);
                        canceled += 1;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::TaskNotCancelable),
                }
            }
            assert!(canceled >= 1);
        },
    )
    .await;
}

#[tokio::test]
async fn r18_cancel_and_completion_agree() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            for early in [true, false] {
                let race = async {
                    let job = led.next().await;
                    let id = job.turn.task_id().clone();
                    if early {
                        job.complete();
                        return cancel(&client, &id).await;
                    }
                    // Both are under way; whichever is recorded first stands, and the turn may be gone by now.
                    tokio::join!(cancel(&client, &id), async {
                        drop(job.end.send(Outcome::Completed))
                    })
                    .0
                };
                let (blocked, canceled) = tokio::join!(say(&client, "go"), race);
                let kept = get(&client, &blocked).await;
                assert_eq!(kept, blocked, "one end, and all see the same");
                match canceled {
                    Ok(task) => {
                        assert_eq!((&task, kept.status.state), (&kept, TaskState::Canceled))
                    }
                    Err(error) => {
                        let seen = (error.kind(), kept.status.state);
                        assert_eq!(seen, (ErrorKind::TaskNotCancelable, TaskState::Completed));
                    }
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn an_agent_that_listens_may_end_well_and_the_task_is_canceled_all_the_same() {
    let tidy = |turn: Turn| async move {
        turn.say("at work").await;
        turn.cancelled().await;
        turn.write("rest", "what there is").await;
        Ok(Outcome::Completed)
    };
    everywhere(
        || tidy,
        async |client: Client| {
            let mut events = stream(&client, message("go")).await;
            let Some(StreamResponse::Task(task)) = events.next().await else {
                panic!("the task comes first")
            };
            assert_eq!(events.event_text().await, "status working: at work");
            let canceled = cancel(&client, &task.id).await.unwrap();
            assert_eq!(
                (canceled.status.state, canceled.text().as_str()),
                (TaskState::Canceled, "what there is")
            );
            assert_eq!(
                events.event_texts().await,
                ["artifact what there is.", "status canceled"]
            );
        },
    )
    .await;
}
