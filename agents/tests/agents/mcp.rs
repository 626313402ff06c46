//! MCP servers as tools of a model and as an agent, with a scripted server that can misbehave.

use std::time::Duration;

use attache_agents::{LlmSettings, McpAgent, McpServerSettings, McpSettings, ToolSettings};
use serde_json::{Value, json};
use tempfile::TempDir;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::harness::{TestServer, artifact, start, state, status_text, with_deadline};
use crate::http::Backend;
use crate::llm::{agent, calls, model, request, says, settings};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/mcp/server.py");

/// Returns the scripted server, and the directory of its log.
fn server() -> (McpServerSettings, TempDir) {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log").display().to_string();
    let env = [
        ("LOG".to_owned(), log.as_str().into()),
        ("GIVEN".to_owned(), "yes".into()),
    ]
    .into();
    let command = ["python3", "-I", SCRIPT].map(str::to_owned).to_vec();
    (
        McpServerSettings {
            command,
            env,
            ..McpServerSettings::default()
        },
        folder,
    )
}

/// Transport of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Over {
    Pipes,
    Http,
    /// HTTP without sessions, and so without notifications.
    HttpAlone,
}

/// Starts the scripted server over a transport. Dropping the third value ends it.
///
/// Over HTTP a `fickle` server has other tools after its first end.
pub(crate) async fn server_over(
    way: Over,
    fickle: bool,
) -> (McpServerSettings, TempDir, Option<Child>) {
    let (server, folder) = server();
    if way == Over::Pipes {
        return (server, folder, None);
    }
    let mut command = Command::new("python3");
    command
        .args(["-I", SCRIPT, "http"])
        .env("LOG", folder.path().join("log"))
        .env("GIVEN", "yes");
    command.env("AFTERWARDS", if fickle { "1" } else { "0" });
    command.env("SESSIONS", if way == Over::HttpAlone { "0" } else { "1" });
    let pipe = std::process::Stdio::piped;
    let mut process = command
        .stdin(pipe())
        .stdout(pipe())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut port = String::new();
    with_deadline(BufReader::new(process.stdout.take().unwrap()).read_line(&mut port))
        .await
        .unwrap();
    let url = Some(format!("http://127.0.0.1:{}/mcp", port.trim()));
    (
        McpServerSettings {
            url,
            ..McpServerSettings::default()
        },
        folder,
        Some(process),
    )
}

pub(crate) fn with(model: &Backend, server: McpServerSettings) -> LlmSettings {
    let tool = ToolSettings {
        mcp: Some(server),
        ..ToolSettings::default()
    };
    LlmSettings {
        tools: [("srv".to_owned(), tool)].into(),
        ..settings(model)
    }
}

pub(crate) fn log(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("log")).unwrap_or_default()
}

