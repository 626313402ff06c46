//! Credentials: where they go, and where they do not show.

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
fn auth_001_a_credential_goes_where_the_card_says_and_not_to_the_card() {
    for (location, header) in [
        ("header", "x-key: k3y-secret"),
        ("cookie", "cookie: x-key=k3y-secret"),
    ] {
        let peer = ScriptedAgent::new(with_key(location), scripted_agent::done());
        let said = run_at(&peer.url, &["send", "--api-key", "k3y-secret", "hi"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let asked = peer.requests();
        assert!(!asked[0].head.contains("k3y-secret"), "{asked:?}");
        assert!(
            asked[1].head.contains(header) && !asked[1].body.contains("k3y-secret"),
            "{asked:?}"
        );
    }
    let peer = ScriptedAgent::new(with_key("query"), scripted_agent::done());
    let said = run_at(
        &peer.url,
        &["send", "--debug", "--api-key", "k3y&secret", "hi"],
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        peer.requests()[1].line.ends_with("?X-Key=k3y%26secret"),
        "{:?}",
        peer.requests()
    );
    assert!(!said.err.contains("k3y"), "{}", said.err);
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::done());
    let said = run_at(
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
    assert_eq!(said.code, Some(0), "{said:?}");
    let head = &peer.requests()[1].head;
    assert!(
        head.contains("authorization: bearer hunter22\r\n") && head.contains("x-trace: abc\r\n"),
        "{head}"
    );
}

#[test]
fn auth_001_exit_001_what_is_needed_and_missing_is_found_before_the_call() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::done());
    let said = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &said.json()["error"];
    assert_eq!(
        (said.code, &error["code"]),
        (Some(4), &json!("A2ACLI_ERR_CREDENTIALS_MISSING"))
    );
    assert!(
        error["hint"].as_str().unwrap().contains("A2ACLI_BEARER"),
        "{error}"
    );
    assert_eq!(peer.requests().len(), 1, "the card alone");
}

#[test]
fn auth_001_what_does_not_fit_is_not_sent() {
    let peer = ScriptedAgent::new(with_key("header"), scripted_agent::done());
    let said = run_at(
        &peer.url,
        &["send", "-o", "json", "--bearer", "hunter22", "hi"],
    );
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("an API key"),
        "{said:?}"
    );
    assert_eq!(peer.requests().len(), 1, "the card alone");
    let optional = |url: &str| {
        let mut card = with_key("query")(url);
        card["securityRequirements"] = json!([]);
        card
    };
    let peer = ScriptedAgent::new(optional, scripted_agent::done());
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
fn auth_002_every_credential_has_a_variable_and_a_flag_beats_it() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::done());
    verb(&["send", "-a", &peer.url, "hi"])
        .env("A2ACLI_BEARER", "from-env")
        .run();
    verb(&["send", "-a", &peer.url, "--bearer", "from-flag", "hi"])
        .env("A2ACLI_BEARER", "from-env")
        .run();
    let heads: Vec<_> = peer
        .requests()
        .into_iter()
        .filter(|asked| asked.body.contains("SendMessage"))
        .map(|it| it.head)
        .collect();
    assert!(
        heads[0].contains("bearer from-env") && heads[1].contains("bearer from-flag"),
        "{heads:?}"
    );
    let keyed = ScriptedAgent::new(with_key("header"), scripted_agent::done());
    verb(&["send", "-a", &keyed.url, "hi"])
        .env("A2ACLI_API_KEY", "k3y-secret")
        .run();
    assert!(keyed.requests()[1].head.contains("x-key: k3y-secret"));
}

#[test]
fn auth_003_an_unchecked_certificate_is_never_silent() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::done());
    let said = run_at(
        &peer.url,
        &["send", "--insecure", "--bearer", "hunter22", "hi"],
    );
    assert!(
        said.err.contains("warning: CERTIFICATES ARE NOT CHECKED"),
        "{}",
        said.err
    );
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::done());
    let said = verb(&["send", "-a", &peer.url, "hi"])
        .env("A2ACLI_INSECURE", "1")
        .run();
    assert!(
        said.err.contains("warning: certificates are not checked"),
        "{}",
        said.err
    );
    let said = verb(&["send", "-a", &peer.url, "--insecure=false", "hi"])
        .env("A2ACLI_INSECURE", "1")
        .run();
    assert!(!said.err.contains("certificates"), "{}", said.err);
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
        let said = run_at(&peer.url, &args);
        assert_eq!(said.code, Some(1), "{said:?}");
        for secret in ["hunter22", "k3y-secret", "p4ram-secret"] {
            assert!(
                !said.out.contains(secret) && !said.err.contains(secret),
                "{secret}: {said:?}"
            );
        }
        assert!(said.err.contains("authorization: ***"), "{}", said.err);
    }
}

#[test]
fn auth_001_s30_a_card_that_points_elsewhere_gets_no_credential() {
    let other = ScriptedAgent::new(scripted_agent::plain, scripted_agent::done());
    let target = other.url.replace("127.0.0.1", "localhost");
    let elsewhere = target.clone();
    let card = move |_: &str| with_bearer(&elsewhere);
    let peer = ScriptedAgent::new(card, scripted_agent::done());
    let said = run_at(
        &peer.url,
        &["send", "-o", "json", "--bearer", "hunter22", "hi"],
    );
    assert_eq!(
        (said.code, said.json()["error"]["code"].clone()),
        (Some(4), json!("A2ACLI_ERR_CREDENTIALS_MISSING"))
    );
    assert!(
        said.err.contains("--allow-host localhost") && other.requests().is_empty(),
        "{said:?}"
    );
    let said = run_at(
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
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn auth_001_a_checkout_cannot_send_a_credential_elsewhere_in_silence() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::done());
    let said = verb(&["send", "hi"])
        .file(".env", &format!("A2ACLI_AGENT_CARD={}\n", peer.url))
        .env("A2ACLI_BEARER", "hunter22")
        .run();
    assert!(
        said.err.contains("agent-card comes from") && said.err.contains(".env"),
        "{}",
        said.err
    );
}

#[test]
fn auth_008_no_credential_goes_to_the_card() {
    let peer = ScriptedAgent::new(with_bearer, scripted_agent::done());
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
    let asked = peer.requests();
    assert!(
        !asked[0].head.contains("hunter22") && !asked[0].head.contains("k3y-secret"),
        "{asked:?}"
    );
}
