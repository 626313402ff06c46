//! Stdout format `json_lines`: every line is a JSON object with text, artifacts, questions or the final state.

use attache::{Outcome, Turn};

use crate::line_buffer::LineBuffer;
use crate::turn_output::{OutputLine, TurnOutput, json_error};

/// Parser that applies every line to the turn.
pub(super) struct JsonLines<'a> {
    buffer: LineBuffer,
    line_count: usize,
    output: TurnOutput<'a>,
}

impl<'a> JsonLines<'a> {
    pub(super) fn new(turn: &'a Turn) -> Self {
        Self {
            buffer: LineBuffer::default(),
            line_count: 0,
            output: TurnOutput::new(turn),
        }
    }

    /// Applies all complete lines.
    ///
    /// # Errors
    /// A line is invalid. The message is for the caller and has its number.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        let lines = self.buffer.push(bytes);
        for line in lines.split(|byte| *byte == b'\n') {
            self.apply_line(line).await?;
        }
        Ok(())
    }

    /// Applies the last line, which may lack its line break. Returns the outcome that the program declared.
    pub(super) async fn finish(mut self) -> Result<Option<Outcome>, String> {
        let rest = std::mem::take(&mut self.buffer).finish();
        self.apply_line(&rest).await?;
        Ok(self.output.finish().await)
    }

    async fn apply_line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        self.line_count += 1;
        let number = self.line_count;
        let invalid = |reason: &str| format!("line {number} of the output is invalid: {reason}");
        let line: OutputLine =
            serde_json::from_slice(line).map_err(|error| invalid(json_error(&error)))?;
        self.output.apply(line).await.map_err(invalid)
    }
}
