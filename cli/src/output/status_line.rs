//! The status line of `-o pretty`: what the agent is doing, redrawn in place on stderr.

use std::io::Write;
use std::time::{Duration, Instant};

use super::pretty::duration_text;
use crate::terminal::{Paint, TerminalStyle, can_redraw_stderr, shorten};

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Erases the line, with the cursor at its start.
const ERASE: &str = "\r\x1b[K";

/// Time between two frames.
pub(crate) const FRAME_TIME: Duration = Duration::from_millis(120);

pub(super) struct StatusLine {
    started: Instant,
    message: String,
    frame: usize,
    is_enabled: bool,
    is_drawn: bool,
}

impl StatusLine {
    /// A status line that is drawn only if stderr is a terminal.
    pub(super) fn new(is_requested: bool) -> Self {
        Self {
            started: Instant::now(),
            message: "waiting".to_owned(),
            frame: 0,
            is_enabled: is_requested && can_redraw_stderr(),
            is_drawn: false,
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Starts the time for another result.
    pub(super) fn restart(&mut self) {
        *self = Self {
            is_drawn: self.is_drawn,
            ..Self::new(self.is_enabled)
        };
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sets the text, which is escaped.
    pub(super) fn set_message(&mut self, message: String) {
        self.message = message;
    }

    pub(super) fn draw(&mut self, err: &mut dyn Write, style: TerminalStyle) {
        if !self.is_enabled {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let time = duration_text(self.elapsed());
        let text = format!("{} {} · {time}", FRAMES[self.frame], self.message);
        let text = shorten(&text, style.columns.saturating_sub(1));
        // A failed write to stderr cannot be reported.
        let _ = write!(err, "{ERASE}{}", style.paint(Paint::Dim, &text));
        let _ = err.flush();
        self.is_drawn = true;
    }

    /// Removes the line, before anything else is printed.
    pub(super) fn erase(&mut self, err: &mut dyn Write) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = err.write_all(ERASE.as_bytes());
            let _ = err.flush();
        }
    }
}
