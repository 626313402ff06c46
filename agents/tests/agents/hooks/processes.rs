//! Programs as hooks.

use attache::{FailurePolicy, Hook, HookPhase};
use attache_agents::{CommandHookSettings, CommandSpec, ExternalHook};

use super::{Behaviour, DENIED, Expected, MAX_REPLY, TABLE, check, configured};

fn command_hook(line: &str) -> Hook {
    let settings = CommandHookSettings {
        command: CommandSpec::Line(line.to_owned()),
        shell: true,
        max_reply: MAX_REPLY,
        ..CommandHookSettings::default()
    };
    Hook::new("test", ExternalHook::command(settings).unwrap())
}

/// A program with a behaviour. It may repeat the document in its reply.
fn program(behaviour: Behaviour) -> String {
    match behaviour {
        Behaviour::Allow => r#"cat > /dev/null; echo '{"decision": "allow"}'"#.to_owned(),
        Behaviour::Change => {
            r#"sed -e 's/secret/***/g' -e 's/^{/{"decision": "change", /'"#.to_owned()
        }
        Behaviour::Deny => {
            format!(r#"echo '{{"decision": "deny", "message": "{DENIED}"}}'"#)
        }
        Behaviour::Hang => "exec sleep 600".to_owned(),
        Behaviour::Crash => r#"echo '{"decision": "allow"}'; kill -9 $$"#.to_owned(),
        Behaviour::Confused => "cat; echo hunter2 >&2".to_owned(),
        Behaviour::Flood => "cat > /dev/null; exec yes".to_owned(),
    }
}

#[tokio::test]
async fn a_command_hook_decides_in_every_phase() {
    for phase in HookPhase::ALL {
        for (behaviour, policy, expected) in TABLE {
            let hook = configured(command_hook(&program(behaviour)), behaviour, policy, phase);
            check(hook, phase, expected).await;
        }
    }
}

#[tokio::test]
async fn a_program_that_fails_or_does_not_exist_is_a_failure() {
    let fails = r#"echo '{"decision": "allow"}'; exit 3"#;
    for line in [fails, "exec /no/such/program", "true"] {
        let hook = command_hook(line).phases([HookPhase::Call]);
        check(hook, HookPhase::Call, Expected::Failed).await;
    }
    let settings = CommandHookSettings {
        command: CommandSpec::List(vec!["/no/such/program".to_owned()]),
        ..CommandHookSettings::default()
    };
    let hook = Hook::new("test", ExternalHook::command(settings).unwrap());
    let hook = hook
        .phases([HookPhase::Call])
        .on_failure(FailurePolicy::Allow);
    check(hook, HookPhase::Call, Expected::Text("my secret")).await;
}
