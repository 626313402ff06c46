//! Properties of the terminal: width, and whether it shows styles.

use std::io::{self, IsTerminal};

/// Line length if the terminal does not tell its own.
const DEFAULT_COLUMNS: usize = 80;
/// Longest line of a text: wider ones are hard to read.
const MAX_TEXT_WIDTH: usize = 100;
const MIN_COLUMNS: usize = 40;

/// Width and styles of an output stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalStyle {
    /// Line length, in characters.
    pub(crate) columns: usize,
    /// Whether to write escape sequences for styles.
    pub(crate) has_colors: bool,
}

/// Style of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Paint {
    /// Escape sequence that starts the style. Only colors that are readable on light and dark backgrounds.
    pub(crate) fn start(self) -> &'static str {
        match self {
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Red => "\x1b[31m",
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Cyan => "\x1b[36m",
        }
    }
}

/// Escape sequence that ends all styles.
pub(crate) const RESET: &str = "\x1b[0m";

impl TerminalStyle {
    pub(crate) fn for_stdout() -> Self {
        Self::new(io::stdout().is_terminal(), columns_of(io::stdout()))
    }

    pub(crate) fn for_stderr() -> Self {
        Self::new(io::stderr().is_terminal(), columns_of(io::stderr()))
    }

    fn new(is_terminal: bool, columns: Option<usize>) -> Self {
        let from_variable = std::env::var("COLUMNS").ok().and_then(|it| it.parse().ok());
        let columns = columns.filter(|_| is_terminal).or(from_variable);
        Self {
            columns: columns.unwrap_or(DEFAULT_COLUMNS).max(MIN_COLUMNS),
            has_colors: is_terminal && !has_value("NO_COLOR") && !is_dumb(),
        }
    }

    /// Line length of texts, at most 100 characters.
    pub(crate) fn text_width(self) -> usize {
        self.columns.min(MAX_TEXT_WIDTH)
    }

    /// Returns the text in a style, if the terminal shows styles.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if self.has_colors && !text.is_empty() {
            format!("{}{text}{RESET}", paint.start())
        } else {
            text.to_owned()
        }
    }
}

/// Whether stderr is a terminal that can redraw a line.
pub(crate) fn can_redraw_stderr() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

fn has_value(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Whether the terminal has no cursor control.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Columns of a terminal.
#[cfg(unix)]
fn columns_of(stream: impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn columns_of<T>(_: T) -> Option<usize> {
    None
}

/// Shortens a text to a number of characters; an ellipsis marks the cut.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Splits a text into lines of at most `width` characters. Longer words are split.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let mut word = word;
        let mut word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        while word_length > width {
            let cut = word
                .char_indices()
                .nth(width)
                .map_or(word.len(), |(index, _)| index);
            lines.push(word[..cut].to_owned());
            word = &word[cut..];
            word_length -= width;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += word_length;
    }
    if length > 0 {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_text_fits_and_marks_the_cut() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("ab cd", 4), "ab…");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }
}
