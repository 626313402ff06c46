//! Every operation, and what surrounds it.

use attache::auth::{Access, ApiKeys};
use attache::model::{AgentCard, AgentExtension};
use attache::{CardAccess, HostedAgent, Server};
use attache_proto::{v1, v03};
use tonic::Code;

use super::{clients, say, say_v03, task, task_v03, text, with};
use crate::harness::{Echo, local_webhooks, start, start_with, with_deadline};

#[tokio::test]
async fn tasks_are_made_read_listed_and_canceled() {
    let server = start(Echo).await;
    let mut v1 = clients(&server).v1;
    let made = task(
        with_deadline(v1.send_message(say("hello")))
            .await
            .unwrap()
            .into_inner(),
    );
    assert_eq!(
        made.status.as_ref().unwrap().state(),
        v1::TaskState::Completed
    );
    let said = Some(v1::part::Content::Text("hello".to_owned()));
    assert_eq!(made.artifacts[0].parts[0].content, said);
    let get = |history_length| v1::GetTaskRequest {
        id: made.id.clone(),
        history_length,
        ..Default::default()
    };
    assert_eq!(
        with_deadline(v1.get_task(get(None)))
            .await
            .unwrap()
            .into_inner(),
        made
    );
    assert_eq!(
        with_deadline(v1.get_task(get(Some(0))))
            .await
            .unwrap()
            .into_inner()
            .history,
        []
    );
    let list = v1::ListTasksRequest {
        include_artifacts: Some(true),
        ..Default::default()
    };
    let page = with_deadline(v1.list_tasks(list))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (page.tasks, page.total_size, page.page_size),
        (vec![made.clone()], 1, 50)
    );
    let cancel = v1::CancelTaskRequest {
        id: made.id.clone(),
        ..Default::default()
    };
    assert_eq!(
        with_deadline(v1.cancel_task(cancel))
            .await
            .unwrap_err()
            .code(),
        Code::FailedPrecondition
    );
}

#[tokio::test]
async fn tasks_have_resource_names_in_0_3_and_are_the_same_tasks() {
    let server = start(Echo).await;
    let mut both = clients(&server);
    let made = task_v03(
        with_deadline(both.v03.send_message(say_v03("hello")))
            .await
            .unwrap()
            .into_inner(),
    );
    assert_eq!(
        made.status.as_ref().unwrap().state(),
        v03::TaskState::Completed
    );
    let name = format!("tasks/{}", made.id);
    let get = v03::GetTaskRequest {
        name: name.clone(),
        history_length: 0,
    };
    assert_eq!(
        with_deadline(both.v03.get_task(get))
            .await
            .unwrap()
            .into_inner(),
        made
    );
    let cancel = with_deadline(both.v03.cancel_task(v03::CancelTaskRequest { name }))
        .await
        .unwrap_err();
    assert_eq!(cancel.code(), Code::FailedPrecondition);
    assert!(
        cancel.message().starts_with("TaskNotCancelableError: "),
        "{cancel:?}"
    );
    let get = v1::GetTaskRequest {
        id: made.id.clone(),
        ..Default::default()
    };
    assert_eq!(
        with_deadline(both.v1.get_task(get))
            .await
            .unwrap()
            .into_inner()
            .id,
        made.id
    );
}

