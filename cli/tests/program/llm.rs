//! LLM agents of configuration files, with a scripted model and with a real one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::{folder as peers, repository};
use crate::harness::{DEADLINE, call, send_text, serve_in};

/// A scripted model that answers each request with the next list of events. Returns its URL and the requests.
pub(crate) fn model(script: Vec<Vec<Value>>) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (send, asked) = sync_channel(script.len());
    thread::spawn(move || {
        for events in script {
            let mut stream = listener.accept().unwrap().0;
            send.send(body(&mut stream)).unwrap();
            let events: String = events
                .iter()
                .map(|event| format!("data: {event}\n\n"))
                .collect();
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
            stream
                .write_all(format!("{head}{events}data: [DONE]\n\n").as_bytes())
                .unwrap();
        }
    });
    (url, asked)
}

pub(crate) fn body(stream: &mut TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let output = line.to_lowercase();
        length = output
            .strip_prefix("content-length: ")
            .map_or(length, |output| output.trim().parse().unwrap());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

pub(crate) fn text_events(text: &str) -> Vec<Value> {
    vec![json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]})]
}

pub(crate) fn tool_call_events(calls: &[(&str, &str, Value)]) -> Vec<Value> {
    let calls: Vec<_> = calls.iter().enumerate().map(|(at, (id, name, arguments))| json!({"index": at, "id": id, "function": {"name": name, "arguments": arguments.to_string()}})).collect();
    vec![json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})]
}

/// Writes a configuration file.
pub(crate) fn file(text: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, text).unwrap();
    (folder, file.display().to_string())
}

/// The configuration of a documentation page, with the scripted model.
fn shown(page: &str, model: &str) -> (TempDir, String) {
    file(&documented_configs(page)[0].replace("http://127.0.0.1:11434/v1", model))
}

/// All configurations of a documentation page.
pub(crate) fn documented_configs(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("docs").join(page)).unwrap();
    let blocks = text.split("```toml\n").skip(1);
    blocks
        .map(|block| block.split_once("```").unwrap().0.to_owned())
        .collect()
}

