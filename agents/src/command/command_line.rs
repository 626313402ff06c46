//! The words of a command, and what was asked among them.

use super::CommandSettingsError;
use super::settings::{CommandSettings, CommandSpec};

/// Stands in an argument for what was asked.
const TEXT_PLACEHOLDER: &str = "{text}";

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) program: String,
    args: Vec<String>,
}

/// A text that cannot be an argument. Says why, to whoever sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidArgument(pub(super) &'static str);

impl CommandLine {
    pub(super) fn new(settings: &CommandSettings) -> Result<Self, CommandSettingsError> {
        let words = match (&settings.command, settings.shell) {
            (CommandSpec::Line(line), true) if line.contains(TEXT_PLACEHOLDER) => {
                return Err(CommandSettingsError(
                    "what was asked may not be part of a shell's line: read it from stdin",
                ));
            }
            (CommandSpec::Line(line), true) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
            (CommandSpec::List(_), true) => {
                return Err(CommandSettingsError(
                    "a shell takes a line, not a list of words",
                ));
            }
            (CommandSpec::Line(line), false) => shell_words::split(line)
                .map_err(|_| CommandSettingsError("a quote is not closed"))?,
            (CommandSpec::List(words), false) => words.clone(),
        };
        let mut words = words.into_iter();
        let program = words
            .next()
            .ok_or(CommandSettingsError("the command is empty"))?;
        if program.is_empty() || program.contains(TEXT_PLACEHOLDER) {
            return Err(CommandSettingsError(
                "the name of the program is empty, or not fixed",
            ));
        }
        Ok(Self {
            program,
            args: words.collect(),
        })
    }

    /// Whether what was asked is among the arguments.
    pub(super) fn has_text_placeholder(&self) -> bool {
        self.args.iter().any(|arg| arg.contains(TEXT_PLACEHOLDER))
    }

    /// The arguments for what was asked. It stays within its word, and makes no option of one that is none.
    pub(super) fn args(&self, text: &str) -> Result<Vec<String>, InvalidArgument> {
        if self.has_text_placeholder() && text.contains('\0') {
            return Err(InvalidArgument("the text must have no NUL characters"));
        }
        let mut guarded = false;
        let mut args = Vec::new();
        for word in &self.args {
            guarded |= word == "--";
            let filled = word.replace(TEXT_PLACEHOLDER, text);
            if !guarded && filled.starts_with('-') && !word.starts_with('-') {
                return Err(InvalidArgument("the text must not begin with `-`"));
            }
            args.push(filled);
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: CommandSpec, shell: bool) -> Result<CommandLine, CommandSettingsError> {
        CommandLine::new(&CommandSettings {
            command: words,
            shell,
            ..CommandSettings::default()
        })
    }

    fn list(words: &[&str]) -> CommandLine {
        line(
            CommandSpec::List(words.iter().map(|&word| word.to_owned()).collect()),
            false,
        )
        .unwrap()
    }

    #[test]
    fn s57_a_line_is_taken_apart_without_a_shell() {
        let line = line(
            CommandSpec::Line(r#"/usr/bin/printf '%s\n' "a b" $HOME `id` ; x > y"#.to_owned()),
            false,
        );
        let line = line.unwrap();
        assert_eq!(line.program, "/usr/bin/printf");
        assert_eq!(
            line.args,
            [r"%s\n", "a b", "$HOME", "`id`", ";", "x", ">", "y"]
        );
    }

    #[test]
    fn s57_what_was_asked_stays_one_word_and_is_no_option() {
        let grep = list(&["grep", "{text}", "file"]);
        assert_eq!(
            grep.args("a b; c"),
            Ok(vec!["a b; c".to_owned(), "file".to_owned()])
        );
        assert_eq!(
            grep.args("--version"),
            Err(InvalidArgument("the text must not begin with `-`"))
        );
        assert_eq!(
            grep.args("a\0b"),
            Err(InvalidArgument("the text must have no NUL characters"))
        );
        assert_eq!(
            list(&["grep", "--", "{text}"]).args("-v"),
            Ok(vec!["--".to_owned(), "-v".to_owned()])
        );
        assert_eq!(
            list(&["x", "--q={text}"]).args("-v"),
            Ok(vec!["--q=-v".to_owned()])
        );
        assert_eq!(
            list(&["x", "{text}{text}"]).args("{text}"),
            Ok(vec!["{text}{text}".to_owned()])
        );
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let plain = |text: &str| {
            line(CommandSpec::Line(text.to_owned()), false)
                .unwrap_err()
                .to_string()
        };
        for (text, why) in [
            ("", "empty"),
            ("  ", "empty"),
            ("'' x", "name of the program"),
            ("{text} x", "not fixed"),
            ("echo 'a", "quote"),
        ] {
            assert!(plain(text).contains(why), "{text}");
        }
        assert!(line(CommandSpec::Line("echo {text}".to_owned()), true).is_err());
        assert!(line(CommandSpec::List(vec!["ls".to_owned()]), true).is_err());
        assert_eq!(
            line(CommandSpec::Line("ls | wc".to_owned()), true)
                .unwrap()
                .args,
            ["-c", "ls | wc"]
        );
    }
}
