//! Rendering of a page for a terminal: wrapped paragraphs, aligned tables, code between fences.
//!
//! Code is not indented, so that copied lines run.

use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};

use super::html::{code_language, parser, visible_code};
use super::pages::{LinkTarget, resolve_link};
use crate::terminal::{Paint, TerminalStyle, wrap};

/// Line above and below code. The one above has the language.
const FENCE: &str = "```";
const COLUMN_GAP: &str = "  ";
/// Narrowest column that a wide table is shrunk to.
const MIN_COLUMN: usize = 8;

/// Renders the page with this path.
pub(crate) fn render(path: &str, markdown: &str, style: TerminalStyle) -> String {
    let mut writer = TerminalWriter {
        path,
        style,
        out: String::new(),
        inline: String::new(),
        lists: Vec::new(),
        item_marker: None,
        table: Vec::new(),
        code: None,
        links: Vec::new(),
    };
    for event in parser(markdown) {
        writer.write(event);
    }
    writer.write_links();
    writer.out
}

/// A code block while its lines are collected.
struct CodeText {
    language: String,
    text: String,
}

struct TerminalWriter<'a> {
    path: &'a str,
    style: TerminalStyle,
    out: String,
    /// Text of the current paragraph, heading or cell.
    inline: String,
    /// Number of the next item of each open list; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// Marker of the item that begins with the next line.
    item_marker: Option<String>,
    /// Rows of the current table.
    table: Vec<Vec<String>>,
    /// Language and text of the current code block.
    code: Option<CodeText>,
    /// Targets outside this page, listed at the end.
    links: Vec<String>,
}

impl TerminalWriter<'_> {
    fn write(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) if let Some(code) = &mut self.code => code.text.push_str(&text),
            Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) => {
                self.inline.push_str(&text);
            }
            Event::SoftBreak | Event::HardBreak => self.inline.push(' '),
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Rule => self.out.push_str("\n----\n\n"),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::List(first) => {
                self.flush_item();
                self.lists.push(first);
            }
            Tag::Item => {
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "- ".to_owned(),
                };
                self.item_marker = Some(marker);
            }
            Tag::CodeBlock(kind) => {
                self.code = Some(CodeText {
                    language: code_language(&kind).to_owned(),
                    text: String::new(),
                });
            }
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::Link { dest_url, .. } => self.add_link(&dest_url),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => self.write_heading(level),
            TagEnd::Paragraph => {
                self.flush_paragraph();
                if self.lists.is_empty() {
                    self.out.push('\n');
                }
            }
            TagEnd::Item => self.flush_item(),
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.out.push('\n');
                }
            }
            TagEnd::CodeBlock => {
                if let Some(code) = self.code.take() {
                    self.write_code(&code);
                }
                self.out.push('\n');
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(row) = self.table.last_mut() {
                    row.push(cell.trim().to_owned());
                }
            }
            TagEnd::Table => self.write_table(),
            _ => {}
        }
    }

    fn write_heading(&mut self, level: HeadingLevel) {
        let text = std::mem::take(&mut self.inline);
        let marks = "#".repeat(level as usize);
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        let heading = format!("{marks} {text}");
        self.push_styled(Paint::Bold, &heading);
        self.out.push_str("\n\n");
    }

    fn write_code(&mut self, code: &CodeText) {
        self.push_styled(Paint::Dim, &format!("{FENCE}{}", code.language));
        self.out.push('\n');
        for line in visible_code(&code.language, &code.text).lines() {
            self.out.push_str(line);
            self.out.push('\n');
        }
        self.push_styled(Paint::Dim, FENCE);
        self.out.push('\n');
    }

    fn push_styled(&mut self, paint: Paint, text: &str) {
        self.out.push_str(&self.style.paint(paint, text));
    }

    fn flush_item(&mut self) {
        if !self.inline.trim().is_empty() {
            self.flush_paragraph();
        }
        self.item_marker = None;
    }

    /// Writes the collected text, wrapped and indented below the marker of its list item.
    fn flush_paragraph(&mut self) {
        let text = std::mem::take(&mut self.inline);
        let depth = self.lists.len();
        let marker = self.item_marker.take();
        let indent = "  ".repeat(depth);
        let first = match marker {
            Some(marker) => format!("{}{marker}", "  ".repeat(depth.saturating_sub(1))),
            None => indent.clone(),
        };
        let width = self
            .style
            .text_width()
            .saturating_sub(indent.len())
            .max(MIN_COLUMN);
        for (number, line) in wrap(&text, width).into_iter().enumerate() {
            self.out
                .push_str(if number == 0 { &first } else { &indent });
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    fn write_table(&mut self) {
        let rows = std::mem::take(&mut self.table);
        let widths = column_widths(&rows, self.style.text_width());
        for (number, row) in rows.iter().enumerate() {
            let cells: Vec<Vec<String>> = row
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| wrap(cell, width))
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or_default();
            for line in 0..height {
                let mut text = String::new();
                for (cell, &width) in cells.iter().zip(&widths) {
                    let part = cell.get(line).map(String::as_str).unwrap_or_default();
                    text.push_str(&format!("{part:<width$}{COLUMN_GAP}"));
                }
                let text = text.trim_end().to_owned();
                if number == 0 {
                    self.push_styled(Paint::Bold, &text);
                } else {
                    self.out.push_str(&text);
                }
                self.out.push('\n');
            }
            if number == 0 {
                let line: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
                self.out.push_str(&line.join(COLUMN_GAP));
                self.out.push('\n');
            }
        }
        self.out.push('\n');
    }

    fn add_link(&mut self, destination: &str) {
        let target = match resolve_link(self.path, destination) {
            LinkTarget::External(url) => url,
            LinkTarget::Page { path, .. } if path == self.path => return,
            LinkTarget::Page { path, .. } => format!("attache docs {path}"),
            LinkTarget::SourceFile(_) => return,
        };
        if !self.links.contains(&target) {
            self.links.push(target);
        }
    }

    fn write_links(&mut self) {
        if self.links.is_empty() {
            return;
        }
        self.out.push('\n');
        self.push_styled(Paint::Bold, "See also:");
        self.out.push('\n');
        for link in std::mem::take(&mut self.links) {
            self.out.push_str(&format!("  {link}\n"));
        }
    }
}

