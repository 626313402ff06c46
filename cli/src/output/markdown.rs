//! Markdown for a terminal, rendered while it arrives: wrapped lines, bold headings and words, dim code.
//!
//! The renderer of the documentation needs a whole page. This one holds back at most a word or the marker at the start of a
//! line. Without styles it only wraps, because the markers then carry the emphasis.

use std::mem;

use crate::terminal::{Paint, RESET, TerminalStyle};

/// Longest indentation of the continuation lines of a list item.
const MAX_INDENT: usize = 8;

/// Kind of the current line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Only the characters of a possible marker have arrived.
    Start,
    Text,
    Heading,
    /// Printed as it is: a row of a table.
    Verbatim,
    /// A line with three backquotes, which is not printed.
    Fence,
}

#[derive(Debug)]
pub(super) struct MarkdownWriter {
    style: TerminalStyle,
    line: Line,
    /// Characters of a possible marker.
    marker: String,
    /// The current word, with escape sequences.
    word: String,
    word_width: usize,
    /// Column after the last printed word.
    column: usize,
    /// Spaces between that word and the next one.
    spaces: usize,
    /// Indentation of continuation lines.
    indent: usize,
    is_in_fence: bool,
    is_bold: bool,
    is_code: bool,
    /// Whether the last character was an asterisk, which may begin `**`.
    has_asterisk: bool,
    out: String,
}

impl MarkdownWriter {
    pub(super) fn new(style: TerminalStyle) -> Self {
        Self {
            style,
            line: Line::Start,
            marker: String::new(),
            word: String::new(),
            word_width: 0,
            column: 0,
            spaces: 0,
            indent: 0,
            is_in_fence: false,
            is_bold: false,
            is_code: false,
            has_asterisk: false,
            out: String::new(),
        }
    }

    /// Whether the next character begins a line.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.line == Line::Start && self.marker.is_empty()
    }

    /// Renders more text. Returns what can be printed.
    pub(super) fn push(&mut self, text: &str) -> String {
        for c in text.chars() {
            self.add(c);
        }
        mem::take(&mut self.out)
    }

    /// Ends the text, and its line. Returns the rest.
    pub(super) fn finish(&mut self) -> String {
        if !self.is_at_line_start() {
            self.add('\n');
        }
        self.is_in_fence = false;
        mem::take(&mut self.out)
    }

    fn add(&mut self, c: char) {
        if c == '\n' {
            self.end_line();
            return;
        }
        match self.line {
            Line::Start => {
                self.marker.push(c);
                self.recognize_marker();
            }
            Line::Verbatim => self.out.push(c),
            Line::Fence if self.style.has_colors => {}
            Line::Fence => self.out.push(c),
            Line::Text | Line::Heading => self.add_inline(c),
        }
    }

    /// Decides the kind of the line as soon as its first characters allow it.
    fn recognize_marker(&mut self) {
        let trimmed = self.marker.trim_start();
        let hashes = trimmed.trim_start_matches('#');
        let digits = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
        let line = match trimmed {
            "" => return,
            "```" => Some(Line::Fence),
            _ if self.is_in_fence && !"```".starts_with(trimmed) => Some(Line::Verbatim),
            "`" | "``" | "-" | "*" | "+" => None,
            _ if trimmed.starts_with('|') => Some(Line::Verbatim),
            _ if trimmed.starts_with('#') && trimmed.len() - hashes.len() <= 6 => match hashes {
                "" => None,
                " " => Some(Line::Heading),
                _ => Some(Line::Text),
            },
            _ if digits.len() < trimmed.len() && ["", ".", ")"].contains(&digits) => None,
            _ => Some(Line::Text),
        };
        if let Some(line) = line {
            self.begin(line);
        }
    }

    fn begin(&mut self, line: Line) {
        self.line = line;
        let marker = mem::take(&mut self.marker);
        match line {
            Line::Fence => {
                self.is_in_fence = !self.is_in_fence;
                if !self.style.has_colors {
                    self.out.push_str(&marker);
                }
            }
            Line::Verbatim if self.is_in_fence => {
                if self.style.has_colors {
                    self.out.push_str("  ");
                    self.out.push_str(Paint::Dim.start());
                }
                self.out.push_str(&marker);
            }
            Line::Verbatim => self.out.push_str(&marker),
            Line::Heading => {
                self.write_style(Paint::Bold.start());
                for c in marker.chars() {
                    self.add_inline(c);
                }
            }
            Line::Text | Line::Start => {
                self.indent = list_indent(&marker);
                for c in marker.chars() {
                    self.add_inline(c);
                }
            }
        }
    }

    /// Adds a character of running text.
    fn add_inline(&mut self, c: char) {
        if self.style.has_colors {
            if mem::take(&mut self.has_asterisk) {
                if c == '*' {
                    self.is_bold = !self.is_bold;
                    self.restyle();
                    return;
                }
                self.push_visible('*');
            }
            match c {
                '*' if !self.is_code => {
                    self.has_asterisk = true;
                    return;
                }
                '`' => {
                    self.is_code = !self.is_code;
                    self.restyle();
                    return;
                }
                _ => {}
            }
        }
        if c == ' ' {
            self.flush_word();
            self.spaces += 1;
        } else {
            self.push_visible(c);
        }
    }

    fn push_visible(&mut self, c: char) {
        self.word.push(c);
        self.word_width += 1;
    }

    /// Writes the escape sequences of the current style into the word.
    fn restyle(&mut self) {
        self.word.push_str(RESET);
        if self.is_bold || self.line == Line::Heading {
            self.word.push_str(Paint::Bold.start());
        }
        if self.is_code {
            self.word.push_str(Paint::Cyan.start());
        }
    }

    fn write_style(&mut self, sequence: &str) {
        if self.style.has_colors {
            self.out.push_str(sequence);
        }
    }

    /// Prints the word, on a new line if it does not fit into this one.
    fn flush_word(&mut self) {
        if self.word_width > 0 {
            let end = self.column + self.spaces + self.word_width;
            if self.column > self.indent && end > self.style.text_width() {
                self.out.push('\n');
                self.column = 0;
                self.spaces = self.indent;
            }
            self.out.push_str(&" ".repeat(self.spaces));
            self.column += mem::take(&mut self.spaces) + mem::take(&mut self.word_width);
        }
        self.out.push_str(&mem::take(&mut self.word));
    }

    fn end_line(&mut self) {
        if self.line == Line::Start && !self.marker.is_empty() {
            self.begin(if self.is_in_fence {
                Line::Verbatim
            } else {
                Line::Text
            });
        }
        if mem::take(&mut self.has_asterisk) {
            self.push_visible('*');
        }
        self.flush_word();
        let is_styled = self.line == Line::Heading
            || self.is_bold
            || self.is_code
            || (self.is_in_fence && self.line == Line::Verbatim);
        if is_styled {
            self.write_style(RESET);
        }
        self.is_bold = false;
        self.is_code = false;
        let is_hidden = self.line == Line::Fence && self.style.has_colors;
        if !is_hidden {
            self.out.push('\n');
        }
        self.line = Line::Start;
        self.column = 0;
        self.spaces = 0;
        self.indent = 0;
    }
}