#[tokio::test]
async fn push_configs_are_kept_in_both_versions() {
    let server = start_with(Echo, |server| server.push(local_webhooks())).await;
    let mut both = clients(&server);
    let id = task(
        with_deadline(both.v1.send_message(say("hi")))
            .await
            .unwrap()
            .into_inner(),
    )
    .id;
    let url = "http://127.0.0.1:9/hook".to_owned();
    let config = v1::TaskPushNotificationConfig {
        task_id: id.clone(),
        url,
        ..Default::default()
    };
    let kept = with_deadline(both.v1.create_task_push_notification_config(config))
        .await
        .unwrap()
        .into_inner();
    assert!(!kept.id.is_empty());
    let get = v1::GetTaskPushNotificationConfigRequest {
        task_id: id.clone(),
        id: kept.id.clone(),
        ..Default::default()
    };
    assert_eq!(
        with_deadline(both.v1.get_task_push_notification_config(get))
            .await
            .unwrap()
            .into_inner(),
        kept
    );

    let parent = format!("tasks/{id}");
    let name = format!("{parent}/pushNotificationConfigs/{}", kept.id);
    let get = v03::GetTaskPushNotificationConfigRequest { name: name.clone() };
    let old = with_deadline(both.v03.get_task_push_notification_config(get))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (
            &old.name,
            &old.push_notification_config.as_ref().unwrap().url
        ),
        (&name, &kept.url)
    );
    let mut config = old.push_notification_config.unwrap();
    config.id.clear();
    let create = v03::CreateTaskPushNotificationConfigRequest {
        parent: parent.clone(),
        config_id: "second".to_owned(),
        config: Some(v03::TaskPushNotificationConfig {
            name: String::new(),
            push_notification_config: Some(config),
        }),
    };
    let second = with_deadline(both.v03.create_task_push_notification_config(create))
        .await
        .unwrap()
        .into_inner();
    let list = v03::ListTaskPushNotificationConfigRequest {
        parent,
        ..Default::default()
    };
    let listed = with_deadline(both.v03.list_task_push_notification_config(list))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.configs.len(), 2, "{second:?}");
    let delete = v03::DeleteTaskPushNotificationConfigRequest { name };
    with_deadline(both.v03.delete_task_push_notification_config(delete))
        .await
        .unwrap();
    let list = v1::ListTaskPushNotificationConfigsRequest {
        task_id: id.clone(),
        ..Default::default()
    };
    let listed = with_deadline(both.v1.list_task_push_notification_configs(list))
        .await
        .unwrap()
        .into_inner();
    let [left] = &listed.configs[..] else {
        panic!("{listed:?}")
    };
    let delete = v1::DeleteTaskPushNotificationConfigRequest {
        task_id: id,
        id: left.id.clone(),
        ..Default::default()
    };
    with_deadline(both.v1.delete_task_push_notification_config(delete))
        .await
        .unwrap();
}

const KEY: &str = "ann-has-a-long-key-0001";

#[tokio::test]
async fn the_extended_card_is_given_in_both_versions() {
    let card = AgentCard::new("Echo, extended", "Says it back").interface(
        "example.com:443",
        attache::model::Binding::Grpc,
        attache::model::Version::V03,
    );
    let keys = ApiKeys::new();
    keys.add("ann", &KEY.into(), |ann| ann).unwrap();
    let server = start_with(Echo, |server| {
        server.extended_card(card).access(Access::new(keys))
    })
    .await;
    let mut both = clients(&server);
    let refused = with_deadline(
        both.v1
            .get_extended_agent_card(v1::GetExtendedAgentCardRequest::default()),
    )
    .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    let card = with_deadline(both.v1.get_extended_agent_card(with(
        v1::GetExtendedAgentCardRequest::default(),
        &[("x-api-key", KEY)],
    )))
    .await;
    assert_eq!(card.unwrap().into_inner().name, "Echo, extended");
    let card = with_deadline(
        both.v03
            .get_agent_card(with(v03::GetAgentCardRequest {}, &[("x-api-key", KEY)])),
    )
    .await
    .unwrap()
    .into_inner();
    assert_eq!(
        (&*card.url, &*card.preferred_transport),
        ("example.com:443", "GRPC")
    );
}

