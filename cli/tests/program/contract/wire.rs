//! Bindings, versions, tenants and extensions.

use serde_json::{Value, json};

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};

fn offering(interfaces: fn(&str) -> Value) -> ScriptedAgent {
    ScriptedAgent::new(
        move |url| scripted_agent::card(url, json!({"supportedInterfaces": interfaces(url)})),
        |asked, _| match asked.line.contains("/rest") {
            true => scripted_agent::json_reply(
                200,
                &json!({"task": scripted_agent::task("TASK_STATE_COMPLETED")}),
            ),
            false => scripted_agent::done()(asked, 0),
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
fn tx_002_the_order_of_the_user_comes_first_and_what_is_not_there_is_skipped() {
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
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::done());
    run_at(&peer.url, &["send", "hi"]);
    assert!(
        peer.posted_bodies()
            .iter()
            .all(|body| body["params"].get("tenant").is_none())
    );
}

#[test]
fn tx_004_tx_005_every_binding_gives_the_same() {
    let shown = |binding: &str| {
        let said = run_at(&DEMO, &["send", "--transport", binding, "data"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let ids = ["Task", "Context", "Artifact", "Resume"];
        said.out
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
    let asked = peer.requests();
    assert!(
        asked[0].head.contains("a2a-version: 1.0\r\n"),
        "the card too: {asked:?}"
    );
    assert!(
        asked[1..]
            .iter()
            .all(|it| it.line == "POST /b" && it.head.contains("a2a-version: 1.10\r\n")),
        "{asked:?}"
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
fn ver_001_an_agent_of_before_1_0_is_spoken_to_only_when_that_is_said() {
    let old = |url: &str| {
        let interfaces = json!([interface(url.to_owned(), "JSONRPC", "0.3")]);
        scripted_agent::card(url, json!({"supportedInterfaces": interfaces}))
    };
    let old_task =
        json!({"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "completed"}});
    let peer = ScriptedAgent::new(old, move |_, _| scripted_agent::result(&old_task));
    let said = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &said.json()["error"];
    assert_eq!(
        (said.code, &error["code"], &error["a2aCode"]),
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
        let said = run_at(
            &peer.url,
            &["send", "-o", "json", "--a2a-version", version, "hi"],
        );
        assert_eq!(
            said.json()["task"]["status"]["state"],
            "TASK_STATE_COMPLETED",
            "{said:?}"
        );
        assert!(said.err.contains("using A2A 0.3"), "{}", said.err);
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
fn ver_001_a_refused_version_is_shown_and_not_worked_around() {
    let peer = ScriptedAgent::new(scripted_agent::plain, |_, _| {
        scripted_agent::error(-32009, "not that one")
    });
    let said = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    assert_eq!(
        (said.code, &said.json()["error"]["code"]),
        (Some(1), &json!("VersionNotSupportedError"))
    );
    assert_eq!(peer.posted_bodies().len(), 1);
}

#[test]
fn ver_002_a_required_extension_is_named_or_the_call_is_not_made() {
    let card = |url: &str| {
        let extensions = json!([{"uri": "https://x.example/ext", "required": true}]);
        scripted_agent::card(url, json!({"capabilities": {"extensions": extensions}}))
    };
    let peer = ScriptedAgent::new(card, scripted_agent::done());
    let said = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &said.json()["error"];
    assert_eq!(
        (said.code, &error["code"]),
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
fn demo_server_001_a_practice_agent_is_part_of_the_program() {
    let demo = crate::harness::serve(&["demo-server", "--store", "memory"]);
    let url = demo.line("Listening on ");
    assert_eq!(
        run_at(&url, &["send", "hi"]).field("State"),
        "TASK_STATE_COMPLETED"
    );
}

/// The guard of the library stands before the program too: nobody is asked, and the way out is named.
#[test]
fn s28_tx_001_a_card_that_leads_inside_is_not_followed() {
    for place in [
        "http://169.254.169.254/",
        "http://0.0.0.0:1/",
        "http://[fe80::1]/",
        "http://0x7f.1/",
    ] {
        let peer = ScriptedAgent::new(
            move |_| scripted_agent::card(place, json!({})),
            scripted_agent::done(),
        );
        for args in [&["send", "hi"][..], &["task", "get", "t-1"]] {
            let said = run_at(&peer.url, &[args, &["-o", "json"]].concat());
            let error = &said.json()["error"];
            assert_eq!(
                (said.code, &error["code"]),
                (Some(3), &json!("A2ACLI_ERR_UNREACHABLE")),
                "{place}: {said:?}"
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
