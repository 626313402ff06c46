//! `attache task`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent, result, task};

fn start_task(text: &str) -> String {
    run_at(&DEMO, &["send", "--async", text])
        .field("Task")
        .to_owned()
}

#[test]
fn task_get_001_state_artifacts_and_history_by_id() {
    let sent = run_at(&DEMO, &["send", "hello"]);
    let id = sent.field("Task");
    let output = run_at(&DEMO, &["task", "get", id, "--history", "1"]);
    assert_eq!(output.code, Some(0));
    let context = sent.field("Context");
    let artifact = sent.field("Artifact");
    let url = &**DEMO;
    assert_eq!(
        output.out,
        format!(
            "Task: {id}\nContext: {context}\nState: TASK_STATE_COMPLETED\nArtifact: {artifact}\nText:\n  hello\n\n\
             History: 1 message\nMessage: user\nText:\n  hello\n\n\
             Resume: attache send -a {url} --context-id {context} '<message>'\n"
        )
    );
    let json = run_at(&DEMO, &["task", "get", id, "--history", "0", "-o", "json"]).json();
    assert_eq!((&json["id"], json.get("history")), (&json!(id), None));
    let unknown = run_at(&DEMO, &["task", "get", "nope", "-o", "json"]);
    assert_eq!(
        (unknown.code, &unknown.json()["error"]["code"]),
        (Some(1), &json!("TaskNotFoundError"))
    );
}

#[test]
fn task_cancel_001_canceling_twice_is_canceling_once() {
    let id = start_task("slow 60");
    for _ in 0..2 {
        let output = run_at(&DEMO, &["task", "cancel", &id]);
        assert_eq!(
            (output.code, output.field("State")),
            (Some(0), "TASK_STATE_CANCELED"),
            "{output:?}"
        );
    }
    let ended = run_at(&DEMO, &["send", "hi"]);
    let output = run_at(
        &DEMO,
        &["task", "cancel", ended.field("Task"), "-o", "json"],
    );
    let error = &output.json()["error"];
    assert_eq!(
        (output.code, &error["code"]),
        (Some(1), &json!("TaskNotCancelableError"))
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("TASK_STATE_COMPLETED"),
        "{error}"
    );
}

#[test]
fn task_poll_001_get_once_or_wait_until_the_end() {
    let id = start_task("slow 2");
    assert_eq!(
        run_at(&DEMO, &["task", "get", &id]).field("State"),
        "TASK_STATE_WORKING"
    );
    let output = run_at(
        &DEMO,
        &["task", "get", "--wait", "--poll-interval", "200ms", &id],
    );
    assert_eq!(
        (output.code, output.field("State")),
        (Some(0), "TASK_STATE_COMPLETED")
    );
}

#[test]
fn task_poll_002_the_interval_is_fixed_and_transient_errors_are_retried() {
    let answers = |_: &scripted_agent::RecordedRequest, number| match number {
        2 | 3 => scripted_agent::json_reply(503, &json!({})),
        0..6 => result(&task("TASK_STATE_WORKING")),
        _ => result(&task("TASK_STATE_COMPLETED")),
    };
    let peer = ScriptedAgent::new(scripted_agent::plain, answers);
    let start = Instant::now();
    let output = run_at(
        &peer.url,
        &["task", "get", "--wait", "--poll-interval", "200ms", "t-1"],
    );
    assert_eq!(
        (output.code, output.field("State")),
        (Some(0), "TASK_STATE_COMPLETED"),
        "{output:?}"
    );
    assert!(
        start.elapsed() >= Duration::from_millis(1000),
        "no busy loop"
    );
    let peer = ScriptedAgent::new(scripted_agent::plain, |_, _| {
        scripted_agent::json_reply(503, &json!({}))
    });
    let output = run_at(
        &peer.url,
        &[
            "task",
            "get",
            "--wait",
            "--poll-interval",
            "100ms",
            "t-1",
            "-o",
            "json",
        ],
    );
    let error = &output.json()["error"];
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        error["message"].as_str().unwrap().contains("t-1"),
        "{error}"
    );
}

