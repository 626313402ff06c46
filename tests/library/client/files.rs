//! Files over the protobuf forms of 0.3, where the Python SDKs put base64 text into the bytes.

use attache::model::{
    Base64, Binding, Content, GetTaskRequest, Message, Part, SendMessageRequest, Version,
};
use attache::{Client, ClientSettings, FileEncoding};
use serde_json::{Value, json};

use super::peer::{Peer, http_response};
use crate::harness::with_deadline;

const FILE: &[u8] = b"\x00\xffbinary";

/// Returns a task of 0.3 ProtoJSON with one file, whose bytes are these.
fn task(bytes: &[u8], head: &str) -> Vec<u8> {
    let file =
        json!({"file": {"fileWithBytes": Base64::encode(bytes).as_str(), "mimeType": "x/y"}});
    let artifact = json!({"artifactId": "a", "parts": [file]});
    let status = json!({"state": "TASK_STATE_COMPLETED"});
    let task = json!({"id": "t", "contextId": "c", "status": status, "artifacts": [artifact]});
    http_response(200, head, &task.to_string())
}

fn client(peer: &Peer, v03_files: FileEncoding) -> Client {
    let settings = ClientSettings {
        v03_files,
        ..ClientSettings::default()
    };
    let client = Client::new(&peer.url, Binding::HttpJson, Version::V03).unwrap();
    client.with_settings(settings)
}

async fn received(bytes: &[u8], head: &str, encoding: FileEncoding) -> Vec<u8> {
    let peer = Peer::with_responses(vec![task(bytes, head)]).await;
    let request = GetTaskRequest {
        id: "t".into(),
        ..GetTaskRequest::default()
    };
    let task = with_deadline(client(&peer, encoding).get_task(request))
        .await
        .unwrap();
    match &task.artifacts[0].parts[0].content {
        Content::Raw(bytes) => bytes.decode(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn received_files_of_python_peers_are_decoded() {
    let text = Base64::encode(FILE);
    let text = text.as_str().as_bytes();
    let python = "Server: uvicorn\r\n";
    for (bytes, head, encoding, expected) in [
        (text, python, FileEncoding::Auto, FILE),
        (text, "", FileEncoding::Auto, text),
        (text, "Server: nginx\r\n", FileEncoding::Auto, text),
        (FILE, python, FileEncoding::Auto, FILE),
        (text, "", FileEncoding::Base64, FILE),
        (FILE, "", FileEncoding::Base64, FILE),
        (text, python, FileEncoding::Raw, text),
    ] {
        let got = received(bytes, head, encoding).await;
        assert_eq!(got, expected, "{head:?} {encoding:?}");
    }
}

/// Sends a file twice, and returns the bytes that arrived. `is_probed`: a request for the card comes first.
async fn sent(head: &str, encoding: FileEncoding, is_probed: bool) -> Vec<Vec<u8>> {
    let mut answers = vec![task(b"", head), task(b"", head)];
    if is_probed {
        answers.insert(0, http_response(404, head, "{}"));
    }
    let peer = Peer::with_responses(answers).await;
    let client = client(&peer, encoding);
    for _ in 0..2 {
        let message = Message::user("hi").part(Part::file(FILE, "x/y"));
        let _ = with_deadline(client.send_message(SendMessageRequest::new(message))).await;
    }
    let mut requests = peer.requests().await;
    if is_probed {
        let probe = requests.remove(0);
        assert!(probe.head.starts_with("get /v1/card "), "{probe:?}");
    }
    let bytes = requests.iter().map(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let file = &body["message"]["content"][1]["file"]["fileWithBytes"];
        Base64::parse(file.as_str().unwrap()).unwrap().decode()
    });
    bytes.collect()
}

#[tokio::test]
async fn files_are_sent_as_the_peer_expects_them() {
    let text = Base64::encode(FILE).as_str().as_bytes().to_vec();
    let raw = FILE.to_vec();
    let texts = [text.clone(), text];
    let bytes = [raw.clone(), raw];
    for (head, encoding, is_probed, expected) in [
        ("Server: uvicorn\r\n", FileEncoding::Auto, true, &texts),
        ("Server: a2a\r\n", FileEncoding::Auto, true, &texts),
        ("", FileEncoding::Auto, true, &bytes),
        ("", FileEncoding::Base64, false, &texts),
        ("Server: uvicorn\r\n", FileEncoding::Raw, false, &bytes),
    ] {
        let got = sent(head, encoding, is_probed).await;
        assert_eq!(got, *expected, "{head:?} {encoding:?}");
    }
}
