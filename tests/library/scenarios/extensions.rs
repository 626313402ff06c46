//! Extensions: requested by callers, declared and required by agents (01 §3, 06 §3).

use attache::model::{AgentExtension, ErrorKind, TaskState};
use attache::{AgentCard, Client, Outcome, Server, Turn};

use super::{error_kind, find, message, send_text};
use crate::harness::everywhere::{card, everywhere_on, has_details, open};

const TIDES: &str = "https://example.com/ext/tides/v1";
const CHARTS: &str = "https://example.com/ext/charts/v1";

fn card_with_extensions(required: bool) -> AgentCard {
    let mut card = card();
    for (uri, required) in [(TIDES, required), (CHARTS, false)] {
        let extension = AgentExtension {
            uri: uri.to_owned(),
            required: Some(required),
            ..Default::default()
        };
        card.capabilities.extensions.push(extension);
    }
    card
}

/// Server whose agent writes the URIs of the active extensions.
fn server(required: bool) -> Server {
    Server::new(card_with_extensions(required), |turn: Turn| async move {
        turn.write("active", turn.call().extensions.join(" ")).await;
        Ok(Outcome::Completed)
    })
}

#[tokio::test]
async fn an_extension_is_active_if_it_is_requested_and_declared() {
    everywhere_on(
        || server(false),
        async |client: Client| {
            assert_eq!(send_text(&client, "hi").await.artifacts[0].as_text(), "");
            for (asked, active) in [
                (&[TIDES][..], TIDES),
                (&[CHARTS, "https://example.com/ext/unheard-of"], CHARTS),
                (&["https://EXAMPLE.com/ext/tides/v1"], ""),
            ] {
                let requesting = client
                    .clone()
                    .with_extensions(asked.iter().copied())
                    .unwrap();
                assert_eq!(
                    send_text(&requesting, "hi").await.artifacts[0].as_text(),
                    active,
                    "{asked:?}"
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_required_extension_must_be_requested() {
    everywhere_on(
        || server(true),
        async |client: Client| {
            let requesting = client.clone().with_extensions([CHARTS]).unwrap();
            for client in [&client, &requesting] {
                let error = client.send_message(message("hi")).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired);
                if has_details(client) {
                    assert_eq!(error.metadata().collect::<Vec<_>>(), [("extension", TIDES)]);
                }
                let streamed = open(client.send_streaming_message(message("hi"))).await;
                assert_eq!(error_kind(streamed), ErrorKind::ExtensionSupportRequired);
                // The server checks extensions before it looks up the task.
                assert_eq!(
                    error_kind(find(client, &"gone".into()).await),
                    ErrorKind::ExtensionSupportRequired
                );
            }
            let with_both = client.with_extensions([TIDES, CHARTS]).unwrap();
            let task = send_text(&with_both, "hi").await;
            assert_eq!(task.status.state, TaskState::Completed);
            assert_eq!(find(&with_both, &task.id).await.unwrap(), task);
        },
    )
    .await;
}
