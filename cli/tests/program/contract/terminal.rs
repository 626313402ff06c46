//! On a terminal nothing is different.

use std::process::Command;

use super::run::{DEMO, verb};

#[cfg(target_os = "linux")]
#[test]
fn out_005_a_terminal_changes_nothing() {
    let program = env!("CARGO_BIN_EXE_attache");
    for (format, text) in [("text", "reply"), ("json", "reply"), ("text", "fail")] {
        let piped = verb(&["send", "-a", &DEMO, "-o", format, text]).run();
        let command = format!("{program} send -a {} -o {format} {text} 2>/dev/null", &**DEMO);
        let run = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .output();
        let Ok(output) = run else { panic!("script is not there; it is part of util-linux") };
        let shown = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        let labels = |text: &str| {
            text.lines()
                .map(|line| line.split([':', '"']).next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(&shown), labels(&piped.out));
    }
}
