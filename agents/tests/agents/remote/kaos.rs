//! Remote agents of KAOS, with the stand-in for one.

use attache::Client;
use attache::model::{Binding, Message, Version};
use attache_agents::RemoteSettings;

use super::kaos_server::{Answer, KaosServer};
use super::remote_agent;
use crate::harness::{artifact, state, status_text, with_deadline};

#[tokio::test]
async fn seed_0_34_kaos_agent_is_called_with_its_methods() {
    let behind = KaosServer::start(Answer::History);
    let front = remote_agent(&behind.url, RemoteSettings::default()).await;
    let client = Client::new(&front.url(), Binding::JsonRpc, Version::V1).unwrap();
    let first = with_deadline(client.send(Message::user("one")))
        .await
        .unwrap();
    assert_eq!(first.text(), "from history: one");
    let context = first.task().unwrap().context_id.clone();
    let second = Message::user("two").in_context(context);
    with_deadline(client.send(second)).await.unwrap();
    let sent = behind.params("SendMessage");
    assert_eq!(
        sent[1]["contextId"], "session-new",
        "the session of KAOS continues"
    );
}

#[tokio::test]
async fn seed_0_38_answers_are_forwarded_from_every_place() {
    for (answer, text) in [
        (Answer::History, "from history: hi"),
        (Answer::Output, "from output: hi"),
    ] {
        let behind = KaosServer::start(answer);
        let front = remote_agent(&behind.url, RemoteSettings::default()).await;
        let task = front.send_text("hi").await;
        assert_eq!((state(&task), status_text(&task)), ("COMPLETED", text));
    }
    let behind = KaosServer::start(Answer::Artifact);
    let front = remote_agent(&behind.url, RemoteSettings::default()).await;
    let task = front.send_text("hi").await;
    assert_eq!(artifact(&task, "answer")[0]["text"], "from artifact: hi");
    assert!(task["status"]["message"].is_null(), "no `Done`: {task}");
    let behind = KaosServer::start(Answer::Nowhere);
    let front = remote_agent(&behind.url, RemoteSettings::default()).await;
    let task = front.send_text("hi").await;
    assert_eq!(state(&task), "COMPLETED");
    assert!(task["status"]["message"].is_null(), "{task}");
    let calls = behind.calls();
    let calls = calls.iter().filter(|call| call.starts_with("POST"));
    assert_eq!(calls.collect::<Vec<_>>(), ["POST / SendMessage"]);
}

#[tokio::test]
async fn seed_0_37_chat_completions_replace_a_send_that_fails() {
    let settings = || RemoteSettings {
        chat_completions: Some("my-agent".to_owned()),
        ..RemoteSettings::default()
    };
    for answer in [
        Answer::InternalError,
        Answer::Status(500),
        Answer::Status(404),
    ] {
        let behind = KaosServer::start(answer);
        let front = remote_agent(&behind.url, settings()).await;
        let task = front.send_text("hi").await;
        assert_eq!(
            (state(&task), status_text(&task)),
            ("COMPLETED", "chat: hi")
        );
    }
    let behind = KaosServer::start(Answer::InternalError);
    let front = remote_agent(&behind.url, RemoteSettings::default()).await;
    let task = front.send_text("hi").await;
    assert_eq!(state(&task), "FAILED", "without the key: {task}");
}
