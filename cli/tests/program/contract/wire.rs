//! Bindings, versions, tenants and extensions.

use serde_json::{Value, json};

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};

fn offering(interfaces: fn(&str) -> Value) -> ScriptedAgent {
    ScriptedAgent::new(
        move |url| scripted_agent::card(url, json!({"supportedInterfaces": interfaces(url)})),
        |requests, _| match requests.line.contains("/rest") {
            true => scripted_agent::json_reply(
                200,
                &json!({"task": scripted_agent::task("TASK_STATE_COMPLETED")}),
            ),
            false => scripted_agent::answer_completed()(requests, 0),
        },
    )
}

fn interface(url: String, binding: &str, version: &str) -> Value {
    json!({"url": url, "protocolBinding": binding, "protocolVersion": version})
}

#[test]
fn tx_001_default_001_transport_server_preference_order() {
    let peer = offering(|url| {
        json!([
            interface(url.to_owned(), "https://other.example/binding", "1.0"),
            interface(format!("{url}/rest"), "HTTP+JSON", "1.0"),
            interface(format!("{url}/rpc"), "JSONRPC", "1.0"),
        ])
    });
    assert_eq!(run_at(&peer.url, &["send", "--async", "hi"]).code, Some(0));
    assert_eq!(peer.requests()[1].line, "POST /rest/message:send");
    assert_eq!(
        run_at(
            &peer.url,
            &["send", "--async", "--transport", "json-rpc", "hi"]
        )
        .code,
        Some(0)
    );
    assert_eq!(peer.requests()[3].line, "POST /rpc");
}

#[test]
fn tx_002_transport_flags_take_precedence_and_missing_bindings_are_skipped() {
    let peer = offering(|url| {
        json!([
            interface(format!("{url}/rpc"), "JSONRPC", "1.0"),
            interface(format!("{url}/rest"), "HTTP+JSON", "1.0")
        ])
    });
    let last = || peer.requests().last().unwrap().line.clone();
    run_at(
        &peer.url,
        &[
            "send",
            "--async",
            "--transport",
            "grpc",
            "--transport",
            "rest",
            "hi",
        ],
    );
    assert_eq!(last(), "POST /rest/message:send");
    run_at(&peer.url, &["send", "--async", "--transport", "grpc", "hi"]);
    assert_eq!(last(), "POST /rpc");
    verb(&["send", "-a", &peer.url, "--async", "hi"])
        .env("A2ACLI_TRANSPORT", "grpc,http+json")
        .run();
    assert_eq!(last(), "POST /rest/message:send");
    assert_eq!(
        run_at(&peer.url, &["send", "--transport", "pigeon", "hi"]).code,
        Some(2)
    );
}

#[test]
fn tx_003_the_tenant_of_the_interface_is_in_every_request_or_absent() {
    let peer = offering(|url| {
        let mut one = interface(url.to_owned(), "JSONRPC", "1.0");
        one["tenant"] = json!("Ten/Ant ü");
        json!([one])
    });
    run_at(&peer.url, &["send", "hi"]);
    run_at(&peer.url, &["task", "get", "t-1"]);
    assert!(
        peer.posted_bodies()
            .iter()
            .all(|body| body["params"]["tenant"] == "Ten/Ant ü"),
        "{:?}",
        peer.posted_bodies()
    );
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    run_at(&peer.url, &["send", "hi"]);
    assert!(
        peer.posted_bodies()
            .iter()
            .all(|body| body["params"].get("tenant").is_none())
    );
}

