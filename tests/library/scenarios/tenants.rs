//! Tenants: what belongs to one is not there for another. 1.0 alone has them; owners stand in the same scope.

use attache::model::{
    DeletePushConfigRequest, ErrorKind, GetPushConfigRequest, ListPushConfigsRequest,
    ListTasksRequest, Message, PushConfig, SendMessageRequest, TaskState,
};
use attache::{Client, HostedAgent, Server};

use super::{
    TextCommandAgent, agent_texts, cancel, error_kind, find, get, message, say, send, subscribe, to,
};
use crate::harness::everywhere::{card, everywhere_on, has_tenants};
use crate::harness::local_webhooks;

fn server() -> Server {
    Server::new(card(), TextCommandAgent)
        .push(local_webhooks())
        .tenants(["blue", "red"])
}

/// A client of each of two tenants, and one of nobody in particular.
fn three(client: &Client) -> [Client; 3] {
    [
        client.clone().with_tenant("blue"),
        client.clone().with_tenant("red"),
        client.clone(),
    ]
}

#[tokio::test]
async fn s04_s07_nothing_of_another_tenants_task_can_be_reached() {
    everywhere_on(server, async |client: Client| {
        if !has_tenants(&client) {
            return;
        }
        let [blue, red, nobody] = three(&client);
        let task = say(&blue, "ask").await;
        let config = || PushConfig {
            id: Some("w".into()),
            task_id: Some(task.id.clone()),
            ..PushConfig::new("http://127.0.0.1:9/")
        };
        let registered = blue.create_push_config(config()).await.unwrap();
        assert_eq!(registered.url, "http://127.0.0.1:9/");
        for stranger in [red, nobody] {
            let id = &task.id;
            let mut kinds = vec![
                error_kind(find(&stranger, id).await),
                error_kind(cancel(&stranger, id).await),
                error_kind(subscribe(&stranger, id).await),
                error_kind(stranger.send_message(to(&task, "mine now")).await),
                error_kind(stranger.create_push_config(config()).await),
            ];
            let get = GetPushConfigRequest {
                task_id: id.clone(),
                id: Some("w".into()),
                ..Default::default()
            };
            kinds.push(error_kind(stranger.get_push_config(get).await));
            let list = ListPushConfigsRequest {
                task_id: id.clone(),
                ..Default::default()
            };
            kinds.push(error_kind(stranger.list_push_configs(list).await));
            let delete = DeletePushConfigRequest {
                task_id: id.clone(),
                id: "w".into(),
                ..Default::default()
            };
            kinds.push(error_kind(stranger.delete_push_config(delete).await));
            assert_eq!(kinds, [ErrorKind::TaskNotFound; 8]);
            let not_mine = find(&stranger, id).await.unwrap_err();
            let not_there = find(&stranger, &"gone".into()).await.unwrap_err();
            assert_eq!(not_mine.message(), not_there.message(), "one and the same");
        }
        assert_eq!(get(&blue, &task).await, task);
    })
    .await;
}

#[tokio::test]
async fn s05_s08_a_context_leads_to_no_other_tenants_tasks() {
    everywhere_on(server, async |client: Client| {
        if !has_tenants(&client) {
            return;
        }
        let [blue, red, nobody] = three(&client);
        let in_context = |text| SendMessageRequest::new(Message::user(text).in_context("shared"));
        let theirs = send(&blue, in_context("ask")).await;
        let mine = send(&red, in_context("hello")).await;
        assert_eq!(
            (agent_texts(&mine), mine.context_id == theirs.context_id),
            (vec!["hello".to_owned()], true)
        );
        let of_context = ListTasksRequest {
            context_id: Some("shared".into()),
            ..Default::default()
        };
        for (client, tasks) in [
            (&blue, vec![&theirs]),
            (&red, vec![&mine]),
            (&nobody, vec![]),
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
        say(&blue, "ask").await;
        let token = blue.list_tasks(page.clone()).await.unwrap().next_page_token;
        let stolen = ListTasksRequest {
            page_token: Some(token),
            ..page
        };
        assert_eq!(
            error_kind(red.list_tasks(stolen).await),
            ErrorKind::InvalidParams
        );
    })
    .await;
}

#[tokio::test]
async fn a_tenant_that_nobody_knows_is_not_found() {
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
        let said = say(&client, "hi").await;
        assert_eq!(said.text(), "hi");
        if !has_tenants(&client) {
            return;
        }
        let other = client.clone().with_tenant("shout");
        let shouted = say(&other, "hi").await;
        assert_eq!(
            (shouted.status.state, shouted.text().as_str()),
            (TaskState::Completed, "HI")
        );
        assert_eq!(
            error_kind(find(&client, &shouted.id).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(
            error_kind(find(&other, &said.id).await),
            ErrorKind::TaskNotFound
        );
    })
    .await;
}
