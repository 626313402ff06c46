//! What a command writes to stdout, and what becomes of it.

use attache::model::{Artifact, Part};
use attache::{Outcome, Turn, Writer};
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::json_lines::JsonLines;
use super::pipe::Pipe;
use super::settings::{CommandSettings, OutputForm};
use crate::text::Utf8;

const BUFFER: usize = 16 * 1024;

/// What a command writes, and how much more of it there may be.
pub(super) struct Output<'a> {
    turn: &'a Turn,
    form: Form<'a>,
    left: usize,
    wrong: Option<String>,
}

/// What becomes of it.
enum Form<'a> {
    Text(Text),
    Lines(Text, Vec<u8>),
    Json(JsonLines<'a>),
    File(Vec<u8>, &'a CommandSettings),
}

impl<'a> Output<'a> {
    pub(super) fn new(turn: &'a Turn, settings: &'a CommandSettings) -> Self {
        let text = || Text {
            writer: turn.writer("output"),
            utf8: Utf8::default(),
            begun: false,
        };
        let form = match settings.output {
            OutputForm::Text => Form::Text(text()),
            OutputForm::Lines => Form::Lines(text(), Vec::new()),
            OutputForm::JsonLines => Form::Json(JsonLines::new(turn)),
            OutputForm::File => Form::File(Vec::new(), settings),
        };
        Self {
            turn,
            form,
            left: settings.max_output,
            wrong: None,
        }
    }

    /// Takes all that comes; `false` when there may be no more.
    pub(super) async fn take(
        &mut self,
        pipe: impl AsyncRead + Unpin,
        ended: &CancellationToken,
    ) -> bool {
        let limit = self.left;
        let (mut pipe, mut buffer) = (Pipe::new(pipe, ended), vec![0; BUFFER]);
        while let Some(bytes) = pipe.read(&mut buffer).await {
            let fits = &bytes[..bytes.len().min(self.left)];
            self.left -= fits.len();
            self.wrong = self.form.push(fits).await.err();
            if fits.len() < bytes.len() {
                self.wrong = Some(format!("the output is larger than {limit} bytes"));
            }
            if self.wrong.is_some() {
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
            turn, form, wrong, ..
        } = self;
        match form {
            Form::Text(text) => text.finish().await,
            Form::Lines(mut text, half) => {
                text.push(&half).await;
                text.finish().await
            }
            Form::Json(lines) if wrong.is_none() => return lines.finish().await,
            Form::File(bytes, settings) if wrong.is_none() => file(turn, &bytes, settings).await,
            Form::Json(_) | Form::File(..) => {}
        }
        wrong.map_or(Ok(None), Err)
    }
}

impl Form<'_> {
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
        turn.artifact(Artifact::new(&settings.filename, part)).await;
    }
}

/// Text that streams into an artifact, which is there once there is text.
struct Text {
    writer: Writer,
    utf8: Utf8,
    begun: bool,
}

impl Text {
    async fn push(&mut self, bytes: &[u8]) {
        let text = self.utf8.push(bytes);
        self.write(text).await;
    }

    async fn finish(mut self) {
        let rest = self.utf8.rest();
        self.write(rest).await;
        if self.begun {
            self.writer.finish().await;
        }
    }

    async fn write(&mut self, text: String) {
        if !text.is_empty() {
            self.begun = true;
            self.writer.write(text).await;
        }
    }
}
