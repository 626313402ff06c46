//! The practice agent: every word that it knows.

use attache_agents::demo_agent;
use serde_json::{Value, json};

use crate::harness::{artifact, start, state, words};

const REQUEST: &str = "urn:attache:ext:input-request:v1";

#[tokio::test]
async fn anything_else_is_said_back_with_its_files_and_data() {
    let agent = start(demo_agent()).await;
    for text in ["hello", "", "streams", "{text}", "helpful stream 5"] {
        let task = agent.say(text).await;
        assert_eq!(state(&task), "COMPLETED");
        assert_eq!(artifact(&task, "echo"), &json!([{"text": text}]));
    }
    let parts =
        json!([{"text": "look"}, {"raw": "aGk=", "filename": "hi.txt"}, {"data": {"n": 1.50}}]);
    assert_eq!(
        artifact(&agent.say_parts(parts.clone()).await, "echo"),
        &parts
    );
}

#[tokio::test]
async fn help_lists_every_word() {
    let agent = start(demo_agent()).await;
    let task = agent.say("help").await;
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
async fn a_stream_has_as_many_chunks_and_bytes_as_were_asked_for() {
    let agent = start(demo_agent()).await;
    let text = |task: &Value| {
        artifact(task, "stream")[0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let task = agent.say("stream 3 40").await;
    let chunks = [1, 2, 3]
        .map(|n| format!("chunk {n} of 3 chunk {n} of 3 chunk {n} of 3 c")[..40].to_owned());
    assert_eq!(text(&task), chunks.concat());
    assert_eq!(text(&agent.say("Stream").await).len(), 200);
    assert_eq!(text(&agent.say("stream 0").await), "");
    assert_eq!(text(&agent.say("stream nonsense -5").await).len(), 200);
}

#[tokio::test]
async fn r44_a_stream_without_end_has_one() {
    let agent = start(demo_agent()).await;
    let task = agent.say("stream 1e300 inf").await;
    assert_eq!(state(&task), "COMPLETED");
    assert_eq!(
        artifact(&task, "stream")[0]["text"].as_str().unwrap().len(),
        1000 * 4096
    );
}

#[tokio::test]
async fn a_slow_task_says_how_far_it_is_and_stops_well_when_canceled() {
    let agent = start(demo_agent()).await;
    let task = agent.begin("slow 600").await;
    agent
        .until(&task, |task| words(task).ends_with(" of 600 seconds"))
        .await;
    let task = agent.cancel(&task).await;
    assert_eq!(state(&task), "CANCELED");
    let said = |task: &Value| task["history"].to_string();
    assert!(said(&task).contains("this takes a while"), "{task}");
    assert!(said(&task).contains("stopping, as I was told"), "{task}");
}

#[tokio::test]
async fn a_slow_task_ends_by_itself() {
    let agent = start(demo_agent()).await;
    let task = agent.say("slow 0.01").await;
    assert_eq!(state(&task), "COMPLETED");
    assert_eq!(artifact(&task, "slow"), &json!([{"text": "done"}]));
}

#[tokio::test]
async fn a_question_goes_on_with_its_answer() {
    let agent = start(demo_agent()).await;
    let asked = agent.say("ask").await;
    assert_eq!(
        (state(&asked), words(&asked)),
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
async fn credentials_are_asked_for_and_any_will_do() {
    let agent = start(demo_agent()).await;
    let asked = agent.say("auth").await;
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
async fn credentials_from_elsewhere_let_the_turn_go_on_by_itself() {
    let agent = start(demo_agent()).await;
    let asked = agent.say("auth elsewhere 1").await;
    assert_eq!(state(&asked), "AUTH_REQUIRED");
    let task = agent.until(&asked, |task| state(task) == "COMPLETED").await;
    artifact(&task, "secret");
}

#[tokio::test]
async fn bad_ends_are_told_apart() {
    let agent = start(demo_agent()).await;
    for (word, end, said) in [
        ("reject", "REJECTED", "I would rather not"),
        ("fail", "FAILED", "it did not work, as you asked"),
        (
            "fail inside",
            "FAILED",
            "Agent execution failed (ScriptedError)",
        ),
        ("panic", "FAILED", "Agent execution failed (panic)"),
    ] {
        let task = agent.say(word).await;
        assert_eq!((state(&task), words(&task)), (end, said), "{word}");
        assert!(!task.to_string().contains("log alone"), "{task}");
    }
    assert_eq!(state(&agent.say("still there?").await), "COMPLETED");
}

#[tokio::test]
async fn files_go_out_and_those_that_came_in_are_described() {
    let agent = start(demo_agent()).await;
    let task = agent.say("file").await;
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
    let task = agent.say_parts(parts).await;
    let received = "hi.txt: text/plain, 2 bytes\nunnamed: unknown type, at https://example.com/x";
    assert_eq!(artifact(&task, "received"), &json!([{"text": received}]));
}

#[tokio::test]
async fn data_goes_out_and_what_came_in_comes_back() {
    let agent = start(demo_agent()).await;
    let task = agent.say("data").await;
    assert_eq!(artifact(&task, "tide")[0]["data"]["harbour"], "North");
    assert_eq!(task["artifacts"].as_array().unwrap().len(), 1);
    let task = agent
        .say_parts(json!([{"text": "data"}, {"data": [1, {"a": null}]}]))
        .await;
    assert_eq!(
        artifact(&task, "received"),
        &json!([{"data": [1, {"a": null}]}])
    );
}

#[tokio::test]
async fn a_plain_reply_makes_no_task() {
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
async fn a_tool_of_the_client_is_asked_for_and_its_result_is_used() {
    let agent = start(demo_agent()).await;
    let asked = agent.say("tool").await;
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
        .answer(&agent.say("tool").await, json!([{"text": "noon"}]))
        .await;
    assert_eq!(
        artifact(&task, "result"),
        &json!([{"text": "your tool says noon"}])
    );
}

#[test]
fn every_word_is_a_skill_with_an_example() {
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
fn the_page_about_the_demo_has_an_example_of_every_word() {
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
fn the_script_of_the_page_is_one() {
    let page = include_str!("../../../docs/demo.md");
    let script = page
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    attache_agents::Script::parse(script).unwrap();
}
