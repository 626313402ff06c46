//! MCP servers as tools of a model, and as an agent: with one that does what it is told, well and ill.

use std::time::Duration;

use attache_agents::{LlmSettings, McpAgent, McpServerSettings, McpSettings, ToolSettings};
use serde_json::{Value, json};
use tempfile::TempDir;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::harness::{Running, artifact, soon, start, state, words};
use crate::http::Backend;
use crate::llm::{agent, calls, model, request, says, settings};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/mcp/server.py");

/// The scripted server, and the folder that its log is in.
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

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Over {
    Pipes,
    Http,
    /// It has no sessions, and so no way to tell what nobody has asked for.
    HttpAlone,
}

/// The scripted server, whichever way; it ends with what comes third. Over HTTP it has other tools after it has ended once,
/// if it is to be `fickle`.
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
    soon(BufReader::new(process.stdout.take().unwrap()).read_line(&mut port))
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

/// Looks into the log until it says this.
async fn logged(folder: &TempDir, what: &str) {
    soon(async {
        while !log(folder).contains(what) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// What the model read of its tools in its n-th request, without the fences.
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

/// The typed steps that a task tells of.
fn told(task: &Value, kind: &str) -> Vec<Value> {
    let said = task["history"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&task["status"]["message"]]);
    let parts = said.filter_map(|one| one["parts"].as_array()).flatten();
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
    let task = agent.say("go").await;
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
    // S51: it learns nothing by asking.
    assert!(log.contains("told \"sampling/createMessage\""), "{log}");
    assert!(log.contains("told {\"action\": \"decline\"}"), "{log}");
}

#[tokio::test]
async fn r46_a_server_that_dies_is_started_again_and_the_model_reads_of_it() {
    for way in [Over::Pipes, Over::Http] {
        let (server, folder, _process) = server_over(way, false).await;
        let model = model(&[
            calls(&[("a", "srv_die", json!({}))]),
            calls(&[("b", "srv_echo", json!({"text": "again"}))]),
            says("done"),
        ])
        .await;
        let task = agent(with(&model, server)).await.say("go").await;
        assert_eq!(state(&task), "COMPLETED", "{way:?}: {task}");
        let gone = "error: the MCP server went away during the call; whether it had an effect is not known";
        assert_eq!(results(&model, 2), [gone, "again"], "{way:?}");
        assert_eq!(log(&folder).matches("started").count(), 2, "{way:?}");
        let died = log(&folder).matches("died").count();
        assert_eq!(
            died, 1,
            "{way:?}: a call that may have had an effect is not made again"
        );
    }
}

/// Nobody tells of it: the server comes back as somebody else, and knows nothing of a session.
#[tokio::test]
async fn s58_a_server_that_comes_back_with_other_tools_needs_a_yes() {
    for way in [Over::Http, Over::HttpAlone] {
        let (server, folder, _process) = server_over(way, true).await;
        let model = model(&[
            calls(&[("a", "srv_die", json!({}))]),
            calls(&[("b", "srv_echo", json!({"text": "hello"}))]),
        ])
        .await;
        let task = agent(with(&model, server)).await.say("go").await;
        assert_eq!(state(&task), "INPUT_REQUIRED", "{way:?}: {task}");
        assert!(
            words(&task).starts_with("The tool says something else of itself"),
            "{way:?}: {task}"
        );
        assert!(
            !log(&folder).contains("called echo"),
            "{way:?}: nothing was sent to it"
        );
    }
}

#[tokio::test]
async fn s58_a_tool_that_changes_in_mid_task_needs_a_yes_and_a_new_one_is_not_offered() {
    for way in [Over::Pipes, Over::Http, Over::HttpAlone] {
        let (server, _folder, _process) = server_over(way, false).await;
        let model = model(&[
            calls(&[("a", "srv_swap", json!({}))]),
            calls(&[("b", "srv_echo", json!({"text": "hello"}))]),
            says("done"),
        ])
        .await;
        let agent = agent(with(&model, server)).await;
        let task = agent.say("go").await;
        let asked = "The tool says something else of itself than when it was agreed to. \
                     May `srv_echo` be called with {\"text\":\"hello\"}? Answer yes or no.";
        assert_eq!(
            (state(&task), words(&task)),
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
            "as it was agreed to"
        );
    }
}

#[tokio::test]
async fn r46_a_task_whose_tool_has_vanished_fails_clearly() {
    for way in [Over::Pipes, Over::Http] {
        let (server, _folder, _process) = server_over(way, false).await;
        let swap = calls(&[("a", "srv_swap", json!({}))]);
        let model = model(&[swap, calls(&[("b", "srv_fleeting", json!({}))])]).await;
        let task = agent(with(&model, server)).await.say("go").await;
        let why = "the tool `srv_fleeting` is gone: its MCP server does not offer it any more";
        assert_eq!((state(&task), words(&task)), ("FAILED", why), "{way:?}");
    }
}

#[tokio::test]
async fn a_cancel_and_a_timeout_reach_the_server_and_progress_the_caller() {
    let (server, folder) = server();
    let model = model(&[calls(&[("a", "srv_slow", json!({}))]), says("done")]).await;
    let mut settings = with(&model, server);
    settings.tools.get_mut("srv").unwrap().timeout = Duration::from_millis(500);
    let slow = agent(settings).await;
    let task = slow.say("go").await;
    assert_eq!(
        results(&model, 1),
        ["error: the tool took longer than 500ms"]
    );
    let steps = told(&task, "tool-progress");
    assert_eq!(
        steps[0],
        json!({"type": "tool-progress", "id": "a", "name": "srv_slow", "progress": 1.0, "total": 3.0, "text": "step 1"})
    );
    logged(&folder, "cancelled").await;

    let model = crate::llm::model(&[calls(&[("a", "srv_slow", json!({}))])]).await;
    let (server, folder) = self::server();
    let agent = agent(with(&model, server)).await;
    let task = agent.begin("go").await;
    agent
        .until(&task, |task| !told(task, "tool-progress").is_empty())
        .await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
    logged(&folder, "cancelled").await;
}

#[tokio::test]
async fn approval_is_asked_for_named_tools_and_an_absent_server_fails_the_task() {
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
    let task = agent(with(&model, named)).await.say("go").await;
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
            "its tools are not those that were agreed to (pin); now it is sha256:",
        ),
        (
            McpServerSettings {
                max_tools: 3,
                ..server.clone()
            },
            "it has more than 3 tools (max_tools)",
        ),
    ] {
        let task = agent(with(&model, absent)).await.say("go").await;
        assert_eq!(state(&task), "FAILED");
        assert!(
            words(&task).starts_with("the tools of `srv` are not there: the MCP server "),
            "{}",
            words(&task)
        );
        assert!(words(&task).contains(why), "{}", words(&task));
    }
}

