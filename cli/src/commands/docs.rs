//! `attache docs`: the documentation, in a browser, in the terminal and as a static site.

use std::fs;
use std::io::{self, Write};
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

pub(crate) async fn run(args: DocsArgs) -> anyhow::Result<()> {
    match (args.verb, args.page) {
        (Some(DocsCommand::List), _) => list(),
        (Some(DocsCommand::Search { words }), _) => search(&words.join(" ")),
        (Some(DocsCommand::Build { folder, origin }), _) => build(&folder, origin.as_deref()),
        (None, Some(page)) => print_page(&page),
        (None, None) => open(args.port, args.no_open).await,
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
        let nearest = pages::all().max_by(|a, b| {
            let similarity = |page: &Page| strsim::jaro_winkler(page.path, name);
            similarity(a).total_cmp(&similarity(b))
        });
        let nearest = nearest.map(|page| page.path).unwrap_or_default();
        bail!(
            "there is no page `{name}`; the nearest is `{nearest}`; all pages: attache docs list; \
             search: attache docs search {}",
            shell_words::quote(name)
        );
    };
    let style = TerminalStyle::for_stdout();
    let text = terminal::render(section.page.path, section.markdown, style);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
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
fn open_browser(url: &str) -> bool {
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
