//! The embedded pages, their order and kinds, and the links between them.

use std::sync::LazyLock;

use serde::Deserialize;

use super::html;

/// Path and Markdown text of each page of `docs/map.toml`.
const TEXTS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/pages.rs"));

static MAP: LazyLock<Map> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../docs/map.toml")).expect("a test parses docs/map.toml")
});

/// The page that the site opens with.
pub(crate) const HOME: &str = "index";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    page: Vec<PageEntry>,
}

/// Entry of a page in `docs/map.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageEntry {
    /// Path below `docs/`, without the ending `.md`.
    path: String,
    kind: PageKind,
    /// One line for lists of pages.
    summary: String,
    /// Search terms that the text does not contain.
    #[serde(default)]
    words: Vec<String>,
}

/// Kind of a page. Lists of pages are grouped by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PageKind {
    Start,
    Tutorial,
    HowTo,
    Example,
    Reference,
    Explanation,
}

impl PageKind {
    /// All kinds, in the order of the navigation.
    pub(crate) const ALL: [Self; 6] = [
        Self::Start,
        Self::Tutorial,
        Self::HowTo,
        Self::Example,
        Self::Reference,
        Self::Explanation,
    ];

    /// Title of the group in a list of pages.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Start => "Start",
            Self::Tutorial => "Tutorials",
            Self::HowTo => "How-to guides",
            Self::Example => "By example",
            Self::Reference => "Reference",
            Self::Explanation => "Explanation",
        }
    }
}

/// A documentation page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// Path below `docs/`, without the ending `.md`.
    pub(crate) path: &'static str,
    /// Text of the first heading.
    pub(crate) title: &'static str,
    pub(crate) kind: PageKind,
    /// One line for lists of pages.
    pub(crate) summary: &'static str,
    /// Search terms that the text does not contain.
    pub(crate) words: &'static [String],
    pub(crate) markdown: &'static str,
}

/// Returns all pages, in the order of the map.
pub(crate) fn all() -> impl Iterator<Item = Page> {
    MAP.page
        .iter()
        .zip(TEXTS)
        .map(|(entry, &(path, markdown))| {
            debug_assert_eq!(entry.path, path);
            Page {
                path,
                title: title(markdown),
                kind: entry.kind,
                summary: &entry.summary,
                words: &entry.words,
                markdown,
            }
        })
}

/// Returns the page with this path, or the only page whose path ends with `/<path>`.
pub(crate) fn find(path: &str) -> Option<Page> {
    let path = path.trim_end_matches(".md").trim_matches('/');
    if let Some(page) = all().find(|page| page.path == path) {
        return Some(page);
    }
    let suffix = format!("/{path}");
    let mut matches = all().filter(|page| page.path.ends_with(&suffix));
    matches.next().filter(|_| matches.next().is_none())
}

/// A page, or the part of it below one heading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSection {
    pub(crate) page: Page,
    pub(crate) markdown: &'static str,
}

/// Returns the page of `push`, or the section of `push#retries-and-dead-letters`.
pub(crate) fn find_section(name: &str) -> Option<PageSection> {
    let (path, anchor) = name.split_once('#').unwrap_or((name, ""));
    let page = find(path)?;
    let markdown = if anchor.is_empty() {
        page.markdown
    } else {
        html::section_text(page.markdown, anchor)?
    };
    Some(PageSection { page, markdown })
}

fn title(markdown: &'static str) -> &'static str {
    let heading = markdown.lines().find_map(|line| line.strip_prefix("# "));
    heading.unwrap_or_default().trim()
}

/// Target of a link in a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    /// A URL with a scheme.
    External(String),
    /// A page, and the heading in it if `anchor` is not empty.
    Page { path: String, anchor: String },
    /// A file of the source tree that the binary does not contain.
    SourceFile(String),
}