async fn clerk(server: McpServerSettings) -> Running {
    let mcp = McpAgent::new(McpSettings {
        server,
        ..McpSettings::default()
    })
    .unwrap();
    let skills = soon(mcp.skills()).await.unwrap();
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
    let agent = clerk(server).await;
    for parts in [
        json!([{"data": {"skill": "echo", "arguments": {"text": "hello"}}}]),
        json!([{"text": "echo {\"text\": \"hello\"}"}]),
    ] {
        let task = agent.say_parts(parts).await;
        assert_eq!(
            (state(&task), artifact(&task, "echo")),
            ("COMPLETED", &json!([{"text": "hello"}]))
        );
    }
    let task = agent.say("draw").await;
    assert_eq!(
        artifact(&task, "draw"),
        &json!([{"raw": "iVBORw==", "mediaType": "image/png"}, {"data": {"width": 4}}])
    );
    for (said, state_, why) in [
        (
            "echo {\"text\": 1}",
            "REJECTED",
            "`text` must be of type string",
        ),
        ("echo", "REJECTED", "`text` is missing"),
        (
            "echo hello",
            "REJECTED",
            "behind the name of a skill come its arguments",
        ),
        (
            "sing",
            "REJECTED",
            "there is no skill `sing`; there are: echo, fail",
        ),
        ("fail", "FAILED", "it broke"),
        ("die", "FAILED", "the MCP server went away during the call"),
    ] {
        let task = agent.say(said).await;
        assert_eq!(state(&task), state_, "{said}");
        assert!(words(&task).starts_with(why), "{said}: {}", words(&task));
    }
    let task = agent.say("echo {}").await;
    let field = json!({"type": "invalid-arguments", "field": "text", "reason": "is missing"});
    assert_eq!(task["status"]["message"]["parts"][1]["data"], field);
    assert_eq!(
        log(&folder).matches("started").count(),
        2,
        "one for all, and one more after it died"
    );

    let task = agent.begin("slow").await;
    let task = agent
        .until(&task, |task| !told(task, "tool-progress").is_empty())
        .await;
    assert_eq!(told(&task, "tool-progress")[0]["progress"], 1.0);
    agent.cancel(&task).await;
    logged(&folder, "cancelled").await;

    let task = agent.say("swap").await;
    assert_eq!(state(&task), "COMPLETED");
    let task = agent.say("echo {\"text\": \"x\"}").await;
    assert!(
        state(&task) == "FAILED" && words(&task).contains("says something else of itself"),
        "s58: {task}"
    );
    let task = agent.say("fleeting").await;
    assert!(
        state(&task) == "FAILED" && words(&task).contains("is gone"),
        "r46: {task}"
    );
}

#[tokio::test]
async fn s36_a_skill_that_rules_are_about_is_called_under_the_name_that_they_have_seen() {
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
async fn nobody_of_a_server_is_left_when_its_agent_ends() {
    let (server, _folder) = server();
    let agent = clerk(server).await;
    let task = agent.say("child").await;
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
    soon(async {
        while alive() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
