//! `attache auth`, with an authorization server that follows a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::run::{VerbOutput, VerbRun, finish, verb};
use super::scripted_agent::{self, RecordedRequest, ScriptedAgent, json_reply};
use crate::harness::DEADLINE;

/// An authorization server: codes for devices, and tokens that are numbered as they are given out.
fn issuer(lasts: u64) -> ScriptedAgent {
    let metadata = |url: &str| json!({"issuer": url, "token_endpoint": format!("{url}/token"), "device_authorization_endpoint": format!("{url}/device")});
    ScriptedAgent::new(metadata, move |asked: &RecordedRequest, number| {
        match asked.line.as_str() {
            "POST /device" => json_reply(
                200,
                &json!({"device_code": "d3vice-code", "user_code": "WDJB-MJHT", "verification_uri": "https://login.example/device", "expires_in": 60, "interval": 0}),
            ),
            "POST /token" if asked.body.contains("device_code=d3vice-code") && number < 3 => {
                json_reply(400, &json!({"error": "authorization_pending"}))
            }
            "POST /token" if asked.body.contains("grant_type=client_credentials") => json_reply(
                200,
                &json!({"access_token": format!("t0ken-{number}"), "expires_in": lasts}),
            ),
            // What is renewed lasts.
            "POST /token" if asked.body.contains("grant_type=refresh_token") => json_reply(
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
    ScriptedAgent::new(card, scripted_agent::done())
}

fn device(issuer: &str) -> Value {
    let flow = json!({"deviceAuthorizationUrl": format!("{issuer}/device"), "tokenUrl": format!("{issuer}/token"), "scopes": {"read": "to read"}});
    json!({"oauth2SecurityScheme": {"flows": {"deviceCode": flow}}})
}

fn client(issuer: &str) -> Value {
    let flow = json!({"tokenUrl": format!("{issuer}/token"), "scopes": {}});
    json!({"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}})
}

/// A verb for somebody whose settings are in this folder.
fn of(home: &TempDir, args: &[&str], url: &str) -> VerbRun {
    let config = home.path().to_str().unwrap();
    verb(&[args, &["-a", url]].concat()).env("XDG_CONFIG_HOME", config)
}

fn logged_in(home: &TempDir, agent: &ScriptedAgent) -> VerbOutput {
    let said = of(
        home,
        &["auth", "login", "-o", "json", "--client-id", "me"],
        &agent.url,
    )
    .run();
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

fn tokens(home: &TempDir) -> std::path::PathBuf {
    home.path().join("a2a-cli/attache-tokens.json")
}

/// What went along with the last message.
fn shown(agent: &ScriptedAgent) -> String {
    let asked = agent.requests();
    let head = &asked
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
fn auth_005_a_person_logs_in_with_a_code() {
    let (home, issuer) = (TempDir::new().unwrap(), issuer(3600));
    let agent = agent(device(&issuer.url));
    let said = logged_in(&home, &agent);
    assert!(
        said.err.contains("https://login.example/device") && said.err.contains("WDJB-MJHT"),
        "{}",
        said.err
    );
    let result = said.json();
    assert_eq!(
        (&result["scheme"], &result["host"]),
        (&json!("login"), &json!("127.0.0.1"))
    );
    assert_eq!(result["scopes"], json!(["read"]));
    assert!(result["expiresAt"].is_string(), "{result}");
    for secret in ["t0ken", "r3fresh", "d3vice"] {
        assert!(
            !said.out.contains(secret) && !said.err.contains(secret),
            "{said:?}"
        );
    }
    let said = of(&home, &["send", "hi"], &agent.url).run();
    assert_eq!(
        (said.code, shown(&agent).as_str()),
        (Some(0), "bearer t0ken-3"),
        "{said:?}"
    );
    let said = of(&home, &["send", "--bearer", "hunter22", "hi"], &agent.url).run();
    assert_eq!(
        (said.code, shown(&agent).as_str()),
        (Some(0), "bearer hunter22"),
        "what is typed goes first"
    );
}

#[test]
fn auth_005_a_refusal_ends_the_login() {
    let home = TempDir::new().unwrap();
    let issuer = ScriptedAgent::new(
        |_| json!({}),
        |asked: &RecordedRequest, _| match asked.line.as_str() {
            "POST /device" => json_reply(
                200,
                &json!({"device_code": "d", "user_code": "U", "verification_uri": "https://x.example", "expires_in": 60, "interval": 0}),
            ),
            _ => json_reply(400, &json!({"error": "access_denied"})),
        },
    );
    let agent = agent(device(&issuer.url));
    let said = of(
        &home,
        &["auth", "login", "-o", "json", "--client-id", "me"],
        &agent.url,
    )
    .run();
    assert_eq!(
        (said.code, &said.json()["error"]["code"]),
        (Some(4), &json!("A2ACLI_ERR_AUTH_FAILED"))
    );
    assert!(!tokens(&home).exists());
}

#[test]
fn auth_006_a_program_logs_in_with_its_secret() {
    let (home, issuer) = (TempDir::new().unwrap(), issuer(3600));
    let agent = agent(client(&issuer.url));
    let login = || {
        of(
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
    let said = login().run();
    assert_eq!(said.code, Some(2), "no secret: {said:?}");
    assert!(
        said.json()["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("ATTACHE_CLIENT_SECRET"),
        "{said:?}"
    );
    let said = login()
        .env("ATTACHE_CLIENT_SECRET", "s3cret-of-client")
        .run();
    assert_eq!(said.code, Some(0), "{said:?}");
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
    let said = of(&home, &["send", "hi"], &agent.url).run();
    assert_eq!(
        (said.code, shown(&agent).as_str()),
        (Some(0), "bearer t0ken-1"),
        "{said:?}"
    );
}

#[test]
fn auth_006_s30_a_card_cannot_have_the_secret_sent_elsewhere() {
    let (home, issuer) = (TempDir::new().unwrap(), issuer(3600));
    let agent = agent(client(&issuer.url.replace("127.0.0.1", "localhost")));
    let login = |more: &[&str]| {
        let args = [&["auth", "login", "-o", "json", "--client-id", "me"], more].concat();
        of(&home, &args, &agent.url)
            .env("ATTACHE_CLIENT_SECRET", "s3cret-of-client")
            .run()
    };
    let said = login(&[]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.json()["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("--allow-host localhost"),
        "{said:?}"
    );
    assert!(issuer.requests().is_empty());
    assert_eq!(login(&["--allow-host", "localhost"]).code, Some(0));
}

#[test]
fn auth_007_tokens_are_private_renewed_and_forgotten() {
    let (home, issuer) = (TempDir::new().unwrap(), issuer(10));
    let agent = agent(device(&issuer.url));
    logged_in(&home, &agent);
    private(&tokens(&home));
    // It is about to end, so it is renewed first, and what came is kept.
    assert_eq!(of(&home, &["send", "hi"], &agent.url).run().code, Some(0));
    assert_eq!(shown(&agent), "bearer t0ken-4");
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
    let said = of(&home, &["auth", "status", "-o", "json"], &agent.url).run();
    assert_eq!(said.json()["logins"][0]["scheme"], "login", "{said:?}");
    assert!(
        !said.out.contains("t0ken") && !said.out.contains("r3fresh"),
        "{said:?}"
    );
    let said = of(&home, &["auth", "logout"], &agent.url).run();
    assert_eq!(
        (said.code, said.field("Forgotten")),
        (Some(0), "1"),
        "{said:?}"
    );
    let said = of(&home, &["send", "-o", "json", "hi"], &agent.url).run();
    assert_eq!(
        said.json()["error"]["code"],
        "A2ACLI_ERR_CREDENTIALS_MISSING",
        "{said:?}"
    );
    assert!(
        said.json()["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("attache auth login"),
        "{said:?}"
    );
}

#[test]
fn auth_007_s42_the_token_of_one_agent_does_not_go_to_another_of_the_same_name() {
    let (home, issuer) = (TempDir::new().unwrap(), issuer(3600));
    let first = agent(device(&issuer.url));
    logged_in(&home, &first);
    let second = agent(device(&issuer.url));
    let elsewhere = second.url.replace("127.0.0.1", "localhost");
    let said = of(&home, &["send", "hi"], &elsewhere).run();
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        !second
            .requests()
            .iter()
            .any(|asked| asked.head.contains("t0ken")),
        "{:?}",
        second.requests()
    );
}

#[test]
fn auth_010_endpoints_are_found_by_openid_connect() {
    let (home, issuer) = (TempDir::new().unwrap(), issuer(3600));
    let url = format!("{}/.well-known/openid-configuration", issuer.url);
    let agent = agent(json!({"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}));
    logged_in(&home, &agent);
    let asked = issuer.requests();
    assert!(
        asked
            .iter()
            .any(|one| one.line == "POST /device" && one.body.contains("scope=openid")),
        "{asked:?}"
    );
    assert_eq!(of(&home, &["send", "hi"], &agent.url).run().code, Some(0));
    assert!(shown(&agent).starts_with("bearer t0ken-"));
}

/// An issuer that people log in to with a browser, and nowhere else.
fn for_browsers() -> ScriptedAgent {
    let metadata = |url: &str| json!({"issuer": url, "token_endpoint": format!("{url}/token"), "authorization_endpoint": format!("{url}/authorize?x=1")});
    ScriptedAgent::new(metadata, |asked: &RecordedRequest, _| {
        match asked.line.as_str() {
            "POST /token"
                if asked.body.contains("code=c0de-1") && asked.body.contains("code_verifier=") =>
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

/// The parameters of the url that a person is told to open.
fn shown_url(line: &str) -> (String, std::collections::BTreeMap<String, String>) {
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
fn auth_010_a_person_logs_in_in_a_browser_that_comes_back_to_this_machine() {
    let (home, issuer) = (TempDir::new().unwrap(), for_browsers());
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
    let (mut child, _folder) = of(&home, &login, &agent.url).start();
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
    let (place, asked) = shown_url(&line);
    assert_eq!(place, format!("{}/authorize", issuer.url));
    assert_eq!(
        (asked["response_type"].as_str(), asked["scope"].as_str()),
        ("code", "openid")
    );
    assert_eq!(
        (
            asked["code_challenge_method"].as_str(),
            asked["client_id"].as_str()
        ),
        ("S256", "me")
    );
    let back = &asked["redirect_uri"];
    assert!(back.starts_with("http://127.0.0.1:"), "{back}");
    // What somebody else sends there is not taken, and the login goes on.
    assert!(visit(&format!("{back}?code=evil&state=guessed")).starts_with("HTTP/1.1 404"));
    let good = format!(
        "{back}?code=c0de-1&state={}&iss={}",
        asked["state"], issuer.url
    );
    assert!(visit(&good).starts_with("HTTP/1.1 200"));
    let said = finish(child);
    assert_eq!(
        (said.code, &said.json()["scheme"]),
        (Some(0), &json!("login")),
        "{said:?}"
    );
    for secret in ["t0ken-b", "r3fresh-b", "c0de-1"] {
        assert!(
            !said.err.contains(secret) && !said.out.contains(secret),
            "{secret}: {said:?}"
        );
    }
    assert!(said.err.contains("code_verifier=***"), "{}", said.err);
    assert_eq!(of(&home, &["send", "hi"], &agent.url).run().code, Some(0));
    assert_eq!(shown(&agent), "bearer t0ken-b");
}

/// A browser that is sent to this url.
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
fn auth_004_s38_a_token_that_is_renewed_on_the_way_does_not_show_either() {
    let (home, issuer) = (TempDir::new().unwrap(), issuer(10));
    let scheme = device(&issuer.url);
    let card = move |url: &str| {
        scripted_agent::card(
            url,
            json!({"securitySchemes": {"login": scheme}, "securityRequirements": [{"schemes": {"login": {"list": []}}}]}),
        )
    };
    // An agent that repeats what it was shown.
    let parrot = |asked: &RecordedRequest, _: usize| {
        let token = asked
            .head
            .lines()
            .find_map(|line| line.strip_prefix("authorization: bearer "));
        scripted_agent::error(-32603, &format!("no good: {}", token.unwrap_or_default()))
    };
    let agent = ScriptedAgent::new(card, parrot);
    logged_in(&home, &agent);
    for format in ["text", "json"] {
        let said = of(&home, &["send", "--debug", "-o", format, "hi"], &agent.url).run();
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.err.contains("no good: ***") || said.out.contains("no good: ***"),
            "{said:?}"
        );
        for secret in ["t0ken-", "r3fresh-"] {
            assert!(
                !said.out.contains(secret) && !said.err.contains(secret),
                "{secret}: {said:?}"
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
