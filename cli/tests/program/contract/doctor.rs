//! `attache doctor` against agents with each fault it names. It is not part of the CLI contract.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use rcgen::{CertifiedKey, date_time_ymd, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::run::{DEMO, VerbOutput, run_at, verb};
use super::scripted_agent::{
    ScriptedAgent, answer_completed, card, error, events, json_reply, plain, result, status,
    streaming, task,
};
use crate::harness::{serve, serve_in};
use crate::keys::keys;
use crate::nginx::{free, start_nginx_with};

/// The report about an agent.
fn doctor(url: &str, args: &[&str]) -> (VerbOutput, Value) {
    let output = run_at(url, &[&["doctor", "-o", "json"], args].concat());
    let report = output.json();
    assert_eq!(report["schema"], "attache.doctor/1");
    (output, report)
}

/// The check of a step: status, message and hint.
fn step<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str, &'a str) {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["step"] == name);
    let check = check.unwrap_or_else(|| panic!("no {name}: {report:#}"));
    let text = |name: &str| check[name].as_str().unwrap_or_default();
    (text("status"), text("message"), text("hint"))
}

/// Asserts that the diagnosis ends at a step, and that the hint of this step has a text.
fn assert_fails_at(url: &str, args: &[&str], name: &str, hint: &str) -> Value {
    let (output, report) = doctor(url, args);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(report["works"], false);
    assert_eq!(report["command"], Value::Null);
    let (status, message, given) = step(&report, name);
    assert_eq!(status, "failed", "{message}");
    assert!(given.contains(hint), "{given}");
    report
}

#[test]
fn a_working_agent_passes_every_step() {
    let (output, report) = doctor(&DEMO, &["--message", "slow 1"]);
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""));
    for name in [
        "resolve",
        "connect",
        "card",
        "clock",
        "auth",
        "answer",
        "streaming",
        "buffering",
    ] {
        let (status, message, _) = step(&report, name);
        assert_eq!(status, "ok", "{name}: {message}");
    }
    let interfaces = report["interfaces"].as_array().unwrap();
    let working: Vec<_> = interfaces
        .iter()
        .filter(|one| one["status"] == "ok")
        .map(|one| {
            let binding = one["binding"].as_str().unwrap();
            format!("{binding} {}", one["version"].as_str().unwrap())
        })
        .collect();
    for expected in [
        "JSONRPC 1.0",
        "JSONRPC 0.3",
        "HTTP+JSON 1.0",
        "HTTP+JSON 0.3",
        "GRPC 1.0",
        "GRPC 0.3",
    ] {
        assert!(working.iter().any(|one| one == expected), "{working:?}");
    }
    let command = report["command"].as_str().unwrap();
    assert_eq!(command, format!("attache send -a {} '<message>'", &**DEMO));
}

#[test]
fn the_text_has_a_line_per_step_and_the_command_to_use() {
    let output = verb(&["doctor", &DEMO, "--no-message"]).run();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.field("Agent"), &**DEMO);
    assert_eq!(output.field("Clock"), "ok, the clocks agree");
    assert_eq!(output.field("Answer"), "skipped, no message is sent");
    assert_eq!(output.field("Works"), "yes");
    let use_line = output.field("Use");
    assert_eq!(use_line, format!("attache send -a {} '<message>'", &**DEMO));
    let output = verb(&["doctor", &DEMO, "--no-message", "-o", "pretty"]).run();
    assert!(
        output.out.contains("✓ Clock      the clocks agree\n"),
        "{output:?}"
    );
    let none = verb(&["doctor"]).run();
    assert_eq!((none.code, none.out.as_str()), (Some(2), ""), "{none:?}");
}

#[test]
fn a_name_that_does_not_resolve() {
    let report = assert_fails_at("https://nope.invalid", &[], "resolve", "check the name");
    assert_eq!(report["checks"].as_array().unwrap().len(), 1, "{report:#}");
}

#[test]
fn nothing_listens() {
    let url = format!("http://{}", free());
    assert_fails_at(&url, &[], "connect", "nothing listens on port");
}

#[test]
fn tls_on_one_side_only() {
    let demo = serve(&["demo", "--store", "memory"]);
    let url = demo.line("Listening on http://");
    let reference = url.trim_end_matches('/');
    let hint = format!("this works: -a http://{reference}");
    assert_fails_at(&format!("https://{reference}"), &[], "tls", &hint);
}

