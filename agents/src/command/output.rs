//! What a command writes to stdout, as text that streams into an artifact.

use std::time::Duration;

use attache::{Turn, Writer};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

const BUFFER: usize = 16 * 1024;

/// How long a pipe may stay silent after the command has ended: somebody who left its group may hold it open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The artifact that the output goes to, and how much more of it there may be.
pub(super) struct Output {
    writer: Writer,
    text: Utf8,
    left: usize,
    begun: bool,
    too_much: bool,
}

impl Output {
    pub(super) fn new(turn: &Turn, limit: usize) -> Self {
        let writer = turn.writer("output");
        Self { writer, text: Utf8::default(), left: limit, begun: false, too_much: false }
    }

    /// Takes all that comes; `false` when it is more than there may be.
    pub(super) async fn take(&mut self, mut pipe: impl AsyncRead + Unpin, ended: &CancellationToken) -> bool {
        let mut buffer = vec![0; BUFFER];
        while let Some(bytes) = read(&mut pipe, &mut buffer, ended).await {
            let fits = &bytes[..bytes.len().min(self.left)];
            let text = self.text.push(fits);
            self.write(text).await;
            self.left -= fits.len();
            self.too_much = fits.len() < bytes.len();
            if self.too_much {
                return false;
            }
        }
        true
    }

    /// Ends the artifact, if there is one. Gives whether there was too much.
    pub(super) async fn finish(mut self) -> bool {
        let rest = self.text.rest();
        self.write(rest).await;
        if self.begun {
            self.writer.finish().await;
        }
        self.too_much
    }

    async fn write(&mut self, text: String) {
        if !text.is_empty() {
            self.begun = true;
            self.writer.write(text).await;
        }
    }
}

/// What comes next through a pipe; `None` at its end, or when nothing more is to be expected.
pub(super) async fn read<'a>(
    pipe: &mut (impl AsyncRead + Unpin),
    buffer: &'a mut [u8],
    ended: &CancellationToken,
) -> Option<&'a [u8]> {
    let silence = async {
        ended.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let read = tokio::select! {
        biased;
        read = pipe.read(buffer) => read.unwrap_or(0),
        () = silence => 0,
    };
    (read > 0).then(|| &buffer[..read])
}

/// Bytes that come in pieces, as text: characters stay whole, and what is no text is shown as such.
#[derive(Debug, Default)]
struct Utf8 {
    half: Vec<u8>,
}

impl Utf8 {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.half.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.half);
        let chunks: Vec<_> = bytes.utf8_chunks().collect();
        let last = chunks.last().map_or(&[][..], |chunk| chunk.invalid());
        // No more than the beginning of a character: the rest of it may be on its way.
        let waits = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        let end = if waits { bytes.len() - last.len() } else { bytes.len() };
        self.half.extend_from_slice(&bytes[end..]);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.half)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_wherever_the_pieces_end() {
        let all = "aé€😀".as_bytes();
        for cut in 0..=all.len() {
            let mut text = Utf8::default();
            let pieces = [text.push(&all[..cut]), text.push(&all[cut..]), text.rest()];
            assert_eq!(pieces.concat(), "aé€😀");
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        let mut text = Utf8::default();
        assert_eq!(text.push(b"a\xff\xfeb"), "a\u{fffd}\u{fffd}b");
        assert_eq!(text.push(b"\xf0\x9f"), "");
        assert_eq!(text.push(b"x"), "\u{fffd}x");
        assert_eq!(text.push(b"\xe2\x82"), "");
        assert_eq!(text.rest(), "\u{fffd}");
    }
}
