//! `-o plain` and `-o pretty`: the answer on stdout, everything else on stderr.

use attache::model::{Message, StreamResponse, Task};

use super::answer::{AnswerPiece, AnswerState, is_unsuccessful};
use super::escape::ChunkEscaper;
use super::markdown::MarkdownWriter;
use super::pretty::Footer;
use super::status_line::StatusLine;
use super::{HistoryMode, Output, TextPage, line};
use crate::error::CliResult;
use crate::settings::OutputFormat;
use crate::terminal::{Paint, TerminalStyle};

/// State of an answer while it is printed.
pub(super) struct AnswerView {
    pieces: AnswerState,
    escaper: ChunkEscaper,
    /// Renders the text of `-o pretty`.
    markdown: MarkdownWriter,
    pub(super) status_line: StatusLine,
    /// Whether stdout is at the start of a line.
    is_at_line_start: bool,
    /// Whether an empty line precedes the next part.
    needs_gap: bool,
    has_output: bool,
    pub(super) stdout: TerminalStyle,
    pub(super) stderr: TerminalStyle,
}

impl AnswerView {
    pub(super) fn new(format: OutputFormat) -> Self {
        let stdout = TerminalStyle::for_stdout();
        Self {
            pieces: AnswerState::default(),
            escaper: ChunkEscaper::default(),
            markdown: MarkdownWriter::new(stdout),
            status_line: StatusLine::new(format == OutputFormat::Pretty),
            is_at_line_start: true,
            needs_gap: false,
            has_output: false,
            stdout,
            stderr: TerminalStyle::for_stderr(),
        }
    }

    /// Prepares for another answer.
    pub(super) fn reset(&mut self) {
        self.pieces = AnswerState::default();
        self.needs_gap = false;
        self.has_output = false;
        self.status_line.restart();
        // The terminal may have been resized.
        self.stdout = TerminalStyle::for_stdout();
        self.stderr = TerminalStyle::for_stderr();
        self.markdown = MarkdownWriter::new(self.stdout);
    }
}

impl Output {
    /// Whether the format is for people or scripts that want only the answer, instead of the CLI contract's.
    pub(crate) fn prints_answer_only(&self) -> bool {
        !self.format.is_of_contract()
    }

    pub(crate) fn is_pretty(&self) -> bool {
        self.format == OutputFormat::Pretty
    }

    /// Width and styles of stdout.
    pub(crate) fn stdout_style(&self) -> TerminalStyle {
        self.view.stdout
    }

    /// Changes the format to `pretty`.
    pub(crate) fn use_pretty(&mut self) {
        self.format = OutputFormat::Pretty;
        self.view = AnswerView::new(self.format);
    }

    /// Whether [`draw_status_line`](Self::draw_status_line) draws anything.
    pub(crate) fn has_status_line(&self) -> bool {
        self.view.status_line.is_enabled()
    }

    /// Draws the next frame of the status line, unless an unfinished line of text is on the screen.
    pub(crate) fn draw_status_line(&mut self) {
        if self.view.is_at_line_start {
            self.view.status_line.draw(&mut self.err, self.view.stderr);
        }
    }

    /// Prints the content of an event.
    pub(super) fn print_event_content(&mut self, event: &StreamResponse) -> CliResult {
        let pieces = self.view.pieces.pieces_of_event(event);
        self.print_pieces(pieces)
    }

    /// Prints the rest of an answer, then ids, state and the command that continues.
    pub(crate) fn finish_task(
        &mut self,
        task: &Task,
        history: HistoryMode,
        resume: Option<&str>,
    ) -> CliResult {
        if history == HistoryMode::Shown {
            let pieces = self.view.pieces.pieces_of_history(&task.history);
            self.print_pieces(pieces)?;
        }
        let pieces = self.view.pieces.pieces_of_task(task);
        self.print_pieces(pieces)?;
        self.end_answer()?;
        let state = task.status.state;
        let reason = task.status.message.as_ref().map(|message| message.text());
        let reason = reason.filter(|text| is_unsuccessful(state) && !text.is_empty());
        if self.is_pretty() {
            self.print_footer(&Footer {
                state: Some(state),
                reason,
                elapsed: self.view.status_line.elapsed(),
                task: Some(task.id.as_str()),
                context: Some(task.context_id.as_str()),
                resume,
            });
            return Ok(());
        }
        let mut page = TextPage::new(false);
        if !std::mem::replace(&mut self.announced, true) {
            page.add_ids(task.id.as_str(), task.context_id.as_str());
        }
        page.add_field("State", state.as_str());
        reason
            .iter()
            .for_each(|reason| page.add_field("Message", reason));
        self.print_notes(page, resume);
        Ok(())
    }

