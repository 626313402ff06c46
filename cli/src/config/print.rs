//! `serve --print-config`: the effective configuration with the origin of each value.

use std::fmt::Write;

use anyhow::Context;
use serde::Serialize;
use toml::{Table, Value};

use super::tree::ValueOrigin;
use super::{Config, section_of};

/// Column of the origins.
const WIDTH: usize = 48;
/// Placeholder of a secret.
pub(super) const REDACTED: &str = "***";

/// Prints the configuration as a file. Secrets are redacted, and references are printed as written, so the file can be read
/// again except for literal secrets.
///
/// # Errors
/// A value cannot be written as TOML; today every value can.
pub(crate) fn print(config: &Config) -> anyhow::Result<String> {
    let mut server = table(&config.server)?;
    server.extend(table(&config.server_settings)?);
    let mut store = table(&config.store)?;
    let mut limits = table(&config.limits)?;
    let mut telemetry = table(&config.telemetry)?;
    for (key, value) in table(&config.engine)? {
        let section = match section_of(&key) {
            "store" => &mut store,
            "telemetry" => &mut telemetry,
            _ => &mut limits,
        };
        section.insert(key, value);
    }
    let mut push = table(&config.push)?;
    push.extend(table(&config.push_settings)?);
    let mut text = String::new();
    for (name, values) in [
        ("server", server),
        ("auth", table(&config.auth)?),
        ("auth.limits", table(&config.caller_limits)?),
        ("store", store),
        ("limits", limits),
        ("push", push),
        ("egress", table(&config.egress)?),
        ("telemetry", telemetry),
    ] {
        section(&mut text, config, name, &values);
    }
    for (index, hook) in config.hooks.hooks.iter().enumerate() {
        let path = format!("hooks.{index}");
        let _ = writeln!(text, "\n[[hooks]]");
        print_keys(&mut text, config, &path, &table(hook)?);
    }
    for agent in &config.agents {
        let name = format!("agents.{}", agent.name);
        let mut values = Table::from_iter([("type".to_owned(), Value::from(agent.kind.name()))]);
        values.extend(table(&agent.card)?);
        values.extend(
            agent
                .kind
                .values()?
                .as_table()
                .context("an agent is a table")?
                .clone(),
        );
        section(&mut text, config, &name, &values);
        for (below, values) in [
            ("limits", table(&agent.settings)?),
            ("auth", table(&agent.auth)?),
        ] {
            if !values.is_empty() {
                section(&mut text, config, &format!("{name}.{below}"), &values);
            }
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
    print_keys(text, config, name, values);
}

/// Prints the keys of a section with their origins.
fn print_keys(text: &mut String, config: &Config, name: &str, values: &Table) {
    for (key, value) in values {
        let path = format!("{name}.{key}");
        let value = as_written(config, &path, value);
        let line = format!("{key} = {value}");
        let _ = writeln!(
            text,
            "{line:WIDTH$}  # {}",
            config.tree.describe_origin(&path)
        );
    }
}

/// A value with its references as written, at any depth.
fn as_written(config: &Config, path: &str, value: &Value) -> Value {
    if let Some(ValueOrigin::Line {
        written: Some(written),
        ..
    }) = config.tree.origin(path)
    {
        return match value.as_str() {
            Some(REDACTED) => value.clone(),
            _ => Value::from(written.as_str()),
        };
    }
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| as_written(config, &format!("{path}.{index}"), item))
                .collect::<Vec<_>>()
                .into()
        }
        Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| {
                let value = as_written(config, &format!("{path}.{key}"), value);
                (key.clone(), value)
            });
            Value::Table(entries.collect())
        }
        plain => plain.clone(),
    }
}
