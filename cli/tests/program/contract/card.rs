//! `attache card get`.

use serde_json::{Value, json};

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};
use crate::harness::serve;

#[test]
fn card_get_001_a_card_by_host_url_or_file_is_the_same_card() {
    let origin = DEMO.trim_end_matches('/');
    let host = origin.strip_prefix("http://").unwrap();
    let url = format!("{origin}/.well-known/agent-card.json");
    let by_host = verb(&["card", "get", host, "-o", "json"]).run();
    assert_eq!(by_host.code, Some(0), "{by_host:?}");
    let by_url = run_at(&url, &["card", "get", "-o", "json"]);
    assert_eq!(by_url.out, by_host.out, "unchanged");
    let run =
        verb(&["card", "get", "-a", "saved.json", "-o", "json"]).file("saved.json", &by_url.out);
    assert_eq!(run.run().json(), by_url.json());
    let text = run_at(origin, &["card", "get"]);
    assert_eq!(
        (text.field("Agent"), text.field("Capability")),
        ("Practice", "streaming")
    );
    assert!(
        text.fields("Interface")
            .contains(&format!("JSONRPC 1.0 {origin}").as_str()),
        "{}",
        text.out
    );
    assert!(text.fields("Skill").len() + text.fields("Signature").len() >= 2);
}

#[test]
fn card_get_001_exit_001_missing_invalid_and_unreachable_cards_differ() {
    let peer = ScriptedAgent::new(|_| json!([1]), scripted_agent::answer_completed());
    let code =
        |output: &super::run::VerbOutput| (output.code, output.json()["error"]["code"].clone());
    let bad = run_at(&peer.url, &["card", "get", "-o", "json"]);
    assert_eq!(code(&bad), (Some(1), json!("A2ACLI_ERR_CARD_INVALID")));
    let missing = run_at(
        &format!("{}nothing/here", &**DEMO),
        &["card", "get", "-o", "json"],
    );
    assert_eq!(
        code(&missing),
        (Some(3), json!("A2ACLI_ERR_CARD_NOT_FOUND")),
        "{missing:?}"
    );
    let file = run_at("./none.json", &["card", "get", "-o", "json"]);
    assert_eq!(code(&file), (Some(3), json!("A2ACLI_ERR_CARD_NOT_FOUND")));
    let unknown = run_at("http://127.0.0.1:9", &["card", "get", "-o", "json"]);
    assert_eq!(code(&unknown), (Some(3), json!("A2ACLI_ERR_UNREACHABLE")));
    let none = verb(&["card", "get", "-o", "json"]).run();
    assert_eq!(code(&none), (Some(2), json!("A2ACLI_ERR_USAGE")));
}

#[test]
fn card_get_002_a_card_is_checked_against_the_schema() {
    let good = run_at(&DEMO, &["card", "get", "--validate"]);
    assert_eq!(good.code, Some(0), "{good:?}");
    let peer = ScriptedAgent::new(
        |url| scripted_agent::card(url, json!({"skills": [{"id": 7}], "version": ""})),
        scripted_agent::answer_completed(),
    );
    let bad = run_at(&peer.url, &["card", "get", "--validate", "-o", "json"]);
    assert_eq!(
        (bad.code, &bad.json()["error"]["code"]),
        (Some(1), &json!("A2ACLI_ERR_CARD_INVALID"))
    );
    assert!(
        bad.err.contains("skills[0].id must be a string\n")
            && bad.err.contains("version must not be empty\n")
    );
}

