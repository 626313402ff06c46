//! The command agent, with well-behaved and misbehaving programs.

use std::path::Path;
use std::time::Duration;

use attache::Settings;
use attache::auth::{Access, ApiKeys};
use attache::model::Secret;
use attache_agents::{
    CommandAgent, CommandInput, CommandSettings, CommandSpec, ExitMeaning, StderrAudience,
    StdoutFormat,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{artifact, start, start_with, state, status_text, with_deadline};

fn shell(script: &str) -> CommandAgent {
    CommandAgent::new("sh", ["-c", script]).unwrap()
}

fn output(task: &Value) -> &str {
    artifact(task, "output")[0]["text"].as_str().unwrap()
}

/// Waits until a process has written its id into a file, and returns the id.
async fn process_in(file: &Path) -> String {
    with_deadline(async {
        loop {
            match std::fs::read_to_string(file) {
                Ok(id) if id.ends_with('\n') => return id.trim().to_owned(),
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// Waits until the process does not exist. A zombie still exists.
async fn wait_for_exit(id: &str) {
    let alive = || {
        std::process::Command::new("kill")
            .args(["-0", id])
            .output()
            .unwrap()
            .status
            .success()
    };
    with_deadline(async {
        while alive() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_text_is_stdin_and_stdout_is_the_artifact() {
    let agent = start(CommandAgent::parse("cat").unwrap()).await;
    let task = agent.send_text("hello $HOME `id` é").await;
    assert_eq!(
        (state(&task), output(&task)),
        ("COMPLETED", "hello $HOME `id` é")
    );
    let task = agent
        .send_parts(json!([{"text": "a"}, {"data": {"b": 1}}]))
        .await;
    assert_eq!(output(&task), "a\n{\"b\":1}");
    let large = "0123456789".repeat(100_000);
    assert_eq!(output(&agent.send_text(&large).await), large);
}

#[tokio::test]
async fn s57_a_message_is_never_an_argument() {
    let agent = start(CommandAgent::parse("sh -c 'echo $#; cat' name").unwrap()).await;
    assert_eq!(
        output(&agent.send_text("--version; echo gone").await),
        "0\n--version; echo gone"
    );
}

#[tokio::test]
async fn output_streams_while_the_command_runs() {
    let agent = start(shell("echo first; read -r line; exec sleep 600")).await;
    let task = agent.send_without_waiting("go\n").await;
    agent
        .poll_until(&task, |task| {
            task["artifacts"][0]["parts"][0]["text"] == "first\n"
        })
        .await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
}

#[tokio::test]
async fn empty_output_makes_no_artifact() {
    let agent = start(CommandAgent::parse("true").unwrap()).await;
    let task = agent.send_text("hello").await;
    assert_eq!(
        (state(&task), task.get("artifacts")),
        ("COMPLETED", None),
        "{task}"
    );
}

#[tokio::test]
async fn r45_a_failed_command_fails_its_task_without_details() {
    for (script, how) in [
        (
            "echo half; echo /etc/secret >&2; exit 3",
            "ended with exit code 3",
        ),
        ("echo half; kill -9 $$", "was killed by signal 9"),
    ] {
        let agent = start(shell(script)).await;
        let task = agent.send_text("hello").await;
        assert_eq!(
            (state(&task), status_text(&task)),
            ("FAILED", &*format!("the command {how}"))
        );
        assert_eq!(output(&task), "half\n");
        assert!(!task.to_string().contains("secret"), "{task}");
    }
    let agent = start(CommandAgent::parse("/nonexistent/program").unwrap()).await;
    assert_eq!(
        status_text(&agent.send_text("hello").await),
        "Agent execution failed (CommandError)"
    );
}

#[tokio::test]
async fn r45_a_cancel_kills_the_whole_process_group() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("child");
    let agent = start(shell(&format!(
        "sleep 600 & echo $! > {}; wait",
        file.display()
    )))
    .await;
    let task = agent.send_without_waiting("hello").await;
    let child = process_in(&file).await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
    wait_for_exit(&child).await;
}

#[tokio::test]
async fn r45_a_command_may_clean_up_after_a_cancel() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ready");
    let script = format!(
        "trap 'echo cleaned; exit 0' TERM; echo $$ > {}; while :; do sleep 0.01; done",
        file.display()
    );
    let agent = start(shell(&script)).await;
    let task = agent.send_without_waiting("hello").await;
    let id = process_in(&file).await;
    let task = agent.cancel(&task).await;
    assert_eq!((state(&task), output(&task)), ("CANCELED", "cleaned\n"));
    wait_for_exit(&id).await;
}

#[tokio::test]
async fn r45_a_command_that_ignores_the_cancel_is_killed_after_its_grace() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ready");
    let script = format!(
        "trap '' TERM; echo $$ > {}; while :; do sleep 600; done",
        file.display()
    );
    let settings = Settings {
        cancel_grace: Duration::from_millis(50),
        ..Settings::default()
    };
    let agent = start_with(shell(&script), |server| server.settings(settings)).await;
    let task = agent.send_without_waiting("hello").await;
    let id = process_in(&file).await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
    wait_for_exit(&id).await;
}

#[tokio::test]
async fn r45_a_turn_that_takes_too_long_kills_the_process_group() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("child");
    let settings = Settings {
        max_turn_time: Some(Duration::from_millis(200)),
        ..Settings::default()
    };
    let script = format!(
        "trap '' TERM; sleep 600 & echo $! > {}; wait",
        file.display()
    );
    let agent = start_with(shell(&script), |server| server.settings(settings)).await;
    let task = agent.send_text("hello").await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("FAILED", "Agent execution failed (deadline)")
    );
    wait_for_exit(&process_in(&file).await).await;
}

#[tokio::test]
async fn r45_a_child_that_keeps_stdout_open_does_not_keep_the_task_open() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("child");
    let agent = start(shell(&format!(
        "sleep 600 & echo $! > {}; echo done",
        file.display()
    )))
    .await;
    let task = agent.send_text("hello").await;
    assert_eq!((state(&task), output(&task)), ("COMPLETED", "done\n"));
    wait_for_exit(&process_in(&file).await).await;
}

#[tokio::test]
async fn r45_a_process_outside_the_group_does_not_keep_the_task_open() {
    let folder = TempDir::new().unwrap();
    for write in ["echo x >&2; sleep 0.05", "echo x >&2"] {
        let file = folder.path().join("left").display().to_string();
        let left =
            format!("setsid sh -c 'echo $$ > {file}; while :; do {write}; done' > /dev/null &");
        let agent = start(shell(&format!(
            "{left} while [ ! -s {file} ]; do :; done; echo done"
        )))
        .await;
        let task = agent.send_text("hello").await;
        assert_eq!(
            (state(&task), output(&task)),
            ("COMPLETED", "done\n"),
            "{write}"
        );
        // The pipe is closed, so the process gets SIGPIPE.
        wait_for_exit(&process_in(Path::new(&file)).await).await;
        std::fs::remove_file(&file).unwrap();
    }
}

#[tokio::test]
async fn r44_endless_output_is_truncated_and_the_command_killed() {
    let agent = start(CommandAgent::parse("yes").unwrap().max_output(10_001)).await;
    let task = agent.send_text("hello").await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("FAILED", "the output is larger than 10001 bytes")
    );
    assert_eq!(output(&task).len(), 10_001);
    let agent = start(
        CommandAgent::parse("printf 0123456789")
            .unwrap()
            .max_output(10),
    )
    .await;
    assert_eq!(state(&agent.send_text("hello").await), "COMPLETED");
}

#[tokio::test]
async fn r44_endless_stderr_is_discarded() {
    let agent = start(shell("head -c 3000000 /dev/zero >&2; echo done")).await;
    assert_eq!(output(&agent.send_text("hello").await), "done\n");
}

#[tokio::test]
async fn s57_the_environment_has_only_default_variables() {
    let agent = start(CommandAgent::parse("env").unwrap()).await;
    let task = agent.send_text("hello").await;
    let known = [
        "ATTACHE_TASK_ID",
        "ATTACHE_CONTEXT_ID",
        "ATTACHE_MESSAGE_ID",
        "ATTACHE_CALLER",
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
    ];
    let names: Vec<_> = output(&task)
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    assert!(
        names.contains(&"PATH") && names.iter().all(|name| known.contains(name)),
        "{names:?}"
    );
}

#[tokio::test]
async fn r44_concurrent_processes_are_limited() {
    let folder = TempDir::new().unwrap();
    let lock = folder.path().join("lock").display().to_string();
    // A second process finds the directory of the first one, and fails.
    let agent =
        start(shell(&format!("mkdir {lock} && cat && rmdir {lock}")).max_processes(1)).await;
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(agent.send_without_waiting(&number.to_string()).await);
    }
    for (number, task) in tasks.iter().enumerate() {
        let task = agent
            .poll_until(task, |task| !matches!(state(task), "SUBMITTED" | "WORKING"))
            .await;
        assert_eq!(
            (state(&task), output(&task)),
            ("COMPLETED", &*number.to_string())
        );
    }
}

#[tokio::test]
async fn d09_one_caller_leaves_processes_for_others() {
    let folder = TempDir::new().unwrap();
    let started = folder.path().join("started");
    let script = format!(
        "read word; [ $word = quick ] || {{ echo $$ >>{}; exec sleep 1000; }}",
        started.display()
    );
    let keys = ApiKeys::new();
    let greedy = keys.issue("greedy", |identity| identity);
    let modest = keys.issue("modest", |identity| identity);
    let agent = start_with(shell(&script).max_processes(4), |server| {
        server.access(Access::new(keys))
    });
    let agent = agent.await;
    let send = async |key: &Secret, text: &str, is_blocking: bool| {
        let headers = format!("Authorization: Bearer {}\r\n", key.expose());
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
        let params = json!({
            "message": message,
            "configuration": {"returnImmediately": !is_blocking},
        });
        agent
            .call_with_headers(&headers, "SendMessage", params)
            .await["result"]["task"]
            .clone()
    };
    for _ in 0..20 {
        send(&greedy, "slow", false).await;
    }
    let task = send(&modest, "quick", true).await;
    assert_eq!(state(&task), "COMPLETED");
    let running = || std::fs::read_to_string(&started).map_or(0, |ids| ids.lines().count());
    with_deadline(async {
        while running() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(state(&send(&modest, "quick", true).await), "COMPLETED");
    assert_eq!(running(), 2, "half of the processes");
}

#[tokio::test]
async fn concurrent_commands_do_not_mix_their_output() {
    let agent = start(CommandAgent::parse("cat").unwrap()).await;
    let mut tasks = Vec::new();
    for number in 0..100 {
        tasks.push(agent.send_without_waiting(&number.to_string()).await);
    }
    for (number, task) in tasks.iter().enumerate() {
        let task = agent
            .poll_until(task, |task| state(task) == "COMPLETED")
            .await;
        assert_eq!(output(&task), number.to_string());
    }
}

/// Returns an agent that runs a shell script.
fn script(script: &str, settings: CommandSettings) -> CommandAgent {
    let command = CommandSpec::List(["sh", "-c", script].map(str::to_owned).to_vec());
    CommandAgent::from_settings(CommandSettings {
        command,
        ..settings
    })
    .unwrap()
}

fn json_lines(lines: &str) -> CommandAgent {
    script(
        lines,
        CommandSettings {
            output: StdoutFormat::JsonLines,
            ..CommandSettings::default()
        },
    )
}

#[tokio::test]
async fn variables_name_the_task_and_the_caller() {
    let agent = start(shell(
        r#"echo "$ATTACHE_TASK_ID $ATTACHE_CONTEXT_ID $ATTACHE_MESSAGE_ID $ATTACHE_CALLER""#,
    ))
    .await;
    let task = agent.send_text("hello").await;
    let words: Vec<_> = output(&task).split_whitespace().collect();
    let [id, context, "m", "anonymous"] = words[..] else {
        panic!("{words:?}");
    };
    assert_eq!(task["id"], id);
    assert_ne!(task["contextId"], context, "D11");
}

#[tokio::test]
async fn s57_the_environment_has_only_configured_variables() {
    let settings = CommandSettings {
        pass_env: vec![
            "CARGO_PKG_NAME".to_owned(),
            "NOBODY_HAS_SET_THIS".to_owned(),
        ],
        env: [("TIDE".to_owned(), "high".into())].into(),
        ..CommandSettings::default()
    };
    let agent = start(script(
        r#"echo "$CARGO_PKG_NAME $TIDE ${CARGO_PKG_VERSION-none}""#,
        settings,
    ))
    .await;
    assert_eq!(
        output(&agent.send_text("hello").await),
        "attache-agents high none\n"
    );
}

#[tokio::test]
async fn s57_the_text_is_an_argument_and_never_an_option() {
    let agent = start(CommandAgent::new("printf", ["%s.", "{text}", "and {text}"]).unwrap()).await;
    assert_eq!(
        output(&agent.send_text("a b; c").await),
        "a b; c.and a b; c."
    );
    let task = agent.send_text("--help").await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("REJECTED", "the text must not begin with `-`")
    );
}

#[tokio::test]
async fn json_input_has_the_whole_message() {
    let settings = CommandSettings {
        input: Some(CommandInput::Json),
        ..CommandSettings::default()
    };
    let agent = start(script("cat", settings)).await;
    let task = agent.send_text("hello").await;
    let given: Value = serde_json::from_str(output(&task)).unwrap();
    assert_eq!(given["text"], "hello");
    assert_eq!(given["message"]["parts"], json!([{"text": "hello"}]));
    assert_eq!(given["task"]["id"], task["id"]);
}

#[tokio::test]
async fn complete_lines_stream_and_the_last_may_lack_its_end() {
    let settings = CommandSettings {
        output: StdoutFormat::Lines,
        ..CommandSettings::default()
    };
    let agent = start(script(
        "printf 'one\\ntw'; read -r line; printf 'o\\nhalf'",
        settings,
    ))
    .await;
    assert_eq!(output(&agent.send_text("go\n").await), "one\ntwo\nhalf");
}

#[tokio::test]
async fn a_file_is_complete_or_missing() {
    let settings = CommandSettings {
        output: StdoutFormat::File,
        media_type: "text/csv".to_owned(),
        filename: "tides.csv".to_owned(),
        max_output: 10,
        ..CommandSettings::default()
    };
    let agent = start(script("printf 1,2", settings.clone())).await;
    let file = json!([{"raw": "MSwy", "filename": "tides.csv", "mediaType": "text/csv"}]);
    assert_eq!(
        artifact(&agent.send_text("hello").await, "tides.csv"),
        &file
    );
    let agent = start(script("yes", settings)).await;
    let task = agent.send_text("hello").await;
    assert_eq!((state(&task), task.get("artifacts")), ("FAILED", None));
}

#[tokio::test]
async fn a_json_line_can_ask_a_question() {
    let ask = r#"read -r answer
        case "$answer" in
            two) echo '{"artifact": {"name": "order", "parts": [{"text": "two teas"}, {"data": {"n": 2}}]}}'
                 echo '{"state": "completed", "message": "thank you"}' ;;
            *) echo '{"message": "looking"}'; echo '{"text": "so far "}'; echo '{"text": "so good"}'
               echo '{"question": "how many?", "metadata": {"shelf": 3}}' ;;
        esac"#;
    let agent = start(json_lines(ask)).await;
    let asked = agent.send_text("tea\n").await;
    assert_eq!(
        (state(&asked), status_text(&asked), output(&asked)),
        ("INPUT_REQUIRED", "how many?", "so far so good")
    );
    assert_eq!(asked["metadata"]["shelf"], 3, "{asked}");
    assert!(asked["history"].to_string().contains("looking"), "{asked}");
    let task = agent.answer(&asked, json!([{"text": "two\n"}])).await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("COMPLETED", "thank you")
    );
    assert_eq!(
        artifact(&task, "order"),
        &json!([{"text": "two teas"}, {"data": {"n": 2}}])
    );
}