#[test]
fn task_poll_002_exit_001_a_timeout_has_a_resume_hint() {
    for args in [&["send", "slow 60"][..], &["send", "--stream", "slow 60"]] {
        let output = run_at(
            &DEMO,
            &[args, &["--timeout", "300ms", "-o", "json"]].concat(),
        );
        assert_eq!(output.code, Some(5), "{output:?}");
        let error = match args.contains(&"--stream") {
            true => output.lines().last().unwrap()["error"].clone(),
            false => output.json()["error"].clone(),
        };
        assert_eq!(error["code"], "A2ACLI_ERR_TIMEOUT");
        assert!(
            error["hint"]
                .as_str()
                .unwrap()
                .starts_with("attache task get -a "),
            "{error}"
        );
    }
}

#[test]
fn task_list_001_pages_and_filters() {
    let first = run_at(&DEMO, &["send", "one"]);
    let context = first.field("Context").to_owned();
    for text in ["two", "ask"] {
        run_at(&DEMO, &["send", "--context-id", &context, text]);
    }
    let page = run_at(
        &DEMO,
        &["task", "list", "--context-id", &context, "--page-size", "2"],
    );
    assert_eq!(
        (
            page.code,
            page.fields("Task").len(),
            page.fields("State").len()
        ),
        (Some(0), 2, 2)
    );
    let token = page
        .field("Next page")
        .strip_prefix("--page-token ")
        .unwrap();
    let rest = run_at(
        &DEMO,
        &[
            "task",
            "list",
            "--context-id",
            &context,
            "--page-size",
            "2",
            "--page-token",
            token,
        ],
    );
    assert_eq!(
        (rest.fields("Task"), rest.fields("Next page").len()),
        (vec![first.field("Task")], 0)
    );
    let question = run_at(
        &DEMO,
        &[
            "task",
            "list",
            "--context-id",
            &context,
            "--status",
            "input-required",
            "-o",
            "json",
        ],
    );
    assert_eq!(question.json()["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(question.json()["nextPageToken"], "");
    let lines = run_at(
        &DEMO,
        &[
            "task",
            "list",
            "--context-id",
            &context,
            "--all",
            "--page-size",
            "1",
            "-o",
            "json",
            "--stream",
        ],
    );
    assert_eq!(
        lines
            .lines()
            .iter()
            .filter(|task| task["id"].is_string())
            .count(),
        3,
        "{lines:?}"
    );
    assert_eq!(
        run_at(&DEMO, &["task", "list", "--status", "done"]).code,
        Some(2)
    );
}

#[test]
fn download_001_artifacts_are_saved_only_on_request() {
    let sent = run_at(&DEMO, &["send", "file"]);
    let run = verb(&[
        "task",
        "download",
        sent.field("Task"),
        "-a",
        &DEMO,
        "--output-dir",
        "got",
    ]);
    let (output, folder) = run.keep();
    assert_eq!(output.code, Some(0), "{output:?}");
    let csv = fs::read_to_string(folder.path().join("got/tides.csv")).unwrap();
    assert_eq!(csv.len(), 43);
    assert_eq!(
        output.fields("Saved"),
        ["got/tides.csv", "got/received.txt"]
    );
    let json = run_at(
        &DEMO,
        &["task", "download", sent.field("Task"), "-o", "json"],
    )
    .json();
    assert_eq!(
        json["artifacts"][0]["parts"][0]["metadata"]["attache.savedTo"],
        "./tides.csv"
    );
}

#[test]
fn s56_download_001_a_name_with_a_path_stays_in_the_folder() {
    let part = json!({"raw": "aGk=", "filename": "../../../evil.txt", "mediaType": "text/plain"});
    let hostile = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "..", "parts": [part, part, {"url": "file:///etc/passwd"}]}]});
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_with(hostile));
    let (output, folder) = verb(&[
        "task",
        "download",
        "t",
        "-a",
        &peer.url,
        "--output-dir",
        "a/b",
    ])
    .keep();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.fields("Saved"), ["a/b/evil.txt", "a/b/evil-2.txt"]);
    assert_eq!(output.field("Not fetched"), "file:///etc/passwd");
    let all: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(all, ["a"]);
}

