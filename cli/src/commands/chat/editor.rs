//! The line editor of a chat, on a thread of its own: reading a key blocks.

use std::borrow::Cow;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use tokio::sync::mpsc::{Receiver, channel};

use super::slash_command::SlashCommand;
use crate::error::{CliError, CliResult};

/// Number of messages that the arrow keys reach. They are never written to a file.
const MAX_HISTORY: usize = 1000;

/// A request for a line.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    pub(super) text: &'static str,
    /// Whether the line may be a secret, which the history omits.
    pub(super) is_sensitive: bool,
}

/// Result of a prompt.
pub(super) enum Input {
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D at an empty prompt, or the end of the terminal.
    End,
}

pub(super) struct LineEditor {
    prompts: SyncSender<Prompt>,
    lines: Receiver<Result<String, ReadlineError>>,
    _terminal: SavedTerminal,
}

impl LineEditor {
    /// Starts the thread. It is never joined, so a blocked read does not delay the end of the program.
    pub(super) fn start() -> CliResult<Self> {
        let unusable = |error| CliError::internal(format!("cannot use the terminal: {error}"));
        let terminal = SavedTerminal::new();
        let config = Config::builder()
            .max_history_size(MAX_HISTORY)
            .map_err(unusable)?
            .completion_type(CompletionType::List)
            .build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(unusable)?;
        editor.set_helper(Some(ChatHelper {
            files: FilenameCompleter::new(),
        }));
        let (prompts, requested) = sync_channel::<Prompt>(1);
        let (send, lines) = channel(1);
        std::thread::spawn(move || {
            for prompt in requested {
                let line = editor.readline(prompt.text);
                if let Ok(line) = &line
                    && !prompt.is_sensitive
                    && !line.trim().is_empty()
                {
                    // A full or refusing history loses this line only.
                    let _ = editor.add_history_entry(line.as_str());
                }
                if send.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            prompts,
            lines,
            _terminal: terminal,
        })
    }

    /// Prompts for a line.
    pub(super) async fn read(&mut self, prompt: &Prompt) -> CliResult<Input> {
        let ended = || CliError::internal("the line editor has ended");
        self.prompts.send(prompt.clone()).map_err(|_| ended())?;
        match self.lines.recv().await.ok_or_else(ended)? {
            Ok(line) => Ok(Input::Line(line.replace("\\\n", "\n"))),
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(CliError::internal(format!("cannot read a line: {error}"))),
        }
    }
}

/// The mode of the terminal before the chat. A signal may end the program while the editor has changed it.
struct SavedTerminal {
    #[cfg(unix)]
    mode: Option<rustix::termios::Termios>,
}

#[cfg(unix)]
impl SavedTerminal {
    fn new() -> Self {
        Self {
            mode: rustix::termios::tcgetattr(std::io::stdin()).ok(),
        }
    }
}

#[cfg(unix)]
impl Drop for SavedTerminal {
    fn drop(&mut self) {
        if let Some(mode) = &self.mode {
            // The terminal may be gone.
            let now = rustix::termios::OptionalActions::Now;
            let _ = rustix::termios::tcsetattr(std::io::stdin(), now, mode);
        }
    }
}

#[cfg(not(unix))]
impl SavedTerminal {
    fn new() -> Self {
        Self {}
    }
}

/// Completes commands and file names, and continues a line that ends with a backslash.
struct ChatHelper {
    files: FilenameCompleter,
}

impl Helper for ChatHelper {}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Highlighter for ChatHelper {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        let paint = crate::terminal::Paint::Bold;
        Cow::Owned(crate::terminal::TerminalStyle::for_stdout().paint(paint, prompt))
    }
}

impl Validator for ChatHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if context.input().ends_with('\\') {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Completer for ChatHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..position];
        if typed.starts_with("/file ") {
            return self.files.complete_path(line, position);
        }
        let names = SlashCommand::NAMES
            .iter()
            .filter(|name| typed.starts_with('/') && name.starts_with(typed));
        let pairs = names.map(|name| Pair {
            display: (*name).to_owned(),
            replacement: format!("{name} "),
        });
        Ok((0, pairs.collect()))
    }
}
