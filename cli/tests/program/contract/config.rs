//! Settings: sources and precedence.

use serde_json::{Value, json};

use super::run::{DEMO, verb};

fn setting(output: &super::run::VerbOutput, name: &str) -> Value {
    let shown = output.json();
    let all = shown["settings"].as_array().unwrap().clone();
    all.into_iter()
        .find(|one| one["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {shown}"))
}

#[test]
fn config_002_flag_variable_local_agent_global_default() {
    let show = |flags: &[&str]| {
        verb(
            &[
                &["config", "show", "-o", "json", "-a", "agent.example:1"],
                flags,
            ]
            .concat(),
        )
    };
    let timeout = |output: super::run::VerbOutput| setting(&output, "timeout")["value"].clone();
    let global = ("home/.config/a2a-cli/.env", "A2ACLI_TIMEOUT=5s\n");
    let agent = (
        "home/.config/a2a-cli/agents/agent.example_1.env",
        "A2ACLI_TIMEOUT=4s\n",
    );
    let local = (".env", "A2ACLI_TIMEOUT=3s\nSECRET=x\n");
    let at_home = |run: super::run::VerbRun| {
        let home = run.folder.path().join("home").display().to_string();
        run.env("HOME", &home)
    };
    assert_eq!(timeout(at_home(show(&[])).run()), "none");
    assert_eq!(
        timeout(at_home(show(&[])).file(global.0, global.1).run()),
        "5s"
    );
    let with_agent = || {
        at_home(show(&[]))
            .file(global.0, global.1)
            .file(agent.0, agent.1)
    };
    assert_eq!(timeout(with_agent().run()), "4s");
    assert_eq!(timeout(with_agent().file(local.0, local.1).run()), "3s");
    assert_eq!(
        timeout(
            with_agent()
                .file(local.0, local.1)
                .env("A2ACLI_TIMEOUT", "2s")
                .run()
        ),
        "2s"
    );
    let flag = at_home(show(&["--timeout", "1s"]))
        .file(local.0, local.1)
        .env("A2ACLI_TIMEOUT", "2s")
        .run();
    assert_eq!(
        setting(&flag, "timeout"),
        json!({"name": "timeout", "value": "1s", "source": "flag", "origin": "--timeout"})
    );
    assert!(!flag.out.contains("SECRET"), "other keys are not read");
    let named = show(&["--config", "prod.env"])
        .file("prod.env", "A2ACLI_TIMEOUT=9s\n")
        .file(local.0, local.1)
        .run();
    assert_eq!(timeout(named), "9s");
}

#[test]
fn config_001_config_show_writes_nothing_and_shows_no_secret() {
    let (output, folder) = verb(&["config", "show", "--bearer", "hunter22"])
        .env("A2ACLI_API_KEY", "k3y-secret")
        .keep();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.out.contains("bearer: *** (flag, --bearer)\n"),
        "{}",
        output.out
    );
    assert!(output.out.contains("api-key: *** (env, A2ACLI_API_KEY)\n"));
    assert!(!output.out.contains("hunter22") && !output.out.contains("k3y-secret"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn config_002_a_bad_value_names_its_file_and_line() {
    let output = verb(&["send", "-a", "x", "hi"])
        .file(".env", "# mine\nA2ACLI_POLL_INTERVAL=often\n")
        .run();
    assert_eq!(output.code, Some(2));
    assert!(
        output.err.contains(".env:2 `often` must be a duration"),
        "{}",
        output.err
    );
}

#[test]
fn default_001_output_human_readable_text() {
    assert!(
        verb(&["send", "-a", &DEMO, "hi"])
            .run()
            .out
            .starts_with("Task: ")
    );
    let output = verb(&["send", "-a", &DEMO, "hi"])
        .env("A2ACLI_OUTPUT", "json")
        .run();
    assert!(output.json()["task"].is_object());
    let output = verb(&["send", "-a", &DEMO, "-o", "text", "hi"])
        .env("A2ACLI_OUTPUT", "json")
        .run();
    assert!(output.out.starts_with("Task: "));
}

#[test]
fn default_001_task_completion_wait_by_default() {
    let output = verb(&["send", "-a", &DEMO, "slow 1"]).run();
    assert_eq!(output.field("State"), "TASK_STATE_COMPLETED");
    let output = verb(&["send", "-a", &DEMO, "slow 60"])
        .env("A2ACLI_ASYNC", "1")
        .run();
    assert_ne!(output.field("State"), "TASK_STATE_COMPLETED");
}

#[test]
fn default_001_detail_level_concise() {
    let concise = verb(&["send", "-a", &DEMO, "reply"]).run();
    assert!(!concise.out.contains("Part: "));
    assert!(
        verb(&["send", "-a", &DEMO, "reply"])
            .env("A2ACLI_VERBOSE", "1")
            .run()
            .out
            .contains("Part: ")
    );
    let undone = verb(&["send", "-a", &DEMO, "reply", "--verbose=false"])
        .env("A2ACLI_VERBOSE", "1")
        .run();
    assert!(!undone.out.contains("Part: "));
}

#[cfg(unix)]
#[test]
fn config_001_a_readable_file_with_a_credential_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    for (mode, warned) in [(0o644, true), (0o600, false)] {
        let run = verb(&["config", "show"]).file(".env", "A2ACLI_BEARER=hunter22\n");
        let file = run.folder.path().join(".env");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = run.run();
        assert_eq!(
            (output.code, output.err.contains("chmod 600")),
            (Some(0), warned),
            "{output:?}"
        );
    }
}
