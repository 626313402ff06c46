//! The words of a command, and what was asked among them.

use super::BadCommand;
use super::settings::{CommandSettings, Words};

/// Stands in an argument for what was asked.
const TEXT: &str = "{text}";

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) program: String,
    args: Vec<String>,
}

/// A text that cannot be an argument. Says why, to whoever sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfit(pub(super) &'static str);

impl Line {
    pub(super) fn new(settings: &CommandSettings) -> Result<Self, BadCommand> {
        let words = match (&settings.command, settings.shell) {
            (Words::Line(line), true) if line.contains(TEXT) => {
                return Err(BadCommand(
                    "what was asked may not be part of a shell's line: read it from stdin",
                ));
            }
            (Words::Line(line), true) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
            (Words::List(_), true) => {
                return Err(BadCommand("a shell takes a line, not a list of words"));
            }
            (Words::Line(line), false) => {
                shell_words::split(line).map_err(|_| BadCommand("a quote is not closed"))?
            }
            (Words::List(words), false) => words.clone(),
        };
        let mut words = words.into_iter();
        let program = words.next().ok_or(BadCommand("the command is empty"))?;
        if program.is_empty() || program.contains(TEXT) {
            return Err(BadCommand("the name of the program is empty, or not fixed"));
        }
        Ok(Self {
            program,
            args: words.collect(),
        })
    }

    /// Whether what was asked is among the arguments.
    pub(super) fn takes_text(&self) -> bool {
        self.args.iter().any(|arg| arg.contains(TEXT))
    }

    /// The arguments for what was asked. It stays within its word, and makes no option of one that is none.
    pub(super) fn args(&self, text: &str) -> Result<Vec<String>, Unfit> {
        if self.takes_text() && text.contains('\0') {
            return Err(Unfit("the text must have no NUL characters"));
        }
        let mut guarded = false;
        let mut args = Vec::new();
        for word in &self.args {
            guarded |= word == "--";
            let filled = word.replace(TEXT, text);
            if !guarded && filled.starts_with('-') && !word.starts_with('-') {
                return Err(Unfit("the text must not begin with `-`"));
            }
            args.push(filled);
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: Words, shell: bool) -> Result<Line, BadCommand> {
        Line::new(&CommandSettings {
            command: words,
            shell,
            ..CommandSettings::default()
        })
    }

    fn list(words: &[&str]) -> Line {
        line(
            Words::List(words.iter().map(|&word| word.to_owned()).collect()),
            false,
        )
        .unwrap()
    }

    #[test]
    fn s57_a_line_is_taken_apart_without_a_shell() {
        let line = line(
            Words::Line(r#"/usr/bin/printf '%s\n' "a b" $HOME `id` ; x > y"#.to_owned()),
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
            Err(Unfit("the text must not begin with `-`"))
        );
        assert_eq!(
            grep.args("a\0b"),
            Err(Unfit("the text must have no NUL characters"))
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
            line(Words::Line(text.to_owned()), false)
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
        assert!(line(Words::Line("echo {text}".to_owned()), true).is_err());
        assert!(line(Words::List(vec!["ls".to_owned()]), true).is_err());
        assert_eq!(
            line(Words::Line("ls | wc".to_owned()), true).unwrap().args,
            ["-c", "ls | wc"]
        );
    }
}
