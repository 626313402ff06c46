//! `ListTasks` (04 §3.6). 0.3 does not have it.

use std::time::Duration;

use attache::model::{
    ErrorKind, ListTasksRequest, ListTasksResponse, Message, SendMessageRequest, Task, TaskId,
    TaskState, Timestamp,
};
use attache::{Client, Result, Server, Settings};

use super::{TextCommandAgent, cancel, history_texts, message_to, send, send_text};
use crate::harness::everywhere::{can_list, card, everywhere, everywhere_on};

async fn list(client: &Client, request: ListTasksRequest) -> ListTasksResponse {
    client.list_tasks(request).await.unwrap()
}

fn with_page_size(page_size: i32) -> ListTasksRequest {
    ListTasksRequest {
        page_size: Some(page_size),
        ..Default::default()
    }
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id.clone()).collect()
}

async fn send_in_context(client: &Client, context: &str, text: &str) -> Task {
    send(
        client,
        SendMessageRequest::new(Message::user(text).in_context(context)),
    )
    .await
}

/// Reads all pages. Returns their sizes and the ids of their tasks.
async fn pages(client: &Client, mut request: ListTasksRequest) -> (Vec<usize>, Vec<TaskId>) {
    let mut sizes = Vec::new();
    let mut all = Vec::new();
    loop {
        let page = list(client, request.clone()).await;
        sizes.push(page.tasks.len());
        all.extend(ids(&page.tasks));
        if page.next_page_token.is_empty() {
            return (sizes, all);
        }
        request.page_token = Some(page.next_page_token);
    }
}

/// Returns the field that the error names.
fn field(refused: Result<ListTasksResponse>) -> String {
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
    error.violations()[0].field().to_owned()
}

#[tokio::test]
async fn a_list_is_sorted_by_status_time_and_has_a_total() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            if !can_list(&client).await {
                return;
            }
            let empty = list(&client, ListTasksRequest::default()).await;
            assert_eq!(
                empty,
                ListTasksResponse {
                    page_size: 50,
                    ..Default::default()
                }
            );
            let first = send_text(&client, "ask").await;
            for _ in 0..4 {
                send_text(&client, "done").await;
            }
            send(&client, message_to(&first, "ask")).await;
            let all = list(&client, ListTasksRequest::default()).await;
            assert_eq!(
                (all.total_size, all.page_size, all.next_page_token.as_str()),
                (5, 50, "")
            );
            let sort_key = |task: &Task| (task.status.timestamp, task.id.clone());
            let order: Vec<_> = all.tasks.iter().map(sort_key).collect();
            assert!(order.is_sorted_by(|one, two| one > two), "{order:?}");
            for (size, sizes) in [
                (1, vec![1; 5]),
                (2, vec![2, 2, 1]),
                (5, vec![5]),
                (4, vec![4, 1]),
                (100, vec![5]),
            ] {
                assert_eq!(
                    pages(&client, with_page_size(size)).await,
                    (sizes, ids(&all.tasks)),
                    "{size}"
                );
            }
            let page = list(&client, with_page_size(2)).await;
            assert_eq!((page.total_size, page.page_size), (5, 2));
        },
    )
    .await;
}

#[tokio::test]
async fn a_list_is_filtered() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            if !can_list(&client).await {
                return;
            }
            let asked = send_in_context(&client, "c", "ask").await;
            let done = send_in_context(&client, "c", "done").await;
            let other = send_in_context(&client, "d", "done").await;
            let gone = cancel(&client, &send_in_context(&client, "d", "ask").await.id)
                .await
                .unwrap();
            let all = ListTasksRequest::default();
            let in_context = |id: &str| ListTasksRequest {
                context_id: Some(id.into()),
                ..ListTasksRequest::default()
            };
            let with_status = |status, request: ListTasksRequest| ListTasksRequest {
                status: Some(status),
                ..request
            };
            let changed_since = |time: Option<Timestamp>| ListTasksRequest {
                status_timestamp_after: time,
                ..all.clone()
            };
            let never = "2999-01-01T00:00:00Z".parse().ok();
            for (request, tasks) in [
                (all.clone(), &[&asked, &done, &other, &gone][..]),
                (in_context("c"), &[&asked, &done]),
                (with_status(TaskState::Completed, in_context("c")), &[&done]),
                (
                    with_status(TaskState::Unspecified, in_context("d")),
                    &[&other, &gone],
                ),
                (
                    with_status(TaskState::InputRequired, all.clone()),
                    &[&asked],
                ),
                (with_status(TaskState::Working, all.clone()), &[]),
                (in_context("unknown"), &[]),
                (in_context("C"), &[]),
                (
                    changed_since(asked.status.timestamp),
                    &[&asked, &done, &other, &gone],
                ),
                (changed_since(never), &[]),
            ] {
                let page = list(&client, request.clone()).await;
                let mut found = ids(&page.tasks);
                let mut expected = tasks.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
                found.sort();
                expected.sort();
                assert_eq!(
                    (found, page.total_size),
                    (expected, tasks.len() as i32),
                    "{request:?}"
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_list_includes_artifacts_and_history_as_requested() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            if !can_list(&client).await {
                return;
            }
            let task = send_text(&client, "hi").await;
            let shown = async |request| list(&client, request).await.tasks.remove(0);
            let bare = shown(ListTasksRequest::default()).await;
            assert_eq!(
                (bare.artifacts.len(), history_texts(&bare)),
                (0, vec!["hi".to_owned()])
            );
            let whole = ListTasksRequest {
                include_artifacts: Some(true),
                ..Default::default()
            };
            assert_eq!(shown(whole).await, task);
            let hidden = ListTasksRequest {
                include_artifacts: Some(false),
                history_length: Some(0),
                ..Default::default()
            };
            let bare = shown(hidden).await;
            assert_eq!((bare.artifacts.len(), bare.history.len()), (0, 0));
        },
    )
    .await;
}

