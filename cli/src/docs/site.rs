//! The documentation as a static site: HTML pages, one stylesheet, one script, a search index and Markdown copies.

use super::html::{self, Heading, escape};
use super::pages::{self, HOME, Page, PageKind};
use super::search::Index;
use pulldown_cmark::HeadingLevel;

/// A file of the site.
#[derive(Debug)]
pub(crate) struct SiteFile {
    /// Path relative to the root of the site.
    pub(crate) path: String,
    pub(crate) content: String,
}

/// Renders the whole site. `origin` is the URL of the published site, for `sitemap.xml`; without it there is none.
///
/// # Errors
/// The search index cannot be written as JSON.
pub(crate) fn build(origin: Option<&str>) -> serde_json::Result<Vec<SiteFile>> {
    let all: Vec<Page> = pages::all().collect();
    let mut files = Vec::new();
    for (number, page) in all.iter().enumerate() {
        let previous = number.checked_sub(1).and_then(|number| all.get(number));
        let next = all.get(number + 1);
        files.push(SiteFile {
            path: format!("{}.html", page.path),
            content: page_html(page, &all, previous, next),
        });
        files.push(SiteFile {
            path: format!("{}.md", page.path),
            content: page.markdown.to_owned(),
        });
    }
    files.push(asset("style.css", include_str!("assets/style.css")));
    files.push(asset("icon.svg", include_str!("assets/icon.svg")));
    files.push(asset("site.js", include_str!("assets/site.js")));
    let index = serde_json::to_string(&Index::build())?;
    files.push(asset("search.json", &index));
    files.push(asset("llms.txt", &llms_txt(&all)));
    if let Some(origin) = origin {
        files.push(asset("sitemap.xml", &sitemap(&all, origin)));
    }
    Ok(files)
}

/// Media type of a file, by its ending.
pub(crate) fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("xml") => "application/xml",
        Some(_) | None => "text/plain; charset=utf-8",
    }
}

fn asset(path: &str, content: &str) -> SiteFile {
    SiteFile {
        path: path.to_owned(),
        content: content.to_owned(),
    }
}

fn page_html(page: &Page, all: &[Page], previous: Option<&Page>, next: Option<&Page>) -> String {
    let root = "../".repeat(page.path.matches('/').count());
    let rendered = html::render(page.path, &root, page.markdown);
    let title = if page.path == HOME {
        "Attache documentation".to_owned()
    } else {
        format!("{} · Attache", page.title)
    };
    let navigation = navigation(page, all, &root);
    let contents = contents(&rendered.headings);
    let neighbors = neighbors(&root, previous, next);
    format!(
        "<!doctype html>\n<html lang=\"en\" data-root=\"{root}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"description\" content=\"{summary}\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"{root}icon.svg\">\n<link rel=\"stylesheet\" href=\"{root}style.css\">\n<link rel=\"alternate\" type=\"text/markdown\" href=\"{root}{path}.md\">\n\
         <script src=\"{root}site.js\" defer></script>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#content\">Skip to the content</a>\n\
         <header class=\"bar\"><button type=\"button\" id=\"menu\" aria-expanded=\"false\" aria-controls=\"pages\">Pages</button>\
         <a class=\"brand\" href=\"{root}index.html\">Attache</a>\
         <search><label for=\"query\">Search</label><input id=\"query\" type=\"search\" placeholder=\"Search ( / )\" autocomplete=\"off\">\
         <ol id=\"results\" hidden></ol></search>\
         <button type=\"button\" id=\"theme\" title=\"Color theme\">Theme</button></header>\n\
         <div class=\"frame\">\n<nav id=\"pages\" aria-label=\"Pages\">{navigation}</nav>\n\
         <main id=\"content\"><article>\n{body}</article>\n{neighbors}</main>\n\
         <nav class=\"contents\" aria-label=\"On this page\">{contents}</nav>\n</div>\n</body>\n</html>\n",
        summary = escape(page.summary),
        title = escape(&title),
        path = page.path,
        body = rendered.html,
    )
}

