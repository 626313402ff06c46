//! What a command writes to stdout, and what becomes of it.

use attache::model::{Artifact, Part};
use attache::{ArtifactWriter, Outcome, Turn};
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::json_lines::JsonLines;
use super::pipe_reader::PipeReader;
use super::settings::{CommandSettings, StdoutFormat};
use crate::utf8_decoder::Utf8Decoder;

const BUFFER_BYTES: usize = 16 * 1024;

/// What a command writes, and how much more of it there may be.
pub(super) struct CommandOutput<'a> {
    turn: &'a Turn,
    form: OutputSink<'a>,
    left: usize,
    error: Option<String>,
}

/// What becomes of it.
enum OutputSink<'a> {
    Text(TextSink),
    Lines(TextSink, Vec<u8>),
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
        let form = match settings.output {
            StdoutFormat::Text => OutputSink::Text(text()),
            StdoutFormat::Lines => OutputSink::Lines(text(), Vec::new()),
            StdoutFormat::JsonLines => OutputSink::Json(JsonLines::new(turn)),
            StdoutFormat::File => OutputSink::File(Vec::new(), settings),
        };
        Self {
            turn,
            form,
            left: settings.max_output,
            error: None,
        }
    }

    /// Takes all that comes; `false` when there may be no more.
    pub(super) async fn read_all(
        &mut self,
        pipe: impl AsyncRead + Unpin,
        ended: &CancellationToken,
    ) -> bool {
        let limit = self.left;
        let (mut pipe, mut buffer) = (PipeReader::new(pipe, ended), vec![0; BUFFER_BYTES]);
        while let Some(bytes) = pipe.read(&mut buffer).await {
            let fits = &bytes[..bytes.len().min(self.left)];
            self.left -= fits.len();
            self.error = self.form.push(fits).await.err();
            if fits.len() < bytes.len() {
                self.error = Some(format!("the output is larger than {limit} bytes"));
            }
            if self.error.is_some() {
                return false;
            }
        }
        true
    }

    /// Ends the artifact, if there is one. Gives how the command says that the turn ends.
    ///
    /// # Errors
    /// What is wrong with the output, in words for the caller.
    pub(super) async fn finish(self) -> Result<Option<Outcome>, String> {
        let Self {
            turn, form, error, ..
        } = self;
        match form {
            OutputSink::Text(text) => text.finish().await,
            OutputSink::Lines(mut text, half) => {
                text.push(&half).await;
                text.finish().await
            }
            OutputSink::Json(lines) if error.is_none() => return lines.finish().await,
            OutputSink::File(bytes, settings) if error.is_none() => {
                file(turn, &bytes, settings).await
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
            Self::Lines(text, half) => {
                half.extend_from_slice(bytes);
                let whole = half
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(0, |at| at + 1);
                text.push(&half[..whole]).await;
                half.drain(..whole);
            }
            Self::Json(lines) => return lines.push(bytes).await,
            Self::File(all, _) => all.extend_from_slice(bytes),
        }
        Ok(())
    }
}

async fn file(turn: &Turn, bytes: &[u8], settings: &CommandSettings) {
    if !bytes.is_empty() {
        let part = Part::file(bytes, &settings.media_type).with_filename(&settings.filename);
        turn.add_artifact(Artifact::new(&settings.filename, part))
            .await;
    }
}

/// Text that streams into an artifact, which is there once there is text.
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