/// `GetAgentCard` of 0.3 is the only way to a card over gRPC.
#[tokio::test]
async fn without_an_extended_card_0_3_gets_the_public_card() {
    let server = start(Echo).await;
    let mut both = clients(&server);
    let card = with_deadline(both.v03.get_agent_card(v03::GetAgentCardRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((&*card.name, card.skills.len()), ("Echo", 1));
    assert_eq!(card.url, format!("http://{}", server.address));
    let transports: Vec<_> = card
        .additional_interfaces
        .iter()
        .map(|one| (&*one.transport, &*one.url))
        .collect();
    let authority = server.address.to_string();
    assert!(transports.contains(&("GRPC", &authority)), "{transports:?}");
    let refused = with_deadline(
        both.v1
            .get_extended_agent_card(v1::GetExtendedAgentCardRequest::default()),
    )
    .await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn seed_1_13_a_protected_card_is_not_given_to_anonymous_callers_of_0_3() {
    let keys = ApiKeys::new();
    keys.add("ann", &KEY.into(), |ann| ann).unwrap();
    let card = AgentCard::new("Secret", "Hides its card");
    let agent = HostedAgent::new("secret", card, Echo).card_access(CardAccess::Authenticated);
    let access = Access::new(keys).allow_anonymous();
    let server = start_with(Echo, |_| Server::from_agent(agent).access(access)).await;
    let mut both = clients(&server);
    let ask = || v03::GetAgentCardRequest {};
    let refused = with_deadline(both.v03.get_agent_card(ask())).await;
    assert!(!refused.unwrap_err().message().contains("Secret"));
    let card = with_deadline(both.v03.get_agent_card(with(ask(), &[("x-api-key", KEY)]))).await;
    assert_eq!(card.unwrap().into_inner().name, "Secret");
}

#[tokio::test]
async fn a_tenant_is_in_the_message() {
    let server = start_with(Echo, |server| server.tenants(["blue", "red"])).await;
    let mut v1 = clients(&server).v1;
    let send = v1::SendMessageRequest {
        tenant: "blue".to_owned(),
        ..say("hi")
    };
    let id = task(
        with_deadline(v1.send_message(send))
            .await
            .unwrap()
            .into_inner(),
    )
    .id;
    for (tenant, found) in [
        ("blue", true),
        ("red", false),
        ("", false),
        ("green", false),
    ] {
        let get = v1::GetTaskRequest {
            tenant: tenant.to_owned(),
            id: id.clone(),
            ..Default::default()
        };
        let got = with_deadline(v1.get_task(get)).await;
        assert_eq!(
            got.map_err(|status| status.code()).is_ok(),
            found,
            "{tenant}"
        );
    }
}

#[tokio::test]
async fn metadata_is_read_like_headers_and_answered() {
    const URI: &str = "https://example.com/ext";
    let server = start_with(Echo, |_| {
        let mut card = AgentCard::new("Echo", "Says it back");
        card.capabilities.extensions = vec![AgentExtension {
            uri: URI.to_owned(),
            ..Default::default()
        }];
        Server::new(card, Echo)
    })
    .await;
    let mut both = clients(&server);
    let asked = [
        ("a2a-extensions", "https://example.com/ext, urn:other"),
        ("a2a-version", "1.0"),
    ];
    let answer = with_deadline(both.v1.send_message(with(say("hi"), &asked)))
        .await
        .unwrap();
    assert_eq!(text(answer.metadata(), "a2a-extensions"), Some(URI));
    assert_eq!(text(answer.metadata(), "x-a2a-extensions"), None);
    assert_eq!(text(answer.metadata(), "a2a-version"), Some("1.0"));
    let asked = [("x-a2a-extensions", URI)];
    let answer = with_deadline(both.v03.send_streaming_message(with(say_v03("hi"), &asked)))
        .await
        .unwrap();
    assert_eq!(text(answer.metadata(), "x-a2a-extensions"), Some(URI));
    assert_eq!(text(answer.metadata(), "a2a-version"), Some("0.3"));

    let key = [("idempotency-key", "k-1")];
    let first = with_deadline(both.v1.send_message(with(say("once"), &key)))
        .await
        .unwrap()
        .into_inner();
    let again = with_deadline(both.v1.send_message(with(say("once"), &key)))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(task(first).id, task(again).id);
    let other = with_deadline(both.v1.send_message(with(say("twice"), &key)))
        .await
        .unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument);
}