#[test]
fn tx_004_tx_005_every_binding_has_the_same_output() {
    let shown = |binding: &str| {
        let output = run_at(&DEMO, &["send", "--transport", binding, "data"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let ids = ["Task", "Context", "Artifact", "Resume"];
        output
            .out
            .lines()
            .filter(|line| !ids.iter().any(|id| line.starts_with(id)))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(shown("jsonrpc"), shown("http+json"));
    assert_eq!(shown("jsonrpc"), shown("grpc"));
}

#[test]
fn ver_001_default_001_protocol_version_highest_mutual() {
    let peer = offering(|url| {
        json!([
            interface(format!("{url}/old"), "JSONRPC", "0.3"),
            interface(format!("{url}/a"), "JSONRPC", "1.0"),
            interface(format!("{url}/b"), "JSONRPC", "1.10"),
        ])
    });
    assert_eq!(run_at(&peer.url, &["send", "hi"]).code, Some(0));
    let requests = peer.requests();
    assert!(
        requests[0].head.contains("a2a-version: 1.0\r\n"),
        "the card too: {requests:?}"
    );
    assert!(
        requests[1..]
            .iter()
            .all(|it| it.line == "POST /b" && it.head.contains("a2a-version: 1.10\r\n")),
        "{requests:?}"
    );
    run_at(&peer.url, &["send", "--a2a-version", "1.7", "hi"]);
    assert!(
        peer.requests()
            .last()
            .unwrap()
            .head
            .contains("a2a-version: 1.7\r\n")
    );
}

#[test]
fn ver_001_a_legacy_agent_is_used_only_on_request() {
    let old = |url: &str| {
        let interfaces = json!([interface(url.to_owned(), "JSONRPC", "0.3")]);
        scripted_agent::card(url, json!({"supportedInterfaces": interfaces}))
    };
    let old_task =
        json!({"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "completed"}});
    let peer = ScriptedAgent::new(old, move |_, _| scripted_agent::result(&old_task));
    let output = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &output.json()["error"];
    assert_eq!(
        (output.code, &error["code"], &error["a2aCode"]),
        (Some(1), &json!("VersionNotSupportedError"), &json!(null))
    );
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .ends_with("--a2a-version 0.3"),
        "{error}"
    );
    assert_eq!(peer.requests().len(), 1, "nothing was tried");
    for version in ["0.3", "auto"] {
        let output = run_at(
            &peer.url,
            &["send", "-o", "json", "--a2a-version", version, "hi"],
        );
        assert_eq!(
            output.json()["task"]["status"]["state"],
            "TASK_STATE_COMPLETED",
            "{output:?}"
        );
        assert!(output.err.contains("using A2A 0.3"), "{}", output.err);
        assert!(
            peer.requests()
                .last()
                .unwrap()
                .head
                .contains("a2a-version: 0.3\r\n")
        );
    }
    assert_eq!(
        run_at(&peer.url, &["send", "--a2a-version", "2.0", "hi"]).code,
        Some(1)
    );
}

#[test]
fn ver_001_a_refused_version_is_an_error_without_a_fallback() {
    let peer = ScriptedAgent::new(scripted_agent::plain, |_, _| {
        scripted_agent::error(-32009, "not that one")
    });
    let output = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    assert_eq!(
        (output.code, &output.json()["error"]["code"]),
        (Some(1), &json!("VersionNotSupportedError"))
    );
    assert_eq!(peer.posted_bodies().len(), 1);
}

#[test]
fn ver_002_a_required_extension_must_be_requested() {
    let card = |url: &str| {
        let extensions = json!([{"uri": "https://x.example/ext", "required": true}]);
        scripted_agent::card(url, json!({"capabilities": {"extensions": extensions}}))
    };
    let peer = ScriptedAgent::new(card, scripted_agent::answer_completed());
    let output = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &output.json()["error"];
    assert_eq!(
        (output.code, &error["code"]),
        (Some(1), &json!("ExtensionSupportRequiredError"))
    );
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("--extension https://x.example/ext"),
        "{error}"
    );
    assert_eq!(peer.posted_bodies().len(), 0);
    assert_eq!(
        run_at(
            &peer.url,
            &["send", "--extension", "https://x.example/ext", "hi"]
        )
        .code,
        Some(0)
    );
    assert!(
        peer.requests()
            .last()
            .unwrap()
            .head
            .contains("a2a-extensions: https://x.example/ext\r\n")
    );
}

#[test]
fn demo_server_001_the_program_contains_a_demo_agent() {
    let demo = crate::harness::serve(&["demo-server", "--store", "memory"]);
    let url = demo.line("Listening on ");
    assert_eq!(
        run_at(&url, &["send", "hi"]).field("State"),
        "TASK_STATE_COMPLETED"
    );
}

/// The SSRF guard applies to the client: no request is sent, and the hint names the flag that allows the host.
#[test]
fn s28_tx_001_a_card_that_leads_to_a_private_network_is_blocked() {
    for place in [
        "http://169.254.169.254/",
        "http://0.0.0.0:1/",
        "http://[fe80::1]/",
        "http://0x7f.1/",
    ] {
        let peer = ScriptedAgent::new(
            move |_| scripted_agent::card(place, json!({})),
            scripted_agent::answer_completed(),
        );
        for args in [&["send", "hi"][..], &["task", "get", "t-1"]] {
            let output = run_at(&peer.url, &[args, &["-o", "json"]].concat());
            let error = &output.json()["error"];
            assert_eq!(
                (output.code, &error["code"]),
                (Some(3), &json!("A2ACLI_ERR_UNREACHABLE")),
                "{place}: {output:?}"
            );
            let message = error["message"].as_str().unwrap();
            assert!(
                message.starts_with("the card leads to "),
                "{place}: {message}"
            );
            assert!(
                error["hint"].as_str().unwrap().contains("--allow-host"),
                "{place}: {error}"
            );
        }
        assert_eq!(
            peer.requests().len(),
            2,
            "the card alone was read, each time"
        );
    }
}