pub(crate) fn text(task: &Value) -> &str {
    task["artifacts"][0]["parts"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{task}"))
}

#[test]
fn the_documented_assistant_calls_its_tools() {
    let (url, asked) = model(vec![
        tool_call_events(&[("a", "clock", json!({}))]),
        text_events("It is late."),
    ]);
    let (folder, file) = shown("assistant.md", &url);
    let server = serve_in(&["serve", &file], folder);
    assert_eq!(
        text(&send_text(
            &server.line("Listening on "),
            "What time is it?"
        )),
        "It is late."
    );
    let second = asked.iter().nth(1).unwrap();
    let result = second["messages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["role"] == "tool")
        .unwrap();
    assert!(
        result["content"].as_str().unwrap().contains("UTC"),
        "{second}"
    );
}

#[test]
fn the_documented_clerk_asks_before_it_pays() {
    let (url, _asked) = model(vec![
        tool_call_events(&[("a", "pay", json!({"amount": 5, "to": "Ann"}))]),
        text_events("Paid."),
    ]);
    let (folder, file) = shown("approval.md", &url);
    let mut server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    let task = send_text(&url, "Pay Ann");
    assert_eq!(
        task["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
        "{task}"
    );
    // The question survives a restart, and accepts one answer.
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let folder = std::mem::replace(&mut server.folder, TempDir::new().unwrap());
    let server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    let answer = json!({"messageId": "n", "taskId": task["id"], "role": "ROLE_USER", "parts": [{"text": "yes"}]});
    let task = call(&url, "SendMessage", &json!({"message": answer}))["result"]["task"].clone();
    assert_eq!(text(&task), "Paid.");
    let twice = call(&url, "SendMessage", &json!({"message": answer}));
    assert!(twice["error"].is_object(), "{twice}");
}

#[test]
fn the_documented_editor_handles_an_unreachable_agent() {
    let (url, asked) = model(vec![
        tool_call_events(&[("a", "facts", json!({"message": "how many?"}))]),
        text_events("Many."),
    ]);
    let unreachable = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (folder, file) = shown("delegation.md", &url);
    let written = std::fs::read_to_string(&file)
        .unwrap()
        .replace("127.0.0.1:9000", &unreachable.to_string());
    std::fs::write(&file, written).unwrap();
    let server = serve_in(&["serve", &file], folder);
    assert_eq!(
        text(&send_text(&server.line("Listening on "), "How many?")),
        "Many."
    );
    assert!(
        asked
            .iter()
            .nth(1)
            .unwrap()
            .to_string()
            .contains("the agent gave no answer")
    );
}

#[test]
fn a_killed_turn_resumes_without_repeating_calls() {
    let both = tool_call_events(&[("a", "quick", json!({})), ("b", "slow", json!({}))]);
    let (url, asked) = model(vec![both, text_events("Done.")]);
    let (folder, file) = file(&format!(
        r#"
        [agents.worker]
        type = "llm"
        limits = {{ on_restart = {{ run_again = {{ attempts = 3 }} }} }}
        model = {{ url = "{url}", name = "m" }}
        [agents.worker.tools.quick]
        description = "Is quick"
        command = ["sh", "-c", "echo once >> $HOME/quick; echo fine"]
        [agents.worker.tools.slow]
        description = "Is slow"
        command = ["sh", "-c", "echo once >> $HOME/slow; exec sleep 600"]
        "#
    ));
    let home = TempDir::new().unwrap();
    let path = |name: &str| home.path().join(name);
    let start = |folder| {
        // Commands of the configuration write to the home directory.
        serve_with_home(&file, folder, home.path())
    };
    let mut server = start(folder);
    let url = server.line("Listening on ");
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let id = call(&url, "SendMessage", &params)["result"]["task"]["id"].clone();
    let look = |url: &str| call(url, "GetTask", &json!({"id": id}))["result"].clone();
    let has = |task: &Value, step: &str| task.to_string().contains(step);
    wait_until(|| has(&look(&url), r#""type":"tool-result""#) && path("slow").exists());
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let folder = std::mem::replace(&mut server.folder, TempDir::new().unwrap());
    let server = start(folder);
    let url = server.line("Listening on ");
    wait_until(|| look(&url)["status"]["state"] == "TASK_STATE_COMPLETED");
    let second = asked.iter().nth(1).unwrap().to_string();
    assert!(
        second.contains("fine") && second.contains("a restart interrupted the call"),
        "{second}"
    );
    for name in ["quick", "slow"] {
        assert_eq!(
            std::fs::read_to_string(path(name)).unwrap(),
            "once\n",
            "{name}"
        );
    }
    assert_eq!(text(&look(&url)), "Done.");
}

/// Results of MCP calls are stored like those of other tools: the server process is a new one after a restart.
#[test]
fn a_killed_turn_repeats_only_idempotent_mcp_calls() {
    let three = tool_call_events(&[
        ("a", "once_echo", json!({"text": "fine"})),
        ("b", "once_slow", json!({})),
        ("c", "often_stall", json!({})),
    ]);
    let (url, asked) = model(vec![three, text_events("Done.")]);
    let logs = TempDir::new().unwrap();
    let log = |name: &str| std::fs::read_to_string(logs.path().join(name)).unwrap_or_default();
    let script = repository()
        .join("agents/tests/agents/mcp/server.py")
        .display()
        .to_string();
    let tool = |name: &str, repeat: bool| {
        let place = logs.path().join(name).display().to_string();
        format!(
            "[agents.worker.tools.{name}]\nrepeat = {repeat}\n\
             mcp = {{ command = [\"python3\", \"-I\", \"{script}\"], env = {{ LOG = \"{place}\" }} }}\n"
        )
    };
    let (folder, file) = file(&format!(
        "[agents.worker]\ntype = \"llm\"\nlimits = {{ on_restart = {{ run_again = {{ attempts = 3 }} }} }}\n\
         model = {{ url = \"{url}\", name = \"m\" }}\n{}{}",
        tool("once", false),
        tool("often", true)
    ));
    let mut server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let id = call(&url, "SendMessage", &params)["result"]["task"]["id"].clone();
    let look = |url: &str| call(url, "GetTask", &json!({"id": id}))["result"].clone();
    wait_until(|| {
        look(&url).to_string().contains(r#""type":"tool-result""#)
            && log("once").contains("called slow")
            && log("often").contains("called stall")
    });
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let folder = std::mem::replace(&mut server.folder, TempDir::new().unwrap());
    let server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    wait_until(|| look(&url)["status"]["state"] == "TASK_STATE_COMPLETED");
    let read = asked.iter().nth(1).unwrap().to_string();
    for expected in [
        "fine",
        "a restart interrupted the call; whether it had an effect is unknown",
        "unstalled",
    ] {
        assert!(read.contains(expected), "{expected}: {read}");
    }
    assert_eq!(
        log("once").matches("called echo").count(),
        1,
        "it has its result"
    );
    assert_eq!(
        log("once").matches("called slow").count(),
        1,
        "it may have had an effect"
    );
    assert_eq!(
        log("often").matches("called stall").count(),
        2,
        "that is safe"
    );
}

fn serve_with_home(file: &str, folder: TempDir, home: &Path) -> crate::harness::ServerProcess {
    crate::harness::serve_command(
        crate::harness::attache(&["serve", file]).env("HOME", home),
        folder,
    )
}

/// Polls until a condition holds.
pub(crate) fn wait_until(so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !so() {
        assert!(begun.elapsed() < DEADLINE, "not within the deadline");
        thread::yield_now();
    }
}

#[test]
fn a_real_model_streams_its_answer() {
    if std::env::var_os("ATTACHE_QUICK").is_some_and(|value| value == "1") {
        return;
    }
    let mut model = Command::new(peers().join("model/bin/python"))
        .arg(repository().join("tests/peers/model/serve.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(model.stdout.take().unwrap())
        .read_line(&mut url)
        .unwrap();
    // Another agent with a scripted model delegates the question.
    let (scripted, asked) = self::model(vec![
        tool_call_events(&[(
            "a",
            "smol",
            json!({"message": "What is the capital of France?"}),
        )]),
        text_events("I have asked."),
    ]);
    let (folder, file) = file(&format!(
        "[agents.smol]\ntype = \"llm\"\n[agents.smol.model]\nurl = \"{}\"\nname = \"smollm2\"\ntemperature = 0.0\nmax_tokens = 24\n",
        url.trim()
    ));
    let server = serve_in(&["serve", &file], folder);
    let address = server.line("Listening on ");
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "What is the capital of France?"}]});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}})
            .to_string();
    let mut stream = TcpStream::connect(host).unwrap();
    // A small machine needs more time.
    stream
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    write!(stream, "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    // Over chat completions, and over a delegation.
    let chat = json!({"model": "smol", "messages": [{"role": "user", "content": "What is the capital of France?"}]});
    let headers = ["Content-Type: application/json"];
    let chat = crate::harness::send(
        &format!("{address}v1/chat/completions"),
        "POST",
        &headers,
        &chat.to_string(),
    );
    let (folder, front) = self::file(&format!(
        "[agents.front]\ntype = \"llm\"\nmodel = {{ url = \"{scripted}\", name = \"m\" }}\n[agents.front.tools.smol]\ndescription = \"Knows\"\nagent = \"{address}\"\n"
    ));
    let front = serve_in(&["serve", &front], folder);
    let task = send_text(&front.line("Listening on "), "ask it");
    drop(model.stdin.take());
    model.wait().unwrap();
    assert!(
        chat["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .contains("Paris"),
        "{chat}"
    );
    assert_eq!(text(&task), "I have asked.");
    assert!(asked.iter().nth(1).unwrap().to_string().contains("Paris"));
    assert!(
        task["metadata"]["attache.usage"]["outputTokens"]
            .as_u64()
            .unwrap()
            > 0,
        "{task}"
    );
    assert!(
        answer.matches("artifactUpdate").count() > 3,
        "it streams: {answer}"
    );
    assert!(
        answer.contains("Paris") && answer.contains("TASK_STATE_COMPLETED"),
        "{answer}"
    );
}
