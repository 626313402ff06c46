//! The demo agent: every command.

use attache_agents::demo_agent;
use serde_json::{Value, json};

use crate::harness::{artifact, start, state, status_text};

const REQUEST: &str = "urn:attache:ext:input-request:v1";

#[tokio::test]
async fn other_messages_are_echoed_with_files_and_data() {
    let agent = start(demo_agent()).await;
    for text in ["hello", "", "streams", "{text}", "helpful stream 5"] {
        let task = agent.send_text(text).await;
        assert_eq!(state(&task), "COMPLETED");
        assert_eq!(artifact(&task, "echo"), &json!([{"text": text}]));
    }
    let parts =
        json!([{"text": "look"}, {"raw": "aGk=", "filename": "hi.txt"}, {"data": {"n": 1.50}}]);
    assert_eq!(
        artifact(&agent.send_parts(parts.clone()).await, "echo"),
        &parts
    );
}

#[tokio::test]
async fn help_lists_every_command() {
    let agent = start(demo_agent()).await;
    let task = agent.send_text("help").await;
    let help = artifact(&task, "help")[0]["text"].as_str().unwrap();
    for word in [
        "stream [n]",
        "slow [s",
        "ask:",
        "auth:",
        "reject:",
        "fail:",
        "panic:",
        "file:",
        "data:",
        "reply:",
    ] {
        assert!(
            help.lines().any(|line| line.starts_with(word)),
            "{word}: {help}"
        );
    }
    assert!(
        help.contains("\ntool: ") && help.contains("anything else: "),
        "{help}"
    );
}

#[tokio::test]
async fn a_stream_has_the_requested_chunks_and_bytes() {
    let agent = start(demo_agent()).await;
    let text = |task: &Value| {
        artifact(task, "stream")[0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let task = agent.send_text("stream 3 40").await;
    let chunks = [1, 2, 3]
        .map(|n| format!("chunk {n} of 3 chunk {n} of 3 chunk {n} of 3 c")[..40].to_owned());
    assert_eq!(text(&task), chunks.concat());
    assert_eq!(text(&agent.send_text("Stream").await).len(), 200);
    assert_eq!(text(&agent.send_text("stream 0").await), "");
    assert_eq!(
        text(&agent.send_text("stream nonsense -5").await).len(),
        200
    );
}

#[tokio::test]
async fn r44_the_size_of_a_stream_is_limited() {
    let agent = start(demo_agent()).await;
    let task = agent.send_text("stream 1e300 inf").await;
    assert_eq!(state(&task), "COMPLETED");
    assert_eq!(
        artifact(&task, "stream")[0]["text"].as_str().unwrap().len(),
        1000 * 4096
    );
}

#[tokio::test]
async fn a_slow_task_reports_progress_and_can_be_canceled() {
    let agent = start(demo_agent()).await;
    let task = agent.send_without_waiting("slow 600").await;
    agent
        .poll_until(&task, |task| status_text(task).ends_with(" of 600 seconds"))
        .await;
    let task = agent.cancel(&task).await;
    assert_eq!(state(&task), "CANCELED");
    let history_text = |task: &Value| task["history"].to_string();
    assert!(history_text(&task).contains("this takes a while"), "{task}");
    assert!(
        history_text(&task).contains("stopping, as I was told"),
        "{task}"
    );
}

#[tokio::test]
async fn a_slow_task_completes() {
    let agent = start(demo_agent()).await;
    let task = agent.send_text("slow 0.01").await;
    assert_eq!(state(&task), "COMPLETED");
    assert_eq!(artifact(&task, "slow"), &json!([{"text": "done"}]));
}

#[tokio::test]
async fn a_question_continues_with_its_answer() {
    let agent = start(demo_agent()).await;
    let asked = agent.send_text("ask").await;
    assert_eq!(
        (state(&asked), status_text(&asked)),
        ("INPUT_REQUIRED", "What is your name?")
    );
    let task = agent.answer(&asked, json!([{"text": "slow 600"}])).await;
    assert_eq!(state(&task), "COMPLETED");
    assert_eq!(
        artifact(&task, "greeting"),
        &json!([{"text": "Hello, slow 600!"}])
    );
}

#[tokio::test]
async fn credentials_are_requested() {
    let agent = start(demo_agent()).await;
    let asked = agent.send_text("auth").await;
    assert_eq!(state(&asked), "AUTH_REQUIRED");
    let task = agent.answer(&asked, json!([{"text": "it is me"}])).await;
    assert_eq!(state(&task), "COMPLETED");
    assert!(
        artifact(&task, "secret")[0]["text"]
            .as_str()
            .unwrap()
            .contains("treasure")
    );
}

#[tokio::test]
async fn credentials_out_of_band_let_the_turn_continue() {
    let agent = start(demo_agent()).await;
    let asked = agent.send_text("auth elsewhere 1").await;
    assert_eq!(state(&asked), "AUTH_REQUIRED");
    let task = agent
        .poll_until(&asked, |task| state(task) == "COMPLETED")
        .await;
    artifact(&task, "secret");
}

#[tokio::test]
async fn rejections_failures_and_panics_are_distinguished() {
    let agent = start(demo_agent()).await;
    for (word, end, text) in [
        ("reject", "REJECTED", "I would rather not"),
        ("fail", "FAILED", "it did not work, as you asked"),
        (
            "fail inside",
            "FAILED",
            "Agent execution failed (ScriptedError)",
        ),
        ("panic", "FAILED", "Agent execution failed (panic)"),
    ] {
        let task = agent.send_text(word).await;
        assert_eq!((state(&task), status_text(&task)), (end, text), "{word}");
        assert!(!task.to_string().contains("log alone"), "{task}");
    }
    assert_eq!(state(&agent.send_text("still there?").await), "COMPLETED");
}

#[tokio::test]
async fn a_file_is_returned_and_received_files_are_described() {
    let agent = start(demo_agent()).await;
    let task = agent.send_text("file").await;
    let tides = &artifact(&task, "tides.csv")[0];
    assert_eq!(
        (&tides["filename"], &tides["mediaType"]),
        (&json!("tides.csv"), &json!("text/csv"))
    );
    assert!(tides["raw"].is_string(), "{tides}");
    assert_eq!(
        artifact(&task, "received"),
        &json!([{"text": "no file came in"}])
    );
    let parts = json!([
        {"text": "file"},
        {"raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain"},
        {"url": "https://example.com/x"},
    ]);
    let task = agent.send_parts(parts).await;
    let received = "hi.txt: text/plain, 2 bytes\nunnamed: unknown type, at https://example.com/x";
    assert_eq!(artifact(&task, "received"), &json!([{"text": received}]));
}

#[tokio::test]
async fn data_is_returned_and_received_data_is_echoed() {
    let agent = start(demo_agent()).await;
    let task = agent.send_text("data").await;
    assert_eq!(artifact(&task, "tide")[0]["data"]["harbour"], "North");
    assert_eq!(task["artifacts"].as_array().unwrap().len(), 1);
    let task = agent
        .send_parts(json!([{"text": "data"}, {"data": [1, {"a": null}]}]))
        .await;
    assert_eq!(
        artifact(&task, "received"),
        &json!([{"data": [1, {"a": null}]}])
    );
}

#[tokio::test]
async fn a_reply_makes_no_task() {
    let agent = start(demo_agent()).await;
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "reply"}]});
    let answer = agent.call("SendMessage", json!({"message": message})).await;
    assert_eq!(
        answer["message"]["parts"],
        json!([{"text": "a plain message, and no task"}])
    );
    assert_eq!(agent.call("ListTasks", json!({})).await["totalSize"], 0);
}

