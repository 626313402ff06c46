//! The one renderer: results to stdout, everything else to stderr, in the form that was asked for.

mod card;
mod escape;
mod text;

use std::io::{self, Write};

use attache::model::{
    AgentCard, ListTasksResponse, Message, SendMessageResponse, StreamResponse, Task,
};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::masks::Masks;
use crate::settings::{Format, Settings};
pub(crate) use escape::{line, printable_json};
pub(crate) use text::Page;

/// Where results and remarks go.
pub(crate) struct Output {
    pub(crate) format: Format,
    /// One object per line.
    pub(crate) stream: bool,
    pub(crate) verbose: bool,
    masks: Masks,
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
            masks: settings.masks.clone(),
            ..Self::plain(settings.format, settings.stream)
        }
    }

    /// For what goes wrong before settings are known.
    pub(crate) fn plain(format: Format, stream: bool) -> Self {
        let (out, err) = (Box::new(io::stdout()), Box::new(io::stderr()));
        Self {
            format,
            stream,
            verbose: false,
            masks: Masks::default(),
            announced: false,
            resume: None,
            out,
            err,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Hides one more credential.
    pub(crate) fn mask(&mut self, secret: &attache::model::Secret) {
        self.masks.add(secret);
    }

    /// A remark on stderr. Whoever closed it does not want to know.
    pub(crate) fn note(&mut self, remark: &str) {
        let _ = writeln!(self.err, "{}", self.masks.hide(&line(remark)));
        let _ = self.err.flush();
    }

    /// Something is odd, and the result should be read with that in mind.
    pub(crate) fn warn(&mut self, remark: &str) {
        self.note(&format!("warning: {remark}"));
    }

    /// A JSON document: the only one, or one line of many.
    pub(crate) fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Outcome {
        let text = match self.stream {
            true => serde_json::to_string(value),
            false => serde_json::to_string_pretty(value),
        };
        let text =
            text.map_err(|error| Failure::internal(format!("cannot write JSON: {error}")))?;
        self.print(&printable_json(&text))
    }

    /// A line or more, at once on their way.
    pub(crate) fn print(&mut self, text: &str) -> Outcome {
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// A page of fields and blocks.
    pub(crate) fn page(&mut self, page: &Page) -> Outcome {
        self.out.write_all(page.as_str().as_bytes())?;
        Ok(self.out.flush()?)
    }

    fn new_page(&self) -> Page {
        Page::new(self.verbose)
    }

    /// Another result begins.
    pub(crate) fn begin(&mut self) {
        (self.announced, self.resume) = (false, None);
    }

    /// Remembers how to go on, in case that we are stopped.
    pub(crate) fn resume_with(&mut self, command: String) {
        self.resume = Some(command);
    }

    pub(crate) fn resume(&self) -> Option<&str> {
        self.resume.as_deref()
    }

    /// Tells the ids as soon as they are known, so that no interruption can lose them.
    pub(crate) fn announce(&mut self, task: &str, context: &str) -> Outcome {
        if std::mem::replace(&mut self.announced, true) {
            return Ok(());
        }
        let mut page = self.new_page();
        page.ids(task, context);
        match self.format {
            Format::Text => self.page(&page),
            Format::Json => {
                let _ = self.err.write_all(page.as_str().as_bytes());
                let _ = self.err.flush();
                Ok(())
            }
        }
    }

    /// The task as it stands, the last word of a verb; `resume` goes on from here.
    pub(crate) fn task(&mut self, task: &Task, resume: Option<&str>) -> Outcome {
        match self.format {
            Format::Json => self.json(task)?,
            Format::Text => self.task_page(task, false, resume)?,
        }
        self.resume_on_stderr(resume);
        Ok(())
    }

    /// The same for a task whose history was asked for.
    pub(crate) fn task_with_history(&mut self, task: &Task, resume: Option<&str>) -> Outcome {
        match self.format {
            Format::Json => self.json(task)?,
            Format::Text => self.task_page(task, true, resume)?,
        }
        self.resume_on_stderr(resume);
        Ok(())
    }

    /// What came of a message.
    pub(crate) fn answer(&mut self, answer: &SendMessageResponse, resume: Option<&str>) -> Outcome {
        match (self.format, answer) {
            (Format::Json, answer) => self.json(answer)?,
            (Format::Text, SendMessageResponse::Task(task)) => {
                self.task_page(task, false, resume)?
            }
            (Format::Text, SendMessageResponse::Message(message)) => {
                let mut page = self.new_page();
                page.reply(message);
                resume
                    .into_iter()
                    .for_each(|command| page.field("Resume", command));
                self.page(&page)?;
            }
        }
        self.resume_on_stderr(resume);
        Ok(())
    }

    fn task_page(&mut self, task: &Task, with_history: bool, resume: Option<&str>) -> Outcome {
        let mut page = self.new_page();
        if !self.announced {
            page.ids(task.id.as_str(), task.context_id.as_str());
        }
        page.task(task, with_history);
        resume
            .into_iter()
            .for_each(|command| page.field("Resume", command));
        self.page(&page)
    }

    /// In JSON the command that goes on has no place in the result.
    pub(crate) fn resume_on_stderr(&mut self, resume: Option<&str>) {
        if let (Format::Json, Some(command)) = (self.format, resume) {
            self.note(&format!("Resume: {command}"));
        }
    }

    /// One event of a stream.
    pub(crate) fn event(&mut self, event: &StreamResponse) -> Outcome {
        match self.format {
            Format::Json => self.json(event),
            Format::Text => {
                let mut page = self.new_page();
                page.event(event);
                self.page(&page)
            }
        }
    }

    pub(crate) fn listed(&mut self, page_of: &ListTasksResponse) -> Outcome {
        match (self.format, self.stream) {
            (Format::Json, false) => self.json(page_of),
            (Format::Json, true) => {
                page_of.tasks.iter().try_for_each(|task| self.json(task))?;
                if !page_of.next_page_token.is_empty() {
                    self.note(&format!(
                        "Next page: --page-token {}",
                        shell_words::quote(&page_of.next_page_token)
                    ));
                }
                Ok(())
            }
            (Format::Text, _) => {
                let mut page = self.new_page();
                page.tasks(page_of);
                self.page(&page)
            }
        }
    }

    /// A card: in JSON as it was received, to the byte where that can be printed.
    pub(crate) fn card(&mut self, card: &AgentCard, received: &str, signature: &str) -> Outcome {
        if self.is_json() {
            let text = match self.stream {
                true => attache::model::Json::parse(received)
                    .map_or_else(|_| received.to_owned(), |it| it.to_string()),
                false => received.trim().to_owned(),
            };
            self.note(&format!("Signature: {signature}"));
            return self.print(&printable_json(&text));
        }
        let mut page = self.new_page();
        page.card(card, signature);
        self.page(&page)
    }

    /// What was sent, for who wants to see more.
    pub(crate) fn sent(&mut self, message: &Message) {
        if self.verbose && !self.is_json() {
            let mut page = self.new_page();
            page.message(message);
            let text = self.masks.hide(page.as_str());
            let _ = self.err.write_all(format!("Sent:\n{text}").as_bytes());
        }
    }

    /// The last word when there is no result.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: &'a Failure,
        }
        if failure.is_gone() {
            return;
        }
        let hidden = Failure {
            code: failure.code.clone(),
            message: self.masks.hide(&failure.message),
            hint: failure.hint.as_deref().map(|hint| self.masks.hide(hint)),
            a2a_code: failure.a2a_code.clone(),
            exit: failure.exit,
        };
        if self.is_json() {
            // Nobody is left to tell if it fails.
            let _ = self.json(&Envelope { error: &hidden });
            return;
        }
        let mut page = Page::new(false);
        page.field("Error", &hidden.code);
        page.field("Message", &hidden.message);
        hidden.hint.iter().for_each(|hint| page.field("Hint", hint));
        let _ = self.err.write_all(page.as_str().as_bytes());
        let _ = self.err.flush();
    }
}
