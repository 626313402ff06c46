//! Client verbs and `remote` agents against agents of other projects: the echo agents in `tests/peers/servers`.

use serde_json::{Value, json};

use super::peer_checks::{
    Peer, check_cancel, check_file, check_get, check_push, check_question, check_send,
    check_stream, numbers, serve_remote, state_of, stream, streamed_text, text_of,
};
use crate::clients::{has_all_peers, is_quick};
use crate::harness::call;
use crate::peer_server::PeerServer;

/// Text of a chunk of an artifact, within an event.
const ARTIFACT: &str = "/artifactUpdate/artifact/parts/0/text";
/// Text of a message of a status, within an event.
const STATUS: &str = "/statusUpdate/status/message/parts/0/text";

/// Text of a message beside the task, within an event.
const MESSAGE: &str = "/message/parts/0/text";

const LEGACY: &[&str] = &["--a2a-version", "auto"];

/// selectools has calls only, and every task has ended when its call returns.
#[test]
fn selectools_1_3() {
    if is_quick() {
        return;
    }
    let server = PeerServer::python("selectools", "selectools_echo.py");
    let peer = Peer {
        url: &server.url,
        flags: LEGACY,
    };
    let card = peer.succeed(&["card", "get", "-o", "json"]).json();
    assert_eq!(
        (&card["name"], &card["skills"][0]["id"]),
        (&json!("Echo"), &json!("echo"))
    );
    check_get(&peer);
    let streamed = peer.succeed(&["send", "--stream", "hello"]);
    assert_eq!(text_of(&streamed), "hello", "{streamed:?}");
    assert!(
        streamed.err.contains("does not support streaming"),
        "{streamed:?}"
    );
    let failed = peer.succeed(&["send", "fail", "-o", "json"]).json()["task"].clone();
    assert_eq!(state_of(&failed), "TASK_STATE_FAILED", "{failed}");
    assert_eq!(
        failed["status"]["message"]["parts"][0]["text"],
        "Agent execution failed (RuntimeError)"
    );
    let ended = check_send(&peer);
    assert_eq!(
        peer.fail(&["task", "cancel", &ended]),
        "TaskNotCancelableError"
    );
    assert_eq!(
        peer.fail(&["task", "cancel", "unknown"]),
        "TaskNotFoundError"
    );

    let (_front, url) = serve_remote(&server.url);
    let front = Peer {
        url: &url,
        flags: &[],
    };
    check_get(&front);
}

