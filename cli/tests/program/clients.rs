//! Clients of other projects against `attache demo`: each runs the scenario of `tests/peers/clients` over each of its bindings.
//! Push configs go to another agent, because the demo does not declare push notifications.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;

use attache::wire::card::GrpcOnCard;
use attache::{AgentCard, PushSettings, Server, ServerSettings};
use attache_agents::Script;

use crate::harness::{DEADLINE, attache, serve, serve_command};

/// A message whose stream is slow enough to be cut on a busy machine.
const WITH_PUSH: &str = r#"
[[rule]]
word = "ask"
steps = [{ ask = "What is your name?" }]

[[rule]]
word = "drip"
steps = [{ stream = { name = "drip", text = "chunk {count} of {total} ", chunks = 40, bytes = 12, seconds = 4 } }]
"#;

macro_rules! peer_clients {
    ($($test:ident: $python:literal $script:literal [$($arg:literal),+];)+) => {$(
        #[test]
        fn $test() {
            run_client($python, $script, &[$($arg),+]);
        }
    )+};
}

peer_clients! {
    a2a_sdk_0_2_jsonrpc: "v02" "sdk02.py" ["JSONRPC", "0.2"];
    a2a_sdk_0_2_grpc: "v02" "sdk02.py" ["GRPC", "0.2"];
    a2a_sdk_0_3_jsonrpc: "v03" "sdk03.py" ["JSONRPC", "0.3"];
    a2a_sdk_0_3_rest: "v03" "sdk03.py" ["HTTP+JSON", "0.3"];
    a2a_sdk_0_3_grpc: "v03" "sdk03.py" ["GRPC", "0.3"];
    a2a_sdk_1_jsonrpc: "v10" "sdk10.py" ["JSONRPC", "1.0"];
    a2a_sdk_1_rest: "v10" "sdk10.py" ["HTTP+JSON", "1.0"];
    a2a_sdk_1_grpc: "v10" "sdk10.py" ["GRPC", "1.0"];
    a2a_sdk_1_falls_back_to_0_3_jsonrpc: "v10" "sdk10.py" ["JSONRPC", "0.3"];
    a2a_sdk_1_falls_back_to_0_3_rest: "v10" "sdk10.py" ["HTTP+JSON", "0.3"];
    a2a_sdk_1_falls_back_to_0_3_grpc: "v10" "sdk10.py" ["GRPC", "0.3"];
    a2a_js_0_3_jsonrpc: "v10" "node.py" ["v03", "JSONRPC", "0.3"];
    a2a_js_0_3_rest: "v10" "node.py" ["v03", "HTTP+JSON", "0.3"];
    a2a_js_0_3_grpc: "v10" "node.py" ["v03", "GRPC", "0.3"];
    a2a_js_1_jsonrpc: "v10" "node.py" ["v10", "JSONRPC", "1.0"];
    a2a_js_1_rest: "v10" "node.py" ["v10", "HTTP+JSON", "1.0"];
    a2a_js_1_grpc: "v10" "node.py" ["v10", "GRPC", "1.0"];
    a2a_js_1_falls_back_to_0_3_jsonrpc: "v10" "node.py" ["v10", "JSONRPC", "0.3"];
    a2a_js_1_falls_back_to_0_3_rest: "v10" "node.py" ["v10", "HTTP+JSON", "0.3"];
    a2a_js_1_falls_back_to_0_3_grpc: "v10" "node.py" ["v10", "GRPC", "0.3"];
    selectools_1_3_jsonrpc: "selectools" "selectools_client.py" ["JSONRPC", "0.2"];
    fasta2a_2_1_jsonrpc: "fasta2a" "fasta2a_client.py" ["JSONRPC", "1.0"];
    curl_1_jsonrpc: "v10" "curl.py" ["JSONRPC", "1.0"];
    curl_1_rest: "v10" "curl.py" ["HTTP+JSON", "1.0"];
    curl_0_3_jsonrpc: "v10" "curl.py" ["JSONRPC", "0.3"];
    curl_0_3_rest: "v10" "curl.py" ["HTTP+JSON", "0.3"];
    stubs_1_grpc: "v10" "grpc10.py" ["GRPC", "1.0"];
    stubs_0_3_grpc: "v03" "grpc03.py" ["GRPC", "0.3"];
}

/// Runs an adapter. It exits with 0 only if all its checks pass.
fn run_client(python: &str, script: &str, args: &[&str]) {
    if is_quick() {
        return;
    }
    let mut demo = attache(&["demo", "--store", "memory"]);
    // All but gRPC of newer clients runs with the default card, which names gRPC for 0.3 clients only.
    let is_older = ["sdk02.py", "sdk03.py", "grpc03.py"].contains(&script) || args[0] == "v03";
    let needs_all = args.contains(&"GRPC") && !is_older;
    demo.env(
        "ATTACHE_GRPC_ON_CARD",
        if needs_all { "all" } else { "v03" },
    );
    let demo = serve_command(&mut demo, tempfile::TempDir::new().unwrap());
    run_client_at(&demo.line("Listening on "), "all", python, script, args);
}

