//! Every phase with every decision and failure, failing closed and open.

use std::time::Duration;

use attache::model::{ErrorKind, ListTasksRequest, TaskState};
use attache::{Client, FailurePolicy, Hook, HookPhase};

use super::super::{get, message, send_text};
use super::{Behaviour, TestHook, server};
use crate::harness::everywhere::{can_list, everywhere_on};

/// Result that a caller sees.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    Unchanged,
    Changed,
    Denied,
    Failed,
    /// The operation has run: a retry would run it again.
    FailedAfter,
}

use Behaviour::{Allow, Change, Deny, Fail, Hang, Panic};

const TABLE: [(Behaviour, FailurePolicy, Expected); 11] = [
    (Allow, FailurePolicy::Deny, Expected::Unchanged),
    (Change, FailurePolicy::Deny, Expected::Changed),
    (Change, FailurePolicy::Allow, Expected::Changed),
    (Deny, FailurePolicy::Deny, Expected::Denied),
    (Deny, FailurePolicy::Allow, Expected::Denied),
    (Hang, FailurePolicy::Deny, Expected::Failed),
    (Hang, FailurePolicy::Allow, Expected::Unchanged),
    (Panic, FailurePolicy::Deny, Expected::Failed),
    (Panic, FailurePolicy::Allow, Expected::Unchanged),
    (Fail, FailurePolicy::Deny, Expected::Failed),
    (Fail, FailurePolicy::Allow, Expected::Unchanged),
];

const FAILED: &str = "a hook of this server failed";
const DENIED: &str = "the policy forbids it";

fn hook(behaviour: Behaviour, policy: FailurePolicy, phase: HookPhase) -> Hook {
    let hook = TestHook::new("test", behaviour).hook();
    hook.phases([phase])
        .on_failure(policy)
        .timeout(match behaviour {
            Hang => Duration::from_millis(10),
            _ => Duration::from_secs(30),
        })
}

/// Asserts the error of a denied or failed call.
fn assert_refused(error: &attache::Error, expected: Expected) {
    let seen = (error.kind(), error.message());
    match expected {
        Expected::Denied => assert_eq!(seen, (ErrorKind::PermissionDenied, DENIED)),
        Expected::Failed => assert_eq!(seen, (ErrorKind::Unavailable, FAILED)),
        Expected::FailedAfter => {
            assert_eq!(seen, (ErrorKind::Internal, FAILED));
            assert_eq!(error.retry_after(), None);
        }
        Expected::Unchanged | Expected::Changed => panic!("refused: {error}"),
    }
    assert!(!format!("{error}").contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_call_is_allowed_changed_or_denied() {
    for (behaviour, policy, expected) in TABLE {
        everywhere_on(
            || server([hook(behaviour, policy, HookPhase::Call)]),
            async |client: Client| {
                let sent = client.send_message(message("my secret")).await;
                match (expected, sent) {
                    (Expected::Unchanged, Ok(sent)) => assert_eq!(sent.text(), "my secret"),
                    (Expected::Changed, Ok(sent)) => assert_eq!(sent.text(), "my ***"),
                    (_, Err(error)) => {
                        assert_refused(&error, expected);
                        let opened =
                            super::super::open(client.send_streaming_message(message("x")));
                        assert_refused(&opened.await.err().unwrap(), expected);
                    }
                    (expected, Ok(_)) => panic!("{behaviour:?}: not {expected:?}"),
                }
            },
        )
        .await;
    }
}

#[tokio::test]
async fn a_denied_call_writes_nothing() {
    let deny = || hook(Deny, FailurePolicy::Deny, HookPhase::Call);
    let only_sends = || {
        use attache::model::Operation::{SendMessage, SendStreamingMessage};
        deny().operations([SendMessage, SendStreamingMessage])
    };
    everywhere_on(
        || server([only_sends()]),
        async |client: Client| {
            assert!(client.send_message(message("hi")).await.is_err());
            if can_list(&client).await {
                let listed = client
                    .list_tasks(ListTasksRequest::default())
                    .await
                    .unwrap();
                assert_eq!(listed.tasks, []);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_response_is_allowed_changed_or_denied() {
    for (behaviour, policy, expected) in TABLE {
        everywhere_on(
            || server([hook(behaviour, policy, HookPhase::Response)]),
            async |client: Client| {
                let sent = client.send_message(message("my secret")).await;
                match (expected, sent) {
                    (Expected::Unchanged, Ok(sent)) => assert_eq!(sent.text(), "my secret"),
                    (Expected::Changed, Ok(sent)) => {
                        let task = sent.task().unwrap();
                        assert_eq!(task.artifacts[0].as_text(), "my ***");
                        let again = get(&client, task).await;
                        assert_eq!(again.artifacts[0].as_text(), "my ***");
                    }
                    (Expected::Failed, Err(error)) => {
                        assert_refused(&error, Expected::FailedAfter);
                    }
                    (_, Err(error)) => assert_refused(&error, expected),
                    (expected, Ok(_)) => panic!("{behaviour:?}: not {expected:?}"),
                }
            },
        )
        .await;
    }
}

#[tokio::test]
async fn an_event_is_allowed_changed_or_fails_the_task() {
    for (behaviour, policy, expected) in TABLE {
        everywhere_on(
            || server([hook(behaviour, policy, HookPhase::Event)]),
            async |client: Client| {
                let task = send_text(&client, "my secret").await;
                let status = task.status.message.as_ref();
                let status = status.map(|message| message.text()).unwrap_or_default();
                let seen = (task.status.state, status.as_str());
                let texts: Vec<_> = task.artifacts.iter().map(|one| one.as_text()).collect();
                match expected {
                    Expected::Unchanged => assert_eq!(texts, ["my secret"]),
                    Expected::Changed => assert_eq!(texts, ["my ***"]),
                    Expected::Denied => assert_eq!(seen, (TaskState::Failed, DENIED)),
                    Expected::Failed | Expected::FailedAfter => {
                        assert_eq!(seen, (TaskState::Failed, FAILED));
                    }
                }
                if matches!(expected, Expected::Denied | Expected::Failed) {
                    assert_eq!(texts, [""; 0]);
                }
            },
        )
        .await;
    }
}
