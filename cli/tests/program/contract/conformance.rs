//! `attache conformance`, against an agent that keeps the rules and agents that break them.

use serde_json::{Value, json};

use super::peer::{self, Peer};
use super::run::{Said, at};
use crate::harness::{Serving, serve};

/// Where a server listens.
fn address(serving: &Serving) -> String {
    serving.line("Listening on ")
}

fn failed(said: &Said) -> Vec<String> {
    let report = said.json();
    let checks = report["checks"].as_array().unwrap().clone();
    let name = |one: &Value| one["check"].as_str().unwrap().to_owned();
    checks.iter().filter(|one| one["outcome"] == "fail").map(name).collect()
}

#[test]
fn conform_001_the_demo_keeps_every_rule_over_every_binding() {
    let demo = serve(&["demo"]);
    let said = at(&address(&demo), &["conformance", "-o", "json", "--exit-code"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let report = said.json();
    assert_eq!(failed(&said), [""; 0], "{report:#}");
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        let of = |one: &&Value| one["binding"] == binding && one["outcome"] == "pass";
        let passed = report["checks"].as_array().unwrap().iter().filter(of).count();
        assert!(passed >= 30, "{binding}: {report:#}");
    }
    let said = at(&nowhere(), &["conformance"]);
    assert_eq!(said.code, Some(3), "an agent that is not there is no finding: {said:?}");
}

/// A port that nobody listens on.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn conform_001_rules_that_a_mock_breaks_are_named() {
    let script = |fault: &str| {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("script.toml");
        let rules = "[[rule]]\nsteps = [{ write = { name = \"a\", text = [\"x\", \"y\"] } }, { complete = \"done\" }]\n";
        std::fs::write(&file, format!("{rules}\n[[fault]]\n{fault}\n")).unwrap();
        (serve(&["mock", file.to_str().unwrap()]), folder)
    };
    for (fault, broken) in [
        ("contains = \"SendStreamingMessage\"\ngarble = true", "streaming/task-first"),
        ("contains = \"SendStreamingMessage\"\nduplicate = true", "streaming/once"),
        ("contains = \"SendStreamingMessage\"\ncut_after = \"300B\"", "streaming/ends"),
        ("contains = \"ListTasks\"\nstatus = 503", "operations/list"),
        ("contains = \"NoSuchMethod\"\ngarble = true", "errors/rpc-unknown-method"),
    ] {
        let (mock, _folder) = script(fault);
        let args = ["conformance", "-o", "json", "--exit-code", "--transport", "jsonrpc"];
        let said = at(&address(&mock), &args);
        let failed = failed(&said);
        assert!(failed.iter().any(|name| name == broken), "{broken}: {failed:?}");
        assert_eq!(said.code, Some(10), "{said:?}");
        assert!(!failed.contains(&"operations/send".to_owned()), "{failed:?}");
    }
}

#[test]
fn conform_001_an_agent_that_answers_one_thing_to_everything_fails_and_the_exit_says_so_on_request() {
    let peer = Peer::new(peer::plain, peer::done());
    let said = at(&peer.url, &["conformance"]);
    assert_eq!(said.code, Some(0), "a failing agent is an outcome: {said:?}");
    let broken: Vec<_> = said.fields("Fail");
    for name in ["operations/get-unknown", "operations/cancel-ended", "errors/rpc-parse"] {
        assert!(broken.iter().any(|line| line.starts_with(name)), "{name}: {said:?}");
    }
    let count = said.field("Failed").parse::<usize>().unwrap();
    assert_eq!(count, broken.len());
    assert_eq!(at(&peer.url, &["conformance", "--exit-code"]).code, Some(10));
    let report = at(&peer.url, &["conformance", "-o", "json"]).json();
    assert_eq!(
        (&report["schema"], &report["summary"]["failed"]),
        (&json!("attache.conformance/1"), &json!(count))
    );
}