/// google-adk reads a card by its URL, and refuses URLs in `supportedInterfaces` that are not http on the card's origin.
#[test]
fn google_adk_2_13_accepts_the_default_card() {
    if !has_all_peers() {
        return;
    }
    let run = |grpc_on_card: &str| {
        let mut demo = attache(&["demo", "--store", "memory"]);
        demo.env("ATTACHE_GRPC_ON_CARD", grpc_on_card);
        let demo = serve_command(&mut demo, tempfile::TempDir::new().unwrap());
        let output = Command::new(folder().join("adk/bin/python"))
            .arg(repository().join("tests/peers/clients/adk_client.py"))
            .arg(demo.line("Listening on "))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (text, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (answer, log) = run("v03");
    assert_eq!(answer.trim(), "answer: hello", "{log}");
    let (answer, log) = run("all");
    assert!(answer.starts_with("error: "), "{answer}\n{log}");
}

/// google-adk sends, streams, answers a question, and compares the bytes of files.
#[test]
fn google_adk_2_13_runs_a_session() {
    if !has_all_peers() {
        return;
    }
    let mut demo = attache(&["demo", "--store", "memory"]);
    demo.env("ATTACHE_GRPC_ON_CARD", "v03");
    let demo = serve_command(&mut demo, tempfile::TempDir::new().unwrap());
    let output = Command::new(folder().join("adk/bin/python"))
        .arg(repository().join("tests/peers/clients/adk_session.py"))
        .arg(demo.line("Listening on "))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The SDK clients against a script agent of a configuration file: stream, question and cancel.
#[cfg(unix)]
#[test]
fn official_clients_use_a_command_agent() {
    if is_quick() {
        return;
    }
    let config = tempfile::TempDir::new().unwrap();
    let file = config.path().join("agents.toml");
    let python = folder().join("v10/bin/python");
    let script = repository().join("tests/peers/command.py");
    let text = format!(
        "[agents.script]\ntype = \"command\"\ncommand = [{python:?}, {script:?}]\ninput = \"json\"\noutput = \"json_lines\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let server = serve(&["serve", "--store", "memory", file.to_str().unwrap()]);
    let url = server.line("Listening on ");
    thread::scope(|scope| {
        for (python, script, args) in [
            ("v03", "sdk03.py", ["JSONRPC", "0.3"].as_slice()),
            ("v10", "sdk10.py", &["GRPC", "1.0"]),
            ("v10", "node.py", &["v03", "JSONRPC", "0.3"]),
            ("v10", "node.py", &["v10", "HTTP+JSON", "1.0"]),
        ] {
            let url = &url;
            scope.spawn(move || run_client_at(url, "command", python, script, args));
        }
    });
}

fn run_client_at(url: &str, checks: &str, python: &str, script: &str, args: &[&str]) {
    let output = Command::new(folder().join(python).join("bin/python"))
        .arg(repository().join("tests/peers/clients").join(script))
        .args(args)
        .args([url, &*PUSHING])
        .env("ATTACHE_PEERS", folder())
        .env("ATTACHE_CHECKS", checks)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

pub(crate) fn is_quick() -> bool {
    std::env::var_os("ATTACHE_QUICK").is_some_and(|value| value == "1")
}

/// Whether the peers outside of the core are installed: only in `./test peers`.
pub(crate) fn has_all_peers() -> bool {
    !is_quick() && std::env::var_os("ATTACHE_ALL_PEERS").is_some_and(|value| value == "1")
}

/// URL of an agent that declares push notifications. It serves until the test process ends.
static PUSHING: LazyLock<String> = LazyLock::new(|| {
    let (send, url) = std::sync::mpsc::sync_channel(1);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let card = AgentCard::new("With push", "Takes webhooks");
            let mut push = PushSettings::default();
            push.egress.loopback = true;
            let mut settings = ServerSettings::default();
            settings.grpc_on_card = GrpcOnCard::All;
            let server = Server::new(card, Script::parse(WITH_PUSH).unwrap())
                .server_settings(settings)
                .push(push);
            let bound = server.bind("127.0.0.1:0").await.unwrap();
            send.send(bound.url()).unwrap();
            bound.serve().await.unwrap();
        });
    });
    url.recv_timeout(DEADLINE).unwrap()
});

/// Directory of the peers: the one of the environment, else a new one that is installed once.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(folder) = std::env::var_os("ATTACHE_PEERS") {
            return folder.into();
        }
        let made = Command::new(repository().join("tests/peers/setup"))
            .stdout(Stdio::null())
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "the peers are not there; run tests/peers/setup"
        );
        repository().join("target/peers")
    });
    &FOLDER
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
