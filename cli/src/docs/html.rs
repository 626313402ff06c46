//! Rendering of a page as HTML: heading anchors, links between pages, highlighted code with a copy button.

use std::collections::HashMap;

use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html,
};

use super::highlight::highlight;
use super::pages::{LinkTarget, resolve_link};

/// A heading of a page.
#[derive(Debug, Clone)]
pub(super) struct Heading {
    pub(super) level: HeadingLevel,
    /// Anchor, as hosts of Markdown files derive it.
    pub(super) id: String,
    pub(super) text: String,
}

/// A page as HTML.
#[derive(Debug)]
pub(super) struct RenderedPage {
    pub(super) html: String,
    pub(super) headings: Vec<Heading>,
}

/// Returns a parser with the extensions that pages use.
pub(super) fn parser(markdown: &str) -> Parser<'_> {
    Parser::new_ext(
        markdown,
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH,
    )
}

/// Renders the page with this path. `root` is the relative path from the page to the root of the site.
pub(super) fn render(path: &str, root: &str, markdown: &str) -> RenderedPage {
    let headings = headings(markdown);
    let mut next_heading = headings.iter();
    let mut events = Vec::new();
    let mut code: Option<CodeBlock> = None;
    let mut is_source_link = false;
    let mut columns = TableColumns::default();
    for event in parser(markdown) {
        columns.observe(&event);
        match event {
            Event::Start(Tag::TableCell) if !columns.is_head => {
                let label = escape(columns.label());
                events.push(raw(format!("<td data-label=\"{label}\">")));
            }
            Event::End(TagEnd::TableCell) if !columns.is_head => {
                events.push(raw("</td>".to_owned()));
            }
            Event::Start(Tag::CodeBlock(kind)) => code = Some(CodeBlock::new(&kind)),
            Event::Text(text) if let Some(block) = &mut code => block.text.push_str(&text),
            Event::End(TagEnd::CodeBlock) => {
                let block = code.take().map(|block| block.into_html());
                events.push(Event::Html(block.unwrap_or_default().into()));
            }
            Event::Start(Tag::Heading { level, .. }) => {
                let id = next_heading
                    .next()
                    .map(|it| it.id.as_str())
                    .unwrap_or_default();
                events.push(raw(format!("<{level} id=\"{id}\">")));
            }
            Event::End(TagEnd::Heading(level)) => events.push(raw(format!("</{level}>\n"))),
            Event::Start(Tag::Table(_)) => {
                events.push(raw("<div class=\"table\">".to_owned()));
                events.push(event);
            }
            Event::End(TagEnd::Table) => {
                events.push(event);
                events.push(raw("</div>\n".to_owned()));
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                let opened = open_link(path, root, &dest_url);
                is_source_link = opened.is_source;
                events.push(Event::InlineHtml(opened.html.into()));
            }
            Event::End(TagEnd::Link) => {
                let close = if is_source_link { "</span>" } else { "</a>" };
                events.push(Event::InlineHtml(CowStr::Borrowed(close)));
            }
            other => events.push(other),
        }
    }
    let mut page = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut page, events.into_iter());
    RenderedPage {
        html: page,
        headings,
    }
}

/// Names of the columns of the current table. Narrow screens stack the cells of a row and show the names before them.
#[derive(Default)]
struct TableColumns {
    names: Vec<String>,
    is_head: bool,
    /// Number of cells of the current row that have begun.
    count: usize,
}

impl TableColumns {
    fn observe(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::TableHead) => {
                self.is_head = true;
                self.names.clear();
            }
            Event::End(TagEnd::TableHead) => self.is_head = false,
            Event::Start(Tag::TableRow) => self.count = 0,
            Event::Start(Tag::TableCell) if self.is_head => self.names.push(String::new()),
            Event::Start(Tag::TableCell) => self.count += 1,
            Event::Text(text) | Event::Code(text) if self.is_head => {
                if let Some(name) = self.names.last_mut() {
                    name.push_str(text);
                }
            }
            _ => {}
        }
    }

    /// Name of the column of the current cell.
    fn label(&self) -> &str {
        let column = self.count.saturating_sub(1);
        self.names.get(column).map_or("", String::as_str)
    }
}

