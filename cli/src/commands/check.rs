//! `attache check`: what is wrong with a configuration file, without serving it.

use attache::auth::Keys;

use crate::args::Check;
use crate::config::{Config, Given, schema};
use crate::serving::environment;

pub(crate) fn run(args: &Check) -> anyhow::Result<()> {
    let Some(file) = &args.file else {
        println!("{:#}", schema());
        return Ok(());
    };
    let config = Config::load(Some(file), &environment, &Given::default())?;
    let served = config.build()?;
    // Whether there are keys is the business of a folder that is not looked at here.
    config.access(config.auth.keys.unwrap_or(true).then(Keys::new))?;
    if let Some(exposed) = config.exposed() {
        eprintln!("warning: {exposed}");
    }
    println!("{} is fine: {}", file.display(), count(served.len()));
    Ok(())
}

fn count(agents: usize) -> String {
    if agents == 1 { "one agent".to_owned() } else { format!("{agents} agents") }
}