fn navigation(current: &Page, all: &[Page], root: &str) -> String {
    let mut html = String::new();
    for kind in PageKind::ALL {
        let mut of_kind = all.iter().filter(|page| page.kind == kind).peekable();
        if of_kind.peek().is_none() {
            continue;
        }
        html.push_str(&format!("<h2>{}</h2><ul>", kind.title()));
        for page in of_kind {
            let mark = if page.path == current.path {
                " aria-current=\"page\""
            } else {
                ""
            };
            html.push_str(&format!(
                "<li><a href=\"{root}{}.html\"{mark}>{}</a></li>",
                page.path,
                escape(page.title)
            ));
        }
        html.push_str("</ul>");
    }
    html
}

fn contents(headings: &[Heading]) -> String {
    let sections: Vec<&Heading> = headings
        .iter()
        .filter(|heading| heading.level == HeadingLevel::H2)
        .collect();
    if sections.len() < 2 {
        return String::new();
    }
    let mut html = "<h2>On this page</h2><ul>".to_owned();
    for heading in sections {
        html.push_str(&format!(
            "<li><a href=\"#{}\">{}</a></li>",
            heading.id,
            escape(&heading.text)
        ));
    }
    html.push_str("</ul>");
    html
}

fn neighbors(root: &str, previous: Option<&Page>, next: Option<&Page>) -> String {
    let link = |page: &Page, relation: &str, label: &str| {
        format!(
            "<a rel=\"{relation}\" href=\"{root}{}.html\">{label}: {}</a>",
            page.path,
            escape(page.title)
        )
    };
    let previous = previous
        .map(|page| link(page, "prev", "Previous"))
        .unwrap_or_default();
    let next = next
        .map(|page| link(page, "next", "Next"))
        .unwrap_or_default();
    format!("<footer class=\"neighbors\">{previous}{next}</footer>\n")
}

/// The list of pages for language models: <https://llmstxt.org>.
fn llms_txt(all: &[Page]) -> String {
    let mut text = "# Attache\n\n> Durable runtime and toolkit for the Agent2Agent (A2A) protocol: one binary serves agents to clients of every version, one library makes an agent fifteen lines of Rust.\n".to_owned();
    for kind in PageKind::ALL {
        let of_kind: Vec<&Page> = all.iter().filter(|page| page.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        text.push_str(&format!("\n## {}\n\n", kind.title()));
        for page in of_kind {
            text.push_str(&format!(
                "- [{}]({}.md): {}\n",
                page.title, page.path, page.summary
            ));
        }
    }
    text
}

fn sitemap(all: &[Page], origin: &str) -> String {
    let origin = escape(origin.trim_end_matches('/'));
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n".to_owned();
    for page in all {
        xml.push_str(&format!(
            "<url><loc>{origin}/{}.html</loc></url>\n",
            page.path
        ));
    }
    xml.push_str("</urlset>\n");
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_is_complete_and_has_no_inline_script() {
        let files = build(Some("https://docs.example/")).unwrap();
        let file = |path: &str| &files.iter().find(|file| file.path == path).unwrap().content;
        for page in pages::all() {
            let html = file(&format!("{}.html", page.path));
            assert_eq!(html.matches("<h1 ").count(), 1, "{}", page.path);
            assert_eq!(html.matches("<script").count(), 1, "{}", page.path);
            assert!(!html.contains("style=\""), "{}", page.path);
            assert_eq!(file(&format!("{}.md", page.path)), page.markdown);
            assert!(file("llms.txt").contains(&format!("({}.md)", page.path)));
        }
        assert!(file("sitemap.xml").contains("https://docs.example/push.html"));
        assert!(
            file("search.json").len() < 600_000,
            "{}",
            file("search.json").len()
        );
    }
}
