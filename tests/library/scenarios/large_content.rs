//! Limits on metadata and data of a request, over every binding and version.

use attache::model::{
    CancelTaskRequest, ErrorKind, Json, Limits, ListTasksRequest, Message, Object, Part,
    SendMessageRequest,
};
use attache::{Client, Server};

use super::{TextCommandAgent, send_text};
use crate::harness::everywhere::{can_list, card, everywhere_on};

const LIMITS: Limits = Limits {
    max_parts: 1000,
    max_object_members: 20,
    max_metadata_bytes: 500,
    max_push_configs: 32,
    max_page_bytes: 1 << 20,
    max_history_length: 100,
    max_replayed_entries: 100,
};

fn object(members: usize) -> Object {
    (0..members)
        .map(|number| (number.to_string(), Json::null()))
        .collect()
}

fn long_object() -> Object {
    [("a", Json::from("x".repeat(500).as_str()))]
        .into_iter()
        .collect()
}

/// Message with this metadata.
fn annotated(metadata: Object) -> SendMessageRequest {
    let message = Message {
        metadata: Some(metadata),
        ..Message::user("hi")
    };
    SendMessageRequest::new(message)
}

/// Asserts that the request is refused with this field and limit, and that no task was created.
async fn assert_refused(client: &Client, request: SendMessageRequest, field: &str, limit: &str) {
    let error = client.send_message(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
    let text = error.message();
    assert!(text.contains(field) && text.contains(limit), "{text}");
    if can_list(client).await {
        let page = client.list_tasks(ListTasksRequest::default()).await;
        assert_eq!(page.unwrap().tasks, []);
    }
}

#[tokio::test]
async fn d07_oversized_content_is_refused_and_nothing_is_written() {
    everywhere_on(
        || Server::new(card(), TextCommandAgent).limits(LIMITS),
        async |client: Client| {
            let members = "max_object_members";
            let bytes = "max_metadata_bytes";
            assert_refused(&client, annotated(object(21)), "message.metadata", members).await;
            assert_refused(&client, annotated(long_object()), "message.metadata", bytes).await;
            let part = Part::text("x").with_metadata(object(21));
            let request = SendMessageRequest::new(Message::user("hi").part(part));
            assert_refused(&client, request, "message.parts[1].metadata", members).await;
            let nested: Object = [("outer", Json::from(object(21)))].into_iter().collect();
            let request = SendMessageRequest::new(Message::user(Part::data(nested)));
            assert_refused(&client, request, "message.parts[0].data", members).await;
            client.send_message(annotated(object(20))).await.unwrap();
            let asked = send_text(&client, "ask").await;
            let cancel = CancelTaskRequest {
                id: asked.id,
                metadata: Some(long_object()),
                ..Default::default()
            };
            match client.cancel_task(cancel).await {
                // gRPC and REST of 0.3 have no metadata in a cancel.
                Ok(task) => assert_ne!(client.interface().protocol_version, "1.0", "{task:?}"),
                Err(error) => assert!(error.message().contains(bytes), "{error}"),
            }
        },
    )
    .await;
}