#[test]
fn download_001_s29_urls_are_fetched_on_request_and_only_from_allowed_hosts() {
    let files = ScriptedAgent::new(scripted_agent::plain, |question, _| {
        match question.line.as_str() {
            "GET /a/tides.csv?x=1" => {
                b"HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 3\r\n\r\n1,2".to_vec()
            }
            _ => scripted_agent::json_reply(404, &json!({})),
        }
    });
    let url = |path: &str| json!({"url": format!("{}/{path}", files.url)});
    let task = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [url("a/tides.csv?x=1"), url("gone"), {"url": "http://10.0.0.1/x"}]}]});
    let files_asked = || files.requests().len();
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_with(task));
    let download = |more: &[&str]| {
        verb(
            &[
                &[
                    "task", "download", "t", "-a", &peer.url, "--bearer", "hunter22",
                ],
                more,
            ]
            .concat(),
        )
        .keep()
    };
    let (output, _) = download(&[]);
    assert_eq!(
        (output.fields("Not fetched").len(), files_asked()),
        (3, 0),
        "{output:?}"
    );
    let (output, folder) = download(&["--fetch-urls"]);
    assert_eq!(
        (output.code, output.fields("Saved")),
        (Some(0), vec!["./tides.csv"]),
        "{output:?}"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("tides.csv")).unwrap(),
        "1,2"
    );
    assert!(
        output.err.contains("http://10.0.0.1/x was not fetched"),
        "{}",
        output.err
    );
    assert!(
        files
            .requests()
            .iter()
            .all(|question| !question.head.contains("hunter22")),
        "{:?}",
        files.requests()
    );
}

#[test]
fn push_001_webhooks_are_created_shown_listed_and_deleted() {
    let sent = run_at(&DEMO, &["send", "ask"]);
    let task = sent.field("Task");
    let config = |args: &[&str]| run_at(&DEMO, &[&["task", "push-config"], args, &[task]].concat());
    let create = [
        "create",
        "--url",
        "http://127.0.0.1:9/x",
        "--id",
        "w-1",
        "--token",
        "t0ken-secret",
    ];
    let made = config(&create);
    assert_eq!(
        (made.code, made.field("Webhook"), made.field("Token")),
        (Some(0), "w-1", "***"),
        "{made:?}"
    );
    assert_eq!(
        (made.field("Task"), made.field("State")),
        (task, "TASK_STATE_INPUT_REQUIRED")
    );
    assert!(!made.out.contains("t0ken-secret"));
    assert_eq!(
        config(&["get", "--id", "w-1", "-o", "json"]).json()["url"],
        "http://127.0.0.1:9/x"
    );
    assert_eq!(
        config(&["list", "-o", "json"]).json()["configs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        config(&["delete", "--id", "w-1", "-o", "json"]).json(),
        json!({})
    );
    assert_eq!(
        config(&["list", "-o", "json"]).json()["configs"]
            .as_array()
            .map_or(0, Vec::len),
        0
    );
}

#[test]
fn ver_003_capabilities_are_checked_before_gated_calls() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    for (args, code) in [
        (
            &["task", "push-config", "list", "t-1"][..],
            "PushNotificationNotSupportedError",
        ),
        (&["card", "get", "--extended"], "UnsupportedOperationError"),
    ] {
        let output = run_at(&peer.url, &[args, &["-o", "json"]].concat());
        let error = &output.json()["error"];
        assert_eq!(
            (output.code, &error["code"], &error["a2aCode"]),
            (Some(1), &json!(code), &json!(null))
        );
    }
    assert!(
        peer.requests()
            .iter()
            .all(|question| question.line.contains("well-known")),
        "{:?}",
        peer.requests()
    );
}

#[test]
fn exit_on_outcome_reports_the_task_state() {
    for (text, code) in [
        ("hi", 0),
        ("fail", 10),
        ("reject", 11),
        ("ask", 13),
        ("auth", 14),
    ] {
        let id = start_task(text);
        let output = run_at(
            &DEMO,
            &[
                "task",
                "wait",
                &id,
                "--exit-on-outcome",
                "--poll-interval",
                "100ms",
            ],
        );
        assert_eq!(output.code, Some(code), "{text}: {output:?}");
    }
}

#[test]
fn auth_011_auth_required_can_be_waited_through() {
    let output = run_at(&DEMO, &["send", "auth elsewhere 1"]);
    assert_eq!(output.field("State"), "TASK_STATE_AUTH_REQUIRED");
    assert!(
        output.err.contains("attache task wait -a "),
        "{}",
        output.err
    );
    let output = run_at(
        &DEMO,
        &["task", "wait", "--through", "auth", output.field("Task")],
    );
    assert_eq!(output.field("State"), "TASK_STATE_COMPLETED", "{output:?}");
}
