//! Escapes control characters in text of agents, so that a terminal cannot interpret them (S55).

/// Whether a terminal may interpret the character: controls, bidirectional marks, line and paragraph separators.
fn is_control(c: char) -> bool {
    let bidi = matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\t') || bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Escapes text for one line: line ends become `\n`, other controls `\u{..}`.
pub(crate) fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            c if is_control(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Escapes text of several lines that arrives in chunks. Line ends are kept, `\r\n` becomes `\n`.
#[derive(Debug, Default)]
pub(super) struct ChunkEscaper {
    /// Whether the last character was a carriage return, which may belong to a line end.
    is_after_return: bool,
}

impl ChunkEscaper {
    pub(super) fn escape(&mut self, chunk: &str) -> String {
        let mut shown = String::with_capacity(chunk.len());
        for c in chunk.chars() {
            if std::mem::take(&mut self.is_after_return) && c != '\n' {
                shown.extend('\r'.escape_unicode());
            }
            match c {
                '\r' => self.is_after_return = true,
                '\n' => shown.push('\n'),
                c if is_control(c) => shown.extend(c.escape_unicode()),
                c => shown.push(c),
            }
        }
        shown
    }
}

/// Escapes the control characters of a JSON text. They occur only inside strings, so the value does not change.
pub(crate) fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => shown.push(c),
            // All are in the basic multilingual plane, so each needs one escape.
            c if is_control(c) => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s55_no_control_reaches_the_terminal() {
        assert_eq!(
            line("a\u{1b}[31m\u{9b}b\nc\u{202e}\td\r"),
            "a\\u{1b}[31m\\u{9b}b\\nc\\u{202e}\td\\u{d}"
        );
        let json = serde_json::to_string("a\u{1b}\u{9b}\u{7f}\u{202e}ü").unwrap();
        let shown = printable_json(&json);
        assert!(!shown.chars().any(is_control), "{shown}");
        assert_eq!(
            serde_json::from_str::<String>(&shown).unwrap(),
            "a\u{1b}\u{9b}\u{7f}\u{202e}ü"
        );
    }

    #[test]
    fn s55_chunks_keep_line_ends_and_no_other_control() {
        let mut escaper = ChunkEscaper::default();
        let shown: String = ["a\r", "\nb\u{1b}[2J", "\r", "c\td\n"]
            .iter()
            .map(|chunk| escaper.escape(chunk))
            .collect();
        assert_eq!(shown, "a\nb\\u{1b}[2J\\u{d}c\td\n");
    }
}
