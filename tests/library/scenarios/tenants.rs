//! Tenants: a task of one tenant does not exist for another. Only 1.0 has tenants.

use attache::model::{
    DeletePushConfigRequest, ErrorKind, GetPushConfigRequest, ListPushConfigsRequest,
    ListTasksRequest, Message, PushConfig, SendMessageRequest, TaskState,
};
use attache::{Client, HostedAgent, Server};

use super::{
    TextCommandAgent, cancel, error_kind, find, get, history_texts, message, message_to, send,
    send_text, subscribe,
};
use crate::harness::everywhere::{card, everywhere_on, has_tenants};
use crate::harness::local_webhooks;

fn server() -> Server {
    Server::new(card(), TextCommandAgent)
        .push(local_webhooks())
        .tenants(["blue", "red"])
}

/// Returns clients of two tenants, and one without a tenant.
fn tenant_clients(client: &Client) -> [Client; 3] {
    [
        client.clone().with_tenant("blue"),
        client.clone().with_tenant("red"),
        client.clone(),
    ]
}

#[tokio::test]
async fn s04_s07_a_task_of_another_tenant_is_not_found() {
    everywhere_on(server, async |client: Client| {
        if !has_tenants(&client) {
            return;
        }
        let [blue, red, no_tenant] = tenant_clients(&client);
        let task = send_text(&blue, "ask").await;
        let config = || PushConfig {
            id: Some("w".into()),
            task_id: Some(task.id.clone()),
            ..PushConfig::new("http://127.0.0.1:9/")
        };
        let registered = blue.create_push_config(config()).await.unwrap();
        assert_eq!(registered.url, "http://127.0.0.1:9/");
        for other in [red, no_tenant] {
            let id = &task.id;
            let mut kinds = vec![
                error_kind(find(&other, id).await),
                error_kind(cancel(&other, id).await),
                error_kind(subscribe(&other, id).await),
                error_kind(other.send_message(message_to(&task, "mine now")).await),
                error_kind(other.create_push_config(config()).await),
            ];
            let get = GetPushConfigRequest {
                task_id: id.clone(),
                id: Some("w".into()),
                ..Default::default()
            };
            kinds.push(error_kind(other.get_push_config(get).await));
            let list = ListPushConfigsRequest {
                task_id: id.clone(),
                ..Default::default()
            };
            kinds.push(error_kind(other.list_push_configs(list).await));
            let delete = DeletePushConfigRequest {
                task_id: id.clone(),
                id: "w".into(),
                ..Default::default()
            };
            kinds.push(error_kind(other.delete_push_config(delete).await));
            assert_eq!(kinds, [ErrorKind::TaskNotFound; 8]);
            let foreign = find(&other, id).await.unwrap_err();
            let unknown = find(&other, &"gone".into()).await.unwrap_err();
            assert_eq!(foreign.message(), unknown.message(), "identical errors");
        }
        assert_eq!(get(&blue, &task).await, task);
    })
    .await;
}

#[tokio::test]
async fn s05_s08_a_context_is_not_shared_between_tenants() {
    everywhere_on(server, async |client: Client| {
        if !has_tenants(&client) {
            return;
        }
        let [blue, red, no_tenant] = tenant_clients(&client);
        let in_context = |text| SendMessageRequest::new(Message::user(text).in_context("shared"));
        let blue_task = send(&blue, in_context("ask")).await;
        let red_task = send(&red, in_context("hello")).await;
        assert_eq!(
            (
                history_texts(&red_task),
                red_task.context_id == blue_task.context_id
            ),
            (vec!["hello".to_owned()], true)
        );
        let of_context = ListTasksRequest {
            context_id: Some("shared".into()),
            ..Default::default()
        };
        for (client, tasks) in [
            (&blue, vec![&blue_task]),
            (&red, vec![&red_task]),
            (&no_tenant, vec![]),
        ] {
            for request in [of_context.clone(), ListTasksRequest::default()] {
                let page = client.list_tasks(request).await.unwrap();
                let found: Vec<_> = page.tasks.iter().map(|task| &task.id).collect();
                assert_eq!(found, tasks.iter().map(|task| &task.id).collect::<Vec<_>>());
                assert_eq!(page.total_size, tasks.len() as i32);
            }
        }
        let page = ListTasksRequest {
            page_size: Some(1),
            ..Default::default()
        };
        send_text(&blue, "ask").await;
        let token = blue.list_tasks(page.clone()).await.unwrap().next_page_token;
        let foreign_token = ListTasksRequest {
            page_token: Some(token),
            ..page
        };
        assert_eq!(
            error_kind(red.list_tasks(foreign_token).await),
            ErrorKind::InvalidParams
        );
    })
    .await;
}

#[tokio::test]
async fn an_unknown_tenant_is_not_found() {
    everywhere_on(server, async |client: Client| {
        if !has_tenants(&client) {
            return;
        }
        let green = client.with_tenant("green");
        assert_eq!(
            error_kind(green.send_message(message("hi")).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(
            error_kind(green.list_tasks(ListTasksRequest::default()).await),
            ErrorKind::TaskNotFound
        );
    })
    .await;
}

#[tokio::test]
async fn a_tenant_may_be_the_name_of_another_agent() {
    let shout = |turn: attache::Turn| async move {
        turn.write("shout", turn.text().to_uppercase()).await;
        Ok(attache::Outcome::Completed)
    };
    let server = || server().agent(HostedAgent::new("shout", card(), shout).tenants(["green"]));
    everywhere_on(server, async |client: Client| {
        let echoed = send_text(&client, "hi").await;
        assert_eq!(echoed.text(), "hi");
        if !has_tenants(&client) {
            return;
        }
        let other = client.clone().with_tenant("shout");
        let shouted = send_text(&other, "hi").await;
        assert_eq!(
            (shouted.status.state, shouted.text().as_str()),
            (TaskState::Completed, "HI")
        );
        assert_eq!(
            error_kind(find(&client, &shouted.id).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(
            error_kind(find(&other, &echoed.id).await),
            ErrorKind::TaskNotFound
        );
    })
    .await;
}
