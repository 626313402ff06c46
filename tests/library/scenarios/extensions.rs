//! Extensions: what a caller asks for, what the agent knows, and what it cannot do without (01 §3, 06 §3).

use attache::model::{AgentExtension, ErrorKind, TaskState};
use attache::{AgentCard, Client, Outcome, Server, Turn};

use super::{error_kind, find, message, say};
use crate::harness::everywhere::{card, everywhere_on, has_details, open};

const TIDES: &str = "https://example.com/ext/tides/v1";
const CHARTS: &str = "https://example.com/ext/charts/v1";

fn knows(required: bool) -> AgentCard {
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

/// Tells which extensions are active.
fn server(required: bool) -> Server {
    Server::new(knows(required), |turn: Turn| async move {
        turn.write("active", turn.call().extensions.join(" ")).await;
        Ok(Outcome::Completed)
    })
}

#[tokio::test]
async fn an_extension_is_active_if_it_is_asked_for_and_known() {
    everywhere_on(
        || server(false),
        async |client: Client| {
            assert_eq!(say(&client, "hi").await.artifacts[0].as_text(), "");
            for (asked, active) in [
                (&[TIDES][..], TIDES),
                (&[CHARTS, "https://example.com/ext/unheard-of"], CHARTS),
                (&["https://EXAMPLE.com/ext/tides/v1"], ""),
            ] {
                let asking = client
                    .clone()
                    .with_extensions(asked.iter().copied())
                    .unwrap();
                assert_eq!(
                    say(&asking, "hi").await.artifacts[0].as_text(),
                    active,
                    "{asked:?}"
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn an_agent_that_needs_an_extension_refuses_who_does_not_ask_for_it() {
    everywhere_on(
        || server(true),
        async |client: Client| {
            let asking = client.clone().with_extensions([CHARTS]).unwrap();
            for client in [&client, &asking] {
                let error = client.send_message(message("hi")).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired);
                if has_details(client) {
                    assert_eq!(error.metadata().collect::<Vec<_>>(), [("extension", TIDES)]);
                }
                let streamed = open(client.send_streaming_message(message("hi"))).await;
                assert_eq!(error_kind(streamed), ErrorKind::ExtensionSupportRequired);
                // Before anything is said of the task.
                assert_eq!(
                    error_kind(find(client, &"gone".into()).await),
                    ErrorKind::ExtensionSupportRequired
                );
            }
            let knowing = client.with_extensions([TIDES, CHARTS]).unwrap();
            let task = say(&knowing, "hi").await;
            assert_eq!(task.status.state, TaskState::Completed);
            assert_eq!(find(&knowing, &task.id).await.unwrap(), task);
        },
    )
    .await;
}
