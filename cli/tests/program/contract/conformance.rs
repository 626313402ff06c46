//! `attache conformance`, against a conforming agent and agents that break rules.

use serde_json::{Value, json};

use super::run::{VerbOutput, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};
use crate::harness::{ServerProcess, attache, serve, serve_in};

/// URL of a server.
fn address(serving: &ServerProcess) -> String {
    serving.line("Listening on ")
}

fn failed_checks(output: &VerbOutput) -> Vec<String> {
    let report = output.json();
    let checks = report["checks"].as_array().unwrap().clone();
    let name = |one: &Value| one["check"].as_str().unwrap().to_owned();
    checks
        .iter()
        .filter(|one| one["outcome"] == "fail")
        .map(name)
        .collect()
}

/// The checks with this outcome over this binding.
fn checks_with_outcome(output: &VerbOutput, binding: &str, outcome: &str) -> Vec<String> {
    let report = output.json();
    let checks = report["checks"].as_array().unwrap().clone();
    let of = |one: &&Value| one["binding"] == binding && one["outcome"] == outcome;
    checks
        .iter()
        .filter(of)
        .map(|one| one["check"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn conform_001_the_demo_keeps_every_rule_over_every_binding() {
    let demo = serve(&["demo", "--store", "memory"]);
    let args = [
        "conformance",
        "-o",
        "json",
        "--exit-code",
        "--slow",
        "slow 60",
        "--ask",
        "ask",
    ];
    let output = run_at(&address(&demo), &args);
    assert_eq!(failed_checks(&output), [""; 0], "{output:?}");
    assert_eq!(output.code, Some(0));
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        let passed = checks_with_outcome(&output, binding, "pass");
        assert!(passed.len() >= 45, "{binding}: {passed:?}");
        for name in [
            "operations/cancel-running",
            "operations/cancel-again",
            "operations/continue",
            "operations/cancel-waiting",
            "streaming/cancel-told",
            "streaming/closing-one",
            "push/delivery",
            "push/in-send",
        ] {
            assert!(
                passed.iter().any(|one| one == name),
                "{binding} {name}: {passed:?}"
            );
        }
    }
    let output = run_at(&closed_port_url(), &["conformance"]);
    assert_eq!(
        output.code,
        Some(3),
        "an agent that is not there is no finding: {output:?}"
    );
}

#[test]
fn conform_001_required_credentials_are_checked() {
    let folder = tempfile::TempDir::new().unwrap();
    let made = attache(&["keys", "add", "ann", "--data-dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let server = serve_in(&["serve", "--echo", "--store", "memory"], folder);
    let output = run_at(
        &address(&server),
        &["conformance", "-o", "json", "--bearer", &key],
    );
    assert_eq!(failed_checks(&output), [""; 0], "{output:?}");
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let passed = checks_with_outcome(&output, binding, "pass");
        for name in ["operations/auth-required", "operations/auth-challenge"] {
            assert!(
                passed.iter().any(|one| one == name),
                "{binding} {name}: {passed:?}"
            );
        }
    }
    assert!(
        checks_with_outcome(&output, "GRPC", "pass")
            .contains(&"operations/auth-required".to_owned()),
        "{output:?}"
    );
    assert!(!output.out.contains(&key) && !output.err.contains(&key));
}

#[test]
fn conform_001_s49_the_card_is_compared_with_the_behaviour() {
    let extension = json!({"uri": "https://x.example/ext", "required": true});
    let liar = move |url: &str| {
        scripted_agent::card(
            url,
            json!({
                "capabilities": {"streaming": false, "pushNotifications": false, "extensions": [extension]},
                "defaultOutputModes": ["text/plain"],
                "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
                "securityRequirements": [{"schemes": {"b": {"list": []}}}],
            }),
        )
    };
    let mut task = scripted_agent::task("TASK_STATE_COMPLETED");
    task["artifacts"] =
        json!([{"artifactId": "a", "parts": [{"raw": "aGk=", "mediaType": "image/png"}]}]);
    let peer = ScriptedAgent::new(liar, scripted_agent::answer_with(task));
    let args = [
        "conformance",
        "-o",
        "json",
        "--bearer",
        "hunter22",
        "--extension",
        "https://x.example/ext",
    ];
    let failed = failed_checks(&run_at(&peer.url, &args));
    for name in [
        "streaming/undeclared",
        "push/undeclared",
        "operations/output-modes",
        "operations/auth-required",
        "operations/extension-required",
        "operations/extended-card",
    ] {
        assert!(failed.iter().any(|one| one == name), "{name}: {failed:?}");
    }
    let closed = ScriptedAgent::new(scripted_agent::plain, |_, _| {
        scripted_agent::json_reply(401, &json!({}))
    });
    let output = run_at(&closed.url, &["conformance", "-o", "json"]);
    assert!(
        self::failed_checks(&output).contains(&"operations/auth-undeclared".to_owned()),
        "{output:?}"
    );
}

/// The address of a closed port.
fn closed_port_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn conform_001_broken_rules_of_a_mock_are_reported() {
    let script = |fault: &str| {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("script.toml");
        let rules = "[[rule]]\nsteps = [{ write = { name = \"a\", text = [\"x\", \"y\"] } }, { complete = \"done\" }]\n";
        std::fs::write(&file, format!("{rules}\n[[fault]]\n{fault}\n")).unwrap();
        (serve(&["mock", file.to_str().unwrap()]), folder)
    };
    for (fault, broken) in [
        (
            "contains = \"SendStreamingMessage\"\ngarble = true",
            "streaming/task-first",
        ),
        (
            "contains = \"SendStreamingMessage\"\nduplicate = true",
            "streaming/once",
        ),
        (
            "contains = \"SendStreamingMessage\"\ncut_after = \"300B\"",
            "streaming/ends",
        ),
        ("contains = \"ListTasks\"\nstatus = 503", "operations/list"),
        (
            "contains = \"NoSuchMethod\"\ngarble = true",
            "errors/rpc-unknown-method",
        ),
    ] {
        let (mock, _folder) = script(fault);
        let args = [
            "conformance",
            "-o",
            "json",
            "--exit-code",
            "--transport",
            "jsonrpc",
        ];
        let output = run_at(&address(&mock), &args);
        let failed = failed_checks(&output);
        assert!(
            failed.iter().any(|name| name == broken),
            "{broken}: {failed:?}"
        );
        assert_eq!(output.code, Some(10), "{output:?}");
        assert!(
            !failed.contains(&"operations/send".to_owned()),
            "{failed:?}"
        );
    }
}

#[test]
fn conform_001_a_constant_agent_fails_and_exit_code_reports_it() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let output = run_at(&peer.url, &["conformance"]);
    assert_eq!(
        output.code,
        Some(0),
        "a failing agent is an outcome: {output:?}"
    );
    let broken: Vec<_> = output.fields("Fail");
    for name in [
        "operations/get-unknown",
        "operations/cancel-ended",
        "errors/rpc-parse",
    ] {
        assert!(
            broken.iter().any(|line| line.starts_with(name)),
            "{name}: {output:?}"
        );
    }
    let count = output.field("Failed").parse::<usize>().unwrap();
    assert_eq!(count, broken.len());
    assert_eq!(
        run_at(&peer.url, &["conformance", "--exit-code"]).code,
        Some(10)
    );
    let report = run_at(&peer.url, &["conformance", "-o", "json"]).json();
    assert_eq!(
        (&report["schema"], &report["summary"]["failed"]),
        (&json!("attache.conformance/1"), &json!(count))
    );
}

/// A fake test kit that prints its arguments.
#[cfg(unix)]
#[test]
fn conform_001_the_official_test_kit_can_be_run() {
    let folder = tempfile::TempDir::new().unwrap();
    let kit = folder.path().to_str().unwrap().to_owned();
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let run = |more: &[&str]| {
        let args = [&["conformance", "-a", &peer.url, "--kit", &kit], more].concat();
        verb(&args).env("A2ACLI_BEARER", "hunter22").run()
    };
    let missing = run(&["-o", "json"]);
    assert_eq!(
        (missing.code, &missing.json()["error"]["code"]),
        (Some(2), &json!("A2ACLI_ERR_USAGE"))
    );
    let script = |code: u8| {
        let text = format!(
            "import os, sys\nprint('told', *sys.argv[1:], os.environ.get('A2ACLI_BEARER'))\n# --sut-host\nsys.exit({code})\n"
        );
        std::fs::write(folder.path().join("run_tck.py"), text).unwrap();
    };
    script(0);
    let output = run(&["--exit-code", "--transport", "rest"]);
    assert_eq!(
        (output.code, output.field("Outcome")),
        (Some(0), "pass"),
        "{output:?}"
    );
    let arguments = format!("told --sut-host {} --transport http_json None\n", peer.url);
    assert!(output.err.contains(&arguments), "{output:?}");
    script(1);
    let report = run(&["-o", "json"]);
    assert_eq!(
        report.code,
        Some(0),
        "a failing agent is an outcome: {report:?}"
    );
    assert_eq!(report.json()["kit"]["outcome"], "fail");
    assert_eq!(run(&["--exit-code"]).code, Some(10));
    script(3);
    assert_eq!(
        run(&["-o", "json"]).json()["error"]["code"],
        "A2ACLI_ERR_INTERNAL"
    );
}