/// Files of a self-signed certificate.
fn certificate(folder: &TempDir, name: &str, is_expired: bool) -> [String; 2] {
    let names = vec![name.to_owned(), "127.0.0.1".to_owned()];
    let CertifiedKey {
        mut cert,
        signing_key,
    } = generate_simple_self_signed(names.clone()).unwrap();
    if is_expired {
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        cert = params.self_signed(&signing_key).unwrap();
    }
    let files = [
        ("cert.pem", cert.pem()),
        ("key.pem", signing_key.serialize_pem()),
    ];
    files.map(|(file, text)| {
        let path = folder.path().join(file);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    })
}

#[test]
fn wrong_certificates() {
    for (name, is_expired, trusts_it, expected) in [
        ("localhost", false, false, "--ca <file>"),
        ("other.example", false, true, "another name"),
        ("localhost", true, true, ""),
    ] {
        let folder = TempDir::new().unwrap();
        let [cert, key] = certificate(&folder, name, is_expired);
        let tls = ["--tls-cert", &cert, "--tls-key", &key];
        let demo = serve(&[&["demo", "--store", "memory"], &tls[..]].concat());
        let port = demo.line("Listening on https://127.0.0.1:");
        let url = format!("https://localhost:{}", port.trim_end_matches('/'));
        let ca = ["--ca", &cert];
        let report = assert_fails_at(&url, if trusts_it { &ca } else { &[] }, "tls", expected);
        assert!(step(&report, "tls").1.contains("certificate"), "{report:#}");
        // The clock is compared nevertheless: a wrong one makes valid certificates look expired.
        assert_eq!(step(&report, "clock").0, "ok");
        if !is_expired && name == "localhost" {
            let (output, report) = doctor(&url, &["--ca", &cert]);
            assert_eq!(output.code, Some(0), "{output:?}");
            assert_eq!(step(&report, "tls").0, "ok");
            let command = report["command"].as_str().unwrap();
            assert!(command.contains(&format!("--ca {cert}")), "{command}");
        }
    }
}

#[test]
fn a_web_page_instead_of_a_card() {
    let page = http_server(|_| {
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>Welcome</html>"
            .to_owned()
    });
    let report = assert_fails_at(&page, &[], "card", "login page");
    let message = step(&report, "card").1;
    assert!(message.contains("web page (text/html)"), "{message}");
}

#[test]
fn no_card_and_a_protected_card() {
    let missing = http_server(|_| "HTTP/1.1 404 X\r\nConnection: close\r\n\r\n".to_owned());
    assert_fails_at(&missing, &[], "card", "check the path");
    let locked = http_server(|_| "HTTP/1.1 401 X\r\nConnection: close\r\n\r\n".to_owned());
    assert_fails_at(&locked, &[], "card", "--card-auth");
}

/// A server that answers every request, by its head.
fn http_server(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap_or_default();
            let answer = answer(&String::from_utf8_lossy(&head[..length]));
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_skewed_clock() {
    let agent = ScriptedAgent::new(plain, answer_completed());
    let target = agent.url.clone();
    // Cards of this server come from 2001; their interface is the scripted agent.
    let card = card(&target, json!({})).to_string();
    let old = http_server(move |_| {
        let date = "Date: Mon, 01 Jan 2001 00:00:00 GMT";
        let length = card.len();
        format!(
            "HTTP/1.1 200 OK\r\n{date}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{card}"
        )
    });
    let (output, report) = doctor(&old, &[]);
    assert_eq!(output.code, Some(0), "a warning: {output:?}");
    let (status, message, hint) = step(&report, "clock");
    assert_eq!(status, "warning");
    assert!(message.contains("ahead of the agent's"), "{message}");
    assert!(hint.contains("tokens"), "{hint}");
}

#[test]
fn credentials_that_are_missing_or_refused() {
    let folder = TempDir::new().unwrap();
    let key = keys(folder.path(), &["add", "ann"]);
    let server = serve_in(&["serve", "--echo"], folder);
    let url = server.line("Listening on ");
    assert_fails_at(&url, &[], "auth", "A2ACLI_BEARER");
    assert_fails_at(&url, &["--bearer", "att_wrong"], "auth", "");
    let (output, report) = doctor(&url, &["--bearer", &key]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(step(&report, "auth").0, "ok");
    assert!(!output.out.contains(&key), "{output:?}");
}

#[test]
fn an_agent_that_requires_credentials_without_saying_so() {
    let agent = ScriptedAgent::new(plain, |_, _| json_reply(401, &json!({})));
    let report = assert_fails_at(&agent.url, &[], "auth", "");
    assert_eq!(step(&report, "connect").0, "ok");
}

#[test]
fn only_an_older_version_works() {
    let old = |url: &str| {
        let interface =
            |version| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version});
        card(
            url,
            json!({"supportedInterfaces": [interface("1.0"), interface("0.3")]}),
        )
    };
    let agent = ScriptedAgent::new(old, |request, _| match request.method().as_str() {
        "tasks/get" => error(-32001, "no such task"),
        "message/send" => result(
            &json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}}),
        ),
        _ => error(-32601, "unknown method"),
    });
    let (output, report) = doctor(&agent.url, &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let interfaces = report["interfaces"].as_array().unwrap();
    let statuses: Vec<_> = interfaces.iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, ["failed", "ok"], "{report:#}");
    let command = report["command"].as_str().unwrap();
    let url = &agent.url;
    let flags = format!("-a {url} --transport jsonrpc --a2a-version 0.3");
    assert!(command.contains(&flags), "{command}");
    let words = shell_words(command);
    let args: Vec<_> = words.iter().skip(1).map(String::as_str).collect();
    let sent = verb(&args).run();
    assert_eq!(sent.code, Some(0), "the command works: {sent:?}");
}