fn raw(html: String) -> Event<'static> {
    Event::Html(html.into())
}

struct OpenedLink {
    html: String,
    is_source: bool,
}

fn open_link(path: &str, root: &str, destination: &str) -> OpenedLink {
    match resolve_link(path, destination) {
        LinkTarget::External(url) => OpenedLink {
            html: format!("<a href=\"{}\" rel=\"noreferrer\">", escape(&url)),
            is_source: false,
        },
        LinkTarget::Page {
            path: target,
            anchor,
        } => {
            let anchor = if anchor.is_empty() {
                anchor
            } else {
                format!("#{anchor}")
            };
            let url = if target == path && !anchor.is_empty() {
                anchor
            } else {
                format!("{root}{target}.html{anchor}")
            };
            OpenedLink {
                html: format!("<a href=\"{}\">", escape(&url)),
                is_source: false,
            }
        }
        LinkTarget::SourceFile(file) => OpenedLink {
            html: format!(
                "<span class=\"source\" title=\"{} in the source tree\">",
                escape(&file)
            ),
            is_source: true,
        },
    }
}

/// A code block while its lines are collected.
struct CodeBlock {
    language: String,
    /// Name of the file that the block is saved as, if it has one.
    file: Option<String>,
    /// Whether the block is the output of the one before it.
    is_output: bool,
    text: String,
}

impl CodeBlock {
    fn new(kind: &CodeBlockKind<'_>) -> Self {
        Self {
            language: code_language(kind).to_owned(),
            file: info_words(kind).find_map(|word| Some(word.strip_prefix("file=")?.to_owned())),
            is_output: info_words(kind).any(|word| word == "output" || word.starts_with("output=")),
            text: String::new(),
        }
    }

    fn into_html(self) -> String {
        let code = highlight(&self.language, &visible_code(&self.language, &self.text));
        let language = escape(&self.language);
        // Neither output nor a diagram is a command to copy.
        if self.is_output || (self.language == "text" && self.file.is_none()) {
            let class = if self.is_output {
                "code output"
            } else {
                "code"
            };
            return format!(
                "<div class=\"{class}\"><pre tabindex=\"0\"><code>{code}</code></pre></div>\n"
            );
        }
        let file = self.file.map_or_else(String::new, |file| {
            format!("<div class=\"file\">{}</div>", escape(&file))
        });
        format!(
            "<div class=\"code\">{file}<button type=\"button\" data-copy>Copy</button>\
             <pre tabindex=\"0\"><code data-language=\"{language}\">{code}</code></pre></div>\n"
        )
    }
}

/// Returns the words of a code fence: the language and its attributes.
fn info_words<'a>(kind: &'a CodeBlockKind<'_>) -> impl Iterator<Item = &'a str> {
    let info = match kind {
        CodeBlockKind::Fenced(info) => info.as_ref(),
        CodeBlockKind::Indented => "",
    };
    info.split([' ', ','])
}

/// Returns the language of a code block.
pub(super) fn code_language<'a>(kind: &'a CodeBlockKind<'_>) -> &'a str {
    info_words(kind).next().unwrap_or_default()
}

