//! Renders results to stdout and everything else to stderr, in the requested format.
//!
//! All client verbs print through [`Output`], so a result looks the same on every binding.

mod answer;
mod card;
mod escape;
mod markdown;
mod people;
mod pretty;
mod status_line;
mod text;

use std::ffi::OsString;
use std::io::{self, Write};

use attache::model::{
    AgentCard, ListTasksResponse, Message, NO_CONTENT, SendMessageResponse, StreamResponse, Task,
    TaskState,
};
use serde::Serialize;

use crate::args::parse;
use crate::error::{CliError, CliResult};
use crate::redactor::Redactor;
use crate::settings::{OutputFormat, Settings};
use crate::terminal::{Paint, TerminalStyle};
pub(crate) use escape::{line, printable_json};
use people::AnswerView;
pub(crate) use pretty::duration_text;
pub(crate) use status_line::FRAME_TIME;
pub(crate) use text::{HistoryMode, TextPage};

/// Destination of results, notes and errors.
pub(crate) struct Output {
    pub(crate) format: OutputFormat,
    /// `--stream`: a JSON object per line.
    pub(crate) stream: bool,
    pub(crate) verbose: bool,
    redactor: Redactor,
    /// Whether the ids of the task have been printed.
    announced: bool,
    /// Command that continues if the program is stopped now.
    resume: Option<String>,
    /// State of `-o plain` and `-o pretty`.
    view: AnswerView,
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
}

