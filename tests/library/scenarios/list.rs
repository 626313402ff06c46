//! Lists of tasks: 04 §3.6. 0.3 has none.

use std::time::Duration;

use attache::model::{
    ErrorKind, ListTasksRequest, ListTasksResponse, Message, SendMessageRequest, Task, TaskId,
    TaskState, Timestamp,
};
use attache::{Client, Result, Server, Settings};

use super::{TextCommandAgent, agent_texts, cancel, say, send, to};
use crate::harness::everywhere::{can_list, card, everywhere, everywhere_on};

async fn list(client: &Client, request: ListTasksRequest) -> ListTasksResponse {
    client.list_tasks(request).await.unwrap()
}

fn of_size(page_size: i32) -> ListTasksRequest {
    ListTasksRequest {
        page_size: Some(page_size),
        ..Default::default()
    }
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id.clone()).collect()
}

async fn say_in(client: &Client, context: &str, text: &str) -> Task {
    send(
        client,
        SendMessageRequest::new(Message::user(text).in_context(context)),
    )
    .await
}

/// The sizes of all pages, and the ids on them.
async fn pages(client: &Client, mut request: ListTasksRequest) -> (Vec<usize>, Vec<TaskId>) {
    let (mut sizes, mut all) = (Vec::new(), Vec::new());
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

/// The field that was refused.
fn field(refused: Result<ListTasksResponse>) -> String {
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
    error.violations()[0].field().to_owned()
}

#[tokio::test]
async fn a_list_has_the_newest_status_first_and_says_how_many_there_are() {
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
            let first = say(&client, "ask").await;
            for _ in 0..4 {
                say(&client, "done").await;
            }
            send(&client, to(&first, "ask")).await;
            let all = list(&client, ListTasksRequest::default()).await;
            assert_eq!(
                (all.total_size, all.page_size, all.next_page_token.as_str()),
                (5, 50, "")
            );
            let place = |task: &Task| (task.status.timestamp, task.id.clone());
            let order: Vec<_> = all.tasks.iter().map(place).collect();
            assert!(order.is_sorted_by(|one, two| one > two), "{order:?}");
            for (size, sizes) in [
                (1, vec![1; 5]),
                (2, vec![2, 2, 1]),
                (5, vec![5]),
                (4, vec![4, 1]),
                (100, vec![5]),
            ] {
                assert_eq!(
                    pages(&client, of_size(size)).await,
                    (sizes, ids(&all.tasks)),
                    "{size}"
                );
            }
            let page = list(&client, of_size(2)).await;
            assert_eq!((page.total_size, page.page_size), (5, 2));
        },
    )
    .await;
}

#[tokio::test]
async fn a_list_has_only_what_was_asked_for() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            if !can_list(&client).await {
                return;
            }
            let asked = say_in(&client, "c", "ask").await;
            let done = say_in(&client, "c", "done").await;
            let other = say_in(&client, "d", "done").await;
            let gone = cancel(&client, &say_in(&client, "d", "ask").await.id)
                .await
                .unwrap();
            let all = ListTasksRequest::default();
            let in_context = |id: &str| ListTasksRequest {
                context_id: Some(id.into()),
                ..ListTasksRequest::default()
            };
            let of = |status, request: ListTasksRequest| ListTasksRequest {
                status: Some(status),
                ..request
            };
            let since = |time: Option<Timestamp>| ListTasksRequest {
                status_timestamp_after: time,
                ..all.clone()
            };
            let never = "2999-01-01T00:00:00Z".parse().ok();
            for (request, tasks) in [
                (all.clone(), &[&asked, &done, &other, &gone][..]),
                (in_context("c"), &[&asked, &done]),
                (of(TaskState::Completed, in_context("c")), &[&done]),
                (
                    of(TaskState::Unspecified, in_context("d")),
                    &[&other, &gone],
                ),
                (of(TaskState::InputRequired, all.clone()), &[&asked]),
                (of(TaskState::Working, all.clone()), &[]),
                (in_context("nobody's"), &[]),
                (in_context("C"), &[]),
                (
                    since(asked.status.timestamp),
                    &[&asked, &done, &other, &gone],
                ),
                (since(never), &[]),
            ] {
                let page = list(&client, request.clone()).await;
                let (mut found, mut expected) = (
                    ids(&page.tasks),
                    tasks.iter().map(|it| it.id.clone()).collect::<Vec<_>>(),
                );
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
async fn a_list_shows_results_and_history_as_asked() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            if !can_list(&client).await {
                return;
            }
            let task = say(&client, "hi").await;
            let shown = async |request| list(&client, request).await.tasks.remove(0);
            let bare = shown(ListTasksRequest::default()).await;
            assert_eq!(
                (bare.artifacts.len(), agent_texts(&bare)),
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
async fn a_page_token_survives_what_comes_and_goes() {
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
            say(&client, "ask").await;
        }
        let first = list(&client, of_size(3)).await;
        let rest = pages(&client, ListTasksRequest::default())
            .await
            .1
            .split_off(3);
        // The last of the page moves to the front, and so do new ones; the oldest of those that ended are forgotten.
        send(&client, to(&first.tasks[2], "ask")).await;
        for _ in 0..10 {
            say(&client, "done").await;
        }
        let next = ListTasksRequest {
            page_token: Some(first.next_page_token),
            ..of_size(3)
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
async fn s08_a_page_token_that_is_none_of_ours_is_refused_by_name() {
    let server = || Server::new(card(), TextCommandAgent).tenants(["blue"]);
    everywhere_on(server, async |client: Client| {
        if !can_list(&client).await {
            return;
        }
        for _ in 0..3 {
            say_in(&client, "c", "done").await;
        }
        let in_c = ListTasksRequest {
            context_id: Some("c".into()),
            ..of_size(1)
        };
        let token = list(&client, in_c.clone()).await.next_page_token;
        let with = |token: &str| ListTasksRequest {
            page_token: Some(token.to_owned()),
            ..in_c.clone()
        };
        assert_eq!(list(&client, with(&token)).await.tasks.len(), 1);
        for request in [
            with("garbled"),
            with("!"),
            with("e30"),
            with("eyJ0IjoxLCJpIjoieCIsImYiOiJ5In0"),
            with(&token[1..]),
            with(&format!("{token}=")),
            with(&"A".repeat(20_000)),
            ListTasksRequest {
                context_id: None,
                ..with(&token)
            },
            ListTasksRequest {
                context_id: Some("d".into()),
                ..with(&token)
            },
            ListTasksRequest {
                tenant: Some("blue".to_owned()),
                ..with(&token)
            },
            ListTasksRequest {
                status: Some(TaskState::Working),
                ..with(&token)
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
                    field(client.list_tasks(of_size(size)).await),
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
