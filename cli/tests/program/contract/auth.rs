//! Credentials: targets and redaction.

use serde_json::{Value, json};

use super::run::{run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};

fn with_key(location: &'static str) -> impl Fn(&str) -> Value + Send + Sync + 'static {
    move |url| {
        scripted_agent::card(
            url,
            json!({
                "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": location, "name": "X-Key"}}},
                "securityRequirements": [{"schemes": {"k": {"list": []}}}],
            }),
        )
    }
}

fn with_bearer(url: &str) -> Value {
    scripted_agent::card(
        url,
        json!({
            "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            "securityRequirements": [{"schemes": {"b": {"list": []}}}],
        }),
    )
}

#[test]
fn auth_001_a_credential_is_sent_to_the_interface_and_not_to_the_card() {
    for (location, header) in [
        ("header", "x-key: k3y-secret"),
        ("cookie", "cookie: x-key=k3y-secret"),
    ] {
        let peer = ScriptedAgent::new(with_key(location), scripted_agent::answer_completed());
        let output = run_at(&peer.url, &["send", "--api-key", "k3y-secret", "hi"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let requests = peer.requests();
        assert!(!requests[0].head.contains("k3y-secret"), "{requests:?}");
        assert!(
            requests[1].head.contains(header) && !requests[1].body.contains("k3y-secret"),
            "{requests:?}"
        );
    }
    let peer = ScriptedAgent::new(with_key("query"), scripted_agent::answer_completed());
    let output = run_at(
        &peer.url,
        &["send", "--debug", "--api-key", "k3y&secret", "hi"],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        peer.requests()[1].line.ends_with("?X-Key=k3y%26secret"),
        "{:?}",
        peer.requests()
    );
    assert!(!output.err.contains("k3y"), "{}", output.err);
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::answer_completed());
    let output = run_at(
        &peer.url,
        &[
            "send",
            "--bearer",
            "hunter22",
            "--svc-param",
            "X-Trace: abc",
            "hi",
        ],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    let head = &peer.requests()[1].head;
    assert!(
        head.contains("authorization: bearer hunter22\r\n") && head.contains("x-trace: abc\r\n"),
        "{head}"
    );
}

#[test]
fn auth_001_exit_001_missing_credentials_are_found_before_the_call() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::answer_completed());
    let output = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &output.json()["error"];
    assert_eq!(
        (output.code, &error["code"]),
        (Some(4), &json!("A2ACLI_ERR_CREDENTIALS_MISSING"))
    );
    assert!(
        error["hint"].as_str().unwrap().contains("A2ACLI_BEARER"),
        "{error}"
    );
    assert_eq!(peer.requests().len(), 1, "the card alone");
}

#[test]
fn auth_001_a_credential_without_a_matching_scheme_is_not_sent() {
    let peer = ScriptedAgent::new(with_key("header"), scripted_agent::answer_completed());
    let output = run_at(
        &peer.url,
        &["send", "-o", "json", "--bearer", "hunter22", "hi"],
    );
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(
        output.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("an API key"),
        "{output:?}"
    );
    assert_eq!(peer.requests().len(), 1, "the card alone");
    let optional = |url: &str| {
        let mut card = with_key("query")(url);
        card["securityRequirements"] = json!([]);
        card
    };
    let peer = ScriptedAgent::new(optional, scripted_agent::answer_completed());
    assert_eq!(
        run_at(&peer.url, &["send", "--api-key", "k3y-secret", "hi"]).code,
        Some(0)
    );
    assert!(
        peer.requests()[1].line.ends_with("?X-Key=k3y-secret"),
        "declared, though not required"
    );
}

#[test]
fn auth_002_every_credential_has_a_variable_and_the_flag_overrides_it() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::answer_completed());
    verb(&["send", "-a", &peer.url, "hi"])
        .env("A2ACLI_BEARER", "from-env")
        .run();
    verb(&["send", "-a", &peer.url, "--bearer", "from-flag", "hi"])
        .env("A2ACLI_BEARER", "from-env")
        .run();
    let heads: Vec<_> = peer
        .requests()
        .into_iter()
        .filter(|requests| requests.body.contains("SendMessage"))
        .map(|it| it.head)
        .collect();
    assert!(
        heads[0].contains("bearer from-env") && heads[1].contains("bearer from-flag"),
        "{heads:?}"
    );
    let keyed = ScriptedAgent::new(with_key("header"), scripted_agent::answer_completed());
    verb(&["send", "-a", &keyed.url, "hi"])
        .env("A2ACLI_API_KEY", "k3y-secret")
        .run();
    assert!(keyed.requests()[1].head.contains("x-key: k3y-secret"));
}

