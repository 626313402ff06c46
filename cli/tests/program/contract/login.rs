//! `attache auth`, with an authorization server that follows a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::run::{VerbOutput, VerbRun, finish, verb};
use super::scripted_agent::{self, RecordedRequest, ScriptedAgent, json_reply};
use crate::harness::DEADLINE;

/// An authorization server with device codes and numbered tokens.
fn issuer(lasts: u64) -> ScriptedAgent {
    let metadata = |url: &str| json!({"issuer": url, "token_endpoint": format!("{url}/token"), "device_authorization_endpoint": format!("{url}/device")});
    ScriptedAgent::new(metadata, move |requests: &RecordedRequest, number| {
        match requests.line.as_str() {
            "POST /device" => json_reply(
                200,
                &json!({"device_code": "d3vice-code", "user_code": "WDJB-MJHT", "verification_uri": "https://login.example/device", "expires_in": 60, "interval": 0}),
            ),
            "POST /token" if requests.body.contains("device_code=d3vice-code") && number < 3 => {
                json_reply(400, &json!({"error": "authorization_pending"}))
            }
            "POST /token" if requests.body.contains("grant_type=client_credentials") => json_reply(
                200,
                &json!({"access_token": format!("t0ken-{number}"), "expires_in": lasts}),
            ),
            // Renewed tokens have a long lifetime.
            "POST /token" if requests.body.contains("grant_type=refresh_token") => json_reply(
                200,
                &json!({"access_token": format!("t0ken-{number}"), "refresh_token": format!("r3fresh-{number}"), "expires_in": 3600}),
            ),
            "POST /token" => json_reply(
                200,
                &json!({"access_token": format!("t0ken-{number}"), "refresh_token": format!("r3fresh-{number}"), "expires_in": lasts}),
            ),
            _ => json_reply(404, &json!({"error": "not_found"})),
        }
    })
}

fn agent(scheme: Value) -> ScriptedAgent {
    let card = move |url: &str| {
        let schemes = json!({"login": scheme});
        scripted_agent::card(
            url,
            json!({"securitySchemes": schemes, "securityRequirements": [{"schemes": {"login": {"list": []}}}]}),
        )
    };
    ScriptedAgent::new(card, scripted_agent::answer_completed())
}

fn device(issuer: &str) -> Value {
    let flow = json!({"deviceAuthorizationUrl": format!("{issuer}/device"), "tokenUrl": format!("{issuer}/token"), "scopes": {"read": "to read"}});
    json!({"oauth2SecurityScheme": {"flows": {"deviceCode": flow}}})
}

