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
}
