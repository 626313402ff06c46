//! Output on a terminal is the same.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::run::{DEMO, finish, verb};

#[cfg(target_os = "linux")]
#[test]
fn out_005_a_terminal_changes_nothing() {
    let program = env!("CARGO_BIN_EXE_attache");
    for (format, text) in [("text", "reply"), ("json", "reply"), ("text", "fail")] {
        let piped = verb(&["send", "-a", &DEMO, "-o", format, text]).run();
        let command = format!(
            "{program} send -a {} -o {format} {text} 2>/dev/null",
            &**DEMO
        );
        let run = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .output();
        let Ok(output) = run else {
            panic!("script is not there; it is part of util-linux")
        };
        let shown = String::from_utf8(output.stdout)
            .unwrap()
            .replace("\r\n", "\n");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        let labels = |text: &str| {
            text.lines()
                .map(|line| line.split([':', '"']).next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(&shown), labels(&piped.out));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn task_poll_002_ctrl_c_on_a_terminal_leaves_the_ids_and_the_resume_command() {
    let command = format!(
        "{} send -a {} 'slow 60'",
        env!("CARGO_BIN_EXE_attache"),
        &**DEMO
    );
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = BufReader::with_capacity(1, child.stdout.take().unwrap());
    let mut first = String::new();
    screen.read_line(&mut first).unwrap();
    let id = first.trim().strip_prefix("Task: ").unwrap().to_owned();
    child.stdout = Some(screen.into_inner());
    keyboard.write_all(b"\x03").unwrap();
    let output = finish(child);
    assert_eq!(output.code, Some(130), "{output:?}");
    assert!(
        output.out.contains("Error: ATTACHE_ERR_INTERRUPTED"),
        "{output:?}"
    );
    assert!(
        output.out.contains(&format!("--wait {id}")) && !output.out.contains('\u{1b}'),
        "{output:?}"
    );
    let canceled = verb(&["task", "cancel", "-a", &DEMO, &id]).run();
    assert_eq!(
        canceled.field("State"),
        "TASK_STATE_CANCELED",
        "it went on without us"
    );
}