    /// Prints an answer without a task, its context and the command that continues.
    pub(crate) fn finish_reply(&mut self, reply: &Message, resume: Option<&str>) -> CliResult {
        let pieces = self.view.pieces.pieces_of_reply(reply);
        self.print_pieces(pieces)?;
        self.end_answer()?;
        let context = reply.context_id.as_ref().map(|id| id.as_str());
        if self.is_pretty() {
            self.print_footer(&Footer {
                state: None,
                reason: None,
                elapsed: self.view.status_line.elapsed(),
                task: None,
                context,
                resume,
            });
            return Ok(());
        }
        let mut page = TextPage::new(false);
        context
            .into_iter()
            .for_each(|context| page.add_field("Context", context));
        self.print_notes(page, resume);
        Ok(())
    }

    /// Prints fields to stderr.
    fn print_notes(&mut self, mut page: TextPage, resume: Option<&str>) {
        resume
            .into_iter()
            .for_each(|command| page.add_field("Resume", command));
        let _ = self.err.write_all(page.as_str().as_bytes());
        let _ = self.err.flush();
    }

    fn print_footer(&mut self, footer: &Footer<'_>) {
        let text = footer.render(self.view.stderr);
        let gap = if self.view.has_output { "\n" } else { "" };
        let _ = self.err.write_all(format!("{gap}{text}").as_bytes());
        let _ = self.err.flush();
    }

    fn print_pieces(&mut self, pieces: Vec<AnswerPiece>) -> CliResult {
        for piece in pieces {
            self.print_piece(piece)?;
        }
        Ok(self.out.flush()?)
    }

    fn print_piece(&mut self, piece: AnswerPiece) -> CliResult {
        let is_pretty = self.is_pretty();
        match piece {
            AnswerPiece::Text(text) => {
                self.begin_content()?;
                let text = self.view.escaper.escape(&text);
                let shown = if is_pretty {
                    self.view.markdown.push(&text)
                } else {
                    text.clone()
                };
                self.out.write_all(shown.as_bytes())?;
                self.view.is_at_line_start = if is_pretty {
                    self.view.markdown.is_at_line_start()
                } else {
                    text.ends_with('\n')
                };
            }
            AnswerPiece::PartEnd => {
                self.end_line()?;
                self.view.needs_gap = is_pretty && self.view.has_output;
            }
            AnswerPiece::Data(data) => {
                self.end_line()?;
                self.begin_content()?;
                for one in data.lines() {
                    let shown = self.paint_stdout(Paint::Dim, &line(one));
                    writeln!(self.out, "{shown}")?;
                }
            }
            AnswerPiece::File(description) if is_pretty => {
                self.end_line()?;
                self.begin_content()?;
                let file = self.paint_stdout(Paint::Bold, &line(&description));
                writeln!(self.out, "File: {file}")?;
            }
            AnswerPiece::File(description) => self.note(&format!("File: {description}")),
            AnswerPiece::Progress(text) => self.report_progress(&text)?,
        }
        Ok(())
    }

    /// Shows what the agent is doing: in the status line if there is one, else as a note.
    fn report_progress(&mut self, text: &str) -> CliResult {
        let first_line = text.trim().lines().next().unwrap_or_default();
        if first_line.is_empty() {
            return Ok(());
        }
        if self.has_status_line() {
            self.view.status_line.set_message(line(first_line));
            self.draw_status_line();
            return Ok(());
        }
        if self.is_pretty() {
            self.end_line()?;
            self.out.flush()?;
        }
        self.note(first_line);
        Ok(())
    }

    /// Prepares stdout for content.
    fn begin_content(&mut self) -> CliResult {
        self.view.status_line.erase(&mut self.err);
        if std::mem::take(&mut self.view.needs_gap) {
            self.out.write_all(b"\n")?;
        }
        self.view.has_output = true;
        Ok(())
    }

    /// Ends an unfinished line of text.
    pub(super) fn end_line(&mut self) -> CliResult {
        let rest = self.view.markdown.finish();
        self.out.write_all(rest.as_bytes())?;
        if !self.is_pretty() && !self.view.is_at_line_start {
            self.out.write_all(b"\n")?;
        }
        self.view.is_at_line_start = true;
        Ok(())
    }

    fn end_answer(&mut self) -> CliResult {
        self.end_line()?;
        self.view.status_line.erase(&mut self.err);
        Ok(self.out.flush()?)
    }

    fn paint_stdout(&self, paint: Paint, text: &str) -> String {
        if self.is_pretty() {
            self.view.stdout.paint(paint, text)
        } else {
            text.to_owned()
        }
    }
}