#[tokio::test]
async fn a_client_tool_is_requested_and_its_result_used() {
    let agent = start(demo_agent()).await;
    let asked = agent.send_text("tool").await;
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    let message = &asked["status"]["message"];
    let request = &message["metadata"][REQUEST];
    assert_eq!(
        (&request["kind"], &request["sensitive"]),
        (&json!("input-request"), &json!(false))
    );
    assert_eq!(request["prompt"], message["parts"][0]["text"]);
    assert_eq!(message["parts"][1]["metadata"], json!({"kind": "tool-use"}));
    assert_eq!(
        message["parts"][1]["data"]["toolUseId"],
        request["requestId"]
    );
    assert_eq!(message["parts"][1]["data"]["name"], "clock");
    let result = json!({"toolUseId": request["requestId"], "result": {"time": "12:00"}});
    let task = agent
        .answer(
            &asked,
            json!([{"data": result, "metadata": {"kind": "tool-result"}}]),
        )
        .await;
    assert_eq!(
        artifact(&task, "result"),
        &json!([{"text": r#"your tool says {"time":"12:00"}"#}])
    );
    let task = agent
        .answer(&agent.send_text("tool").await, json!([{"text": "noon"}]))
        .await;
    assert_eq!(
        artifact(&task, "result"),
        &json!([{"text": "your tool says noon"}])
    );
}

#[test]
fn every_command_is_a_skill_with_an_example() {
    let skills: Vec<_> = demo_agent().skills().collect();
    assert!(skills.len() >= 13);
    assert!(
        skills
            .iter()
            .all(|skill| !skill.description.is_empty() && skill.examples.len() == 1)
    );
    assert_eq!(skills.last().unwrap().id, "echo");
}

#[test]
fn the_demo_page_has_an_example_of_every_command() {
    let page = include_str!("../../../docs/demo.md");
    for skill in demo_agent().skills() {
        let example = format!("`{}`", skill.examples[0]);
        assert!(
            page.lines()
                .any(|line| line.starts_with("| `") && line.contains(&example)),
            "{example}"
        );
    }
}

#[test]
fn the_script_of_the_demo_page_is_valid() {
    let page = include_str!("../../../docs/demo.md");
    let script = page
        .split("```toml as=script\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    attache_agents::Script::parse(script).unwrap();
}