/// fasta2a ignores the task of a message: an answer starts another task in the context of the question. It returns from a
/// cancellation before the task has the state.
#[test]
fn fasta2a_2_1() {
    if is_quick() {
        return;
    }
    let server = PeerServer::python("fasta2a", "fasta2a_echo.py");
    let (_front, front) = serve_remote(&server.url);
    for url in [&server.url, &front] {
        let peer = Peer { url, flags: &[] };
        check_get(&peer);
        check_stream(&peer, ARTIFACT);
        check_file(&peer);
        let slow = peer.start("slow");
        peer.succeed(&["task", "cancel", &slow]);
        let canceled = peer.json(&["task", "get", "--wait", &slow]);
        assert_eq!(state_of(&canceled), "TASK_STATE_CANCELED", "{canceled}");
    }
    let peer = Peer {
        url: &server.url,
        flags: &[],
    };
    let asked = peer.succeed(&["send", "ask"]);
    assert_eq!(asked.field("State"), "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(text_of(&asked), "What next?", "{asked:?}");
    let context = asked.field("Context");
    let answered = peer.succeed(&["send", "--task-id", asked.field("Task"), "more"]);
    assert_eq!(answered.field("State"), "TASK_STATE_COMPLETED");
    assert_ne!(answered.field("Task"), asked.field("Task"));
    assert_eq!(text_of(&answered), "more", "{answered:?}");
    let again = peer.succeed(&["send", "--context-id", context, "more"]);
    assert_eq!(again.field("Context"), context);
    let front = Peer {
        url: &front,
        flags: &[],
    };
    check_question(&front, "What next?");
}

/// agno declares one URL, which takes streams alone. Its answers are messages beside the task.
#[test]
fn agno_3_1() {
    if !has_all_peers() {
        return;
    }
    let server = PeerServer::python("agno", "agno_echo.py");
    let peer = Peer {
        url: &server.url,
        flags: LEGACY,
    };
    check_send(&peer);
    assert_eq!(streamed_text(&stream(&peer, "a b c"), MESSAGE), "a b c ");
    check_agno_file(&peer);
    // Other calls are refused at the URL of streams.
    assert_eq!(peer.fail(&["task", "get", "unknown"]), "InvalidParamsError");
    assert_eq!(
        peer.fail(&["task", "cancel", "unknown"]),
        "InvalidParamsError"
    );

    let (_front, front) = serve_remote(&server.url);
    let front = Peer {
        url: &front,
        flags: &[],
    };
    check_get(&front);
    assert_eq!(streamed_text(&stream(&front, "a b c"), ARTIFACT), "a b c ");
    check_agno_file(&front);
}

/// agno takes some media types only. The agent adds the text of the file to its answer.
fn check_agno_file(peer: &Peer<'_>) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("tides.csv");
    std::fs::write(&path, "harbour,high water\n").unwrap();
    let sent = peer.succeed(&["send", "hello", "--file", path.to_str().unwrap()]);
    assert_eq!(sent.field("State"), "TASK_STATE_COMPLETED", "{sent:?}");
    assert!(
        text_of(&sent).starts_with("hello harbour,high water"),
        "{sent:?}"
    );
}

#[test]
fn agentstack_0_7() {
    if !has_all_peers() {
        return;
    }
    let server = PeerServer::python("agentstack", "agentstack_echo.py");
    let (_front, front) = serve_remote(&server.url);
    for binding in ["jsonrpc", "http+json"] {
        let flags = [LEGACY, &["--transport", binding]].concat();
        let peer = Peer {
            url: &server.url,
            flags: &flags,
        };
        check_get(&peer);
        check_stream(&peer, STATUS);
        check_question(&peer, "What next?");
        check_cancel(&peer);
        check_file(&peer);
        check_push(&peer);
    }
    let front = Peer {
        url: &front,
        flags: &[],
    };
    check_get(&front);
    check_stream(&front, STATUS);
    check_question(&front, "What next?");
    check_cancel(&front);
    check_file(&front);
}

/// The questions of ADK are function calls, and their answers function responses.
#[test]
fn google_adk_2_13() {
    if !has_all_peers() {
        return;
    }
    let server = PeerServer::python("adk", "adk_echo.py");
    let (_front, url) = serve_remote(&server.url);
    for url in [&server.url, &url] {
        let peer = Peer { url, flags: &[] };
        check_get(&peer);
        check_cancel(&peer);
        check_file(&peer);
        // The chunks, and then the whole text, are messages of working statuses. The artifact has the text.
        let events = stream(&peer, "drip");
        let messages = streamed_text(&events, STATUS);
        assert_eq!(messages, numbers().repeat(2), "{events:?}");
        assert_eq!(streamed_text(&events, ARTIFACT), numbers(), "{events:?}");
        check_function_call(&peer);
    }
}

fn check_function_call(peer: &Peer<'_>) {
    let asked = peer.json(&["send", "ask"])["task"].clone();
    assert_eq!(state_of(&asked), "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let question = &asked["status"]["message"]["parts"][0];
    let wanted = json!({"id": "call-1", "name": "ask_user", "args": {"question": "What next?"}});
    assert_eq!(question["data"], wanted, "{asked}");
    assert_eq!(question["metadata"]["adk_type"], "function_call", "{asked}");

    let response = json!({"id": "call-1", "name": "ask_user", "response": {"answer": "more"}});
    let part = json!({"data": response, "metadata": {"adk_type": "function_response"}});
    let message = json!({"messageId": "answer", "role": "ROLE_USER", "taskId": asked["id"],
        "contextId": asked["contextId"], "parts": [part]});
    let url = format!("{}/", peer.url.trim_end_matches('/'));
    let answered = call(&url, "SendMessage", &json!({"message": message}));
    let task = &answered["result"]["task"];
    assert_eq!(state_of(task), "TASK_STATE_COMPLETED", "{answered}");
    let artifacts = task["artifacts"].as_array().unwrap();
    let texts: Vec<&Value> = artifacts
        .iter()
        .map(|artifact| &artifact["parts"][0]["text"])
        .collect();
    assert_eq!(texts, [&json!("more")], "{answered}");
}
