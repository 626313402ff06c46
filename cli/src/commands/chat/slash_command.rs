//! Commands of a chat: lines that begin with a slash.

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlashCommand<'a> {
    Help,
    /// Shows a task, by default the last one.
    Task(Option<&'a str>),
    /// Cancels a task, by default the last one.
    Cancel(Option<&'a str>),
    /// Attaches a file to the next message.
    File(&'a str),
    /// Shows the agent, or changes to another.
    Agent(Option<&'a str>),
    /// Switches the log of requests.
    Debug,
    Quit,
    Unknown(&'a str),
}

pub(super) const HELP: &str = "\
/task [id]       show the last task, or another one, and ask its question again
/cancel [id]     cancel the last task, or another one
/file <path>     attach a file or a URL to the next message
/agent [ref]     show the agent, or change to another
/debug           log requests and responses, or stop it
/quit            end the chat; Ctrl-D does the same

Enter sends the message; a backslash before it continues on the next line.
Pasted lines are one message. Ctrl-C cancels a running turn. A message that
begins with a slash starts with two.";

impl<'a> SlashCommand<'a> {
    /// All commands, for completion.
    pub(super) const NAMES: [&'static str; 7] = [
        "/help", "/task", "/cancel", "/file", "/agent", "/debug", "/quit",
    ];

    /// Parses a line; `None` for a message.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if !line.starts_with('/') || line.starts_with("//") {
            return None;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = Some(rest.trim()).filter(|rest| !rest.is_empty());
        Some(match (name, argument) {
            ("/help" | "/?", _) => Self::Help,
            ("/task", id) => Self::Task(id),
            ("/cancel", id) => Self::Cancel(id),
            ("/file", Some(path)) => Self::File(path),
            ("/file", None) => Self::Unknown("/file needs a path or a URL"),
            ("/agent", reference) => Self::Agent(reference),
            ("/debug", _) => Self::Debug,
            ("/quit" | "/exit", _) => Self::Quit,
            _ => Self::Unknown("there is no such command; /help lists them"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_messages_are_told_apart() {
        assert_eq!(SlashCommand::parse("hello /task"), None);
        assert_eq!(SlashCommand::parse("//task"), None, "an escaped slash");
        assert_eq!(
            SlashCommand::parse(" /task "),
            Some(SlashCommand::Task(None))
        );
        assert_eq!(
            SlashCommand::parse("/file  my plan.pdf"),
            Some(SlashCommand::File("my plan.pdf"))
        );
        assert!(matches!(
            SlashCommand::parse("/nonsense"),
            Some(SlashCommand::Unknown(_))
        ));
        for name in SlashCommand::NAMES.iter().filter(|name| **name != "/file") {
            let parsed = SlashCommand::parse(name);
            assert!(!matches!(parsed, None | Some(SlashCommand::Unknown(_))));
            assert!(*name == "/help" || HELP.contains(name), "{name}");
        }
    }
}
