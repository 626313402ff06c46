//! Conversion of a program's stdout into artifacts of the task.

use attache::model::{Artifact, Part};
use attache::{ArtifactWriter, Outcome, Turn};
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::json_lines::JsonLines;
use super::pipe_reader::PipeReader;
use super::settings::{CommandSettings, StdoutFormat};
use crate::line_buffer::LineBuffer;
use crate::utf8_decoder::Utf8Decoder;

const BUFFER_BYTES: usize = 16 * 1024;

/// Reader of stdout that enforces the size limit and feeds the configured sink.
pub(super) struct CommandOutput<'a> {
    turn: &'a Turn,
    sink: OutputSink<'a>,
    /// Bytes that the program may still write.
    remaining: usize,
    /// First error, for the caller.
    error: Option<String>,
}

/// Destination of the bytes, by [`StdoutFormat`].
enum OutputSink<'a> {
    Text(TextSink),
    Lines(TextSink, LineBuffer),
    Json(JsonLines<'a>),
    File(Vec<u8>, &'a CommandSettings),
}

impl<'a> CommandOutput<'a> {
    pub(super) fn new(turn: &'a Turn, settings: &'a CommandSettings) -> Self {
        let text = || TextSink {
            writer: turn.writer("output"),
            utf8: Utf8Decoder::default(),
            has_text: false,
        };
        let sink = match settings.output {
            StdoutFormat::Text => OutputSink::Text(text()),
            StdoutFormat::Lines => OutputSink::Lines(text(), LineBuffer::default()),
            StdoutFormat::JsonLines => OutputSink::Json(JsonLines::new(turn)),
            StdoutFormat::File => OutputSink::File(Vec::new(), settings),
        };
        Self {
            turn,
            sink,
            remaining: settings.max_output,
            error: None,
        }
    }

    /// Reads stdout to its end. Returns `false` after an error; the program must then be killed.
    pub(super) async fn read_all(
        &mut self,
        pipe: impl AsyncRead + Unpin,
        exited: &CancellationToken,
    ) -> bool {
        let limit = self.remaining;
        let mut pipe = PipeReader::new(pipe, exited);
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(bytes) = pipe.read(&mut buffer).await {
            let fits = &bytes[..bytes.len().min(self.remaining)];
            self.remaining -= fits.len();
            self.error = self.sink.push(fits).await.err();
            if fits.len() < bytes.len() {
                self.error = Some(format!("the output is larger than {limit} bytes"));
            }
            if self.error.is_some() {
                return false;
            }
        }
        true
    }

    /// Completes the artifact, if there is one. Returns the outcome that the program declared as JSON lines.
    ///
    /// # Errors
    /// The output was invalid or too large. The message is for the caller.
    pub(super) async fn finish(self) -> Result<Option<Outcome>, String> {
        let Self {
            turn, sink, error, ..
        } = self;
        match sink {
            OutputSink::Text(text) => text.finish().await,
            OutputSink::Lines(mut text, buffer) => {
                text.push(&buffer.finish()).await;
                text.finish().await
            }
            OutputSink::Json(lines) if error.is_none() => return lines.finish().await,
            OutputSink::File(bytes, settings) if error.is_none() => {
                write_file(turn, &bytes, settings).await
            }
            OutputSink::Json(_) | OutputSink::File(..) => {}
        }
        error.map_or(Ok(None), Err)
    }
}

impl OutputSink<'_> {
    async fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Self::Text(text) => text.push(bytes).await,
            Self::Lines(text, buffer) => text.push(&buffer.push(bytes)).await,
            Self::Json(lines) => return lines.push(bytes).await,
            Self::File(all, _) => all.extend_from_slice(bytes),
        }
        Ok(())
    }
}

/// Adds the file artifact, unless the output is empty.
async fn write_file(turn: &Turn, bytes: &[u8], settings: &CommandSettings) {
    if !bytes.is_empty() {
        let part = Part::file(bytes, &settings.media_type).with_filename(&settings.filename);
        turn.add_artifact(Artifact::new(&settings.filename, part))
            .await;
    }
}

/// Text that streams into an artifact. The artifact exists once there is text.
struct TextSink {
    writer: ArtifactWriter,
    utf8: Utf8Decoder,
    has_text: bool,
}

impl TextSink {
    async fn push(&mut self, bytes: &[u8]) {
        let text = self.utf8.push(bytes);
        self.write(text).await;
    }

    async fn finish(mut self) {
        let rest = self.utf8.flush();
        self.write(rest).await;
        if self.has_text {
            self.writer.finish().await;
        }
    }

    async fn write(&mut self, text: String) {
        if !text.is_empty() {
            self.has_text = true;
            self.writer.write(text).await;
        }
    }
}
