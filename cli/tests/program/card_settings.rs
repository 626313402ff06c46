//! Keys of a configuration file about cards, extended cards and parts.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{ServerProcess, attache, call, send, serve_in};
use crate::keys::{bearer, keys};

const EXTENDED: &str = r#"
    [agents.tides]
    type = "echo"
    description = "Knows the tides"
    skills = [{ id = "tides", description = "Tells the tides", input_modes = ["text/plain"] }]
    state_transition_history = true
    push = false

    [agents.tides.extended]
    description = "Knows the tides, and sets alarms"
    skills = [{ id = "alarm", description = "Warns before high tide" }]

    [agents.hidden]
    type = "echo"
    card_access = "authenticated"

    [[agents.hidden.extensions]]
    uri = "urn:example:units"
    required = true
"#;

/// Starts a server of this file, with a key for `ann` if `with_key`. Returns the server, its URL and the key.
fn serve_file(text: &str, with_key: bool) -> (ServerProcess, String, String) {
    let folder = TempDir::new().unwrap();
    let key = if with_key {
        keys(folder.path(), &["add", "ann"])
    } else {
        String::new()
    };
    let file = folder.path().join("agents.toml");
    fs::write(&file, text).unwrap();
    let server = serve_in(
        &["serve", file.to_str().unwrap(), "--store", "memory"],
        folder,
    );
    let url = server.line("Listening on ");
    (server, url, key)
}

fn get(url: &str, path: &str, key: Option<&str>) -> Value {
    let credential = key.map_or("X-Nothing: x".to_owned(), bearer);
    send(
        &format!("{url}{path}"),
        "GET",
        &["Accept: application/json", &credential],
        "",
    )
}

fn post(url: &str, headers: &[&str], method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let headers = [&["Content-Type: application/json"], headers].concat();
    send(url, "POST", &headers, &body.to_string())
}

/// The extended card in the three ways of the seeds: GET of 0.2.5, method of 0.3, method of core methods.
#[test]
fn seed_1_18_seed_3_21_the_extended_card_of_a_file_is_served() {
    let (_server, url, key) = serve_file(EXTENDED, true);
    let public = get(&url, ".well-known/agent.json", None);
    assert_eq!(public["supportsAuthenticatedExtendedCard"], true);
    assert_eq!(public["capabilities"]["extendedAgentCard"], true);
    assert_eq!(
        public["capabilities"]["pushNotifications"], false,
        "seed_0_28"
    );
    assert_eq!(
        public["capabilities"]["stateTransitionHistory"], true,
        "seed_0_29"
    );
    assert_eq!(public["skills"].as_array().unwrap().len(), 1);
    let by_get = get(&url, "agent/authenticatedExtendedCard", Some(&key));
    let bearer = bearer(&key);
    let by_method = |name: &str| post(&url, &[&bearer], name, json!({}))["result"].clone();
    for card in [
        by_get,
        by_method("agent/getAuthenticatedExtendedCard"),
        by_method("agent/authenticatedExtendedCard"),
    ] {
        assert_eq!(card["description"], "Knows the tides, and sets alarms");
        assert_eq!(card["supportsAuthenticatedExtendedCard"], true, "{card}");
        let ids: Vec<_> = card["skills"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["id"])
            .collect();
        assert_eq!(ids, ["tides", "alarm"]);
        assert_eq!(
            card["skills"][0]["inputModes"],
            json!(["text/plain"]),
            "seed_1_22"
        );
    }
    let refused = post(&url, &[], "agent/getAuthenticatedExtendedCard", json!({}));
    assert_eq!(refused["error"]["code"], -31401);
}

#[test]
fn seed_1_13_seed_1_20_a_card_needs_a_credential_and_calls_an_extension() {
    let (_server, url, key) = serve_file(EXTENDED, true);
    let path = "agents/hidden/.well-known/agent-card.json";
    let refused = get(&url, path, None);
    assert_eq!(refused["error"]["code"], 401, "{refused}");
    let card = get(&url, path, Some(&key));
    assert_eq!(
        card["capabilities"]["extensions"][0]["uri"],
        "urn:example:units"
    );
    assert_eq!(card["capabilities"]["extensions"][0]["required"], true);
    let bearer = bearer(&key);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    let say = |headers: &[&str]| {
        let headers = [&["A2A-Version: 1.0", &bearer], headers].concat();
        post(
            &format!("{url}agents/hidden"),
            &headers,
            "SendMessage",
            json!({"message": message}),
        )
    };
    assert_eq!(say(&[])["error"]["code"], -32008);
    let sent = say(&["A2A-Extensions: urn:example:units"]);
    assert_eq!(
        sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{sent}"
    );
}

/// Without keys, no caller could read the cards.
#[test]
fn cards_for_authenticated_callers_need_authentication() {
    for (text, expected) in [
        (
            "[agents.a]\ntype = \"echo\"\nextended = { name = \"b\" }",
            "extended_card",
        ),
        (
            "[agents.a]\ntype = \"echo\"\ncard_access = \"authenticated\"",
            "card_access",
        ),
        (
            "[server]\nbindings = []\n[agents.a]\ntype = \"echo\"",
            "bindings",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("agents.toml");
        fs::write(&file, text).unwrap();
        let output = attache(&["serve", file.to_str().unwrap(), "--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(folder.path())
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{text}"
        );
        assert!(error.contains(expected), "{text}: {error}");
    }
}

fn send_part(url: &str, part: Value) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [part]});
    call(url, "SendMessage", &json!({"message": message}))
}

#[test]
fn seed_4_32_a_command_gets_files_as_a_note() {
    let image = json!({"raw": "AQID", "mediaType": "image/png", "filename": "a.png"});
    let cat = "[agents.a]\ntype = \"command\"\ncommand = \"cat\"\n";
    let (_server, url, _) = serve_file(cat, false);
    let sent = send_part(&url, image.clone());
    let text = &sent["result"]["task"]["artifacts"][0]["parts"][0]["text"];
    let text = text.as_str().unwrap_or_else(|| panic!("{sent}"));
    assert!(
        text.contains("a.png") && text.contains("image/png"),
        "{text}"
    );
    let strict = format!("{cat}input_modes = [\"text/plain\"]\n");
    let (_server, url, _) = serve_file(&strict, false);
    assert_eq!(send_part(&url, image)["error"]["code"], -32005);
}

#[test]
fn seed_4_26_text_is_required_if_the_file_says_so() {
    let text = "[agents.a]\ntype = \"echo\"\nrequires_text = true\n";
    let (_server, url, _) = serve_file(text, false);
    let refused = send_part(&url, json!({"data": {"a": 1}}));
    assert_eq!(refused["error"]["code"], -32602);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("must contain a text part"), "{message}");
    let sent = send_part(&url, json!({"text": "hi"}));
    assert_eq!(
        sent["result"]["task"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
}