/// The words of a command without quotes in them.
fn shell_words(command: &str) -> Vec<String> {
    let words = command.split(' ').map(|word| word.trim_matches('\''));
    words.map(str::to_owned).collect()
}

#[test]
fn a_card_that_leads_nowhere() {
    let nowhere = format!("http://{}/", free());
    let agent = ScriptedAgent::new(
        move |_| card(&nowhere, json!({})),
        |_, _| error(-32601, "not called"),
    );
    let (output, report) = doctor(&agent.url, &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(
        report["interfaces"][0]["message"],
        "no connection to its host"
    );
    let failed: Vec<_> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["status"] == "failed")
        .map(|check| &check["step"])
        .collect();
    assert_eq!(failed, ["connect"]);
}

#[test]
fn a_path_that_a_proxy_does_not_forward() {
    let rest = |url: &str| {
        let interface =
            json!({"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"});
        card(url, json!({"supportedInterfaces": [interface]}))
    };
    let agent = ScriptedAgent::new(rest, |_, _| {
        json_reply(404, &json!({"detail": "Not Found"}))
    });
    let (output, report) = doctor(&agent.url, &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let interface = &report["interfaces"][0];
    assert_eq!(interface["message"], "the server has no such path (404)");
}

#[test]
fn an_agent_that_fails_and_one_whose_stream_breaks() {
    let failing =
        |request: &super::scripted_agent::RecordedRequest, _| match request.method().as_str() {
            "GetTask" => error(-32001, "no such task"),
            _ => events(&[
                json!({"task": task("TASK_STATE_SUBMITTED")}),
                status("TASK_STATE_FAILED"),
            ]),
        };
    let agent = ScriptedAgent::new(streaming, failing);
    let (output, report) = doctor(&agent.url, &[]);
    assert_eq!(output.code, Some(0), "calls work: {output:?}");
    let (status, message, hint) = step(&report, "answer");
    assert_eq!(status, "warning", "{message}");
    assert!(message.starts_with("TASK_STATE_FAILED"), "{message}");
    assert!(hint.contains("log"), "{hint}");

    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mock.toml");
    let script = "[[rule]]\nsteps = [{ write = { name = \"x\", text = \"y\" } }]\n[[fault]]\ncontains = \"cut\"\ncut_after = 120\n";
    std::fs::write(&file, script).unwrap();
    let mock = serve_in(
        &["mock", file.to_str().unwrap(), "--store", "memory"],
        folder,
    );
    let url = mock.line("Listening on ");
    let (output, report) = doctor(&url, &["--message", "cut"]);
    assert_eq!(
        output.code,
        Some(0),
        "calls without streams work: {output:?}"
    );
    let (status, message, hint) = step(&report, "streaming");
    assert_eq!(status, "failed", "{message}");
    assert!(hint.contains("--async"), "{hint}");
}

#[test]
fn nginx_that_buffers() {
    let shipped = include_str!("../../../../packaging/nginx.conf");
    // The defaults of nginx.
    let buffering = shipped
        .replace(
            "proxy_buffering off;",
            "proxy_ignore_headers X-Accel-Buffering;",
        )
        .replace("proxy_http_version 1.1;", "");
    assert_ne!(shipped, buffering);
    for (site, expected) in [(buffering.as_str(), "warning"), (shipped, "ok")] {
        let address = free();
        let public = format!("http://{address}/");
        let server = serve(&["demo", "--store", "memory", "--public-url", &public]);
        let url = server.line("Listening on ");
        let Some(nginx) = start_nginx_with(&url, site, address) else {
            return;
        };
        let (output, report) = doctor(&nginx.plain, &["--message", "slow 2"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let (status, message, hint) = step(&report, "buffering");
        assert_eq!(status, expected, "{message}");
        if expected == "warning" {
            assert!(hint.contains("proxy_buffering off"), "{hint}");
        }
    }
}