/// Resolves the destination of a link in the page `from`.
pub(crate) fn resolve_link(from: &str, destination: &str) -> LinkTarget {
    if destination.contains("://") || destination.starts_with("mailto:") {
        return LinkTarget::External(destination.to_owned());
    }
    let (file, anchor) = destination.split_once('#').unwrap_or((destination, ""));
    if file.is_empty() {
        return LinkTarget::Page {
            path: from.to_owned(),
            anchor: anchor.to_owned(),
        };
    }
    let source = normalize_path(&format!("docs/{from}"), file);
    let path = source
        .strip_prefix("docs/")
        .and_then(|path| path.strip_suffix(".md"));
    match path {
        Some(path) if all().any(|page| page.path == path) => LinkTarget::Page {
            path: path.to_owned(),
            anchor: anchor.to_owned(),
        },
        _ => LinkTarget::SourceFile(source),
    }
}

/// Resolves a relative path against the folder of the file `from`, without `.` and `..`.
fn normalize_path(from: &str, relative: &str) -> String {
    let mut segments: Vec<&str> = from.split('/').collect();
    segments.pop();
    for segment in relative.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// Adds the Markdown files below a folder, as paths of pages.
    fn add_files(folder: &Path, prefix: &str, paths: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                add_files(&entry.path(), &format!("{prefix}{name}/"), paths);
            } else if let Some(name) = name.strip_suffix(".md") {
                paths.insert(format!("{prefix}{name}"));
            }
        }
    }

    #[test]
    fn the_map_lists_every_user_page_once() {
        let mut files = BTreeSet::new();
        add_files(&repository().join("docs"), "", &mut files);
        files.retain(|path| !path.starts_with("internals/") && !path.starts_with("protocol/"));
        files.remove("test-cases");
        let listed: Vec<String> = all().map(|page| page.path.to_owned()).collect();
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), files);
        assert_eq!(listed.len(), files.len(), "a page is listed twice");
        assert_eq!(listed[0], HOME);
        for (entry, (path, _)) in MAP.page.iter().zip(TEXTS) {
            assert_eq!(entry.path, *path);
        }
    }

    #[test]
    fn every_page_has_a_title_a_summary_and_a_bounded_length() {
        for page in all() {
            assert!(!page.title.is_empty(), "{}", page.path);
            let length = page.summary.chars().count();
            assert!(
                (10..=120).contains(&length),
                "{}: {}",
                page.path,
                page.summary
            );
            let is_generated = page.path.starts_with("reference/");
            let lines = page.markdown.lines().count();
            assert!(
                is_generated || lines <= 150,
                "{} has {lines} lines",
                page.path
            );
        }
    }

    #[test]
    fn every_link_leads_to_a_page_and_heading_or_an_existing_file() {
        let mut broken = Vec::new();
        for page in all() {
            for destination in html::link_destinations(page.markdown) {
                let is_valid = match resolve_link(page.path, &destination) {
                    LinkTarget::External(_) => true,
                    LinkTarget::SourceFile(file) => repository().join(file).exists(),
                    LinkTarget::Page { path, anchor } => {
                        let target = find(&path).unwrap();
                        anchor.is_empty() || html::heading_ids(target.markdown).contains(&anchor)
                    }
                };
                if !is_valid {
                    broken.push(format!("{}: {destination}", page.path));
                }
            }
        }
        assert_eq!(broken, Vec::<String>::new());
    }

    #[test]
    fn links_are_resolved_against_the_folder_of_the_page() {
        assert_eq!(
            resolve_link("index", "https://a2a-protocol.org/x#y"),
            LinkTarget::External("https://a2a-protocol.org/x#y".to_owned())
        );
        assert_eq!(
            resolve_link("push", "#retries"),
            LinkTarget::Page {
                path: "push".to_owned(),
                anchor: "retries".to_owned()
            }
        );
        assert_eq!(
            resolve_link("index", "../examples/echo.rs"),
            LinkTarget::SourceFile("examples/echo.rs".to_owned())
        );
    }
}
