//! `attache check`: what is wrong with a configuration file, without serving it.

use std::io::{self, Write};

use anyhow::bail;

use crate::args::Check;
use crate::config::{Config, Given, schema};
use crate::serving::{self, environment};

pub(crate) async fn run(args: &Check) -> anyhow::Result<()> {
    let Some(file) = &args.file else {
        return Ok(writeln!(io::stdout(), "{:#}", schema())?);
    };
    let config = Config::load(Some(file), &environment, &Given::default())?;
    let served = config.build()?;
    if served.is_empty() {
        bail!("{} has no agents; add one: [agents.<name>]", file.display());
    }
    let agents = count(served.len());
    serving::check(served, super::serve::FOLDER, &config).await?;
    if let Some(exposed) = config.exposed() {
        eprintln!("warning: {exposed}");
    }
    Ok(writeln!(
        io::stdout(),
        "{} is fine: {agents}",
        file.display()
    )?)
}

fn count(agents: usize) -> String {
    if agents == 1 {
        "one agent".to_owned()
    } else {
        format!("{agents} agents")
    }
}
