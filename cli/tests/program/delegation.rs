//! Delegation between agents in three processes: one result, cancellation of all, and total usage.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    DEADLINE, ServerProcess, attache, call, send, send_text, serve_command, serve_in,
};
use crate::keys::{bearer, keys};
use crate::llm::{body, documented_configs, text_events, tool_call_events, wait_until};

/// Trace id of the root call.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A scripted model: each request is answered with given events, or by closing the connection.
struct ScriptedModel {
    url: String,
    asked: Receiver<Value>,
    answer: SyncSender<Option<Vec<Value>>>,
}

impl ScriptedModel {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let ((ask, asked), (answer, answers)) =
            (sync_channel(8), sync_channel::<Option<Vec<Value>>>(8));
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (Ok(()), Ok(answer)) = (ask.send(body(&mut stream)), answers.recv()) else {
                    return;
                };
                let Some(mut events) = answer else { continue };
                events.push(
                    json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}),
                );
                let events: String = events
                    .iter()
                    .map(|event| format!("data: {event}\n\n"))
                    .collect();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                // The client may have closed the connection.
                let _ = stream.write_all(format!("{head}{events}data: [DONE]\n\n").as_bytes());
            }
        });
        Self { url, asked, answer }
    }

    /// The next request.
    fn next_request(&self) -> Value {
        self.asked
            .recv_timeout(DEADLINE)
            .expect("the model is asked")
    }

    fn answer(&self, events: Vec<Value>) {
        self.answer.send(Some(events)).unwrap();
    }

    /// Answers the next request with a delegation.
    fn answer_with_delegation(&self, text: &str) {
        self.answer(tool_call_events(&[("a", "next", json!({"message": text}))]));
    }
}

/// A server with an LLM agent that may delegate to another. It can be killed and restarted on the same address.
struct DelegationNode {
    server: Option<ServerProcess>,
    model: ScriptedModel,
    url: String,
    file: std::path::PathBuf,
}

impl DelegationNode {
    fn new(next: Option<&str>) -> Self {
        let folder = TempDir::new().unwrap();
        let model = ScriptedModel::new();
        let file = folder.path().join("agents.toml");
        let tool = next.map_or_else(String::new, |url| {
            format!("[agents.node.tools.next]\ndescription = \"Knows more\"\nagent = \"{url}\"\n")
        });
        let text = format!(
            "[agents.node]\ntype = \"llm\"\nlimits = {{ on_restart = {{ run_again = {{ attempts = 5 }} }} }}\n\
             model = {{ url = \"{}\", name = \"m\" }}\n{tool}[agents.practice]\ntype = \"demo\"\n\
             [telemetry]\ntrace_metadata = true\n",
            model.url
        );
        std::fs::write(&file, text).unwrap();
        let mut command = attache(&["serve", file.to_str().unwrap()]);
        let server = serve_command(&mut command, folder);
        let url = server.line("Listening on ");
        Self {
            server: Some(server),
            model,
            url,
            file,
        }
    }

    /// Kills the process, and starts it again.
    fn kill_and_restart(&mut self) {
        let mut server = self.server.take().unwrap();
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        let folder = std::mem::replace(&mut server.folder, TempDir::new().unwrap());
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        let mut command = attache(&["serve", self.file.to_str().unwrap(), "--listen", address]);
        let server = serve_command(&mut command, folder);
        server.line("Listening on ");
        self.server = Some(server);
    }

    fn send_root_message(&self) -> Value {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
        let trace = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01");
        let headers = ["Content-Type: application/json", "A2A-Version: 1.0", &trace];
        send(&self.url, "POST", &headers, &body.to_string())["result"]["task"]["id"].clone()
    }

    fn task(&self, id: &Value) -> Value {
        call(&self.url, "GetTask", &json!({"id": id}))["result"].clone()
    }

    fn newest_task(&self) -> Value {
        let listed =
            call(&self.url, "ListTasks", &json!({"pageSize": 1}))["result"]["tasks"].clone();
        self.task(&listed[0]["id"])
    }

