//! Commands to paste that go on where this one ended: exact, and without a credential.

use attache::model::{Message, Task, TaskState};

use crate::settings::{SettingSource, Settings};

/// What such a command begins with.
#[derive(Debug)]
pub(crate) struct ResumeHints {
    options: String,
}

impl ResumeHints {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut options = String::new();
        let mut add = |flag: &str, value: &str| {
            options.push_str(&format!(" {flag} {}", shell_words::quote(value)))
        };
        settings.agent.iter().for_each(|agent| add("-a", agent));
        settings.endpoint.iter().for_each(|url| add("-e", url));
        settings
            .config
            .iter()
            .for_each(|file| add("--config", file));
        if settings.source("transport") != Some(&SettingSource::Default) {
            settings
                .transports
                .iter()
                .for_each(|binding| add("--transport", &binding.to_lowercase()));
        }
        settings
            .version
            .iter()
            .for_each(|version| add("--a2a-version", version));
        settings
            .extensions
            .iter()
            .for_each(|uri| add("--extension", uri));
        settings
            .allowed_hosts
            .iter()
            .for_each(|host| add("--allow-host", host));
        settings
            .catalog
            .iter()
            .for_each(|place| add("--catalog", place));
        settings.jwks.iter().for_each(|place| add("--jwks", place));
        settings.ca.iter().for_each(|file| add("--ca", file));
        settings.cert.iter().for_each(|file| add("--cert", file));
        settings.key.iter().for_each(|file| add("--key", file));
        if settings.card_auth {
            options.push_str(" --card-auth");
        }
        if settings.require_signature {
            options.push_str(" --require-signature");
        }
        if settings.insecure {
            options.push_str(" --insecure");
        }
        Self { options }
    }

    /// What one would do next with this task.
    pub(crate) fn for_task(&self, task: &Task) -> String {
        match task.status.state {
            state if state.is_interrupted() => self.send_command("--task-id", task.id.as_str()),
            state if state.is_terminal() => {
                self.send_command("--context-id", task.context_id.as_str())
            }
            _ => self.wait_command(task.id.as_str()),
        }
    }

    /// What one would do next with a conversation.
    pub(crate) fn for_reply(&self, message: &Message) -> Option<String> {
        Some(self.send_command("--context-id", message.context_id.as_ref()?.as_str()))
    }

    pub(crate) fn wait_command(&self, task: &str) -> String {
        format!(
            "attache task get{} --wait {}",
            self.options,
            shell_words::quote(task)
        )
    }

    /// Takes a registration back.
    pub(crate) fn delete_push_config_command(&self, task: &str, id: &str) -> String {
        let (task, id) = (shell_words::quote(task), shell_words::quote(id));
        format!(
            "attache task push-config delete{} --id {id} {task}",
            self.options
        )
    }

    pub(crate) fn get_command(&self, task: &str) -> String {
        format!(
            "attache task get{} {}",
            self.options,
            shell_words::quote(task)
        )
    }

    /// For what is resolved elsewhere.
    pub(crate) fn wait_through_command(&self, state: TaskState, task: &str) -> Option<String> {
        let quoted = shell_words::quote(task);
        (state == TaskState::AuthRequired)
            .then(|| format!("attache task wait{} --through auth {quoted}", self.options))
    }

    fn send_command(&self, flag: &str, id: &str) -> String {
        format!(
            "attache send{} {flag} {} '<message>'",
            self.options,
            shell_words::quote(id)
        )
    }
}

/// The command that was typed, and more.
pub(crate) fn rerun_with(more: &str) -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    insert_options(words.skip(1).collect(), more)
}

fn insert_options(words: Vec<String>, more: &str) -> String {
    // Behind `--` there are only texts.
    let at = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let (options, texts) = words.split_at(at);
    let command = format!(
        "attache {} {more} {}",
        shell_words::join(options),
        shell_words::join(texts)
    );
    command.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::{ContextId, TaskId, Timestamp};

    #[test]
    fn interact_004_ids_of_others_are_quoted_and_no_credential_is_printed() {
        let settings = Settings {
            agent: Some("https://agent.example".to_owned()),
            bearer: Some("hunter22".into()),
            version: Some("0.3".to_owned()),
            ..Settings::default()
        };
        let (id, context) = (TaskId::from("a'; rm -rf ~"), ContextId::from("c-41"));
        let mut task = Task::submitted(id, context, Timestamp::default());
        let resume = ResumeHints::new(&settings);
        let prefix = "-a https://agent.example --a2a-version 0.3";
        assert_eq!(
            resume.for_task(&task),
            format!(r"attache task get {prefix} --wait 'a'\''; rm -rf ~'")
        );
        task.status.state = TaskState::InputRequired;
        assert_eq!(
            resume.for_task(&task),
            format!(r"attache send {prefix} --task-id 'a'\''; rm -rf ~' '<message>'")
        );
        task.status.state = TaskState::Completed;
        assert_eq!(
            resume.for_task(&task),
            format!("attache send {prefix} --context-id c-41 '<message>'")
        );
    }

    #[test]
    fn ver_001_the_hint_is_the_command_that_was_typed_and_more() {
        let typed = ["send", "-a", "x", "--", "--hi there"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(
            insert_options(typed, "--a2a-version 0.3"),
            "attache send -a x --a2a-version 0.3 -- '--hi there'"
        );
    }
}
