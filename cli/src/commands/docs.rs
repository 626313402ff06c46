//! `attache docs`: the documentation, in a browser, in the terminal and as a static site.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use tokio::net::TcpListener;

use crate::args::{DocsArgs, DocsCommand};
use crate::docs::pages::{self, Page, PageKind};
use crate::docs::search::Index;
use crate::docs::terminal;
use crate::docs::{server, site};
use crate::interrupts::Interrupts;
use crate::terminal::TerminalStyle;

/// Number of sections that a search prints.
const MAX_RESULTS: usize = 8;
/// Number of pages that are suggested for an unknown name.
const MAX_SUGGESTIONS: usize = 3;
/// Jaro-Winkler similarity from which a page is suggested for a name.
const MIN_SIMILARITY: f64 = 0.8;

pub(crate) async fn run(args: DocsArgs) -> anyhow::Result<()> {
    let opens_browser = args.serves_pages() || io::stdout().is_terminal();
    match (args.verb, args.page) {
        (Some(DocsCommand::List), _) => list(),
        (Some(DocsCommand::Search { words }), _) => search(&words.join(" ")),
        (Some(DocsCommand::Build { folder, origin }), _) => build(&folder, origin.as_deref()),
        (None, Some(page)) => print_page(&page),
        (None, None) if opens_browser => open(args.port, args.no_open).await,
        (None, None) => list(),
    }
}

fn list() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for kind in PageKind::ALL {
        let of_kind: Vec<Page> = pages::all().filter(|page| page.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        writeln!(out, "{}", kind.title())?;
        for page in of_kind {
            writeln!(out, "  {:<28} {}", page.path, page.summary)?;
        }
    }
    writeln!(
        out,
        "\nPrint one: attache docs <PAGE>. Search: attache docs search <WORDS>. In a browser: attache docs --no-open"
    )?;
    Ok(())
}

fn search(query: &str) -> anyhow::Result<()> {
    let index = Index::build();
    let found = index.search(query, MAX_RESULTS);
    if found.is_empty() {
        bail!("no page contains `{query}`; all pages: attache docs list");
    }
    let mut out = io::stdout().lock();
    for section in found {
        writeln!(out, "{}", section.label())?;
        writeln!(out, "  {}", section.passage(query))?;
        writeln!(out, "  attache docs {}", section.address())?;
    }
    Ok(())
}

fn print_page(name: &str) -> anyhow::Result<()> {
    let Some(section) = pages::find_section(name) else {
        if let Some(page) = name.split_once('#').and_then(|(page, _)| pages::find(page)) {
            bail!(
                "there is no section `{name}`; the whole page: attache docs {}",
                page.path
            );
        }
        let suggested = suggested_pages(name);
        let suggestion = if suggested.is_empty() {
            String::new()
        } else {
            format!("; did you mean {}", suggested.join(" or "))
        };
        bail!(
            "there is no page `{name}`{suggestion}; all pages: attache docs list; \
             search: attache docs search {}",
            shell_words::quote(name)
        );
    };
    let style = TerminalStyle::for_stdout();
    let text = terminal::render(section.page.path, section.markdown, style);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Pages for a name that no page has: those with a similar name, then those that a search finds.
fn suggested_pages(name: &str) -> Vec<String> {
    let last_segment = |path: &'static str| path.rsplit('/').next().unwrap_or(path);
    let mut similar: Vec<(f64, &'static str)> = pages::all()
        .map(|page| {
            let file = last_segment(page.path);
            let similarity = strsim::jaro_winkler(page.path, name);
            (similarity.max(strsim::jaro_winkler(file, name)), page.path)
        })
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    let index = Index::build();
    let words = name.replace(['/', '-', '_', '#'], " ");
    let found = index.search(&words, MAX_RESULTS);
    let mut suggested: Vec<String> = Vec::new();
    let candidates = similar.into_iter().map(|(_, path)| path);
    for path in candidates.chain(found.into_iter().map(|section| section.page)) {
        let quoted = format!("`{path}`");
        if suggested.len() < MAX_SUGGESTIONS && !suggested.contains(&quoted) {
            suggested.push(quoted);
        }
    }
    suggested
}

fn build(folder: &Path, origin: Option<&str>) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write {}", folder.display());
    fs::create_dir_all(folder).with_context(cannot_write)?;
    if fs::read_dir(folder)
        .with_context(cannot_write)?
        .next()
        .is_some()
    {
        bail!(
            "{} is not empty; give an empty or new folder",
            folder.display()
        );
    }
    let files = site::build(origin)?;
    let count = files.len();
    for file in files {
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(cannot_write)?;
        }
        fs::write(&path, file.content)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    writeln!(io::stdout(), "{count} files in {}", folder.display())?;
    Ok(())
}

/// Serves the site on loopback and opens it, until a signal.
async fn open(port: u16, no_open: bool) -> anyhow::Result<()> {
    let mut interrupts = Interrupts::new()?;
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
    let url = format!("http://{}/", listener.local_addr()?);
    writeln!(io::stdout(), "Documentation at {url} (Ctrl-C to stop)")?;
    if !no_open && !open_browser(&url) {
        eprintln!("no browser was found; open the address, or print a page: attache docs <PAGE>");
    }
    let files = site::build(None)?;
    tokio::select! {
        served = server::serve(listener, files) => Ok(served?),
        () = interrupts.next() => Ok(()),
    }
}

/// Opens a URL in the browser of the desktop. Returns whether a program for it was started.
pub(super) fn open_browser(url: &str) -> bool {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started.is_ok()
}