#[test]
fn card_get_001_unknown_members_and_numbers_are_printed_unchanged() {
    let peer = ScriptedAgent::new(
        |url| scripted_agent::card(url, json!({"x-more": {"n": 1.0}})),
        scripted_agent::answer_completed(),
    );
    let output = run_at(&peer.url, &["card", "get", "-o", "json", "--stream"]);
    assert!(
        output.out.contains(r#""x-more":{"n":1.0}"#) && output.out.lines().count() == 1,
        "{output:?}"
    );
    assert_eq!(output.err, "Signature: absent\n");
}

#[test]
fn ver_001_a_legacy_card_can_be_shown() {
    let old = |url: &str| -> Value {
        json!({"name": "Old", "description": "d", "url": url, "version": "1", "protocolVersion": "0.3.0",
            "capabilities": {}, "skills": [], "defaultInputModes": [], "defaultOutputModes": []})
    };
    let peer = ScriptedAgent::new(old, scripted_agent::answer_completed());
    let output = run_at(&peer.url, &["card", "get", "-o", "json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        output.json()["supportedInterfaces"][0]["protocolVersion"],
        "0.3"
    );
    assert!(output.err.contains("older than 1.0"), "{}", output.err);
}

#[test]
fn card_get_003_the_extended_card_needs_an_advertised_scheme() {
    let schemes = json!({"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}});
    let extended = |url: &str| scripted_agent::card(url, json!({"name": "Extended"}));
    let capabilities = json!({"extendedAgentCard": true});
    let answer = move |_: &scripted_agent::RecordedRequest, _: usize| {
        scripted_agent::result(&extended("http://127.0.0.1:9"))
    };
    let with_scheme = {
        let capabilities = capabilities.clone();
        let schemes = schemes.clone();
        move |url: &str| {
            scripted_agent::card(
                url,
                json!({"capabilities": capabilities, "securitySchemes": schemes}),
            )
        }
    };
    let peer = ScriptedAgent::new(with_scheme, answer);
    let output = run_at(
        &peer.url,
        &["card", "get", "--extended", "--bearer", "hunter22"],
    );
    assert_eq!(
        (output.code, output.field("Agent")),
        (Some(0), "Extended"),
        "{output:?}"
    );
    assert!(
        peer.requests()[1]
            .head
            .contains("authorization: bearer hunter22"),
        "{:?}",
        peer.requests()
    );
    let without = move |url: &str| scripted_agent::card(url, json!({"capabilities": capabilities}));
    let peer = ScriptedAgent::new(without, answer);
    let output = run_at(
        &peer.url,
        &[
            "card",
            "get",
            "--extended",
            "--bearer",
            "hunter22",
            "-o",
            "json",
        ],
    );
    assert_eq!(
        (output.code, peer.requests().len()),
        (Some(4), 1),
        "{output:?}"
    );
    let peer = ScriptedAgent::new(scripted_agent::plain, answer);
    let output = run_at(&peer.url, &["card", "get", "--extended", "-o", "json"]);
    assert_eq!(
        output.json()["error"]["code"],
        "UnsupportedOperationError",
        "{output:?}"
    );
    assert_eq!(
        peer.requests().len(),
        1,
        "an undeclared extended card is not requested"
    );
}

#[test]
fn card_get_001_a_card_is_cached_by_http_rules_unless_disabled() {
    let home = tempfile::TempDir::new().unwrap();
    let cache = home.path().to_str().unwrap();
    // The card is not at the well-known path, so every request is a call.
    let card = |asked: &scripted_agent::RecordedRequest, _: usize| {
        let card = scripted_agent::card("http://127.0.0.1:9", json!({}));
        match asked.head.contains("if-none-match: \"v1\"") {
            true => b"HTTP/1.1 304 X\r\nConnection: close\r\nETag: \"v1\"\r\n\r\n".to_vec(),
            false => String::from_utf8(scripted_agent::json_reply(200, &card))
                .unwrap()
                .replacen("\r\n", "\r\nETag: \"v1\"\r\n", 1)
                .into_bytes(),
        }
    };
    let peer = ScriptedAgent::new(scripted_agent::plain, card);
    let url = format!("{}/cards/one", peer.url);
    let get = |more: &[&str]| {
        let output = verb(&[&["card", "get", &url, "-o", "json"], more].concat())
            .env("XDG_CACHE_HOME", cache)
            .run();
        assert_eq!(output.code, Some(0), "{output:?}");
        (
            output.out,
            peer.requests()
                .last()
                .unwrap()
                .head
                .contains("if-none-match"),
        )
    };
    let (first, asked_after) = get(&[]);
    assert!(!asked_after);
    assert_eq!(get(&[]), (first.clone(), true), "kept, and asked after");
    assert_eq!(get(&["--no-cache"]), (first, false));
    let kept: Vec<_> = std::fs::read_dir(home.path().join("a2a-cli/cards"))
        .unwrap()
        .collect();
    assert_eq!(kept.len(), 1);
}

#[test]
fn card_get_005_an_agent_is_found_by_its_name_in_a_catalog() {
    let server = serve(&["demo", "--store", "memory"]);
    let url = server.line("Listening on ");
    let origin = url.trim_end_matches('/');
    let name = run_at(origin, &["card", "get"]).field("Agent").to_owned();
    for args in [
        vec!["-a".to_owned(), format!("{origin}#{name}")],
        vec![
            "-a".to_owned(),
            format!("{origin}/.well-known/ai-catalog.json#{url}"),
        ],
        vec![
            "-a".to_owned(),
            format!("@{name}"),
            "--catalog".to_owned(),
            origin.to_owned(),
        ],
    ] {
        let words: Vec<_> = ["send"]
            .into_iter()
            .chain(args.iter().map(String::as_str))
            .chain(["hi"])
            .collect();
        let output = verb(&words).run();
        assert_eq!(
            (output.code, output.field("State")),
            (Some(0), "TASK_STATE_COMPLETED"),
            "{output:?}"
        );
        let again =
            shell_words::split(&output.field("Resume").replace("'<message>'", "again")).unwrap();
        let again: Vec<_> = again[1..].iter().map(String::as_str).collect();
        assert_eq!(verb(&again).run().code, Some(0), "{again:?}");
    }
    let unknown = run_at(&format!("{origin}#Unknown"), &["card", "get", "-o", "json"]);
    let error = &unknown.json()["error"];
    assert_eq!(
        (unknown.code, &error["code"]),
        (Some(3), &json!("A2ACLI_ERR_CARD_NOT_FOUND"))
    );
    assert!(error["hint"].as_str().unwrap().contains(&name), "{error}");
    assert_eq!(
        run_at("@x", &["card", "get"]).code,
        Some(2),
        "no catalog is named"
    );
}

#[test]
fn card_get_005_s30_catalog_entries_on_other_hosts_get_no_credentials() {
    let bearer = json!({"securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"b": {"list": []}}}]});
    let agent = ScriptedAgent::new(
        move |url| scripted_agent::card(&url.replace("127.0.0.1", "localhost"), bearer.clone()),
        scripted_agent::answer_completed(),
    );
    let card = format!(
        "{}/.well-known/agent-card.json",
        agent.url.replace("127.0.0.1", "localhost")
    );
    let entry = json!({"identifier": "urn:x", "displayName": "X", "type": "application/a2a-agent-card+json", "url": card});
    let catalog = ScriptedAgent::new(
        move |_| json!({"specVersion": "1.0", "entries": [entry]}),
        scripted_agent::answer_completed(),
    );
    let send = |more: &[&str]| {
        run_at(
            &format!("{}#X", catalog.url),
            &[&["send", "--bearer", "hunter22"], more, &["hi"]].concat(),
        )
    };
    let kept_back = send(&[]);
    assert_eq!(kept_back.code, Some(4), "{kept_back:?}");
    assert!(
        !agent
            .requests()
            .iter()
            .any(|asked| asked.head.contains("hunter22")),
        "{:?}",
        agent.requests()
    );
    assert_eq!(send(&["--allow-host", "localhost"]).code, Some(0));
    assert!(
        agent
            .requests()
            .last()
            .unwrap()
            .head
            .contains("bearer hunter22")
    );
}

#[test]
fn auth_008_a_protected_card_gets_credentials_only_with_card_auth() {
    let card = |asked: &scripted_agent::RecordedRequest, _: usize| match asked
        .head
        .contains("authorization: bearer hunter22")
    {
        true => {
            scripted_agent::json_reply(200, &scripted_agent::card("http://127.0.0.1:9", json!({})))
        }
        false => scripted_agent::json_reply(401, &json!({})),
    };
    let peer = ScriptedAgent::new(scripted_agent::plain, card);
    let url = format!("{}/private/card", peer.url);
    let get = |more: &[&str]| run_at(&url, &[&["card", "get", "-o", "json"], more].concat());
    let refused = get(&["--bearer", "hunter22"]);
    let error = &refused.json()["error"];
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        error["hint"].as_str().unwrap().contains("--card-auth"),
        "{error}"
    );
    assert!(
        !error["hint"].as_str().unwrap().contains("hunter22"),
        "{error}"
    );
    assert_eq!(get(&["--bearer", "hunter22", "--card-auth"]).code, Some(0));
    assert_eq!(
        get(&["--card-auth"]).code,
        Some(2),
        "there is nothing to send"
    );
    let clear = run_at(
        "http://agent.example/card",
        &["card", "get", "--bearer", "hunter22", "--card-auth"],
    );
    assert_eq!(clear.code, Some(2), "never in the clear: {clear:?}");
}
