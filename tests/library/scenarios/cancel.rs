//! `CancelTask`: the rows of 04 §3.5.

use attache::model::{ErrorKind, StreamResponse, TaskState};
use attache::{Client, Outcome, Server, Settings, Turn};

use super::{
    SteppedJobAgent, TextCommandAgent, begin, cancel, error_kind, get, message, message_to,
    send_text, stream, subscribe, wait_until_ended,
};
use crate::harness::everywhere::{card, everywhere, everywhere_on, has_details};

#[tokio::test]
async fn r19_cancel_of_running_waiting_ended_and_unknown_tasks() {
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
                let done = send_text(&client, text).await;
                assert_eq!(
                    error_kind(cancel(&client, &done.id).await),
                    ErrorKind::TaskNotCancelable
                );
                assert_eq!(get(&client, &done).await, done);
            }
            assert_eq!(
                error_kind(cancel(&client, &"unknown".into()).await),
                ErrorKind::TaskNotFound
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_queued_task_is_canceled() {
    let agent = SteppedJobAgent::new();
    let settings = Settings {
        max_turns: 1,
        ..Default::default()
    };
    let server = || Server::new(card(), agent.clone()).settings(settings.clone());
    everywhere_on(server, async |client: Client| {
        let running = begin(&client, "one").await;
        let job = agent.next().await;
        let waiting = begin(&client, "two").await;
        assert_eq!(
            cancel(&client, &waiting.id).await.unwrap().status.state,
            TaskState::Canceled
        );
        job.complete();
        wait_until_ended(&client, &running).await;
        assert!(agent.is_idle().await, "a canceled task never runs");
    })
    .await;
}

#[tokio::test]
async fn cancel_ends_all_streams_of_the_task() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let mut sender = stream(&client, message("go")).await;
            let Some(StreamResponse::Task(task)) = sender.next().await else {
                panic!("the task comes first")
            };
            let job = agent.next().await;
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
            // Updates of the agent after the cancellation are dropped.
            job.turn.write("late", "x").await;
            assert!(job.end.is_closed(), "the turn was dropped");
            assert_eq!(get(&client, &task).await, canceled);
            assert_eq!(
                error_kind(client.send_message(message_to(&task, "more")).await),
                ErrorKind::UnsupportedOperation
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_blocked_caller_gets_the_canceled_task() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let stop = async {
                let job = agent.next().await;
                cancel(&client, job.turn.task_id()).await.unwrap()
            };
            let (blocked, canceled) = tokio::join!(send_text(&client, "go"), stop);
            assert_eq!(blocked, canceled);
        },
    )
    .await;
}

/// The first call returns the canceled task; the others return it or `TaskNotCancelable`.
#[tokio::test]
async fn concurrent_cancels_are_each_answered() {
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
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            for early in [true, false] {
                let race = async {
                    let job = agent.next().await;
                    let id = job.turn.task_id().clone();
                    if early {
                        job.complete();
                        return cancel(&client, &id).await;
                    }
                    // The calls race: the first recorded end is final. The turn may already be dropped, so the send may fail.
                    tokio::join!(cancel(&client, &id), async {
                        drop(job.end.send(Outcome::Completed))
                    })
                    .0
                };
                let (blocked, canceled) = tokio::join!(send_text(&client, "go"), race);
                let stored = get(&client, &blocked).await;
                assert_eq!(stored, blocked, "one end, and all see the same");
                match canceled {
                    Ok(task) => {
                        assert_eq!((&task, stored.status.state), (&stored, TaskState::Canceled))
                    }
                    Err(error) => {
                        let seen = (error.kind(), stored.status.state);
                        assert_eq!(seen, (ErrorKind::TaskNotCancelable, TaskState::Completed));
                    }
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn cancel_overrides_the_outcome_of_a_cooperative_agent() {
    let cooperative_agent = |turn: Turn| async move {
        turn.say("at work").await;
        turn.cancelled().await;
        turn.write("rest", "what there is").await;
        Ok(Outcome::Completed)
    };
    everywhere(
        || cooperative_agent,
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
