//! Commands that continue from the result of this one, for the user to paste.
//!
//! They are exact: they repeat the flags that select the agent, and never a credential (`in_resume` of a
//! [`Flag`]). Ids come from agents and are hostile input, so each is shell-quoted.

use attache::model::{Message, Task, TaskState};

use crate::settings::flags::{Flag, FlagKind};
use crate::settings::{Setting, Settings, parse_bool};

/// Builds the commands that continue from a result.
#[derive(Debug)]
pub(crate) struct ResumeHints {
    /// The options that every command repeats, each with a space before it.
    options: String,
}

impl ResumeHints {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::without(settings, &[])
    }

    /// Commands that do not repeat these flags.
    pub(crate) fn without(settings: &Settings, omitted: &[&Flag]) -> Self {
        let repeated = settings.resolved.iter().filter(|setting| {
            setting.flag.in_resume
                && setting.is_set()
                && omitted.iter().all(|flag| flag.name != setting.flag.name)
        });
        Self {
            options: repeated.map(options).collect(),
        }
    }

    /// Sends a first message, with further options.
    pub(crate) fn message_command(&self, options: &str) -> String {
        format!("attache send{}{options} '<message>'", self.options)
    }

    /// The next command for a task: reply if it is interrupted, start another in its context if it has ended, else wait.
    pub(crate) fn for_task(&self, task: &Task) -> String {
        match task.status.state {
            state if state.is_interrupted() => self.send_command("--task-id", task.id.as_str()),
            state if state.is_terminal() => {
                self.send_command("--context-id", task.context_id.as_str())
            }
            _ => self.wait_command(task.id.as_str()),
        }
    }

    /// The next command for a message: another in its context, if it has one.
    pub(crate) fn for_reply(&self, message: &Message) -> Option<String> {
        Some(self.send_command("--context-id", message.context_id.as_ref()?.as_str()))
    }

    pub(crate) fn wait_command(&self, task: &str) -> String {
        let task = shell_words::quote(task);
        format!("attache task get{} --wait {task}", self.options)
    }

    pub(crate) fn get_command(&self, task: &str) -> String {
        let task = shell_words::quote(task);
        format!("attache task get{} {task}", self.options)
    }

    /// Removes a webhook registration.
    pub(crate) fn delete_push_config_command(&self, task: &str, id: &str) -> String {
        let task = shell_words::quote(task);
        let id = shell_words::quote(id);
        format!(
            "attache task push-config delete{} --id {id} {task}",
            self.options
        )
    }

    /// Waits for a task whose interruption is resolved outside this program; only for `AUTH_REQUIRED`.
    pub(crate) fn wait_through_command(&self, state: TaskState, task: &str) -> Option<String> {
        if state != TaskState::AuthRequired {
            return None;
        }
        let task = shell_words::quote(task);
        Some(format!(
            "attache task wait{} --through auth {task}",
            self.options
        ))
    }

    fn send_command(&self, flag: &str, id: &str) -> String {
        let id = shell_words::quote(id);
        format!("attache send{} {flag} {id} '<message>'", self.options)
    }
}

/// A setting as command-line options.
fn options(setting: &Setting) -> String {
    let option = setting.flag.option();
    match setting.flag.kind {
        FlagKind::Switch if parse_bool(setting).unwrap_or_default() => format!(" {option}"),
        FlagKind::Switch => String::new(),
        FlagKind::Value => format!(" {option} {}", shell_words::quote(&setting.text())),
        FlagKind::List { .. } => setting
            .values
            .iter()
            .map(|value| format!(" {option} {}", shell_words::quote(value)))
            .collect(),
    }
}

/// The command line of this process with more options.
pub(crate) fn rerun_with(options: &str) -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    insert_options(&words.skip(1).collect::<Vec<_>>(), options)
}

/// Inserts options before `--`: only positional texts may follow it.
fn insert_options(words: &[String], options: &str) -> String {
    let end = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let (before, texts) = words.split_at(end);
    let command = format!(
        "attache {} {options} {}",
        shell_words::join(before),
        shell_words::join(texts)
    );
    command.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CommonFlags;
    use crate::settings::{SettingSources, flags};
    use attache::model::{ContextId, TaskId, Timestamp};

    #[test]
    fn interact_004_ids_are_quoted_and_credentials_are_not_printed() {
        let common = CommonFlags::default()
            .with(&flags::AGENT_CARD, "https://agent.example")
            .with(&flags::BEARER, "hunter22")
            .with(&flags::A2A_VERSION, "0.3")
            .with(&flags::TRANSPORT, "rest")
            .with(&flags::INSECURE, "true")
            .with(&flags::CARD_AUTH, "false");
        let settings = Settings::new(&common, &SettingSources::default()).unwrap();
        let mut task = Task::submitted(
            TaskId::from("a'; rm -rf ~"),
            ContextId::from("c-41"),
            Timestamp::default(),
        );
        let resume = ResumeHints::new(&settings);
        let options = "-a https://agent.example --transport rest --a2a-version 0.3 --insecure";
        assert_eq!(
            resume.for_task(&task),
            format!(r"attache task get {options} --wait 'a'\''; rm -rf ~'")
        );
        task.status.state = TaskState::InputRequired;
        assert_eq!(
            resume.for_task(&task),
            format!(r"attache send {options} --task-id 'a'\''; rm -rf ~' '<message>'")
        );
        task.status.state = TaskState::Completed;
        assert_eq!(
            resume.for_task(&task),
            format!("attache send {options} --context-id c-41 '<message>'")
        );
    }

    #[test]
    fn ver_001_the_hint_is_the_typed_command_with_more_options() {
        let typed = ["send", "-a", "x", "--", "--hi there"].map(str::to_owned);
        assert_eq!(
            insert_options(&typed, "--a2a-version 0.3"),
            "attache send -a x --a2a-version 0.3 -- '--hi there'"
        );
    }
}