#[tokio::test]
async fn a_page_token_survives_new_and_removed_tasks() {
    let settings = Settings {
        max_tasks: Some(3),
        sweep_every: Duration::from_millis(1),
        ..Default::default()
    };
    let server = || Server::new(card(), TextCommandAgent).settings(settings.clone());
    everywhere_on(server, async |client: Client| {
        if !can_list(&client).await {
            return;
        }
        for _ in 0..6 {
            send_text(&client, "ask").await;
        }
        let first = list(&client, with_page_size(3)).await;
        let rest = pages(&client, ListTasksRequest::default())
            .await
            .1
            .split_off(3);
        // The last task of the page moves to the front, followed by new tasks. The sweep removes the oldest ended tasks.
        send(&client, message_to(&first.tasks[2], "ask")).await;
        for _ in 0..10 {
            send_text(&client, "done").await;
        }
        let next = ListTasksRequest {
            page_token: Some(first.next_page_token),
            ..with_page_size(3)
        };
        let second = list(&client, next).await;
        assert_eq!(
            (ids(&second.tasks), second.next_page_token.as_str()),
            (rest, "")
        );
    })
    .await;
}

#[tokio::test]
async fn s08_an_invalid_page_token_is_refused() {
    let server = || Server::new(card(), TextCommandAgent).tenants(["blue"]);
    everywhere_on(server, async |client: Client| {
        if !can_list(&client).await {
            return;
        }
        for _ in 0..3 {
            send_in_context(&client, "c", "done").await;
        }
        let in_c = ListTasksRequest {
            context_id: Some("c".into()),
            ..with_page_size(1)
        };
        let token = list(&client, in_c.clone()).await.next_page_token;
        let with_token = |token: &str| ListTasksRequest {
            page_token: Some(token.to_owned()),
            ..in_c.clone()
        };
        assert_eq!(list(&client, with_token(&token)).await.tasks.len(), 1);
        for request in [
            with_token("garbled"),
            with_token("!"),
            with_token("e30"),
            with_token("eyJ0IjoxLCJpIjoieCIsImYiOiJ5In0"),
            with_token(&token[1..]),
            with_token(&format!("{token}=")),
            with_token(&"A".repeat(20_000)),
            ListTasksRequest {
                context_id: None,
                ..with_token(&token)
            },
            ListTasksRequest {
                context_id: Some("d".into()),
                ..with_token(&token)
            },
            ListTasksRequest {
                tenant: Some("blue".to_owned()),
                ..with_token(&token)
            },
            ListTasksRequest {
                status: Some(TaskState::Working),
                ..with_token(&token)
            },
        ] {
            assert_eq!(
                field(client.list_tasks(request.clone()).await),
                "pageToken",
                "{request:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn s66_sizes_are_checked() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            if !can_list(&client).await {
                return;
            }
            for size in [0, -1, 101, i32::MAX, i32::MIN] {
                assert_eq!(
                    field(client.list_tasks(with_page_size(size)).await),
                    "pageSize",
                    "{size}"
                );
            }
            let negative = ListTasksRequest {
                history_length: Some(-1),
                ..Default::default()
            };
            assert_eq!(field(client.list_tasks(negative).await), "historyLength");
        },
    )
    .await;
}