impl Output {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            verbose: settings.verbose,
            redactor: settings.redactor.clone(),
            ..Self::with_format(settings.format, settings.stream)
        }
    }

    /// An output without settings, for errors that occur before these are known.
    pub(crate) fn with_format(format: OutputFormat, stream: bool) -> Self {
        Self {
            format,
            stream,
            verbose: false,
            redactor: Redactor::default(),
            announced: false,
            resume: None,
            view: AnswerView::new(format),
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
        }
    }

    /// An output that discards everything.
    pub(crate) fn silent() -> Self {
        Self {
            out: Box::new(io::sink()),
            err: Box::new(io::sink()),
            ..Self::with_format(OutputFormat::Text, false)
        }
    }

    /// An output for a command line that could not be parsed.
    pub(crate) fn for_command_line(words: &[OsString]) -> Self {
        let (format, stream) = parse::scan_format(words);
        Self::with_format(format, stream)
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Redacts one more credential.
    pub(crate) fn redact(&mut self, secret: &attache::model::Secret) {
        self.redactor.add(secret);
    }

    /// Prints a note to stderr. A closed stderr is ignored.
    pub(crate) fn note(&mut self, note: &str) {
        self.print_note(note, Paint::Dim);
    }

    fn print_note(&mut self, note: &str, paint: Paint) {
        let note = self.redactor.redact(&line(note));
        self.view.status_line.erase(&mut self.err);
        let note = match self.format {
            OutputFormat::Pretty => self.view.stderr.paint(paint, &note),
            OutputFormat::Text | OutputFormat::Json | OutputFormat::Plain => note,
        };
        let _ = writeln!(self.err, "{note}");
        let _ = self.err.flush();
    }

    /// Prints a warning to stderr.
    pub(crate) fn warn(&mut self, warning: &str) {
        self.print_note(&format!("warning: {warning}"), Paint::Yellow);
    }

    /// Prints a JSON document, on one line if `--stream` is given.
    pub(crate) fn print_json(&mut self, value: &(impl Serialize + ?Sized)) -> CliResult {
        let text = if self.stream {
            serde_json::to_string(value)
        } else {
            serde_json::to_string_pretty(value)
        };
        let text =
            text.map_err(|error| CliError::internal(format!("cannot write JSON: {error}")))?;
        self.print_line(&printable_json(&text))
    }

    /// Prints text with a line end, and flushes stdout.
    pub(crate) fn print_line(&mut self, text: &str) -> CliResult {
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// Prints a page of fields and blocks, and flushes stdout.
    pub(crate) fn print_page(&mut self, page: &TextPage) -> CliResult {
        let text = match self.format {
            OutputFormat::Pretty => paint_labels(page.as_str(), self.view.stdout),
            OutputFormat::Text | OutputFormat::Json | OutputFormat::Plain => {
                page.as_str().to_owned()
            }
        };
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }

    fn new_page(&self) -> TextPage {
        TextPage::new(self.verbose)
    }

    /// Prepares for another result.
    pub(crate) fn reset(&mut self) {
        self.announced = false;
        self.resume = None;
        self.view.reset();
    }

    /// Sets the command that continues if the program is stopped.
    pub(crate) fn set_resume_command(&mut self, command: String) {
        self.resume = Some(command);
    }

    pub(crate) fn resume_command(&self) -> Option<&str> {
        self.resume.as_deref()
    }

    /// Prints the ids of the task when they are first known, so that an interruption cannot lose them: to stdout as text,
    /// otherwise to stderr. The lines below a pretty answer have them.
    pub(crate) fn announce(&mut self, task: &str, context: &str) -> CliResult {
        if std::mem::replace(&mut self.announced, true) {
            return Ok(());
        }
        let mut page = self.new_page();
        page.add_ids(task, context);
        match self.format {
            OutputFormat::Text => self.print_page(&page),
            OutputFormat::Pretty => Ok(()),
            OutputFormat::Json | OutputFormat::Plain => {
                let _ = self.err.write_all(page.as_str().as_bytes());
                let _ = self.err.flush();
                Ok(())
            }
        }
    }

    /// Prints a task as the result of a verb, with the command that continues from it.
    pub(crate) fn print_task(&mut self, task: &Task, resume: Option<&str>) -> CliResult {
        self.print_task_as(task, HistoryMode::Hidden, resume)
    }

    /// Prints a task with its history.
    pub(crate) fn print_task_with_history(
        &mut self,
        task: &Task,
        resume: Option<&str>,
    ) -> CliResult {
        self.print_task_as(task, HistoryMode::Shown, resume)
    }

    fn print_task_as(
        &mut self,
        task: &Task,
        history: HistoryMode,
        resume: Option<&str>,
    ) -> CliResult {
        match self.format {
            OutputFormat::Json => self.print_json(task)?,
            OutputFormat::Text => self.print_task_page(task, history, resume)?,
            OutputFormat::Plain | OutputFormat::Pretty => {
                self.finish_task(task, history, resume)?;
            }
        }
        self.note_missing_content(task);
        self.note_resume_command(resume);
        Ok(())
    }

    /// Notes that a task completed without any content.
    pub(crate) fn note_missing_content(&mut self, task: &Task) {
        if task.status.state == TaskState::Completed && task.result().is_empty() {
            self.note(NO_CONTENT);
        }
    }

    /// Prints the response to a message, with the command that continues from it.
    pub(crate) fn print_response(
        &mut self,
        answer: &SendMessageResponse,
        resume: Option<&str>,
    ) -> CliResult {
        match (self.format, answer) {
            (OutputFormat::Json, answer) => self.print_json(answer)?,
            (OutputFormat::Text, SendMessageResponse::Task(task)) => {
                self.print_task_page(task, HistoryMode::Hidden, resume)?
            }
            (OutputFormat::Text, SendMessageResponse::Message(message)) => {
                let mut page = self.new_page();
                page.add_reply(message);
                resume
                    .into_iter()
                    .for_each(|command| page.add_field("Resume", command));
                self.print_page(&page)?;
            }
            (OutputFormat::Plain | OutputFormat::Pretty, SendMessageResponse::Task(task)) => {
                self.finish_task(task, HistoryMode::Hidden, resume)?
            }
            (OutputFormat::Plain | OutputFormat::Pretty, SendMessageResponse::Message(message)) => {
                self.finish_reply(message, resume)?
            }
        }
        if let SendMessageResponse::Task(task) = answer {
            self.note_missing_content(task);
        }
        self.note_resume_command(resume);
        Ok(())
    }

    fn print_task_page(
        &mut self,
        task: &Task,
        history: HistoryMode,
        resume: Option<&str>,
    ) -> CliResult {
        let mut page = self.new_page();
        if !self.announced {
            page.add_ids(task.id.as_str(), task.context_id.as_str());
        }
        page.add_task(task, history);
        resume
            .into_iter()
            .for_each(|command| page.add_field("Resume", command));
        self.print_page(&page)
    }

    /// Prints the command that continues to stderr, if the format is JSON: the result has no member for it.
    pub(crate) fn note_resume_command(&mut self, resume: Option<&str>) {
        if let (OutputFormat::Json, Some(command)) = (self.format, resume) {
            self.note(&format!("Resume: {command}"));
        }
    }

    /// Prints one event of a stream.
    pub(crate) fn print_event(&mut self, event: &StreamResponse) -> CliResult {
        match self.format {
            OutputFormat::Json => self.print_json(event),
            OutputFormat::Text => {
                let mut page = self.new_page();
                page.add_event(event);
                self.print_page(&page)
            }
            OutputFormat::Plain | OutputFormat::Pretty => self.print_event_content(event),
        }
    }

    /// Prints a page of tasks. With JSON Lines the token of the next page goes to stderr.
    pub(crate) fn print_tasks(&mut self, tasks: &ListTasksResponse) -> CliResult {
        match (self.format, self.stream) {
            (OutputFormat::Json, false) => self.print_json(tasks),
            (OutputFormat::Json, true) => {
                tasks
                    .tasks
                    .iter()
                    .try_for_each(|task| self.print_json(task))?;
                if !tasks.next_page_token.is_empty() {
                    self.note(&format!(
                        "Next page: --page-token {}",
                        shell_words::quote(&tasks.next_page_token)
                    ));
                }
                Ok(())
            }
            (OutputFormat::Pretty, _) => {
                let table = pretty::task_table(tasks, crate::clock::now(), self.view.stdout);
                self.out.write_all(table.as_bytes())?;
                Ok(self.out.flush()?)
            }
            (OutputFormat::Text | OutputFormat::Plain, _) => {
                let mut page = self.new_page();
                page.add_tasks(tasks);
                self.print_page(&page)
            }
        }
    }

    /// Prints a card. JSON is printed as received, except for control characters, so that signatures can be verified.
    pub(crate) fn print_card(
        &mut self,
        card: &AgentCard,
        received: &str,
        signature: &str,
    ) -> CliResult {
        if self.is_json() {
            let text = if self.stream {
                attache::model::Json::parse(received)
                    .map_or_else(|_| received.to_owned(), |it| it.to_string())
            } else {
                received.trim().to_owned()
            };
            self.note(&format!("Signature: {signature}"));
            return self.print_line(&printable_json(&text));
        }
        let mut page = self.new_page();
        page.add_card(card, signature);
        self.print_page(&page)
    }

    /// Prints the message that is sent to stderr, if `--verbose` is given.
    pub(crate) fn print_sent(&mut self, message: &Message) {
        if self.verbose && !self.is_json() {
            let mut page = self.new_page();
            page.add_message(message);
            let text = self.redactor.redact(page.as_str());
            let _ = self.err.write_all(format!("Sent:\n{text}").as_bytes());
        }
    }

    /// Prints an error in place of a result: JSON to stdout, text to stderr.
    pub(crate) fn print_error(&mut self, error: &CliError) {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: &'a CliError,
        }
        if error.is_broken_pipe() {
            return;
        }
        let redacted = CliError {
            code: error.code.clone(),
            message: self.redactor.redact(&error.message),
            hint: error.hint.as_deref().map(|hint| self.redactor.redact(hint)),
            a2a_code: error.a2a_code.clone(),
            exit: error.exit,
        };
        if self.is_json() {
            // A failed write cannot be reported.
            let _ = self.print_json(&Envelope { error: &redacted });
            return;
        }
        if self.is_pretty() {
            self.print_pretty_error(&redacted);
            return;
        }
        let mut page = TextPage::new(false);
        page.add_field("Error", &redacted.code);
        page.add_field("Message", &redacted.message);
        redacted
            .hint
            .iter()
            .for_each(|hint| page.add_field("Hint", hint));
        let _ = self.err.write_all(page.as_str().as_bytes());
        let _ = self.err.flush();
    }

    /// Prints an error for people: the message and its code, then the next step.
    fn print_pretty_error(&mut self, error: &CliError) {
        // A closed stdout is not reported again.
        let _ = self.end_line();
        let _ = self.out.flush();
        self.view.status_line.erase(&mut self.err);
        let style = self.view.stderr;
        let message = style.paint(Paint::Red, &format!("✗ {}", line(&error.message)));
        let code = style.paint(Paint::Dim, &format!("({})", line(&error.code)));
        let _ = writeln!(self.err, "{message} {code}");
        if let Some(hint) = &error.hint {
            let _ = writeln!(self.err, "  {}", line(hint));
        }
        let _ = self.err.flush();
    }
}

/// Paints the labels of a page, which start at the first column.
fn paint_labels(page: &str, style: TerminalStyle) -> String {
    let mut text = String::with_capacity(page.len());
    for one in page.split_inclusive('\n') {
        match one.split_once(':') {
            Some((label, rest)) if !label.starts_with(' ') => {
                text.push_str(&style.paint(Paint::Bold, label));
                text.push(':');
                text.push_str(rest);
            }
            _ => text.push_str(one),
        }
    }
    text
}
