//! Commands as agents: real ones, well-behaved and not.

use std::path::Path;
use std::time::Duration;

use attache::Settings;
use attache_agents::Command;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{artifact, soon, start, start_with, state, words};

fn shell(script: &str) -> Command {
    Command::new("sh", ["-c", script])
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
    let alive = || std::process::Command::new("kill").args(["-0", id]).output().unwrap().status.success();
    soon(async {
        while alive() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_asked_goes_in_and_what_is_written_comes_out() {
    let agent = start(Command::parse("cat").unwrap()).await;
    let task = agent.say("hello $HOME `id` é").await;
    assert_eq!((state(&task), output(&task)), ("COMPLETED", "hello $HOME `id` é"));
    let task = agent.say_parts(json!([{"text": "a"}, {"data": {"b": 1}}])).await;
    assert_eq!(output(&task), "a\n{\"b\":1}");
    let large = "0123456789".repeat(100_000);
    assert_eq!(output(&agent.say(&large).await), large);
}

#[tokio::test]
async fn s57_a_message_is_never_an_argument() {
    let agent = start(Command::parse("sh -c 'echo $#; cat' name").unwrap()).await;
    assert_eq!(output(&agent.say("--version; echo gone").await), "0\n--version; echo gone");
}

#[tokio::test]
async fn output_is_there_while_the_command_runs() {
    let agent = start(shell("echo first; read -r line; exec sleep 600")).await;
    let task = agent.begin("go\n").await;
    agent.until(&task, |task| task["artifacts"][0]["parts"][0]["text"] == "first\n").await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
}

#[tokio::test]
async fn a_command_that_says_nothing_gives_no_artifact() {
    let agent = start(Command::parse("true").unwrap()).await;
    let task = agent.say("hello").await;
    assert_eq!((state(&task), task.get("artifacts")), ("COMPLETED", None), "{task}");
}

#[tokio::test]
async fn r45_a_command_that_fails_or_dies_fails_its_task_and_says_no_more() {
    for script in ["echo half; echo /etc/secret >&2; exit 3", "echo half; kill -9 $$"] {
        let agent = start(shell(script)).await;
        let task = agent.say("hello").await;
        assert_eq!((state(&task), words(&task)), ("FAILED", "Agent execution failed (CommandFailed)"));
        assert_eq!(output(&task), "half\n");
        assert!(!task.to_string().contains("secret"), "{task}");
    }
    let agent = start(Command::parse("/nonexistent/program").unwrap()).await;
    assert_eq!(words(&agent.say("hello").await), "Agent execution failed (CommandFailed)");
}

#[tokio::test]
async fn r45_a_cancel_ends_the_children_of_a_command_too() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("child");
    let agent = start(shell(&format!("sleep 600 & echo $! > {}; wait", file.display()))).await;
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
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 600; done", file.display());
    let settings = Settings { cancel_grace: Duration::from_millis(50), ..Settings::default() };
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
    let settings = Settings { max_turn_time: Some(Duration::from_millis(200)), ..Settings::default() };
    let script = format!("trap '' TERM; sleep 600 & echo $! > {}; wait", file.display());
    let agent = start_with(shell(&script), |server| server.settings(settings)).await;
    let task = agent.say("hello").await;
    assert_eq!((state(&task), words(&task)), ("FAILED", "Agent execution failed (deadline)"));
    if let Ok(id) = std::fs::read_to_string(&file) {
        gone(id.trim()).await;
    }
}

#[tokio::test]
async fn r45_a_child_that_keeps_stdout_open_does_not_keep_the_task_open() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("child");
    let agent = start(shell(&format!("sleep 600 & echo $! > {}; echo done", file.display()))).await;
    let task = agent.say("hello").await;
    assert_eq!((state(&task), output(&task)), ("COMPLETED", "done\n"));
    gone(&process_in(&file).await).await;
}

#[tokio::test]
async fn r44_output_without_end_is_cut_and_the_command_killed() {
    let agent = start(Command::parse("yes").unwrap().max_output(10_001)).await;
    let task = agent.say("hello").await;
    assert_eq!((state(&task), words(&task)), ("FAILED", "the output is larger than 10001 bytes"));
    assert_eq!(output(&task).len(), 10_001);
    let agent = start(Command::parse("printf 0123456789").unwrap().max_output(10)).await;
    assert_eq!(state(&agent.say("hello").await), "COMPLETED");
}

#[tokio::test]
async fn r44_stderr_without_end_does_no_harm() {
    let agent = start(shell("head -c 3000000 /dev/zero >&2; echo done")).await;
    assert_eq!(output(&agent.say("hello").await), "done\n");
}

#[tokio::test]
async fn s57_a_command_sees_little_of_our_environment() {
    let agent = start(Command::parse("env").unwrap()).await;
    let task = agent.say("hello").await;
    let known = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
    let names: Vec<_> = output(&task).lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    assert!(names.contains(&"PATH") && names.iter().all(|name| known.contains(name)), "{names:?}");
}

#[tokio::test]
async fn r44_no_more_commands_run_at_once_than_may() {
    let folder = TempDir::new().unwrap();
    let lock = folder.path().join("lock").display().to_string();
    // Whoever finds the folder there is not alone, and fails.
    let agent = start(shell(&format!("mkdir {lock} && cat && rmdir {lock}")).max_processes(1)).await;
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(agent.begin(&number.to_string()).await);
    }
    for (number, task) in tasks.iter().enumerate() {
        let task = agent.until(task, |task| !matches!(state(task), "SUBMITTED" | "WORKING")).await;
        assert_eq!((state(&task), output(&task)), ("COMPLETED", &*number.to_string()));
    }
}

#[tokio::test]
async fn many_commands_at_once_keep_their_output_apart() {
    let agent = start(Command::parse("cat").unwrap()).await;
    let mut tasks = Vec::new();
    for number in 0..100 {
        tasks.push(agent.begin(&number.to_string()).await);
    }
    for (number, task) in tasks.iter().enumerate() {
        let task = agent.until(task, |task| state(task) == "COMPLETED").await;
        assert_eq!(output(&task), number.to_string());
    }
}
