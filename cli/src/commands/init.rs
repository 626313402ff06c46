//! `attache init`: writes a starter configuration file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use crate::args::InitArgs;
use crate::config::STARTER;

pub(crate) fn run(args: &InitArgs) -> anyhow::Result<()> {
    if args.file == Path::new("-") {
        return Ok(io::stdout().write_all(STARTER.as_bytes())?);
    }
    let name = args.file.display();
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create_new(!args.force)
        .create(args.force)
        .truncate(args.force);
    let mut file = options.open(&args.file).with_context(|| {
        if args.file.exists() {
            format!("{name} exists; overwrite it with --force")
        } else {
            format!("cannot write {name}")
        }
    })?;
    file.write_all(STARTER.as_bytes())
        .with_context(|| format!("cannot write {name}"))?;
    let again = shell_words::quote(&name.to_string()).into_owned();
    Ok(writeln!(
        io::stdout(),
        "Wrote {name}. Serve it:\n  attache serve {again}"
    )?)
}