/// Widths of the columns: that of the longest cell, and less for the widest columns if the table exceeds the line.
fn column_widths(rows: &[Vec<String>], width: usize) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let mut widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
                .max(1)
        })
        .collect();
    let gaps = COLUMN_GAP.len() * columns.saturating_sub(1);
    let available = width.saturating_sub(gaps);
    while widths.iter().sum::<usize>() > available {
        let Some(widest) = widths
            .iter_mut()
            .max()
            .filter(|widest| **widest > MIN_COLUMN)
        else {
            break;
        };
        *widest -= 1;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TerminalStyle = TerminalStyle {
        columns: 40,
        has_colors: false,
    };

    #[test]
    fn paragraphs_lists_code_and_links_are_rendered() {
        let text = render(
            "index",
            "# Title\nA paragraph that is longer than forty characters.\n\n- one\n- two [push](push.md)\n\n```sh\nattache demo\n```\n",
            PLAIN,
        );
        assert_eq!(
            text,
            "# Title\n\nA paragraph that is longer than forty\ncharacters.\n\n- one\n- two push\n\n```sh\nattache demo\n```\n\n\
             \nSee also:\n  attache docs push\n"
        );
    }

    #[test]
    fn code_is_copied_as_it_is_written() {
        let code = "import json\nif True:\n    print(json.dumps({}))\n";
        let style = TerminalStyle {
            columns: 40,
            has_colors: true,
        };
        let text = render(
            "index",
            &format!("Save this:\n\n```python file=a.py\n{code}```\n"),
            style,
        );
        assert!(text.contains(&format!("\n{code}")), "{text}");
    }

    #[test]
    fn wide_tables_fit_the_line() {
        let text = render(
            "index",
            "| key | meaning |\n|---|---|\n| `a` | a long explanation that does not fit in one line |\n",
            PLAIN,
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert!(text.starts_with("key  meaning\n---  ---"), "{text}");
    }

    #[test]
    fn every_page_fits_an_80_column_terminal_outside_code() {
        let style = TerminalStyle {
            columns: 80,
            has_colors: false,
        };
        for page in crate::docs::pages::all() {
            let text = render(page.path, page.markdown, style);
            let mut is_code = false;
            for line in text.lines() {
                is_code ^= line.starts_with(FENCE);
                let is_long = line.chars().count() > 100;
                assert!(is_code || !is_long, "{}: {line}", page.path);
            }
        }
    }
}