/// Indentation of the text of a list item, 0 for other lines.
fn list_indent(marker: &str) -> usize {
    let text = marker.trim_start();
    let is_item = text.starts_with(['-', '*', '+']) && text.chars().nth(1) == Some(' ')
        || text.ends_with(". ")
        || text.ends_with(") ");
    if is_item {
        marker.chars().count().min(MAX_INDENT)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(markdown: &str, has_colors: bool, chunk: usize) -> String {
        let style = TerminalStyle {
            columns: 40,
            has_colors,
        };
        let mut writer = MarkdownWriter::new(style);
        let chars: Vec<char> = markdown.chars().collect();
        let mut shown = String::new();
        for chunk in chars.chunks(chunk) {
            shown += &writer.push(&chunk.iter().collect::<String>());
        }
        shown + &writer.finish()
    }

    const TEXT: &str = "# Title\nA paragraph that is **much longer** than forty characters.\n\n- one item that is longer \
                        than one line of it\n2 * 3 = `6`\n```rust\nlet a = 1;\n\nlet b = 2;\n```\n| a | b |\nend";

    #[test]
    fn without_styles_text_is_only_wrapped() {
        assert_eq!(
            render(TEXT, false, 1000),
            "# Title\nA paragraph that is **much longer** than\nforty characters.\n\n- one item that is longer than \
             one line\n  of it\n2 * 3 = `6`\n```rust\nlet a = 1;\n\nlet b = 2;\n```\n| a | b |\nend\n"
        );
    }

    #[test]
    fn styles_replace_markers() {
        let shown = render(TEXT, true, 1000);
        assert!(
            shown.starts_with("\x1b[1m# Title\x1b[0m\n"),
            "a heading is bold: {shown:?}"
        );
        assert!(
            shown.contains("\x1b[0m\x1b[1mmuch longer\x1b[0m"),
            "{shown:?}"
        );
        assert!(shown.contains("2 * 3 = \x1b[0m\x1b[36m6"), "{shown:?}");
        assert!(
            shown.contains("  \x1b[2mlet a = 1;\x1b[0m\n\n  \x1b[2mlet b"),
            "{shown:?}"
        );
        assert!(!shown.contains("```"), "{shown:?}");
    }

    #[test]
    fn the_size_of_chunks_does_not_matter() {
        for has_colors in [false, true] {
            let whole = render(TEXT, has_colors, 1000);
            for chunk in [1, 2, 3, 7] {
                assert_eq!(render(TEXT, has_colors, chunk), whole);
            }
        }
    }

    #[test]
    fn text_that_looks_like_a_marker_is_printed() {
        for text in ["-", "1.", "``", "12", "#no heading", "*"] {
            assert_eq!(render(text, false, 1), format!("{text}\n"));
        }
    }
}