    /// The states of all tasks, newest first.
    fn states(&self) -> Vec<String> {
        let listed = call(&self.url, "ListTasks", &json!({}))["result"]["tasks"].clone();
        let state = |task: &Value| {
            task["status"]["state"]
                .as_str()
                .unwrap()
                .replace("TASK_STATE_", "")
        };
        listed.as_array().unwrap().iter().map(state).collect()
    }
}

fn three_nodes() -> [DelegationNode; 3] {
    let leaf = DelegationNode::new(None);
    let middle = DelegationNode::new(Some(&leaf.url));
    let root = DelegationNode::new(Some(&middle.url));
    [root, middle, leaf]
}

#[test]
fn r40_a_root_cancel_stops_all_and_a_killed_middle_resumes() {
    let [root, mut middle, leaf] = three_nodes();
    // Cancel while the model of the last agent is running.
    root.model.answer_with_delegation("ask them");
    middle.model.answer_with_delegation("the answer?");
    let task = root.send_root_message();
    leaf.model.next_request();
    let canceled = call(&root.url, "CancelTask", &json!({"id": task}));
    assert_eq!(
        canceled["result"]["status"]["state"], "TASK_STATE_CANCELED",
        "{canceled}"
    );
    wait_until(|| {
        [&root, &middle, &leaf]
            .iter()
            .all(|node| node.states() == ["CANCELED"])
    });
    leaf.model.answer.send(None).unwrap();
    [&root, &middle]
        .iter()
        .for_each(|node| drop(node.model.next_request()));
    // The middle process is killed while the last model is running: it resumes the remote task.
    root.model.answer_with_delegation("ask them");
    middle.model.answer_with_delegation("the answer?");
    let task = root.send_root_message();
    [&root, &middle, &leaf]
        .iter()
        .for_each(|node| drop(node.model.next_request()));
    // Wait until the link to the remote task is stored; before that it cannot be resumed.
    wait_until(|| {
        middle
            .newest_task()
            .to_string()
            .contains(r#""type":"delegated""#)
    });
    middle.kill_and_restart();
    leaf.model.answer(text_events("42"));
    let second = middle.model.next_request();
    assert!(second.to_string().contains("42"), "{second}");
    middle.model.answer(text_events("they say 42"));
    root.model.next_request();
    root.model.answer(text_events("it is 42"));
    wait_until(|| root.task(&task)["status"]["state"] == "TASK_STATE_COMPLETED");
    let traced = |node: &DelegationNode| node.newest_task().to_string().contains(TRACE);
    assert!(
        [&root, &middle, &leaf].into_iter().all(traced),
        "one trace, over the restart too"
    );
    let task = root.task(&task);
    assert_eq!(
        task["artifacts"][0]["parts"][0]["text"], "it is 42",
        "{task}"
    );
    assert_eq!(
        leaf.states(),
        ["COMPLETED", "CANCELED"],
        "no model was called twice"
    );
    // Two calls of the root, two of the middle, one of the last: usage before the kill counts.
    let usage = &task["metadata"]["attache.usage"];
    assert_eq!(
        (
            &usage["calls"],
            &usage["inputTokens"],
            &usage["outputTokens"]
        ),
        (&json!(5), &json!(50), &json!(10)),
        "{usage}"
    );
}

#[test]
fn r43_a_question_three_levels_down_survives_restarts_and_is_answered_once() {
    let leaf = DelegationNode::new(None);
    let mut middle = DelegationNode::new(Some(&format!("{}agents/practice/", leaf.url)));
    let mut root = DelegationNode::new(Some(&middle.url));
    let request = |task: &Value| {
        task["status"]["message"]["metadata"]["urn:attache:ext:input-request:v1"].clone()
    };
    let needs = [
        ("ask", "INPUT_REQUIRED", "question", "Ada", "Hello, Ada!"),
        (
            "auth",
            "AUTH_REQUIRED",
            "credentials",
            "sesame",
            "the treasure is under the palm",
        ),
    ];
    let tasks = needs.map(|(word, state, wants, ..)| {
        root.model.answer_with_delegation("ask them");
        middle.model.answer_with_delegation(word);
        let task = send_text(&root.url, "go");
        assert_eq!(
            task["status"]["state"],
            format!("TASK_STATE_{state}"),
            "{task}"
        );
        assert_eq!(
            (&request(&task)["requestId"], &request(&task)["wants"]),
            (&json!("a"), &json!(wants))
        );
        [&root, &middle]
            .iter()
            .for_each(|node| drop(node.model.next_request()));
        task
    });
    middle.kill_and_restart();
    root.kill_and_restart();
    for (task, (word, .., output, heard)) in tasks.iter().zip(needs) {
        let again = root.task(&task["id"]);
        assert_eq!(
            request(&again),
            request(task),
            "the same question, under the same id: {word}"
        );
        middle.model.answer(text_events("it is known"));
        root.model.answer(text_events("done"));
        let answer = json!({"messageId": word, "taskId": task["id"], "role": "ROLE_USER", "parts": [{"text": output}]});
        let answered = call(
            &root.url,
            "SendMessage",
            &json!({"message": answer.clone()}),
        )["result"]["task"]
            .clone();
        assert_eq!(
            answered["status"]["state"], "TASK_STATE_COMPLETED",
            "{answered}"
        );
        let read = middle.model.next_request().to_string();
        assert!(read.contains(heard), "the answer went down: {read}");
        root.model.next_request();
        let twice = call(&root.url, "SendMessage", &json!({"message": answer}));
        assert!(twice["error"].is_object(), "the task has ended: {twice}");
    }
    let of_practice = call(
        &format!("{}agents/practice", leaf.url),
        "ListTasks",
        &json!({}),
    );
    assert_eq!(
        of_practice["result"]["totalSize"], 2,
        "no model was called twice"
    );
}

/// The two configurations of the documentation, with test addresses.
#[test]
fn s61_the_documented_broker_enforces_the_permissions_of_the_caller() {
    let [.., broker, books] = documented_configs("delegation.md")
        .try_into()
        .map(|files: [String; 4]| files)
        .unwrap();
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string()
    };
    let at = free();
    let folder = TempDir::new().unwrap();
    let [pass, bob] =
        ["broker", "bob"].map(|name| keys(folder.path(), &["add", name, "--scope", "books"]));
    keys(folder.path(), &["add", "ann"]);
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, books.replace("127.0.0.1:8000", &at)).unwrap();
    let books = serve_in(&["serve", file.to_str().unwrap()], folder);
    let books_url = books.line("Listening on ");

    let folder = TempDir::new().unwrap();
    let [ann, bob_here] = ["ann", "bob"].map(|name| keys(folder.path(), &["add", name]));
    let file = folder.path().join("agents.toml");
    let pem = folder.path().join("delegation.pem");
    let key = include_str!("../../../src/jws/tests/p256.pem");
    std::fs::write(&pem, key).unwrap();
    std::fs::set_permissions(&pem, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let text = broker.replace("http://127.0.0.1:9000/", &books_url);
    std::fs::write(&file, text).unwrap();
    let mut command = attache(&["serve", file.to_str().unwrap(), "--listen", &at]);
    let broker = serve_command(command.env("BOOKS_TOKEN", &pass), folder);
    let url = broker.line("Listening on ");

    let say_as = |url: &str, key: &str| {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "help"}]});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        let headers = [
            "Content-Type: application/json",
            "A2A-Version: 1.0",
            &bearer(key),
        ];
        send(url, "POST", &headers, &body.to_string())
    };
    let refused = say_as(&url, &ann)["result"]["task"].clone();
    assert_eq!(refused["status"]["state"], "TASK_STATE_FAILED", "{refused}");
    let done = say_as(&url, &bob_here)["result"]["task"].clone();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    assert_eq!(
        say_as(&books_url, &pass)["error"]["code"],
        -31403,
        "nor by itself"
    );
    assert_eq!(
        say_as(&books_url, &bob)["result"]["task"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
}
