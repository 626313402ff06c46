//! Every value, with where it came from.

use std::fmt::Write;

use anyhow::Context;
use serde::Serialize;
use toml::{Table, Value};

use super::tree::ValueOrigin;
use super::{Config, section_of};

/// How wide values are before their sources begin.
const WIDTH: usize = 48;
/// What stands for a secret.
pub(super) const REDACTED: &str = "***";

/// The whole configuration as a file that could be read again, but for its secrets: those are masked, and what refers
/// to something else is written as it was.
///
/// # Errors
/// None today: every value can be written as TOML.
pub(crate) fn print(config: &Config) -> anyhow::Result<String> {
    let mut server = table(&config.server)?;
    server.extend(table(&config.server_settings)?);
    let (mut store, mut limits) = (table(&config.store)?, table(&config.limits)?);
    let mut telemetry = table(&config.telemetry)?;
    for (key, value) in table(&config.engine)? {
        let home = match section_of(&key) {
            "store" => &mut store,
            "telemetry" => &mut telemetry,
            _ => &mut limits,
        };
        home.insert(key, value);
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

/// A value, with what refers to something else written as it was, however deep it stands.
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
                .map(|(at, item)| as_written(config, &format!("{path}.{at}"), item))
                .collect::<Vec<_>>()
                .into()
        }
        Value::Table(table) => {
            let written = |(key, value): (&String, &Value)| {
                (
                    key.clone(),
                    as_written(config, &format!("{path}.{key}"), value),
                )
            };
            Value::Table(table.iter().map(written).collect())
        }
        plain => plain.clone(),
    }
}