/// Waits until the log contains a text.
async fn wait_for_log(folder: &TempDir, what: &str) {
    with_deadline(async {
        while !log(folder).contains(what) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Returns the tool results in a request, counted from 0, without the fences.
fn results(model: &Backend, at: usize) -> Vec<String> {
    let body = request(model, at);
    let tools = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["role"] == "tool");
    let inner = |content: &str| content.lines().skip(1).collect::<Vec<_>>().join("\n");
    let inner = |content: &str| inner(content).rsplit_once('\n').unwrap().0.to_owned();
    tools
        .map(|one| inner(one["content"].as_str().unwrap()))
        .collect()
}

fn offered(model: &Backend, at: usize) -> Vec<Value> {
    let body = request(model, at);
    body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"].clone())
        .collect()
}

/// Returns the steps of a type in a task.
fn steps_of_type(task: &Value, kind: &str) -> Vec<Value> {
    let messages = task["history"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&task["status"]["message"]]);
    let parts = messages.filter_map(|one| one["parts"].as_array()).flatten();
    parts
        .filter_map(|part| part.get("data").cloned())
        .filter(|data| data["type"] == kind)
        .collect()
}

#[tokio::test]
async fn a_model_calls_the_tools_of_a_server() {
    let (server, folder) = server();
    let model = model(&[
        calls(&[
            ("a", "srv_echo", json!({"text": "hello"})),
            ("b", "srv_fail", json!({})),
        ]),
        calls(&[("c", "srv_draw", json!({})), ("d", "srv_spy", json!({}))]),
        says("done"),
    ])
    .await;
    let agent = agent(with(&model, server)).await;
    let task = agent.send_text("go").await;
    assert_eq!(
        (state(&task), &artifact(&task, "answer")[0]["text"]),
        ("COMPLETED", &json!("done")),
        "{task}"
    );
    let offers = offered(&model, 0);
    assert_eq!(offers.len(), 11, "every page is read");
    assert_eq!(
        offers[0],
        json!({
            "name": "srv_echo", "description": "Says it back",
            "parameters": {
                "type": "object", "required": ["text"],
                "properties": {"text": {"type": "string", "description": "What is said back"}},
            },
        })
    );
    let legal = |name: &str| {
        name.len() <= 64
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    assert!(
        offers
            .iter()
            .all(|offer| legal(offer["name"].as_str().unwrap())),
        "{offers:?}"
    );
    let mut read = results(&model, 1);
    read.sort();
    assert_eq!(read, ["error: it broke", "hello"]);
    assert!(
        results(&model, 2)
            .iter()
            .any(|one| one
                == "[file unnamed, image/png, 4 bytes, given to the caller]\n{\"width\":4}")
    );
    assert_eq!(
        artifact(&task, "srv_draw"),
        &json!([{"raw": "iVBORw==", "mediaType": "image/png"}])
    );
    let log = log(&folder);
    assert!(
        log.starts_with("started False yes\ncapabilities {}\n"),
        "one start, and no secrets of ours: {log}"
    );
    // S51: requests of the server are refused.
    assert!(log.contains("response \"sampling/createMessage\""), "{log}");
    assert!(log.contains("response {\"action\": \"decline\"}"), "{log}");
}

#[tokio::test]
async fn r46_a_server_that_exits_is_restarted_and_the_model_is_informed() {
    for way in [Over::Pipes, Over::Http] {
        let (server, folder, _process) = server_over(way, false).await;
        let model = model(&[
            calls(&[("a", "srv_die", json!({}))]),
            calls(&[("b", "srv_echo", json!({"text": "again"}))]),
            says("done"),
        ])
        .await;
        let task = agent(with(&model, server)).await.send_text("go").await;
        assert_eq!(state(&task), "COMPLETED", "{way:?}: {task}");
        let gone = "error: the MCP server disconnected during the call; whether it had an effect is unknown";
        assert_eq!(results(&model, 2), [gone, "again"], "{way:?}");
        assert_eq!(log(&folder).matches("started").count(), 2, "{way:?}");
        let died = log(&folder).matches("died").count();
        assert_eq!(
            died, 1,
            "{way:?}: a call that may have had an effect is not made again"
        );
    }
}

/// The server restarts with other tools, without a notification and without the session.
#[tokio::test]
async fn s58_a_restarted_server_with_other_tools_needs_approval() {
    for way in [Over::Http, Over::HttpAlone] {
        let (server, folder, _process) = server_over(way, true).await;
        let model = model(&[
            calls(&[("a", "srv_die", json!({}))]),
            calls(&[("b", "srv_echo", json!({"text": "hello"}))]),
        ])
        .await;
        let task = agent(with(&model, server)).await.send_text("go").await;
        assert_eq!(state(&task), "INPUT_REQUIRED", "{way:?}: {task}");
        assert!(
            status_text(&task).starts_with("The definition of the tool has changed"),
            "{way:?}: {task}"
        );
        assert!(
            !log(&folder).contains("called echo"),
            "{way:?}: nothing was sent to it"
        );
    }
}

#[tokio::test]
async fn s58_a_changed_tool_needs_approval_and_a_new_one_is_not_used() {
    for way in [Over::Pipes, Over::Http, Over::HttpAlone] {
        let (server, _folder, _process) = server_over(way, false).await;
        let model = model(&[
            calls(&[("a", "srv_swap", json!({}))]),
            calls(&[("b", "srv_echo", json!({"text": "hello"}))]),
            says("done"),
        ])
        .await;
        let agent = agent(with(&model, server)).await;
        let task = agent.send_text("go").await;
        let asked = "The definition of the tool has changed since it was reviewed. \
                     May `srv_echo` be called with {\"text\":\"hello\"}? Answer yes or no.";
        assert_eq!(
            (state(&task), status_text(&task)),
            ("INPUT_REQUIRED", asked),
            "{way:?}"
        );
        let task = agent.answer(&task, json!([{"text": "yes"}])).await;
        assert_eq!(state(&task), "COMPLETED", "{way:?}: {task}");
        assert_eq!(results(&model, 2), ["swapped", "hello"], "{way:?}");
        let offers = offered(&model, 2);
        assert!(
            !offers
                .iter()
                .any(|one| one["name"] == "srv_newcomer" || one["name"] == "srv_fleeting")
        );
        assert!(
            offers
                .iter()
                .any(|one| one["description"] == "Says it back"),
            "the reviewed description"
        );
    }
}

#[tokio::test]
async fn r46_a_removed_tool_fails_the_task_with_a_reason() {
    for way in [Over::Pipes, Over::Http] {
        let (server, _folder, _process) = server_over(way, false).await;
        let swap = calls(&[("a", "srv_swap", json!({}))]);
        let model = model(&[swap, calls(&[("b", "srv_fleeting", json!({}))])]).await;
        let task = agent(with(&model, server)).await.send_text("go").await;
        let why = "the tool `srv_fleeting` was removed: its MCP server no longer offers it";
        assert_eq!(
            (state(&task), status_text(&task)),
            ("FAILED", why),
            "{way:?}"
        );
    }
}

#[tokio::test]
async fn cancel_and_timeout_reach_the_server_and_progress_reaches_the_caller() {
    let (server, folder) = server();
    let model = model(&[calls(&[("a", "srv_slow", json!({}))]), says("done")]).await;
    let mut settings = with(&model, server);
    settings.tools.get_mut("srv").unwrap().timeout = Duration::from_millis(500);
    let slow = agent(settings).await;
    let task = slow.send_text("go").await;
    assert_eq!(
        results(&model, 1),
        ["error: the tool took longer than 500ms"]
    );
    let steps = steps_of_type(&task, "tool-progress");
    assert_eq!(
        steps[0],
        json!({"type": "tool-progress", "id": "a", "name": "srv_slow", "progress": 1.0, "total": 3.0, "text": "step 1"})
    );
    wait_for_log(&folder, "cancelled").await;

    let model = crate::llm::model(&[calls(&[("a", "srv_slow", json!({}))])]).await;
    let (server, folder) = self::server();
    let agent = agent(with(&model, server)).await;
    let task = agent.send_without_waiting("go").await;
    agent
        .poll_until(&task, |task| {
            !steps_of_type(task, "tool-progress").is_empty()
        })
        .await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
    wait_for_log(&folder, "cancelled").await;
}

#[tokio::test]
async fn named_tools_need_approval_and_a_missing_server_fails_the_task() {
    let (server, _folder) = server();
    let model = model(&[
        calls(&[("a", "srv_echo", json!({"text": "x"}))]),
        says("done"),
    ])
    .await;
    let named = McpServerSettings {
        approve: vec!["echo".to_owned()],
        ..server.clone()
    };
    let task = agent(with(&model, named)).await.send_text("go").await;
    assert_eq!(state(&task), "INPUT_REQUIRED");
    for (absent, why) in [
        (
            McpServerSettings {
                command: vec!["/nowhere".to_owned()],
                ..server.clone()
            },
            "cannot be started",
        ),
        (
            McpServerSettings {
                command: vec!["true".to_owned()],
                ..server.clone()
            },
            "does not speak MCP",
        ),
        (
            McpServerSettings {
                pin: Some("sha256:00".to_owned()),
                ..server.clone()
            },
            "its tools do not match the `pin` setting; their pin is sha256:",
        ),
        (
            McpServerSettings {
                max_tools: 3,
                ..server.clone()
            },
            "it has more than 3 tools (max_tools)",
        ),
    ] {
        let task = agent(with(&model, absent)).await.send_text("go").await;
        assert_eq!(state(&task), "FAILED");
        assert!(
            status_text(&task).starts_with("the tools of `srv` are not available: the MCP server "),
            "{}",
            status_text(&task)
        );
        assert!(status_text(&task).contains(why), "{}", status_text(&task));
    }
}

async fn mcp_agent(server: McpServerSettings) -> TestServer {
    let mcp = McpAgent::new(McpSettings {
        server,
        ..McpSettings::default()
    })
    .unwrap();
    let skills = with_deadline(mcp.skills()).await.unwrap();
    assert_eq!(
        (skills[0].id.as_str(), skills[0].description.as_str()),
        ("echo", "Says it back")
    );
    assert_eq!(skills[0].examples, ["echo {\"text\":\"string\"}"]);
    start(mcp).await
}

#[tokio::test]
async fn an_mcp_server_is_an_agent_whose_skills_are_its_tools() {
    let (server, folder) = server();
    let agent = mcp_agent(server).await;
    for parts in [
        json!([{"data": {"skill": "echo", "arguments": {"text": "hello"}}}]),
        json!([{"text": "echo {\"text\": \"hello\"}"}]),
    ] {
        let task = agent.send_parts(parts).await;
        assert_eq!(
            (state(&task), artifact(&task, "echo")),
            ("COMPLETED", &json!([{"text": "hello"}]))
        );
    }
    let task = agent.send_text("draw").await;
    assert_eq!(
        artifact(&task, "draw"),
        &json!([{"raw": "iVBORw==", "mediaType": "image/png"}, {"data": {"width": 4}}])
    );
    for (text, state_, why) in [
        (
            "echo {\"text\": 1}",
            "REJECTED",
            "`text` must be of type string",
        ),
        ("echo", "REJECTED", "`text` is missing"),
        (
            "echo hello",
            "REJECTED",
            "the name of a skill must be followed by its arguments",
        ),
        (
            "sing",
            "REJECTED",
            "there is no skill `sing`; there are: echo, fail",
        ),
        ("fail", "FAILED", "it broke"),
        (
            "die",
            "FAILED",
            "the MCP server disconnected during the call",
        ),
    ] {
        let task = agent.send_text(text).await;
        assert_eq!(state(&task), state_, "{text}");
        assert!(
            status_text(&task).starts_with(why),
            "{text}: {}",
            status_text(&task)
        );
    }
    let task = agent.send_text("echo {}").await;
    let field = json!({"type": "invalid-arguments", "field": "text", "reason": "is missing"});
    assert_eq!(task["status"]["message"]["parts"][1]["data"], field);
    assert_eq!(
        log(&folder).matches("started").count(),
        2,
        "one for all, and one more after it died"
    );

    let task = agent.send_without_waiting("slow").await;
    let task = agent
        .poll_until(&task, |task| {
            !steps_of_type(task, "tool-progress").is_empty()
        })
        .await;
    assert_eq!(steps_of_type(&task, "tool-progress")[0]["progress"], 1.0);
    agent.cancel(&task).await;
    wait_for_log(&folder, "cancelled").await;

    let task = agent.send_text("swap").await;
    assert_eq!(state(&task), "COMPLETED");
    let task = agent.send_text("echo {\"text\": \"x\"}").await;
    assert!(
        state(&task) == "FAILED"
            && status_text(&task).contains("has changed since it was reviewed"),
        "s58: {task}"
    );
    let task = agent.send_text("fleeting").await;
    assert!(
        state(&task) == "FAILED" && status_text(&task).contains("was removed"),
        "r46: {task}"
    );
}

#[tokio::test]
async fn s36_the_called_skill_matches_the_one_that_access_rules_checked() {
    for named_skills in [false, true] {
        let (server, folder) = server();
        let agent = start(
            McpAgent::new(McpSettings {
                server,
                named_skills,
                ..McpSettings::default()
            })
            .unwrap(),
        )
        .await;
        for (metadata, is_called) in [
            (json!({"skillId": "echo"}), true),
            (json!({"skillId": "draw"}), false),
            (json!({"skillId": 7}), false),
            (json!({}), !named_skills),
        ] {
            for part in [
                json!({"text": "echo {\"text\": \"x\"}"}),
                json!({"data": {"skill": "echo", "arguments": {"text": "x"}}}),
            ] {
                let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [part], "metadata": metadata});
                let before = log(&folder).matches("echo").count();
                let task =
                    agent.call("SendMessage", json!({"message": message})).await["task"].clone();
                let expected = if is_called { "COMPLETED" } else { "REJECTED" };
                assert_eq!(state(&task), expected, "{metadata} {task}");
                let called = log(&folder).matches("echo").count() > before;
                assert_eq!(called, is_called, "{metadata}: {}", log(&folder));
            }
        }
    }
}

#[tokio::test]
async fn no_process_of_a_server_outlives_its_agent() {
    let (server, _folder) = server();
    let agent = mcp_agent(server).await;
    let task = agent.send_text("child").await;
    let pid = artifact(&task, "child")[0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let alive = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    assert!(!cfg!(target_os = "linux") || alive());
    drop(agent);
    with_deadline(async {
        while alive() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
