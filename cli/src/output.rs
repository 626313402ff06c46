//! The one renderer: results to stdout, everything else to stderr, in the form that was asked for.

mod card;
mod escape;
mod text;

use std::io::{self, Write};

use attache::model::{
    AgentCard, ListTasksResponse, Message, SendMessageResponse, StreamResponse, Task,
};
use serde::Serialize;

use crate::error::{CliError, CliResult};
use crate::redactor::Redactor;
use crate::settings::{OutputFormat, Settings};
pub(crate) use escape::{line, printable_json};
pub(crate) use text::TextPage;

/// Where results and remarks go.
pub(crate) struct Output {
    pub(crate) format: OutputFormat,
    /// One object per line.
    pub(crate) stream: bool,
    pub(crate) verbose: bool,
    redactor: Redactor,
    /// The ids that are on stdout already.
    announced: bool,
    /// What would go on if we were stopped now.
    resume: Option<String>,
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

    /// For what goes wrong before settings are known.
    pub(crate) fn with_format(format: OutputFormat, stream: bool) -> Self {
        let (out, err) = (Box::new(io::stdout()), Box::new(io::stderr()));
        Self {
            format,
            stream,
            verbose: false,
            redactor: Redactor::default(),
            announced: false,
            resume: None,
            out,
            err,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Hides one more credential.
    pub(crate) fn redact(&mut self, secret: &attache::model::Secret) {
        self.redactor.add(secret);
    }

    /// A remark on stderr. Whoever closed it does not want to know.
    pub(crate) fn note(&mut self, remark: &str) {
        let _ = writeln!(self.err, "{}", self.redactor.redact(&line(remark)));
        let _ = self.err.flush();
    }

    /// Something is odd, and the result should be read with that in mind.
    pub(crate) fn warn(&mut self, remark: &str) {
        self.note(&format!("warning: {remark}"));
    }

    /// A JSON document: the only one, or one line of many.
    pub(crate) fn print_json(&mut self, value: &(impl Serialize + ?Sized)) -> CliResult {
        let text = match self.stream {
            true => serde_json::to_string(value),
            false => serde_json::to_string_pretty(value),
        };
        let text =
            text.map_err(|error| CliError::internal(format!("cannot write JSON: {error}")))?;
        self.print_line(&printable_json(&text))
    }

    /// A line or more, at once on their way.
    pub(crate) fn print_line(&mut self, text: &str) -> CliResult {
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// A page of fields and blocks.
    pub(crate) fn print_page(&mut self, page: &TextPage) -> CliResult {
        self.out.write_all(page.as_str().as_bytes())?;
        Ok(self.out.flush()?)
    }

    fn new_page(&self) -> TextPage {
        TextPage::new(self.verbose)
    }

    /// Another result begins.
    pub(crate) fn reset(&mut self) {
        (self.announced, self.resume) = (false, None);
    }

    /// Remembers how to go on, in case that we are stopped.
    pub(crate) fn set_resume_command(&mut self, command: String) {
        self.resume = Some(command);
    }

    pub(crate) fn resume_command(&self) -> Option<&str> {
        self.resume.as_deref()
    }

    /// Tells the ids as soon as they are known, so that no interruption can lose them.
    pub(crate) fn announce(&mut self, task: &str, context: &str) -> CliResult {
        if std::mem::replace(&mut self.announced, true) {
            return Ok(());
        }
        let mut page = self.new_page();
        page.add_ids(task, context);
        match self.format {
            OutputFormat::Text => self.print_page(&page),
            OutputFormat::Json => {
                let _ = self.err.write_all(page.as_str().as_bytes());
                let _ = self.err.flush();
                Ok(())
            }
        }
    }

    /// The task as it stands, the last word of a verb; `resume` goes on from here.
    pub(crate) fn print_task(&mut self, task: &Task, resume: Option<&str>) -> CliResult {
        match self.format {
            OutputFormat::Json => self.print_json(task)?,
            OutputFormat::Text => self.task_page(task, false, resume)?,
        }
        self.note_resume_command(resume);
        Ok(())
    }

    /// The same for a task whose history was asked for.
    pub(crate) fn print_task_with_history(
        &mut self,
        task: &Task,
        resume: Option<&str>,
    ) -> CliResult {
        match self.format {
            OutputFormat::Json => self.print_json(task)?,
            OutputFormat::Text => self.task_page(task, true, resume)?,
        }
        self.note_resume_command(resume);
        Ok(())
    }

    /// What came of a message.
    pub(crate) fn print_response(
        &mut self,
        answer: &SendMessageResponse,
        resume: Option<&str>,
    ) -> CliResult {
        match (self.format, answer) {
            (OutputFormat::Json, answer) => self.print_json(answer)?,
            (OutputFormat::Text, SendMessageResponse::Task(task)) => {
                self.task_page(task, false, resume)?
            }
            (OutputFormat::Text, SendMessageResponse::Message(message)) => {
                let mut page = self.new_page();
                page.add_reply(message);
                resume
                    .into_iter()
                    .for_each(|command| page.add_field("Resume", command));
                self.print_page(&page)?;
            }
        }
        self.note_resume_command(resume);
        Ok(())
    }

    fn task_page(&mut self, task: &Task, with_history: bool, resume: Option<&str>) -> CliResult {
        let mut page = self.new_page();
        if !self.announced {
            page.add_ids(task.id.as_str(), task.context_id.as_str());
        }
        page.add_task(task, with_history);
        resume
            .into_iter()
            .for_each(|command| page.add_field("Resume", command));
        self.print_page(&page)
    }

    /// In JSON the command that goes on has no place in the result.
    pub(crate) fn note_resume_command(&mut self, resume: Option<&str>) {
        if let (OutputFormat::Json, Some(command)) = (self.format, resume) {
            self.note(&format!("Resume: {command}"));
        }
    }

    /// One event of a stream.
    pub(crate) fn print_event(&mut self, event: &StreamResponse) -> CliResult {
        match self.format {
            OutputFormat::Json => self.print_json(event),
            OutputFormat::Text => {
                let mut page = self.new_page();
                page.add_event(event);
                self.print_page(&page)
            }
        }
    }

    pub(crate) fn print_tasks(&mut self, page_of: &ListTasksResponse) -> CliResult {
        match (self.format, self.stream) {
            (OutputFormat::Json, false) => self.print_json(page_of),
            (OutputFormat::Json, true) => {
                page_of
                    .tasks
                    .iter()
                    .try_for_each(|task| self.print_json(task))?;
                if !page_of.next_page_token.is_empty() {
                    self.note(&format!(
                        "Next page: --page-token {}",
                        shell_words::quote(&page_of.next_page_token)
                    ));
                }
                Ok(())
            }
            (OutputFormat::Text, _) => {
                let mut page = self.new_page();
                page.add_tasks(page_of);
                self.print_page(&page)
            }
        }
    }

    /// A card: in JSON as it was received, to the byte where that can be printed.
    pub(crate) fn print_card(
        &mut self,
        card: &AgentCard,
        received: &str,
        signature: &str,
    ) -> CliResult {
        if self.is_json() {
            let text = match self.stream {
                true => attache::model::Json::parse(received)
                    .map_or_else(|_| received.to_owned(), |it| it.to_string()),
                false => received.trim().to_owned(),
            };
            self.note(&format!("Signature: {signature}"));
            return self.print_line(&printable_json(&text));
        }
        let mut page = self.new_page();
        page.add_card(card, signature);
        self.print_page(&page)
    }

    /// What was sent, for who wants to see more.
    pub(crate) fn print_sent(&mut self, message: &Message) {
        if self.verbose && !self.is_json() {
            let mut page = self.new_page();
            page.add_message(message);
            let text = self.redactor.redact(page.as_str());
            let _ = self.err.write_all(format!("Sent:\n{text}").as_bytes());
        }
    }

    /// The last word when there is no result.
    pub(crate) fn print_error(&mut self, failure: &CliError) {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: &'a CliError,
        }
        if failure.is_broken_pipe() {
            return;
        }
        let hidden = CliError {
            code: failure.code.clone(),
            message: self.redactor.redact(&failure.message),
            hint: failure
                .hint
                .as_deref()
                .map(|hint| self.redactor.redact(hint)),
            a2a_code: failure.a2a_code.clone(),
            exit: failure.exit,
        };
        if self.is_json() {
            // Nobody is left to tell if it fails.
            let _ = self.print_json(&Envelope { error: &hidden });
            return;
        }
        let mut page = TextPage::new(false);
        page.add_field("Error", &hidden.code);
        page.add_field("Message", &hidden.message);
        hidden
            .hint
            .iter()
            .for_each(|hint| page.add_field("Hint", hint));
        let _ = self.err.write_all(page.as_str().as_bytes());
        let _ = self.err.flush();
    }
}
