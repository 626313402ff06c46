//! Client verbs against servers of the official SDKs: the echo agents in `tests/peers/servers`.

use std::thread;

use serde_json::json;

use super::peer_checks::{
    Peer, check_cancel_of_stream, check_file_members, check_push, check_send, check_stream,
    state_of,
};
use crate::clients::is_quick;
use crate::peer_server::PeerServer;

/// Operations and members of files that a server has.
#[derive(Clone, Copy)]
struct Features {
    bindings: &'static [&'static str],
    /// Whether the version has ListTasks.
    lists: bool,
    /// Whether the server returns from a send before the end of the turn.
    returns_immediately: bool,
    /// Members of a file that the server keeps over gRPC and HTTP+JSON.
    file_members: &'static [&'static str],
}

const ALL: Features = Features {
    bindings: &["jsonrpc", "http+json", "grpc"],
    lists: true,
    returns_immediately: true,
    file_members: &["raw", "filename", "mediaType"],
};

const V03: Features = Features {
    lists: false,
    ..ALL
};

/// All task verbs over every binding, concurrently.
fn every_binding(server: &PeerServer, how: &[&str], features: Features) {
    thread::scope(|scope| {
        for binding in features.bindings {
            scope.spawn(move || {
                every_verb(server, &[how, &["--transport", binding]].concat(), features)
            });
        }
    });
}

/// All task verbs over one binding and version.
fn every_verb(server: &PeerServer, how: &[&str], features: Features) {
    let how = [how, &["-o", "json"]].concat();
    let peer = Peer {
        url: &server.url,
        flags: &how,
    };
    let run = |args: &[&str]| peer.succeed(args);
    let sent = run(&["send", "hello"]).json()["task"].clone();
    assert_eq!(state_of(&sent), "TASK_STATE_COMPLETED", "{sent}");
    assert_eq!(sent["artifacts"][0]["parts"][0]["text"], "hello", "{sent}");
    let id = sent["id"].as_str().unwrap();
    let got = run(&["task", "get", id]).json();
    assert_eq!(
        (state_of(&got), &got["id"]),
        ("TASK_STATE_COMPLETED", &sent["id"])
    );
    let unknown = peer.run(&["task", "get", "unknown"]);
    assert_eq!(
        (unknown.code, &unknown.json()["error"]["code"]),
        (Some(1), &json!("TaskNotFoundError")),
        "{how:?}"
    );
    if features.lists {
        let listed = run(&["task", "list"]).json();
        let tasks = listed["tasks"].as_array().unwrap();
        assert!(
            tasks.iter().any(|task| task["id"] == sent["id"]),
            "{listed}"
        );
    }
    // A question, and its answer in the same task.
    let question = run(&["send", "ask"]).json()["task"].clone();
    assert_eq!(
        state_of(&question),
        "TASK_STATE_INPUT_REQUIRED",
        "{question}"
    );
    let answered = run(&[
        "send",
        "--task-id",
        question["id"].as_str().unwrap(),
        "more",
    ])
    .json();
    assert_eq!(
        state_of(&answered["task"]),
        "TASK_STATE_COMPLETED",
        "{answered}"
    );
    // A stream, a line per event, until the final one.
    let lines = run(&["send", "--stream", "hello"]).lines();
    let last = lines.last().unwrap();
    let settled = last
        .get("statusUpdate")
        .or(last.get("task"))
        .unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(state_of(settled), "TASK_STATE_COMPLETED", "{lines:?}");
    let plain = Peer {
        url: &server.url,
        flags: &how[..how.len() - 2],
    };
    if features.returns_immediately {
        let slow = plain.start("slow");
        let canceled = run(&["task", "cancel", &slow]).json();
        assert_eq!(state_of(&canceled), "TASK_STATE_CANCELED", "{canceled}");
        follow(&plain);
    } else {
        check_cancel_of_stream(&plain);
    }
    let file_members = if how.contains(&"jsonrpc") {
        ALL.file_members
    } else {
        features.file_members
    };
    check_file_members(&plain, file_members);
    check_push(&plain);
}

/// A later subscriber follows a slow task to its end.
fn follow(peer: &Peer<'_>) {
    let dripping = peer.start("drip");
    let subscribe = ["task", "subscribe", &dripping, "--stream", "-o", "json"];
    let lines = peer
        .succeed(&[&subscribe[..], &["--timeout", "20s"]].concat())
        .lines();
    let last = lines.last().unwrap();
    let settled = last
        .get("statusUpdate")
        .or(last.get("task"))
        .unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(state_of(settled), "TASK_STATE_COMPLETED", "{lines:?}");
    assert!(lines.len() > 2, "it was followed: {lines:?}");
}

/// The card, which does not depend on the version.
fn card(server: &PeerServer, how: &[&str]) {
    let peer = Peer {
        url: &server.url,
        flags: how,
    };
    let output = peer.run(&["card", "get", "--validate", "-o", "json"]);
    assert_eq!(
        (output.code, &output.json()["name"]),
        (Some(0), &json!("Echo")),
        "{output:?}"
    );
}

#[test]
fn card_get_001_send_001_task_get_001_task_list_001_task_cancel_001_task_subscribe_001_tx_004_with_a2a_sdk_1()
 {
    if is_quick() {
        return;
    }
    let server = PeerServer::python("server10", "sdk10.py");
    card(&server, &[]);
    every_binding(&server, &[], ALL);
}

#[test]
fn card_get_001_send_001_task_get_001_task_list_001_task_cancel_001_task_subscribe_001_tx_004_with_a2a_js_1()
 {
    if is_quick() {
        return;
    }
    let server = PeerServer::node("sdk10.mjs");
    card(&server, &[]);
    every_binding(&server, &[], ALL);
}

#[test]
fn send_001_task_get_001_task_cancel_001_task_subscribe_001_ver_001_with_a2a_sdk_0_3_on_request() {
    if is_quick() {
        return;
    }
    let server = PeerServer::python("server03", "sdk03.py");
    let peer = Peer {
        url: &server.url,
        flags: &[],
    };
    let refused = peer.run(&["send", "hello", "-o", "json"]);
    let error = &refused.json()["error"];
    assert_eq!(
        (refused.code, &error["code"]),
        (Some(1), &json!("VersionNotSupportedError")),
        "{refused:?}"
    );
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("--a2a-version 0.3"),
        "{error}"
    );
    every_binding(&server, &["--a2a-version", "0.3"], V03);
}

#[test]
fn send_001_task_get_001_task_cancel_001_task_subscribe_001_with_a2a_js_0_3() {
    if is_quick() {
        return;
    }
    let server = PeerServer::node("sdk03.mjs");
    // From protobuf it does not read the name of a file.
    let features = Features {
        file_members: &["raw", "mediaType"],
        ..V03
    };
    every_binding(&server, &["--a2a-version", "0.3"], features);
}

#[test]
fn send_001_task_get_001_task_cancel_001_with_a2a_sdk_0_2() {
    if is_quick() {
        return;
    }
    let server = PeerServer::python("server02", "sdk02.py");
    // It ignores `blocking: false`.
    let features = Features {
        bindings: &["jsonrpc"],
        returns_immediately: false,
        ..V03
    };
    every_binding(&server, &["--a2a-version", "0.3"], features);
    // Over gRPC it reads the id of a task only up to the first hyphen, so it finds none of its own tasks.
    let peer = Peer {
        url: &server.url,
        flags: &["--a2a-version", "0.3", "--transport", "grpc"],
    };
    check_send(&peer);
    check_stream(&peer, "/artifactUpdate/artifact/parts/0/text");
}