#[test]
fn auth_003_insecure_is_always_warned_of() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::answer_completed());
    let output = run_at(
        &peer.url,
        &["send", "--insecure", "--bearer", "hunter22", "hi"],
    );
    assert!(
        output.err.contains("warning: CERTIFICATES ARE NOT CHECKED"),
        "{}",
        output.err
    );
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let output = verb(&["send", "-a", &peer.url, "hi"])
        .env("A2ACLI_INSECURE", "1")
        .run();
    assert!(
        output.err.contains("warning: certificates are not checked"),
        "{}",
        output.err
    );
    let output = verb(&["send", "-a", &peer.url, "--insecure=false", "hi"])
        .env("A2ACLI_INSECURE", "1")
        .run();
    assert!(!output.err.contains("certificates"), "{}", output.err);
}

#[test]
fn auth_004_no_credential_is_ever_printed() {
    let echo = |_: &scripted_agent::RecordedRequest, _: usize| {
        scripted_agent::error(-32603, "you sent hunter22 and k3y-secret and p4ram-secret")
    };
    let peer = ScriptedAgent::new(with_bearer, echo);
    for format in ["text", "json"] {
        let args = [
            "send",
            "--debug",
            "--verbose",
            "-o",
            format,
            "--bearer",
            "hunter22",
            "--api-key",
            "k3y-secret",
            "--svc-param",
            "X-Auth-Token: p4ram-secret",
            "hi",
        ];
        let output = run_at(&peer.url, &args);
        assert_eq!(output.code, Some(1), "{output:?}");
        for secret in ["hunter22", "k3y-secret", "p4ram-secret"] {
            assert!(
                !output.out.contains(secret) && !output.err.contains(secret),
                "{secret}: {output:?}"
            );
        }
        assert!(output.err.contains("authorization: ***"), "{}", output.err);
    }
}

#[test]
fn auth_001_s30_an_interface_on_another_host_gets_no_credential() {
    let other = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let target = other.url.replace("127.0.0.1", "localhost");
    let elsewhere = target.clone();
    let card = move |_: &str| with_bearer(&elsewhere);
    let peer = ScriptedAgent::new(card, scripted_agent::answer_completed());
    let output = run_at(
        &peer.url,
        &["send", "-o", "json", "--bearer", "hunter22", "hi"],
    );
    assert_eq!(
        (output.code, output.json()["error"]["code"].clone()),
        (Some(4), json!("A2ACLI_ERR_CREDENTIALS_MISSING"))
    );
    assert!(
        output.err.contains("--allow-host localhost") && other.requests().is_empty(),
        "{output:?}"
    );
    let output = run_at(
        &peer.url,
        &[
            "send",
            "--bearer",
            "hunter22",
            "--allow-host",
            "localhost",
            "hi",
        ],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn auth_001_a_discovered_env_file_that_redirects_credentials_is_warned_of() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::answer_completed());
    let output = verb(&["send", "hi"])
        .file(".env", &format!("A2ACLI_AGENT_CARD={}\n", peer.url))
        .env("A2ACLI_BEARER", "hunter22")
        .run();
    assert!(
        output.err.contains("agent-card comes from") && output.err.contains(".env"),
        "{}",
        output.err
    );
}

#[test]
fn auth_008_the_card_request_carries_no_credential() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::answer_completed());
    let args = [
        "card",
        "get",
        "--bearer",
        "hunter22",
        "--api-key",
        "k3y-secret",
        "--svc-param",
        "Authorization: hunter22",
    ];
    assert_eq!(run_at(&peer.url, &args).code, Some(0));
    let requests = peer.requests();
    assert!(
        !requests[0].head.contains("hunter22") && !requests[0].head.contains("k3y-secret"),
        "{requests:?}"
    );
}
