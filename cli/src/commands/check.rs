//! `attache check`: validates a configuration file without serving it.

use std::io::{self, Write};

use anyhow::bail;

use crate::args::CheckArgs;
use crate::config::{Config, FlagValues, schema};
use crate::server::{self, environment};

pub(crate) async fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let Some(file) = &args.file else {
        return Ok(writeln!(io::stdout(), "{:#}", schema())?);
    };
    let config = Config::load(Some(file), &environment, &FlagValues::default())?;
    let served = config.build_agents()?;
    if served.is_empty() {
        bail!("{} has no agents; add one: [agents.<name>]", file.display());
    }
    let agents = count(served.len());
    server::dry_run(served, super::serve::DATA_DIR_NAME, &config).await?;
    if let Some(exposed) = config.exposed_secret() {
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
