//! `attache init`: a configuration file to begin with.

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
    let mut how = OpenOptions::new();
    how.write(true)
        .create_new(!args.force)
        .create(args.force)
        .truncate(args.force);
    let mut file = how
        .open(&args.file)
        .with_context(|| match args.file.exists() {
            true => format!("{name} is there already; write over it: --force"),
            false => format!("cannot write {name}"),
        })?;
    file.write_all(STARTER.as_bytes())
        .with_context(|| format!("cannot write {name}"))?;
    let again = shell_words::quote(&name.to_string()).into_owned();
    Ok(writeln!(
        io::stdout(),
        "Wrote {name}. Serve it:\n  attache serve {again}"
    )?)
}
