//! Commands as agents: real ones, well-behaved and not.

use std::path::Path;
use std::time::Duration;

use attache::Settings;
use attache_agents::{
    CommandAgent, CommandInput, CommandSettings, CommandSpec, ExitMeaning, StderrAudience,
    StdoutFormat,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{artifact, soon, start, start_with, state, words};

fn shell(script: &str) -> CommandAgent {
    CommandAgent::new("sh", ["-c", script]).unwrap()
}

fn output(task: &Value) -> &str {
    artifact(task, "output")[0]["text"].as_str().unwrap()
}

/// Waits until a process has written its id into a file, and gives it.
async fn process_in(file: &Path) -> String {
    soon(async {
        loop {
            match std::fs::read_to_string(file) {
                Ok(id) if id.ends_with('\n') => return id.trim().to_owned(),
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// Waits until there is no such process. One that nobody has reaped would stay.
async fn gone(id: &str) {
    let alive = || {
        std::process::Command::new("kill")
            .args(["-0", id])
            .output()
            .unwrap()
            .status
            .success()
    };
    soon(async {
        while alive() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_asked_goes_in_and_what_is_written_comes_out() {
    let agent = start(CommandAgent::parse("cat").unwrap()).await;
    let task = agent.say("hello $HOME `id` é").await;
    assert_eq!(
        (state(&task), output(&task)),
        ("COMPLETED", "hello $HOME `id` é")
    );
    let task = agent
        .say_parts(json!([{"text": "a"}, {"data": {"b": 1}}]))
        .await;
    assert_eq!(output(&task), "a\n{\"b\":1}");
    let large = "0123456789".repeat(100_000);
    assert_eq!(output(&agent.say(&large).await), large);
}

#[tokio::test]
async fn s57_a_message_is_never_an_argument() {
    let agent = start(CommandAgent::parse("sh -c 'echo $#; cat' name").unwrap()).await;
    assert_eq!(
        output(&agent.say("--version; echo gone").await),
        "0\n--version; echo gone"
    );
}

#[tokio::test]
async fn output_is_there_while_the_command_runs() {
    let agent = start(shell("echo first; read -r line; exec sleep 600")).await;
    let task = agent.begin("go\n").await;
    agent
        .until(&task, |task| {
            task["artifacts"][0]["parts"][0]["text"] == "first\n"
        })
        .await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
}

#[tokio::test]
async fn a_command_that_says_nothing_gives_no_artifact() {
    let agent = start(CommandAgent::parse("true").unwrap()).await;
    let task = agent.say("hello").await;
    assert_eq!(
        (state(&task), task.get("artifacts")),
        ("COMPLETED", None),
        "{task}"
    );
}

#[tokio::test]
async fn r45_a_command_that_fails_or_dies_fails_its_task_and_says_no_more() {
    for (script, how) in [
        (
            "echo half; echo /etc/secret >&2; exit 3",
            "ended with exit code 3",
        ),
        ("echo half; kill -9 $$", "was killed by signal 9"),
    ] {
        let agent = start(shell(script)).await;
        let task = agent.say("hello").await;
        assert_eq!(
            (state(&task), words(&task)),
            ("FAILED", &*format!("the command {how}"))
        );
        assert_eq!(output(&task), "half\n");
        assert!(!task.to_string().contains("secret"), "{task}");
    }
    let agent = start(CommandAgent::parse("/nonexistent/program").unwrap()).await;
    assert_eq!(
        words(&agent.say("hello").await),
        "Agent execution failed (CommandFailed)"
    );
}

#[tokio::test]
async fn r45_a_cancel_ends_the_children_of_a_command_too() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("child");
    let agent = start(shell(&format!(
        "sleep 600 & echo $! > {}; wait",
        file.display()
    )))
    .await;
    let task = agent.begin("hello").await;
    let child = process_in(&file).await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
    gone(&child).await;
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
    let task = agent.begin("hello").await;
    let id = process_in(&file).await;
    let task = agent.cancel(&task).await;
    assert_eq!((state(&task), output(&task)), ("CANCELED", "cleaned\n"));
    gone(&id).await;
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
    let task = agent.begin("hello").await;
    let id = process_in(&file).await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
    gone(&id).await;
}

#[tokio::test]
async fn r45_a_command_that_takes_too_long_is_killed_with_its_children() {
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
    let task = agent.say("hello").await;
    assert_eq!(
        (state(&task), words(&task)),
        ("FAILED", "Agent execution failed (deadline)")
    );
    gone(&process_in(&file).await).await;
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
    let task = agent.say("hello").await;
    assert_eq!((state(&task), output(&task)), ("COMPLETED", "done\n"));
    gone(&process_in(&file).await).await;
}

#[tokio::test]
async fn r45_one_who_left_the_group_and_writes_on_does_not_keep_the_task_open() {
    let folder = TempDir::new().unwrap();
    for write in ["echo x >&2; sleep 0.05", "echo x >&2"] {
        let file = folder.path().join("left").display().to_string();
        let left =
            format!("setsid sh -c 'echo $$ > {file}; while :; do {write}; done' > /dev/null &");
        let agent = start(shell(&format!(
            "{left} while [ ! -s {file} ]; do :; done; echo done"
        )))
        .await;
        let task = agent.say("hello").await;
        assert_eq!(
            (state(&task), output(&task)),
            ("COMPLETED", "done\n"),
            "{write}"
        );
        // Nobody reads it any more.
        gone(&process_in(Path::new(&file)).await).await;
        std::fs::remove_file(&file).unwrap();
    }
}

#[tokio::test]
async fn r44_output_without_end_is_cut_and_the_command_killed() {
    let agent = start(CommandAgent::parse("yes").unwrap().max_output(10_001)).await;
    let task = agent.say("hello").await;
    assert_eq!(
        (state(&task), words(&task)),
        ("FAILED", "the output is larger than 10001 bytes")
    );
    assert_eq!(output(&task).len(), 10_001);
    let agent = start(
        CommandAgent::parse("printf 0123456789")
            .unwrap()
            .max_output(10),
    )
    .await;
    assert_eq!(state(&agent.say("hello").await), "COMPLETED");
}

#[tokio::test]
async fn r44_stderr_without_end_does_no_harm() {
    let agent = start(shell("head -c 3000000 /dev/zero >&2; echo done")).await;
    assert_eq!(output(&agent.say("hello").await), "done\n");
}

#[tokio::test]
async fn s57_a_command_sees_little_of_our_environment() {
    let agent = start(CommandAgent::parse("env").unwrap()).await;
    let task = agent.say("hello").await;
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
async fn r44_no_more_commands_run_at_once_than_may() {
    let folder = TempDir::new().unwrap();
    let lock = folder.path().join("lock").display().to_string();
    // Whoever finds the folder there is not alone, and fails.
    let agent =
        start(shell(&format!("mkdir {lock} && cat && rmdir {lock}")).max_processes(1)).await;
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(agent.begin(&number.to_string()).await);
    }
    for (number, task) in tasks.iter().enumerate() {
        let task = agent
            .until(task, |task| !matches!(state(task), "SUBMITTED" | "WORKING"))
            .await;
        assert_eq!(
            (state(&task), output(&task)),
            ("COMPLETED", &*number.to_string())
        );
    }
}

#[tokio::test]
async fn many_commands_at_once_keep_their_output_apart() {
    let agent = start(CommandAgent::parse("cat").unwrap()).await;
    let mut tasks = Vec::new();
    for number in 0..100 {
        tasks.push(agent.begin(&number.to_string()).await);
    }
    for (number, task) in tasks.iter().enumerate() {
        let task = agent.until(task, |task| state(task) == "COMPLETED").await;
        assert_eq!(output(&task), number.to_string());
    }
}

/// A shell script, with settings.
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
async fn a_command_knows_whom_it_works_for() {
    let agent = start(shell(
        r#"echo "$ATTACHE_TASK_ID $ATTACHE_CONTEXT_ID $ATTACHE_MESSAGE_ID $ATTACHE_CALLER""#,
    ))
    .await;
    let task = agent.say("hello").await;
    let ids = format!(
        "{} {} m anonymous\n",
        task["id"].as_str().unwrap(),
        task["contextId"].as_str().unwrap()
    );
    assert_eq!(output(&task), ids);
}

#[tokio::test]
async fn s57_a_command_sees_what_it_was_given_of_the_environment_and_no_more() {
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
        output(&agent.say("hello").await),
        "attache-agents high none\n"
    );
}

#[tokio::test]
async fn s57_an_argument_is_what_was_asked_and_never_an_option() {
    let agent = start(CommandAgent::new("printf", ["%s.", "{text}", "and {text}"]).unwrap()).await;
    assert_eq!(output(&agent.say("a b; c").await), "a b; c.and a b; c.");
    let task = agent.say("--help").await;
    assert_eq!(
        (state(&task), words(&task)),
        ("REJECTED", "the text must not begin with `-`")
    );
}

#[tokio::test]
async fn json_goes_in_whole() {
    let settings = CommandSettings {
        input: Some(CommandInput::Json),
        ..CommandSettings::default()
    };
    let agent = start(script("cat", settings)).await;
    let task = agent.say("hello").await;
    let given: Value = serde_json::from_str(output(&task)).unwrap();
    assert_eq!(given["text"], "hello");
    assert_eq!(given["message"]["parts"], json!([{"text": "hello"}]));
    assert_eq!(given["task"]["id"], task["id"]);
}

#[tokio::test]
async fn lines_stream_whole_and_the_last_may_be_half() {
    let settings = CommandSettings {
        output: StdoutFormat::Lines,
        ..CommandSettings::default()
    };
    let agent = start(script(
        "printf 'one\\ntw'; read -r line; printf 'o\\nhalf'",
        settings,
    ))
    .await;
    assert_eq!(output(&agent.say("go\n").await), "one\ntwo\nhalf");
}

#[tokio::test]
async fn a_file_comes_whole_or_not_at_all() {
    let settings = CommandSettings {
        output: StdoutFormat::File,
        media_type: "text/csv".to_owned(),
        filename: "tides.csv".to_owned(),
        max_output: 10,
        ..CommandSettings::default()
    };
    let agent = start(script("printf 1,2", settings.clone())).await;
    let file = json!([{"raw": "MSwy", "filename": "tides.csv", "mediaType": "text/csv"}]);
    assert_eq!(artifact(&agent.say("hello").await, "tides.csv"), &file);
    let agent = start(script("yes", settings)).await;
    let task = agent.say("hello").await;
    assert_eq!((state(&task), task.get("artifacts")), ("FAILED", None));
}

#[tokio::test]
async fn a_script_may_ask_back_by_a_line_of_json() {
    let ask = r#"read -r answer
        case "$answer" in
            two) echo '{"artifact": {"name": "order", "parts": [{"text": "two teas"}, {"data": {"n": 2}}]}}'
                 echo '{"state": "completed", "message": "thank you"}' ;;
            *) echo '{"message": "looking"}'; echo '{"text": "so far "}'; echo '{"text": "so good"}'
               echo '{"question": "how many?", "metadata": {"shelf": 3}}' ;;
        esac"#;
    let agent = start(json_lines(ask)).await;
    let asked = agent.say("tea\n").await;
    assert_eq!(
        (state(&asked), words(&asked), output(&asked)),
        ("INPUT_REQUIRED", "how many?", "so far so good")
    );
    assert_eq!(asked["metadata"]["shelf"], 3, "{asked}");
    assert!(asked["history"].to_string().contains("looking"), "{asked}");
    let task = agent.answer(&asked, json!([{"text": "two\n"}])).await;
    assert_eq!((state(&task), words(&task)), ("COMPLETED", "thank you"));
    assert_eq!(
        artifact(&task, "order"),
        &json!([{"text": "two teas"}, {"data": {"n": 2}}])
    );
}

#[tokio::test]
async fn a_script_says_how_it_ended() {
    for (line, end, said) in [
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
        let task = agent.say("hello").await;
        assert_eq!((state(&task), words(&task)), (end, said), "{line}");
    }
    let agent = start(json_lines(
        r#"echo '{"state": "failed", "message": "no tea"}'; exit 7"#,
    ))
    .await;
    assert_eq!(words(&agent.say("hello").await), "no tea");
    let agent = start(json_lines(r#"echo '{"question": "well?"}'; exit 7"#)).await;
    assert_eq!(
        words(&agent.say("hello").await),
        "the command ended with exit code 7"
    );
}

#[tokio::test]
async fn r45_lines_that_make_no_sense_fail_the_task_and_end_the_command() {
    for (line, why) in [
        ("hello", "no JSON"),
        ("7", "another type"),
        (r#"{"txet": "a"}"#, "unknown member"),
        (r#"{"state": "submitted"}"#, "this state"),
        (r#"{"artifact": {"name": "a"}}"#, "at least one part"),
        (r#"{"text": "#, "ends too early"),
    ] {
        let agent = start(json_lines(&format!("echo '{line}'; exec sleep 600"))).await;
        let task = agent.say("hello").await;
        assert_eq!(state(&task), "FAILED", "{line}");
        assert!(
            words(&task).starts_with("line 1 ") && words(&task).contains(why),
            "{line}: {task}"
        );
    }
    let agent = start(json_lines(r#"printf '{"text": "a"}\n{"text": "b'"#)).await;
    let task = agent.say("hello").await;
    assert_eq!(
        (state(&task), words(&task)),
        (
            "FAILED",
            "line 2 of the output makes no sense: it ends too early"
        )
    );
    assert_eq!(output(&task), "a");
    let agent = start(json_lines(r#"printf '{"text": "a"}\n{"text": "b"}'"#)).await;
    assert_eq!(output(&agent.say("hello").await), "ab");
}

#[tokio::test]
async fn exit_codes_mean_what_the_settings_say() {
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
    for (code, end, said) in [
        ("1", "COMPLETED", "none"),
        ("2", "REJECTED", "because"),
        ("3", "FAILED", "because"),
    ] {
        let task = agent.say(&format!("{code}\n")).await;
        assert_eq!((state(&task), words(&task)), (end, said), "{code}");
    }
}

#[tokio::test]
async fn r45_a_command_has_a_time_of_its_own() {
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
        let task = agent.say("hello").await;
        assert_eq!(
            (state(&task), words(&task)),
            ("FAILED", "the command took longer than 100ms")
        );
    }
}

#[tokio::test]
async fn a_shell_is_there_when_it_is_asked_for() {
    let settings = CommandSettings {
        shell: true,
        command: CommandSpec::Line("tr a-z A-Z | rev".to_owned()),
        ..CommandSettings::default()
    };
    let agent = start(CommandAgent::from_settings(settings).unwrap()).await;
    assert_eq!(output(&agent.say("abc").await).trim(), "CBA");
}

/// Fifty at once, each of another bad kind: every task ends as it should, and no process is left.
#[tokio::test]
async fn r44_r45_fifty_bad_commands_at_once_end_as_they_should() {
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
                .begin(&format!("{} {number}\n", kinds[number % kinds.len()].0))
                .await,
        );
    }
    for (number, task) in tasks.iter().enumerate() {
        let (kind, end, said) = kinds[number % kinds.len()];
        let task = agent
            .until(task, |task| !matches!(state(task), "SUBMITTED" | "WORKING"))
            .await;
        assert_eq!((state(&task), words(&task)), (end, said), "{kind}");
        gone(&process_in(&folder.path().join(number.to_string())).await).await;
        if kind == "leave" {
            gone(&process_in(&folder.path().join(format!("left-{number}"))).await).await;
        }
    }
}

/// A file by its address is named to the command, and never fetched.
#[tokio::test]
async fn s29_a_file_that_is_elsewhere_is_not_fetched() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret", listener.local_addr().unwrap());
    let agent = start(CommandAgent::parse("cat").unwrap()).await;
    let task = agent
        .say_parts(json!([{"text": "look"}, {"url": url, "filename": "x"}]))
        .await;
    assert_eq!(
        output(&task),
        format!("look\n[file x, unknown type, at {url}]")
    );
    let nobody = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody.is_err(), "somebody came for the file");
}
