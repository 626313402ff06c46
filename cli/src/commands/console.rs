//! `attache console`: opens the web console of a running server.

use std::io::{self, Write};

use anyhow::{Context, bail};

use super::docs::open_browser;
use crate::admin;
use crate::args::ConsoleArgs;
use crate::data_dir;

/// Data directories of `serve` and `demo` below the user's data directory.
const DATA_DIR_NAMES: [&str; 2] = [super::serve::DATA_DIR_NAME, super::demo::DATA_DIR_NAME];

pub(crate) fn run(args: &ConsoleArgs) -> anyhow::Result<()> {
    let url = create_link(args)?;
    writeln!(io::stdout(), "{url}")?;
    if args.no_open {
        return Ok(());
    }
    if open_browser(&url) {
        eprintln!("The link works once, within 60 s.");
    } else {
        eprintln!("no browser was found; open the address within 60 s");
    }
    Ok(())
}

/// Requests a one-time link from the running server.
fn create_link(args: &ConsoleArgs) -> anyhow::Result<String> {
    let named = args.folder.data_dir.as_deref();
    let names = DATA_DIR_NAMES
        .iter()
        .filter_map(|name| data_dir::locate(named, name));
    for folder in names {
        if let Some(reply) = admin::request(&folder, "POST", "/api/v1/session/link")? {
            let reply: serde_json::Value = serde_json::from_str(&reply)
                .context("the running server sent an invalid response")?;
            let url = reply["url"].as_str();
            return url
                .map(str::to_owned)
                .context("the running server sent no address");
        }
    }
    match named {
        Some(folder) => bail!(
            "no server is running with the data directory {}; start one: attache serve --data-dir {}",
            folder.display(),
            shell_words::quote(&folder.to_string_lossy())
        ),
        None => bail!(
            "no server is running; start one: attache demo, or give its data directory: --data-dir <DIR>"
        ),
    }
}
