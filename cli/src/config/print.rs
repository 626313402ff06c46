//! `serve --print-config`: the effective configuration with the origin of each value.

use std::fmt::Write;

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;
use toml::Value;

use super::database::without_password;
use super::tree::{ValueOrigin, keys};
use super::{Config, section_of};

/// Column of the origins.
const WIDTH: usize = 48;
/// Placeholder of a secret.
pub(super) const REDACTED: &str = "***";

/// The effective configuration: every key with its value and origin. Secrets are redacted.
pub(crate) struct PrintedConfig {
    sections: Vec<PrintedSection>,
}

struct PrintedSection {
    /// Line above the values, such as `[server]`.
    header: String,
    values: Vec<PrintedValue>,
}

#[derive(Serialize)]
struct PrintedValue {
    /// Full key.
    key: String,
    /// `None` if it is not set and has no default.
    value: Option<Value>,
    /// A file and line, a variable, a flag or `default`.
    source: String,
}

impl PrintedConfig {
    /// Collects all values.
    ///
    /// # Errors
    /// A value cannot be written as TOML; today every value can.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let mut server = ValueTable::of(&config.server)?;
        server.extend(ValueTable::of(&config.server_settings)?);
        let mut store = ValueTable::of(&config.store)?;
        let mut limits = ValueTable::of(&config.limits)?;
        let mut telemetry = ValueTable::of(&config.telemetry)?;
        for (key, value) in ValueTable::of(&config.engine)?.0 {
            let section = match section_of(&key) {
                "store" => &mut store,
                "telemetry" => &mut telemetry,
                _ => &mut limits,
            };
            section.0.push((key, value));
        }
        let mut push = ValueTable::of(&config.push)?;
        push.extend(ValueTable::of(&config.push_settings)?);
        let mut sections = vec![
            PrintedSection::new(config, "server", server),
            PrintedSection::new(config, "auth", ValueTable::of(&config.auth)?),
            PrintedSection::new(
                config,
                "auth.limits",
                ValueTable::of(&config.caller_limits)?,
            ),
            PrintedSection::new(config, "store", store),
            PrintedSection::new(config, "cluster", ValueTable::of(&config.cluster)?),
            PrintedSection::new(config, "limits", limits),
            PrintedSection::new(config, "push", push),
            PrintedSection::new(config, "egress", ValueTable::of(&config.egress)?),
            PrintedSection::new(config, "telemetry", telemetry),
            PrintedSection::new(config, "console", ValueTable::of(&config.console)?),
        ];
        for (index, hook) in config.hooks.hooks.iter().enumerate() {
            sections.push(PrintedSection {
                header: "[[hooks]]".to_owned(),
                ..PrintedSection::new(config, &format!("hooks.{index}"), ValueTable::set(hook)?)
            });
        }
        for agent in &config.agents {
            let name = format!("agents.{}", agent.name);
            let kind = Value::from(agent.kind.name());
            let mut values = ValueTable(vec![("type".to_owned(), Some(kind))]);
            values.extend(ValueTable::of(&agent.card)?);
            values.extend(ValueTable::set(&agent.kind.values()?)?);
            sections.push(PrintedSection::new(config, &name, values));
            for (below, values) in [
                ("limits", ValueTable::of(&agent.settings)?),
                ("auth", ValueTable::of(&agent.auth)?),
            ] {
                sections.push(PrintedSection::new(
                    config,
                    &format!("{name}.{below}"),
                    values,
                ));
            }
        }
        Ok(Self { sections })
    }

    /// The configuration as a file. References are printed as written, so the file can be read again except for literal
    /// secrets. Keys without a value are comments.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        for section in &self.sections {
            let before = if text.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{before}{}", section.header);
            for PrintedValue { key, value, source } in &section.values {
                let key = key.rsplit('.').next().unwrap_or(key);
                let line = match value {
                    Some(value) => format!("{key} = {value}"),
                    None => format!("# {key}"),
                };
                let source = match value {
                    Some(_) => source.as_str(),
                    None => "not set",
                };
                let _ = writeln!(text, "{line:WIDTH$}  # {source}");
            }
        }
        text
    }

    /// The configuration as JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let values: Vec<_> = self.sections.iter().flat_map(|one| &one.values).collect();
        serde_json::json!({"schema": "attache.print-config/1", "settings": values})
    }
}

/// Keys with their values, in the order of the struct.
struct ValueTable(Vec<(String, Option<Value>)>);

impl ValueTable {
    /// All keys of a struct; those that are not set have no value.
    fn of<T: Serialize + JsonSchema>(values: &T) -> anyhow::Result<Self> {
        let mut table = Self::set(values)?;
        for key in keys::<T>() {
            if !table.0.iter().any(|(known, _)| *known == key) {
                table.0.push((key, None));
            }
        }
        Ok(table)
    }

    /// The keys that are set.
    fn set(values: &impl Serialize) -> anyhow::Result<Self> {
        let values = Value::try_from(values).context("a value cannot be written as TOML")?;
        let values = values.as_table().cloned().context("settings are a table")?;
        let values = values.into_iter().map(|(key, value)| (key, Some(value)));
        Ok(Self(values.collect()))
    }

    fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl PrintedSection {
    fn new(config: &Config, name: &str, values: ValueTable) -> Self {
        let values = values.0.into_iter().map(|(key, value)| {
            let path = format!("{name}.{key}");
            PrintedValue {
                value: value.map(|value| as_written(config, &path, &value)),
                source: config.tree.describe_origin(&path),
                key: path,
            }
        });
        Self {
            header: format!("[{name}]"),
            values: values.collect(),
        }
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
            // The written text may contain a password beside a reference.
            Some(_) if path == "store.url" => Value::from(without_password(written)),
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