fn client(issuer: &str) -> Value {
    let flow = json!({"tokenUrl": format!("{issuer}/token"), "scopes": {}});
    json!({"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}})
}

/// A verb with its configuration in this directory.
fn verb_for(home: &TempDir, args: &[&str], url: &str) -> VerbRun {
    let config = home.path().to_str().unwrap();
    verb(&[args, &["-a", url]].concat()).env("XDG_CONFIG_HOME", config)
}

fn logged_in(home: &TempDir, agent: &ScriptedAgent) -> VerbOutput {
    let output = verb_for(
        home,
        &["auth", "login", "-o", "json", "--client-id", "me"],
        &agent.url,
    )
    .run();
    assert_eq!(output.code, Some(0), "{output:?}");
    output
}

fn tokens(home: &TempDir) -> std::path::PathBuf {
    home.path().join("a2a-cli/attache-tokens.json")
}

/// The authorization header of the last message.
fn last_authorization(agent: &ScriptedAgent) -> String {
    let requests = agent.requests();
    let head = &requests
        .iter()
        .rfind(|one| one.body.contains("SendMessage"))
        .unwrap()
        .head;
    head.lines()
        .find_map(|line| line.strip_prefix("authorization: "))
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn auth_005_login_with_a_device_code() {
    let home = TempDir::new().unwrap();
    let issuer = issuer(3600);
    let agent = agent(device(&issuer.url));
    let output = logged_in(&home, &agent);
    assert!(
        output.err.contains("https://login.example/device") && output.err.contains("WDJB-MJHT"),
        "{}",
        output.err
    );
    let result = output.json();
    assert_eq!(
        (&result["scheme"], &result["host"]),
        (&json!("login"), &json!("127.0.0.1"))
    );
    assert_eq!(result["scopes"], json!(["read"]));
    assert!(result["expiresAt"].is_string(), "{result}");
    for secret in ["t0ken", "r3fresh", "d3vice"] {
        assert!(
            !output.out.contains(secret) && !output.err.contains(secret),
            "{output:?}"
        );
    }
    let output = verb_for(&home, &["send", "hi"], &agent.url).run();
    assert_eq!(
        (output.code, last_authorization(&agent).as_str()),
        (Some(0), "bearer t0ken-3"),
        "{output:?}"
    );
    let output = verb_for(&home, &["send", "--bearer", "hunter22", "hi"], &agent.url).run();
    assert_eq!(
        (output.code, last_authorization(&agent).as_str()),
        (Some(0), "bearer hunter22"),
        "the flag takes precedence"
    );
}

#[test]
fn auth_005_a_refusal_ends_the_login() {
    let home = TempDir::new().unwrap();
    let issuer = ScriptedAgent::new(
        |_| json!({}),
        |requests: &RecordedRequest, _| match requests.line.as_str() {
            "POST /device" => json_reply(
                200,
                &json!({"device_code": "d", "user_code": "U", "verification_uri": "https://x.example", "expires_in": 60, "interval": 0}),
            ),
            _ => json_reply(400, &json!({"error": "access_denied"})),
        },
    );
    let agent = agent(device(&issuer.url));
    let output = verb_for(
        &home,
        &["auth", "login", "-o", "json", "--client-id", "me"],
        &agent.url,
    )
    .run();
    assert_eq!(
        (output.code, &output.json()["error"]["code"]),
        (Some(4), &json!("A2ACLI_ERR_AUTH_FAILED"))
    );
    assert!(!tokens(&home).exists());
}

#[test]
fn auth_006_login_with_client_credentials() {
    let home = TempDir::new().unwrap();
    let issuer = issuer(3600);
    let agent = agent(client(&issuer.url));
    let login = || {
        verb_for(
            &home,
            &[
                "auth",
                "login",
                "-o",
                "json",
                "--client-id",
                "me",
                "--scope",
                "read",
            ],
            &agent.url,
        )
    };
    let output = login().run();
    assert_eq!(output.code, Some(2), "no secret: {output:?}");
    assert!(
        output.json()["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("ATTACHE_CLIENT_SECRET"),
        "{output:?}"
    );
    let output = login()
        .env("ATTACHE_CLIENT_SECRET", "s3cret-of-client")
        .run();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        issuer.requests()[0].body.contains("scope=read"),
        "{:?}",
        issuer.requests()
    );
    assert!(issuer.requests()[0].head.contains("authorization: basic "));
    assert!(
        !std::fs::read_to_string(tokens(&home))
            .unwrap()
            .contains("s3cret-of-client"),
        "it is not kept"
    );
    let output = verb_for(&home, &["send", "hi"], &agent.url).run();
    assert_eq!(
        (output.code, last_authorization(&agent).as_str()),
        (Some(0), "bearer t0ken-1"),
        "{output:?}"
    );
}

#[test]
fn auth_006_s30_the_secret_is_not_sent_to_another_host() {
    let home = TempDir::new().unwrap();
    let issuer = issuer(3600);
    let agent = agent(client(&issuer.url.replace("127.0.0.1", "localhost")));
    let login = |more: &[&str]| {
        let args = [&["auth", "login", "-o", "json", "--client-id", "me"], more].concat();
        verb_for(&home, &args, &agent.url)
            .env("ATTACHE_CLIENT_SECRET", "s3cret-of-client")
            .run()
    };
    let output = login(&[]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.json()["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("--allow-host localhost"),
        "{output:?}"
    );
    assert!(issuer.requests().is_empty());
    assert_eq!(login(&["--allow-host", "localhost"]).code, Some(0));
}

#[test]
fn auth_007_tokens_are_private_renewed_and_deleted() {
    let home = TempDir::new().unwrap();
    let issuer = issuer(10);
    let agent = agent(device(&issuer.url));
    logged_in(&home, &agent);
    private(&tokens(&home));
    // The token is about to expire, so it is renewed first, and the new one is stored.
    assert_eq!(
        verb_for(&home, &["send", "hi"], &agent.url).run().code,
        Some(0)
    );
    assert_eq!(last_authorization(&agent), "bearer t0ken-4");
    assert!(
        issuer.requests()[3]
            .body
            .contains("refresh_token=r3fresh-3"),
        "{:?}",
        issuer.requests()
    );
    assert!(
        std::fs::read_to_string(tokens(&home))
            .unwrap()
            .contains("r3fresh-4")
    );
    private(&tokens(&home));
    let output = verb_for(&home, &["auth", "status", "-o", "json"], &agent.url).run();
    assert_eq!(output.json()["logins"][0]["scheme"], "login", "{output:?}");
    assert!(
        !output.out.contains("t0ken") && !output.out.contains("r3fresh"),
        "{output:?}"
    );
    let output = verb_for(&home, &["auth", "logout"], &agent.url).run();
    assert_eq!(
        (output.code, output.field("Forgotten")),
        (Some(0), "1"),
        "{output:?}"
    );
    let output = verb_for(&home, &["send", "-o", "json", "hi"], &agent.url).run();
    assert_eq!(
        output.json()["error"]["code"],
        "A2ACLI_ERR_CREDENTIALS_MISSING",
        "{output:?}"
    );
    assert!(
        output.json()["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("attache auth login"),
        "{output:?}"
    );
}

#[test]
fn auth_007_s42_a_token_is_only_sent_to_its_host() {
    let home = TempDir::new().unwrap();
    let issuer = issuer(3600);
    let first = agent(device(&issuer.url));
    logged_in(&home, &first);
    let second = agent(device(&issuer.url));
    let elsewhere = second.url.replace("127.0.0.1", "localhost");
    let output = verb_for(&home, &["send", "hi"], &elsewhere).run();
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(
        !second
            .requests()
            .iter()
            .any(|requests| requests.head.contains("t0ken")),
        "{:?}",
        second.requests()
    );
}

#[test]
fn auth_010_endpoints_are_discovered_by_openid_connect() {
    let home = TempDir::new().unwrap();
    let issuer = issuer(3600);
    let url = format!("{}/.well-known/openid-configuration", issuer.url);
    let agent = agent(json!({"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}));
    logged_in(&home, &agent);
    let requests = issuer.requests();
    assert!(
        requests
            .iter()
            .any(|one| one.line == "POST /device" && one.body.contains("scope=openid")),
        "{requests:?}"
    );
    assert_eq!(
        verb_for(&home, &["send", "hi"], &agent.url).run().code,
        Some(0)
    );
    assert!(last_authorization(&agent).starts_with("bearer t0ken-"));
}

/// An issuer that only supports the authorization code flow.
fn browser_issuer() -> ScriptedAgent {
    let metadata = |url: &str| json!({"issuer": url, "token_endpoint": format!("{url}/token"), "authorization_endpoint": format!("{url}/authorize?x=1")});
    ScriptedAgent::new(metadata, |requests: &RecordedRequest, _| {
        match requests.line.as_str() {
            "POST /token"
                if requests.body.contains("code=c0de-1")
                    && requests.body.contains("code_verifier=") =>
            {
                json_reply(
                    200,
                    &json!({"access_token": "t0ken-b", "refresh_token": "r3fresh-b", "expires_in": 3600}),
                )
            }
            _ => json_reply(400, &json!({"error": "invalid_grant"})),
        }
    })
}

/// The URL of the login page, and its parameters.
fn login_url(line: &str) -> (String, std::collections::BTreeMap<String, String>) {
    let url = line
        .strip_prefix("open ")
        .and_then(|rest| rest.split(' ').next())
        .unwrap();
    let (place, query) = url.split_once('?').unwrap();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    let plain = |text: &str| text.replace("%3A", ":").replace("%2F", "/");
    (
        place.to_owned(),
        pairs
            .map(|(name, value)| (name.to_owned(), plain(value)))
            .collect(),
    )
}

#[test]
fn auth_010_login_in_a_browser_with_a_loopback_redirect() {
    let home = TempDir::new().unwrap();
    let issuer = browser_issuer();
    let url = format!("{}/.well-known/openid-configuration", issuer.url);
    let agent = agent(json!({"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}));
    let login = [
        "auth",
        "login",
        "-o",
        "json",
        "--debug",
        "--client-id",
        "me",
    ];
    let (mut child, _folder) = verb_for(&home, &login, &agent.url).start();
    let mut lines = BufReader::with_capacity(1, child.stderr.take().unwrap());
    let mut seen = String::new();
    let line = loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "{seen}");
        seen.push_str(&line);
        if line.starts_with("open ") {
            break line;
        }
    };
    child.stderr = Some(lines.into_inner());
    let (place, requests) = login_url(&line);
    assert_eq!(place, format!("{}/authorize", issuer.url));
    assert_eq!(
        (
            requests["response_type"].as_str(),
            requests["scope"].as_str()
        ),
        ("code", "openid")
    );
    assert_eq!(
        (
            requests["code_challenge_method"].as_str(),
            requests["client_id"].as_str()
        ),
        ("S256", "me")
    );
    let back = &requests["redirect_uri"];
    assert!(back.starts_with("http://127.0.0.1:"), "{back}");
    // Requests with another state are ignored, and the login continues.
    assert!(visit(&format!("{back}?code=evil&state=guessed")).starts_with("HTTP/1.1 404"));
    let good = format!(
        "{back}?code=c0de-1&state={}&iss={}",
        requests["state"], issuer.url
    );
    assert!(visit(&good).starts_with("HTTP/1.1 200"));
    let output = finish(child);
    assert_eq!(
        (output.code, &output.json()["scheme"]),
        (Some(0), &json!("login")),
        "{output:?}"
    );
    for secret in ["t0ken-b", "r3fresh-b", "c0de-1"] {
        assert!(
            !output.err.contains(secret) && !output.out.contains(secret),
            "{secret}: {output:?}"
        );
    }
    assert!(output.err.contains("code_verifier=***"), "{}", output.err);
    assert_eq!(
        verb_for(&home, &["send", "hi"], &agent.url).run().code,
        Some(0)
    );
    assert_eq!(last_authorization(&agent), "bearer t0ken-b");
}

/// Opens a URL like a browser.
fn visit(url: &str) -> String {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
        .write_all(format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn auth_004_s38_a_renewed_token_is_redacted() {
    let home = TempDir::new().unwrap();
    let issuer = issuer(10);
    let scheme = device(&issuer.url);
    let card = move |url: &str| {
        scripted_agent::card(
            url,
            json!({"securitySchemes": {"login": scheme}, "securityRequirements": [{"schemes": {"login": {"list": []}}}]}),
        )
    };
    // An agent that echoes its credentials.
    let parrot = |requests: &RecordedRequest, _: usize| {
        let token = requests
            .head
            .lines()
            .find_map(|line| line.strip_prefix("authorization: bearer "));
        scripted_agent::error(-32603, &format!("no good: {}", token.unwrap_or_default()))
    };
    let agent = ScriptedAgent::new(card, parrot);
    logged_in(&home, &agent);
    for format in ["text", "json"] {
        let output = verb_for(&home, &["send", "--debug", "-o", format, "hi"], &agent.url).run();
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(
            output.err.contains("no good: ***") || output.out.contains("no good: ***"),
            "{output:?}"
        );
        for secret in ["t0ken-", "r3fresh-"] {
            assert!(
                !output.out.contains(secret) && !output.err.contains(secret),
                "{secret}: {output:?}"
            );
        }
    }
}

#[cfg(unix)]
fn private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[cfg(not(unix))]
fn private(file: &Path) {
    assert!(file.exists());
}
