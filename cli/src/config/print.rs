//! Every value, with where it came from.

use std::fmt::Write;

use anyhow::Context;
use serde::Serialize;
use toml::{Table, Value};

use super::tree::Origin;
use super::{Config, home_of};

/// How wide values are before their sources begin.
const WIDTH: usize = 48;

/// The whole configuration as a file that could be read again, but for its secrets: those are masked, and what refers
/// to something else is written as it was.
///
/// # Errors
/// None today: every value can be written as TOML.
pub(crate) fn print(config: &Config) -> anyhow::Result<String> {
    let mut server = table(&config.server)?;
    server.extend(table(&config.serving)?);
    let (mut store, mut limits) = (table(&config.store)?, table(&config.limits)?);
    for (key, value) in table(&config.settings)? {
        let home = if home_of(&key) == "store" { &mut store } else { &mut limits };
        home.insert(key, value);
    }
    let mut text = String::new();
    for (name, values) in [
        ("server", server),
        ("store", store),
        ("limits", limits),
        ("push", table(&config.push)?),
        ("telemetry", table(&config.telemetry)?),
    ] {
        section(&mut text, config, name, &values);
    }
    for agent in &config.agents {
        let name = format!("agents.{}", agent.name);
        let mut values = Table::from_iter([("type".to_owned(), Value::from(agent.kind.name()))]);
        values.extend(table(&agent.card)?);
        values.extend(agent.kind.values()?.as_table().context("an agent is a table")?.clone());
        section(&mut text, config, &name, &values);
        let limits = table(&agent.settings)?;
        if !limits.is_empty() {
            section(&mut text, config, &format!("{name}.limits"), &limits);
        }
    }
    Ok(text)
}

fn table(values: &impl Serialize) -> anyhow::Result<Table> {
    let values = Value::try_from(values).context("a value cannot be written as TOML")?;
    values.as_table().cloned().context("settings are a table")
}

fn section(text: &mut String, config: &Config, name: &str, values: &Table) {
    let before = if text.is_empty() { "" } else { "\n" };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{before}[{name}]");
    for (key, value) in values {
        let path = format!("{name}.{key}");
        let value = match config.tree.origin(&path) {
            Some(Origin::Line { written: Some(written), .. }) => Value::from(written.as_str()),
            _ => value.clone(),
        };
        let line = format!("{key} = {value}");
        let _ = writeln!(text, "{line:WIDTH$}  # {}", config.tree.origin_in_words(&path));
    }
}
