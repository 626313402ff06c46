//! Agent cards: the extended card, and discovery by the public card.

use attache::auth::Access;
use attache::model::{AgentSkill, ErrorKind, TaskState};
use attache::wire::card::GrpcOnCard;
use attache::{AgentCard, Client, HostedAgent, Outcome, Server, ServerSettings, Turn};

use super::isolation::{ANN, authenticated, keys};
use super::{TextCommandAgent, error_kind, send_text};
use crate::harness::everywhere::{
    MATRIX, card, everywhere, everywhere_on, has_one_card_method, version,
};
use crate::harness::{run, with_deadline};

#[tokio::test]
async fn a_configured_extended_card_is_served() {
    let extended = || {
        AgentCard::new("Echo", "Says it back, and more")
            .version("2.1.0")
            .skill(AgentSkill::new("secret", "Secret", "For friends"))
    };
    everywhere_on(
        || {
            Server::new(card(), TextCommandAgent)
                .extended_card(extended())
                .access(Access::new(keys()))
        },
        async |client: Client| {
            let shown = authenticated(&client, ANN)
                .get_extended_agent_card()
                .await
                .unwrap();
            let expected = extended();
            assert_eq!(
                (&shown.name, &shown.description),
                (&expected.name, &expected.description)
            );
            assert_eq!(
                (shown.version.as_str(), &shown.skills[0].id),
                ("2.1.0", &expected.skills[0].id)
            );
        },
    )
    .await;
}

/// 03 §6: the extended card requires authenticated callers, so the server needs access control.
#[tokio::test]
async fn s37_an_extended_card_requires_access_control() {
    let refused = with_deadline(
        Server::new(card(), TextCommandAgent)
            .extended_card(card())
            .bind("127.0.0.1:0"),
    )
    .await
    .err();
    let other = HostedAgent::new("other", card(), TextCommandAgent).extended_card(card());
    let other = with_deadline(
        Server::new(card(), TextCommandAgent)
            .agent(other)
            .bind("127.0.0.1:0"),
    )
    .await
    .err();
    for error in [refused, other] {
        let error = error.expect("a configuration error");
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert!(error.message().contains("access"), "{error}");
    }
}

/// 06 §3: an undeclared card and a declared but missing card are different errors, except in 0.3. gRPC of 0.3 returns the
/// public card instead (03 §6).
#[tokio::test]
async fn a_missing_extended_card_is_refused() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let card = client.get_extended_agent_card().await;
            if has_one_card_method(&client) {
                assert_eq!(card.unwrap().name, "Echo");
                return;
            }
            let expected = ErrorKind::undeclared_extended_card(version(&client));
            assert_eq!(error_kind(card), expected);
        },
    )
    .await;
    let mut declared = card();
    declared.capabilities.extended_agent_card = Some(true);
    everywhere_on(
        || Server::new(declared.clone(), TextCommandAgent),
        async |client: Client| {
            let card = client.get_extended_agent_card().await;
            if has_one_card_method(&client) {
                assert_eq!(card.unwrap().name, "Echo");
                return;
            }
            let expected = ErrorKind::ExtendedAgentCardNotConfigured;
            assert_eq!(error_kind(card), expected);
        },
    )
    .await;
}

/// Settings whose cards name gRPC for clients of both versions.
fn grpc_for_all() -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.grpc_on_card = GrpcOnCard::All;
    settings
}

#[tokio::test]
async fn every_interface_of_the_card_answers() {
    let server = Server::new(card(), TextCommandAgent).server_settings(grpc_for_all());
    let running = run(server).await;
    let found = with_deadline(Client::discover(&format!("http://{}", running.address)))
        .await
        .unwrap();
    assert_eq!(
        with_deadline(send_text(&found, "hi")).await.status.state,
        TaskState::Completed
    );
    let card = found.card().unwrap();
    assert_eq!(
        (card.name.as_str(), card.capabilities.streaming),
        ("Echo", Some(true))
    );
    for (binding, version) in MATRIX {
        let named = card.supported_interfaces.iter().find(|interface| {
            interface.binding() == Some(*binding) && interface.protocol_version == version.as_str()
        });
        let client = Client::from_interface(named.expect("an interface")).unwrap();
        let task = with_deadline(send_text(&client, "hi")).await;
        assert_eq!(
            task.status.state,
            TaskState::Completed,
            "{binding} {version}"
        );
    }
}

/// gRPC has no paths: it addresses an additional agent by its name.
#[tokio::test]
async fn every_interface_of_an_additional_agent_answers() {
    let shout = |turn: Turn| async move {
        turn.write("shout", turn.text().to_uppercase()).await;
        Ok(Outcome::Completed)
    };
    let server = Server::new(card(), TextCommandAgent)
        .server_settings(grpc_for_all())
        .agent(HostedAgent::new("shout out", card(), shout));
    let running = run(server).await;
    let base = format!("http://{}/agents/shout%20out", running.address);
    let found = with_deadline(Client::discover(&base)).await.unwrap();
    let interfaces = &found.card().unwrap().supported_interfaces;
    assert!(interfaces.len() >= 4, "{interfaces:?}");
    for interface in interfaces {
        let client = Client::from_interface(interface).unwrap();
        assert_eq!(
            with_deadline(send_text(&client, "hi")).await.text(),
            "HI",
            "{interface:?}"
        );
    }
}