#[tokio::test]
async fn json_lines_declare_the_outcome() {
    for (line, end, text) in [
        (
            r#"{"state": "rejected", "message": "not today"}"#,
            "REJECTED",
            "not today",
        ),
        (
            r#"{"state": "auth-required", "message": "a key"}"#,
            "AUTH_REQUIRED",
            "a key",
        ),
        (
            r#"{"state": "failed", "message": "no tea"}"#,
            "FAILED",
            "no tea",
        ),
        (
            r#"{"state": "working", "message": "on it"}"#,
            "COMPLETED",
            "none",
        ),
    ] {
        let agent = start(json_lines(&format!("echo '{line}'"))).await;
        let task = agent.send_text("hello").await;
        assert_eq!((state(&task), status_text(&task)), (end, text), "{line}");
    }
    let agent = start(json_lines(
        r#"echo '{"state": "failed", "message": "no tea"}'; exit 7"#,
    ))
    .await;
    assert_eq!(status_text(&agent.send_text("hello").await), "no tea");
    let agent = start(json_lines(r#"echo '{"question": "well?"}'; exit 7"#)).await;
    assert_eq!(
        status_text(&agent.send_text("hello").await),
        "the command ended with exit code 7"
    );
}

#[tokio::test]
async fn r45_invalid_json_lines_fail_the_task_and_kill_the_command() {
    for (line, why) in [
        ("hello", "not JSON"),
        ("7", "wrong type"),
        (r#"{"txet": "a"}"#, "unknown member"),
        (r#"{"state": "submitted"}"#, "this state"),
        (r#"{"artifact": {"name": "a"}}"#, "at least one part"),
        (r#"{"text": "#, "ends too early"),
    ] {
        let agent = start(json_lines(&format!("echo '{line}'; exec sleep 600"))).await;
        let task = agent.send_text("hello").await;
        assert_eq!(state(&task), "FAILED", "{line}");
        assert!(
            status_text(&task).starts_with("line 1 ") && status_text(&task).contains(why),
            "{line}: {task}"
        );
    }
    let agent = start(json_lines(r#"printf '{"text": "a"}\n{"text": "b'"#)).await;
    let task = agent.send_text("hello").await;
    assert_eq!(
        (state(&task), status_text(&task)),
        (
            "FAILED",
            "line 2 of the output is invalid: it ends too early"
        )
    );
    assert_eq!(output(&task), "a");
    let agent = start(json_lines(r#"printf '{"text": "a"}\n{"text": "b"}'"#)).await;
    assert_eq!(output(&agent.send_text("hello").await), "ab");
}

#[tokio::test]
async fn exit_codes_have_the_configured_meaning() {
    let settings = CommandSettings {
        exit_codes: [
            (1.into(), ExitMeaning::Completed),
            (2.into(), ExitMeaning::Rejected),
        ]
        .into(),
        stderr: StderrAudience::Caller,
        ..CommandSettings::default()
    };
    let agent = start(script(
        "read -r code; echo because >&2; exit $code",
        settings,
    ))
    .await;
    for (code, end, text) in [
        ("1", "COMPLETED", "none"),
        ("2", "REJECTED", "because"),
        ("3", "FAILED", "because"),
    ] {
        let task = agent.send_text(&format!("{code}\n")).await;
        assert_eq!((state(&task), status_text(&task)), (end, text), "{code}");
    }
}

#[tokio::test]
async fn r45_a_command_has_its_own_timeout() {
    let settings = CommandSettings {
        timeout: Some(Duration::from_millis(100)),
        kill_after: Duration::from_millis(50),
        ..CommandSettings::default()
    };
    for body in [
        "exec sleep 600",
        "trap '' TERM; while :; do sleep 600; done",
    ] {
        let agent = start(script(body, settings.clone())).await;
        let task = agent.send_text("hello").await;
        assert_eq!(
            (state(&task), status_text(&task)),
            ("FAILED", "the command took longer than 100ms")
        );
    }
}

#[tokio::test]
async fn a_shell_runs_the_line_if_enabled() {
    let settings = CommandSettings {
        shell: true,
        command: CommandSpec::Line("tr a-z A-Z | rev".to_owned()),
        ..CommandSettings::default()
    };
    let agent = start(CommandAgent::from_settings(settings).unwrap()).await;
    assert_eq!(output(&agent.send_text("abc").await).trim(), "CBA");
}

/// Runs 50 misbehaving programs concurrently: every task ends in the expected state, and no process is left.
#[tokio::test]
async fn r44_r45_fifty_misbehaving_commands_end_as_expected() {
    let folder = TempDir::new().unwrap();
    let settings = CommandSettings {
        timeout: Some(Duration::from_secs(2)),
        kill_after: Duration::from_millis(50),
        max_output: 100_000,
        ..CommandSettings::default()
    };
    let body = format!(
        r#"read -r kind number; echo $$ > {folder}/$number
        case $kind in
            hang) exec sleep 600 ;;
            deaf) trap '' TERM; while :; do sleep 600; done ;;
            fork) sleep 600 & sleep 600 & wait ;;
            flood) exec yes ;;
            half) printf half ;;
            die) kill -9 $$ ;;
            fail) exit 9 ;;
            leave) sleep 600 & echo $! > {folder}/left-$number; echo done ;;
            *) echo fine ;;
        esac"#,
        folder = folder.path().display()
    );
    let agent = start(script(&body, settings)).await;
    let kinds = [
        ("hang", "FAILED", "the command took longer than 2s"),
        ("deaf", "FAILED", "the command took longer than 2s"),
        ("fork", "FAILED", "the command took longer than 2s"),
        ("flood", "FAILED", "the output is larger than 100000 bytes"),
        ("half", "COMPLETED", "none"),
        ("die", "FAILED", "the command was killed by signal 9"),
        ("fail", "FAILED", "the command ended with exit code 9"),
        ("leave", "COMPLETED", "none"),
        ("fine", "COMPLETED", "none"),
        ("fine", "COMPLETED", "none"),
    ];
    let mut tasks = Vec::new();
    for number in 0..50 {
        tasks.push(
            agent
                .send_without_waiting(&format!("{} {number}\n", kinds[number % kinds.len()].0))
                .await,
        );
    }
    for (number, task) in tasks.iter().enumerate() {
        let (kind, end, text) = kinds[number % kinds.len()];
        let task = agent
            .poll_until(task, |task| !matches!(state(task), "SUBMITTED" | "WORKING"))
            .await;
        assert_eq!((state(&task), status_text(&task)), (end, text), "{kind}");
        wait_for_exit(&process_in(&folder.path().join(number.to_string())).await).await;
        if kind == "leave" {
            wait_for_exit(&process_in(&folder.path().join(format!("left-{number}"))).await).await;
        }
    }
}

/// A file part with a URL is described to the command, and never fetched.
#[tokio::test]
async fn s29_a_file_url_is_not_fetched() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret", listener.local_addr().unwrap());
    let agent = start(CommandAgent::parse("cat").unwrap()).await;
    let task = agent
        .send_parts(json!([{"text": "look"}, {"url": url, "filename": "x"}]))
        .await;
    assert_eq!(
        output(&task),
        format!("look\n[file x, unknown type, at {url}]")
    );
    let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "the file was fetched");
}

