//! `attache serve`.

use std::net::TcpListener;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{attache, call, run_expecting_error, send, send_text, serve};

#[test]
fn an_echo_says_it_back() {
    let server = serve(&["serve", "--echo", "--store", "memory"]);
    let url = server.line("Listening on ");
    assert_eq!(
        send_text(&url, "hello")["artifacts"][0]["parts"],
        json!([{"text": "hello"}])
    );
    server.line("Card: ");
    assert_eq!(server.line("Tasks: "), "in memory, until the process ends");
}

#[cfg(unix)]
#[test]
fn a_command_is_an_agent() {
    let server = serve(&[
        "serve",
        "--exec",
        "/bin/sh -c 'tr a-z A-Z; echo \"$1\"' x 'a b'",
    ]);
    let url = server.line("Listening on ");
    let task = send_text(&url, "hello");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(
        task["artifacts"][0]["parts"],
        json!([{"text": "HELLOa b\n"}])
    );
    let card = send(
        &server.line("Card: "),
        "GET",
        &["Accept: application/json"],
        "",
    );
    assert_eq!(card["name"], "sh");
    assert!(
        !card.to_string().contains("a-z"),
        "the card does not contain the command line: {card}"
    );
    assert!(server.line("Tasks: ").ends_with("tasks.db"));
    let task = call(&url, "GetTask", &json!({"id": task["id"]}))["result"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

#[cfg(unix)]
#[test]
fn exactly_one_agent_is_served() {
    for args in [
        &["serve"][..],
        &["serve", "--echo", "--exec", "cat"],
        &["serve", "--store", "memory"],
    ] {
        let (code, output) = run_expecting_error(args);
        assert_eq!(code, Some(2));
        assert!(
            output.contains("--echo") && output.contains("--exec"),
            "{output}"
        );
    }
    let (code, output) = run_expecting_error(&["serve", "--exec", "cat 'x"]);
    assert_eq!(code, Some(2));
    assert!(output.contains("a quote is not closed"), "{output}");
}

#[test]
fn a_public_address_needs_allow_anonymous() {
    for verb in [&["demo"][..], &["serve", "--echo"]] {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let (code, output) =
                run_expecting_error(&[verb, &["--store", "memory", "--listen", address]].concat());
            assert_eq!(code, Some(1));
            assert!(
                output.contains("127.0.0.1") && output.contains("--allow-anonymous"),
                "{output}"
            );
            // The suggested command uses the data directory of the server.
            assert_eq!(
                output.contains("attache/demo"),
                verb == ["demo"],
                "{output}"
            );
        }
    }
    let server = serve(&[
        "demo",
        "--store",
        "memory",
        "--allow-anonymous",
        "--listen",
        "0.0.0.0:0",
    ]);
    assert!(
        server
            .line("Listening on ")
            .starts_with("http://127.0.0.1:")
    );
    assert!(
        server
            .line("Reachable from other machines: ")
            .starts_with("0.0.0.0:")
    );
}

/// Behind a proxy the listen address says nothing about who can call.
#[test]
fn e02_a_public_url_or_a_trusted_proxy_needs_authentication() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let file = file.to_str().unwrap();
    let data = folder.path().to_str().unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--data-dir", data];
    let refused = |args: &[&str], reason: &str| {
        let (code, output) = run_expecting_error(args);
        assert_eq!(code, Some(1), "{output}");
        for expected in [
            reason,
            "callers are not authenticated",
            "--allow-anonymous",
            "attache keys add",
        ] {
            assert!(output.contains(expected), "{args:?}: {output}");
        }
    };
    let public = ["--public-url", "https://agents.example.com"];
    let verbs = [&["demo"][..], &["serve", "--echo"]];
    for verb in verbs {
        let args = [verb, &public, &flags].concat();
        refused(&args, "https://agents.example.com");
    }
    for (setting, reason) in [
        (
            "public_url = \"http://agents.example.com\"",
            "http://agents.example.com",
        ),
        ("trusted_proxies = [\"127.0.0.1\"]", "trusted_proxies"),
    ] {
        let text = format!("[server]\n{setting}\n[agents.a]\ntype = \"echo\"\n");
        std::fs::write(file, text).unwrap();
        refused(&[&["serve", file][..], &flags].concat(), reason);
        let (code, output) = run_expecting_error(&["check", file]);
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains(reason), "{output}");
    }
    // A key suffices.
    let added = attache(&["keys", "add", "ann", "--data-dir", data]).output();
    assert!(added.unwrap().status.success());
    let server = serve(&[&["serve", file][..], &flags].concat());
    let url = server.line("Listening on ");
    assert_eq!(call(&url, "ListTasks", &json!({}))["error"]["code"], -31401);
    // A name of this machine exposes nothing.
    let local = serve(&["serve", "--echo", "--public-url", "http://localhost:8080"]);
    local.line("Listening on ");
}

#[test]
fn the_card_has_the_public_url() {
    let args = [
        "serve",
        "--echo",
        "--store",
        "memory",
        "--allow-anonymous",
        "--public-url",
        "https://agents.example.com/echo",
    ];
    let server = serve(&args);
    let url = server.line("Listening on ");
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    assert_eq!(server.line("Public: "), "https://agents.example.com/echo/");
    let card = send(
        &server.line("Card: "),
        "GET",
        &["Accept: application/json"],
        "",
    );
    assert_eq!(card["url"], "https://agents.example.com/echo");
    // The warning precedes the bind, which fails.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let wrong = ["--listen", &address, "--public-url", "example.com"];
    let (code, output) =
        run_expecting_error(&[&["serve", "--echo", "--store", "memory"][..], &wrong].concat());
    assert_eq!(code, Some(1));
    assert!(
        output.contains("public_url") && output.contains("absolute") && !output.contains("listen"),
        "{output}"
    );
}

#[test]
fn without_a_store_agents_answer_with_messages() {
    let server = serve(&["serve", "--echo", "--store", "null"]);
    let url = server.line("Listening on ");
    let params =
        json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}});
    let answer = call(&url, "SendMessage", &params);
    assert_eq!(
        answer["result"]["message"]["parts"],
        json!([{"text": "hi"}]),
        "{answer}"
    );
}

#[test]
fn tls_needs_a_certificate_and_its_key() {
    let (code, output) = run_expecting_error(&["serve", "--echo", "--tls-cert", "none.pem"]);
    assert_eq!(code, Some(2));
    assert!(output.contains("--tls-key"), "{output}");
    let (code, output) = run_expecting_error(&[
        "serve",
        "--echo",
        "--store",
        "memory",
        "--tls-cert",
        "none.pem",
        "--tls-key",
        "none.pem",
    ]);
    assert_eq!(code, Some(1));
    assert!(output.contains("cannot read none.pem"), "{output}");
}
