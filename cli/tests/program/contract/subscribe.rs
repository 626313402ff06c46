//! `attache task subscribe`.

use serde_json::json;

use super::run::{DEMO, run_at};
use super::scripted_agent::{self, ScriptedAgent, events, result, status, task};

#[test]
fn task_subscribe_001_a_task_is_followed_to_its_end() {
    let begun = run_at(&DEMO, &["send", "--async", "slow 1"]);
    let id = begun.field("Task");
    let output = run_at(&DEMO, &["task", "subscribe", id, "-o", "json", "--stream"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines = output.lines();
    assert_eq!(
        lines[0]["task"]["id"],
        json!(id),
        "the first event is the task"
    );
    assert_eq!(
        lines.last().unwrap()["statusUpdate"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
    let again = run_at(&DEMO, &["task", "subscribe", id, "-o", "json"]);
    let error = &again.json()["error"];
    assert_eq!(
        (again.code, &error["code"]),
        (Some(1), &json!("UnsupportedOperationError"))
    );
    assert!(
        error["hint"].as_str().unwrap().contains("attache task get"),
        "{error}"
    );
}

#[test]
fn task_subscribe_001_out_002_without_a_stream_there_is_one_document() {
    let begun = run_at(&DEMO, &["send", "--async", "slow 1"]);
    let output = run_at(
        &DEMO,
        &["task", "subscribe", begun.field("Task"), "-o", "json"],
    );
    assert_eq!(
        output.json()["status"]["state"],
        "TASK_STATE_COMPLETED",
        "{output:?}"
    );
    assert!(output.json()["artifacts"].is_array());
}

#[test]
fn task_subscribe_002_a_lost_connection_is_resumed_without_repeated_events() {
    let answers =
        |asked: &scripted_agent::RecordedRequest, number| match (asked.method().as_str(), number) {
            ("SubscribeToTask", 1) => events(&[json!({"task": task("TASK_STATE_WORKING")})]),
            ("SubscribeToTask", _) => events(&[
                json!({"task": task("TASK_STATE_WORKING")}),
                status("TASK_STATE_COMPLETED"),
            ]),
            (other, _) => panic!("{other}: no extra get"),
        };
    let peer = ScriptedAgent::new(scripted_agent::streaming, answers);
    let output = run_at(
        &peer.url,
        &["task", "subscribe", "t-1", "-o", "json", "--stream"],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        output.lines(),
        [
            json!({"task": task("TASK_STATE_WORKING")}),
            status("TASK_STATE_COMPLETED")
        ]
    );
}

#[test]
fn task_subscribe_002_a_task_that_ended_during_the_outage_is_read_once() {
    let answers =
        |asked: &scripted_agent::RecordedRequest, number| match (asked.method().as_str(), number) {
            ("SubscribeToTask", 1) => events(&[json!({"task": task("TASK_STATE_WORKING")})]),
            ("SubscribeToTask", _) => scripted_agent::error(-32004, "it has ended"),
            _ => result(&task("TASK_STATE_FAILED")),
        };
    let peer = ScriptedAgent::new(scripted_agent::streaming, answers);
    let output = run_at(
        &peer.url,
        &["task", "subscribe", "t-1", "-o", "json", "--stream"],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        output.lines().last().unwrap()["task"]["status"]["state"],
        "TASK_STATE_FAILED"
    );
    assert!(
        output
            .err
            .contains("warning: the task is TASK_STATE_FAILED")
    );
}

#[test]
fn task_subscribe_001_without_streaming_the_task_is_polled() {
    let answers = |_: &scripted_agent::RecordedRequest, number| match number {
        0..3 => result(&task("TASK_STATE_WORKING")),
        _ => result(&task("TASK_STATE_COMPLETED")),
    };
    let peer = ScriptedAgent::new(scripted_agent::plain, answers);
    let output = run_at(
        &peer.url,
        &[
            "task",
            "subscribe",
            "t-1",
            "-o",
            "json",
            "--stream",
            "--poll-interval",
            "100ms",
        ],
    );
    let states: Vec<_> = output
        .lines()
        .iter()
        .map(|line| line["task"]["status"]["state"].clone())
        .collect();
    assert_eq!(
        states,
        ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"],
        "{output:?}"
    );
}

#[test]
fn r52_task_subscribe_002_a_subscriber_reconnects_after_a_network_failure() {
    let answers = |_: &scripted_agent::RecordedRequest, number| match number {
        1 => events(&[json!({"task": task("TASK_STATE_WORKING")})]),
        // First the connection fails, then the server is unavailable.
        2 => Vec::new(),
        3 => scripted_agent::json_reply(503, &json!({})),
        _ => events(&[
            json!({"task": task("TASK_STATE_WORKING")}),
            status("TASK_STATE_COMPLETED"),
        ]),
    };
    let peer = ScriptedAgent::new(scripted_agent::streaming, answers);
    let follow = [
        "task",
        "subscribe",
        "t-1",
        "-o",
        "json",
        "--stream",
        "--poll-interval",
        "100ms",
    ];
    let output = run_at(&peer.url, &follow);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        output.lines(),
        [
            json!({"task": task("TASK_STATE_WORKING")}),
            status("TASK_STATE_COMPLETED")
        ]
    );
    let gone = |_: &scripted_agent::RecordedRequest, number| match number {
        1 => events(&[json!({"task": task("TASK_STATE_WORKING")})]),
        _ => Vec::new(),
    };
    let peer = ScriptedAgent::new(scripted_agent::streaming, gone);
    let output = run_at(&peer.url, &follow);
    assert_eq!(output.code, Some(3), "{output:?}");
    let error = output.lines().last().unwrap()["error"].clone();
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("lost the connection to task t-1"),
        "{error}"
    );
    assert!(
        error["hint"].as_str().unwrap().contains("--wait t-1"),
        "{error}"
    );
}