fn replying(script: &str) -> CommandSettings {
    CommandSettings {
        command: CommandSpec::Line(script.to_owned()),
        shell: true,
        input: Some(CommandInput::Json),
        output: StdoutFormat::JsonLines,
        direct_reply: true,
        ..CommandSettings::default()
    }
}

#[tokio::test]
async fn a_command_answers_with_a_plain_message() {
    let script = r#"
        if grep -q '"task":null'; then
            printf '{"text": "ignored"}\n{"reply": "hello"}\n'
        else
            printf '{"reply": "in task %s"}\n' "$ATTACHE_TASK_ID"
        fi
    "#;
    let agent = start(CommandAgent::from_settings(replying(script)).unwrap()).await;
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    let sent = agent.call("SendMessage", json!({"message": message})).await;
    assert_eq!(
        sent["message"]["parts"],
        json!([{"text": "hello"}]),
        "{sent}"
    );
    assert_eq!(sent["message"]["role"], "ROLE_AGENT");
    let listed = agent.call("ListTasks", json!({})).await;
    assert_eq!(listed["totalSize"], 0, "nothing is stored");
}

#[tokio::test]
async fn a_command_without_a_reply_runs_again_with_a_task() {
    for script in [
        // Decides for a task.
        r#"test -n "$ATTACHE_TASK_ID" && printf '{"text": "worked"}\n' || true"#,
        // Fails without a task: its reply does not count.
        r#"if test -n "$ATTACHE_TASK_ID"; then printf '{"text": "worked"}\n'; else printf '{"reply": "no"}\n'; exit 3; fi"#,
        // Writes too much without a task.
        r#"if test -n "$ATTACHE_TASK_ID"; then printf '{"text": "worked"}\n'; else yes | head -c 20000; fi"#,
    ] {
        let mut settings = replying(script);
        settings.max_output = 10_000;
        let agent = start(CommandAgent::from_settings(settings).unwrap()).await;
        let task = agent.send_text("hi").await;
        assert_eq!(state(&task), "COMPLETED", "{script}: {task}");
        assert_eq!(artifact(&task, "output"), &json!([{"text": "worked"}]));
    }
}

#[tokio::test]
async fn a_reply_within_a_task_completes_it() {
    let mut settings = replying(r#"printf '{"reply": "done"}\n'"#);
    settings.direct_reply = false;
    let agent = start(CommandAgent::from_settings(settings).unwrap()).await;
    let task = agent.send_text("hi").await;
    assert_eq!((state(&task), status_text(&task)), ("COMPLETED", "done"));
}

#[test]
fn direct_replies_need_json_lines() {
    let mut settings = replying("true");
    settings.output = StdoutFormat::Text;
    let error = CommandAgent::from_settings(settings).unwrap_err();
    assert_eq!(
        error.to_string(),
        "direct_reply needs output = \"json_lines\""
    );
}