/// Removes the lines of Rust code that only make it compile: rustdoc hides those that begin with `# `.
pub(super) fn visible_code(language: &str, code: &str) -> String {
    if language != "rust" {
        return code.to_owned();
    }
    let is_hidden = |line: &&str| *line == "#" || line.starts_with("# ");
    let lines = code.lines().filter(|line| !is_hidden(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the part of a page from the heading with this id to the next heading of its level or above.
pub(super) fn section_text<'a>(markdown: &'a str, id: &str) -> Option<&'a str> {
    let headings = headings(markdown);
    let starts = parser(markdown)
        .into_offset_iter()
        .filter(|(event, _)| matches!(event, Event::Start(Tag::Heading { .. })))
        .map(|(_, range)| range.start);
    let mut rest = headings
        .iter()
        .zip(starts)
        .skip_while(|(it, _)| it.id != id);
    let (heading, start) = rest.next()?;
    let end = rest.find(|(next, _)| next.level <= heading.level);
    let end = end.map_or(markdown.len(), |(_, end)| end);
    markdown.get(start..end)
}

/// Returns the headings of a page with unique ids.
pub(super) fn headings(markdown: &str) -> Vec<Heading> {
    let mut headings: Vec<Heading> = Vec::new();
    let mut uses: HashMap<String, usize> = HashMap::new();
    let mut text: Option<String> = None;
    for event in parser(markdown) {
        match event {
            Event::Start(Tag::Heading { .. }) => text = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(text) = &mut text {
                    text.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(level)) => {
                let text = text.take().unwrap_or_default();
                let mut id = anchor(&text);
                let count = uses.entry(id.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    id = format!("{id}-{}", *count - 1);
                }
                headings.push(Heading { level, id, text });
            }
            _ => {}
        }
    }
    headings
}

/// Returns the ids of the headings of a page.
#[cfg(test)]
pub(super) fn heading_ids(markdown: &str) -> Vec<String> {
    headings(markdown).into_iter().map(|it| it.id).collect()
}

/// Returns the destinations of all links of a page.
#[cfg(test)]
pub(super) fn link_destinations(markdown: &str) -> Vec<String> {
    let links = parser(markdown).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    });
    links.collect()
}

/// Derives the anchor of a heading: lower case, spaces as hyphens, other punctuation removed.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Escapes text for HTML content and quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_of_markdown_hosts() {
        let ids = heading_ids("# A `b` c\n## What's new?\n## What's new?\n");
        assert_eq!(ids, ["a-b-c", "whats-new", "whats-new-1"]);
    }

    #[test]
    fn cells_have_the_name_of_their_column() {
        let page = render(
            "index",
            "",
            "# T\n| a | `b` |\n|---|---|\n| 1 | |\n| 2 | 3 |\n",
        );
        let rows = page.html.split_once("<tbody>").unwrap().1;
        assert_eq!(rows.matches("<td data-label=\"a\">").count(), 2, "{rows}");
        assert!(rows.contains("<td data-label=\"b\"></td>"), "{rows}");
        assert!(rows.contains("<td data-label=\"b\">3</td>"), "{rows}");
    }

    #[test]
    fn a_section_ends_at_the_next_heading_of_its_level() {
        let page = "# T\nx\n## A\na\n### B\nb\n```sh\n# no heading\n```\n## C\nc\n";
        assert_eq!(
            section_text(page, "b"),
            Some("### B\nb\n```sh\n# no heading\n```\n")
        );
        assert!(section_text(page, "a").unwrap().ends_with("```\n"));
        assert_eq!(section_text(page, "c"), Some("## C\nc\n"));
        assert_eq!(section_text(page, "d"), None);
    }

    #[test]
    fn code_is_escaped_and_links_lead_to_html_pages() {
        let page = render(
            "index",
            "",
            "# T\n[a](push.md#retries) [b](../examples/echo.rs)\n```sh\necho '<x>'\n```\n",
        );
        assert!(page.html.contains("<h1 id=\"t\">T</h1>"), "{}", page.html);
        assert!(
            page.html.contains("href=\"push.html#retries\""),
            "{}",
            page.html
        );
        assert!(
            page.html
                .contains("title=\"examples/echo.rs in the source tree\"")
        );
        assert!(page.html.contains("'&lt;x&gt;'"), "{}", page.html);
    }
}
