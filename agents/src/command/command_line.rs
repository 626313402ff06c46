//! Program and arguments of a command, with the message text as an argument (S57).

use super::CommandSettingsError;
use super::settings::{CommandSettings, CommandSpec};

/// Placeholder for the message text in an argument.
const TEXT_PLACEHOLDER: &str = "{text}";

/// Program and argument templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) program: String,
    /// Arguments in which [`TEXT_PLACEHOLDER`] is not yet replaced.
    args: Vec<String>,
}

/// Message text that must not become an argument, with the reason for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidArgument(pub(super) &'static str);

impl CommandLine {
    /// Parses the command of the settings.
    pub(super) fn new(settings: &CommandSettings) -> Result<Self, CommandSettingsError> {
        let words = if settings.shell {
            shell_words(&settings.command)?
        } else {
            match &settings.command {
                CommandSpec::Line(line) => shell_words::split(line)
                    .map_err(|_| CommandSettingsError("a quote is not closed"))?,
                CommandSpec::List(words) => words.clone(),
            }
        };
        let mut words = words.into_iter();
        let program = words
            .next()
            .ok_or(CommandSettingsError("the command is empty"))?;
        if program.is_empty() || program.contains(TEXT_PLACEHOLDER) {
            return Err(CommandSettingsError(
                "the name of the program must not be empty or contain {text}",
            ));
        }
        Ok(Self {
            program,
            args: words.collect(),
        })
    }

    /// Returns whether the message text is part of an argument.
    pub(super) fn has_text_placeholder(&self) -> bool {
        self.args.iter().any(|arg| arg.contains(TEXT_PLACEHOLDER))
    }

    /// Returns the arguments in which the message text is not yet replaced.
    pub(super) fn templates(&self) -> &[String] {
        &self.args
    }

    /// Returns the arguments for a message text.
    ///
    /// The text never becomes more than one argument, and never turns an argument into an option (S57).
    ///
    /// # Errors
    /// The text contains NUL, or an argument would begin with `-` before a `--`.
    pub(super) fn args(&self, text: &str) -> Result<Vec<String>, InvalidArgument> {
        if self.has_text_placeholder() && text.contains('\0') {
            return Err(InvalidArgument("the text must have no NUL characters"));
        }
        let mut is_after_separator = false;
        let mut args = Vec::new();
        for word in &self.args {
            is_after_separator |= word == "--";
            let filled = word.replace(TEXT_PLACEHOLDER, text);
            if !is_after_separator && filled.starts_with('-') && !word.starts_with('-') {
                return Err(InvalidArgument("the text must not begin with `-`"));
            }
            args.push(filled);
        }
        Ok(args)
    }
}

/// Returns the words that run a line in `sh -c`.
fn shell_words(command: &CommandSpec) -> Result<Vec<String>, CommandSettingsError> {
    match command {
        CommandSpec::Line(line) if line.contains(TEXT_PLACEHOLDER) => Err(CommandSettingsError(
            "{text} must not be part of a shell command: read the text from stdin",
        )),
        CommandSpec::Line(line) => Ok(vec!["sh".to_owned(), "-c".to_owned(), line.clone()]),
        CommandSpec::List(_) => Err(CommandSettingsError(
            "a shell command must be one line, not a list of words",
        )),
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
    fn s57_a_line_is_split_without_a_shell() {
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
    fn s57_the_text_stays_one_argument_and_is_no_option() {
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
    fn invalid_commands_are_refused() {
        let plain = |text: &str| {
            line(CommandSpec::Line(text.to_owned()), false)
                .unwrap_err()
                .to_string()
        };
        for (text, reason) in [
            ("", "empty"),
            ("  ", "empty"),
            ("'' x", "name of the program"),
            ("{text} x", "contain {text}"),
            ("echo 'a", "quote"),
        ] {
            assert!(plain(text).contains(reason), "{text}");
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
