//! The values of a configuration with their origins, by key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::error::{ConfigError, explain_reader_error, unknown_name};
use super::expand::expand;
use super::layers::Environment;
use super::renamed::renamed_key;

/// Keys whose values are paths, relative to the directory of the file.
const PATH_KEYS: &[&str] = &[
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "card_signing_key",
    "previous_signing_key",
    "delegation_signing_key",
    "signing_key",
    "ca",
    "client_cert",
    "client_key",
    "webhook_key",
    "data_dir",
    "folder",
    "file",
];

/// Values with their origins. Keys are dotted paths.
#[derive(Debug, Default)]
pub(super) struct ConfigTree {
    file: String,
    values: Table,
    origins: BTreeMap<String, ValueOrigin>,
    /// Keys that sections have taken, by section.
    known: BTreeMap<String, BTreeSet<String>>,
}

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueOrigin {
    /// A line of the file. `written` is the original text of a value with references.
    Line {
        line: usize,
        written: Option<String>,
    },
    Environment(&'static str),
    Flag(&'static str),
}

impl ConfigTree {
    /// Reads a file, and expands references in its values.
    pub(super) fn read(file: &Path, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| ConfigError::new(&name, format!("cannot be read: {error}")))?;
        let folder = file.parent().map_or_else(PathBuf::new, Path::to_owned);
        Self::parse(name, &text, &folder, environment)
    }

    pub(super) fn parse(
        file: String,
        text: &str,
        folder: &Path,
        environment: Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let invalid = |error: toml::de::Error| {
            let place = error.span().map_or_else(
                || file.clone(),
                |span| format!("{file}:{}", line(span.start)),
            );
            ConfigError::new(place, error.message())
        };
        let spans = DeTable::parse(text).map_err(&invalid)?;
        let values: Table = toml::from_str(text).map_err(invalid)?;
        let mut tree = Self {
            file,
            values,
            ..Self::default()
        };
        let mut offsets = Vec::new();
        key_offsets(String::new(), spans.get_ref(), &mut offsets);
        tree.origins = offsets
            .into_iter()
            .map(|(key, offset)| {
                (
                    key,
                    ValueOrigin::Line {
                        line: line(offset),
                        written: None,
                    },
                )
            })
            .collect();
        tree.expand(folder, environment)?;
        Ok(tree)
    }

    /// Expands references, and makes paths relative to the directory of the file.
    fn expand(&mut self, folder: &Path, environment: Environment<'_>) -> Result<(), ConfigError> {
        let mut values = std::mem::take(&mut self.values);
        let mut failed = None;
        visit_strings(String::new(), &mut values, &mut |key, text| {
            match expand(text, folder, environment) {
                Ok(None) => {}
                Ok(Some(expanded)) => {
                    let written = std::mem::replace(text, expanded);
                    if let Some(ValueOrigin::Line {
                        written: original, ..
                    }) = self.origins.get_mut(key)
                    {
                        *original = Some(written);
                    }
                }
                Err(message) => {
                    failed.get_or_insert_with(|| self.error_at(key, message));
                }
            }
            let last = key.rsplit('.').next().unwrap_or(key);
            if PATH_KEYS.contains(&last) && Path::new(text).is_relative() {
                *text = folder.join(&*text).display().to_string();
            }
        });
        self.values = values;
        failed.map_or(Ok(()), Err)
    }

    /// Sets a value, in place of the previous one.
    pub(super) fn set(&mut self, key: &str, value: Value, origin: ValueOrigin) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        if let Some(table) = table_at(&mut self.values, section, true) {
            table.insert(name.to_owned(), value);
        }
        self.origins.insert(key.to_owned(), origin);
    }

    /// Removes a value. Of a value in a list, the whole list is removed.
    pub(super) fn remove(&mut self, key: &str) {
        let below = format!("{key}.");
        self.origins
            .retain(|name, _| name != key && !name.starts_with(&below));
        let mut table = &mut self.values;
        let mut names = key.split('.').peekable();
        while let Some(name) = names.next() {
            let is_table = table.get(name).is_some_and(Value::is_table);
            if names.peek().is_none() || !is_table {
                table.remove(name);
                return;
            }
            match table.get_mut(name).and_then(Value::as_table_mut) {
                Some(below) => table = below,
                None => return,
            }
        }
    }

    /// Takes the values of all keys of `T`; `section` returns the section of a key.
    pub(super) fn take<T: DeserializeOwned + JsonSchema>(
        &mut self,
        section: impl Fn(&str) -> String,
    ) -> Result<T, ConfigError> {
        let mut own = Table::new();
        for key in keys::<T>() {
            let name = section(&key);
            let value =
                table_at(&mut self.values, &name, false).and_then(|table| table.remove(&key));
            self.known.entry(name).or_default().insert(key.clone());
            own.extend(value.map(|value| (key, value)));
        }
        serde_path_to_error::deserialize(Value::Table(own)).map_err(|error| {
            let path = dotted(error.path());
            let (unknown, message) = explain_reader_error(error.inner().message());
            let key = path.split('.').next().unwrap_or_default();
            let key = match (path.as_str(), unknown) {
                ("", None) => section(key),
                ("", Some(unknown)) => format!("{}.{unknown}", section(key)),
                (path, None) => format!("{}.{path}", section(key)),
                (path, Some(unknown)) => format!("{}.{path}.{unknown}", section(key)),
            };
            // Keys at the top of the file have no section.
            let key = key.trim_start_matches('.').to_owned();
            match renamed_key(&key) {
                Some(new) => self.error_at(&key, renamed_message(&key, &new)),
                None => self.error_at(&key, message),
            }
        })
    }

    /// Takes the value of one key.
    pub(super) fn take_text(
        &mut self,
        section: &str,
        key: &str,
    ) -> Result<Option<String>, ConfigError> {
        self.known
            .entry(section.to_owned())
            .or_default()
            .insert(key.to_owned());
        match table_at(&mut self.values, section, false).and_then(|table| table.remove(key)) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error_at(&format!("{section}.{key}"), "must be a string")),
        }
    }

    /// The names of the tables in a section, in the order of the file.
    pub(super) fn table_names(&self, section: &str) -> Result<Vec<String>, ConfigError> {
        let Some(value) = self.values.get(section) else {
            return Ok(Vec::new());
        };
        let table = value
            .as_table()
            .ok_or_else(|| self.error_at(section, "must be a table"))?;
        let mut names: Vec<_> = table.keys().cloned().collect();
        names.sort_by_key(
            |name| match self.origins.get(&format!("{section}.{name}")) {
                Some(ValueOrigin::Line { line, .. }) => *line,
                _ => usize::MAX,
            },
        );
        Ok(names)
    }

    /// Refuses keys that no section has taken.
    pub(super) fn reject_unknown(&self) -> Result<(), ConfigError> {
        self.first_unknown(&self.values, "").map_or(Ok(()), Err)
    }

    /// The error of the first key below a section that no section has taken.
    fn first_unknown(&self, table: &Table, section: &str) -> Option<ConfigError> {
        let below = |name: &str| {
            if section.is_empty() {
                name.to_owned()
            } else {
                format!("{section}.{name}")
            }
        };
        table.iter().find_map(|(name, value)| {
            let key = below(name);
            let is_section = self
                .known
                .keys()
                .any(|known| known == &key || known.starts_with(&format!("{key}.")));
            if let Some(new) = renamed_key(&key) {
                return Some(self.error_at(&key, renamed_message(&key, &new)));
            }
            match value {
                Value::Table(table) if is_section || key == "agents" => {
                    self.first_unknown(table, &key)
                }
                _ if section.is_empty() => {
                    let sections = self
                        .known
                        .keys()
                        .filter_map(|known| known.split('.').next());
                    let sections: BTreeSet<&str> = sections.chain(["agents"]).collect();
                    Some(self.error_at(&key, unknown_name("section", name, sections)))
                }
                _ => {
                    let known = self
                        .known
                        .get(section)
                        .into_iter()
                        .flatten()
                        .map(String::as_str);
                    Some(self.error_at(
                        &key,
                        format!("{} ({section})", unknown_name("key", name, known)),
                    ))
                }
            }
        })
    }

    /// The path of the file as given; empty if there is none.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The origin of a value; `None` for a default.
    pub(super) fn origin(&self, key: &str) -> Option<&ValueOrigin> {
        self.origins.get(key)
    }

    /// The origin for display: a file and line, a variable, a flag or `default`.
    pub(super) fn describe_origin(&self, key: &str) -> String {
        self.origin(key).map_or_else(
            || "default".to_owned(),
            |origin| origin.describe(&self.file),
        )
    }

    /// An error of a key. The error has the origin and the name of the key, or of its nearest parent with an origin.
    pub(super) fn error_at(&self, key: &str, message: impl fmt::Display) -> ConfigError {
        let mut ancestor = Some(key);
        while let Some(name) = ancestor {
            if let Some(origin) = self.origin(name) {
                let place = origin.describe(&self.file);
                let error = ConfigError::new(place, format!("{name}: {message}"));
                return error.with_key(key, name == key);
            }
            ancestor = name.rsplit_once('.').map(|(parent, _)| parent);
        }
        let place = if self.file.is_empty() {
            "configuration"
        } else {
            &self.file
        };
        ConfigError::new(place, format!("{key}: {message}")).with_key(key, false)
    }
}

fn renamed_message(key: &str, new: &str) -> String {
    format!("unknown key `{key}`: renamed to `{new}`")
}

impl ValueOrigin {
    fn describe(&self, file: &str) -> String {
        match self {
            Self::Line { line, .. } => format!("{file}:{line}"),
            Self::Environment(name) | Self::Flag(name) => (*name).to_owned(),
        }
    }
}

/// The keys of a struct, from its JSON schema.
pub(super) fn keys<T: JsonSchema>() -> Vec<String> {
    let schema = T::json_schema(&mut SchemaGenerator::default());
    let properties = schema
        .get("properties")
        .and_then(|properties| properties.as_object());
    properties
        .map(|properties| properties.keys().cloned().collect())
        .unwrap_or_default()
}

/// The table of a section, created if `create` is set.
fn table_at<'a>(root: &'a mut Table, section: &str, create: bool) -> Option<&'a mut Table> {
    let mut table = root;
    for name in section.split('.').filter(|name| !name.is_empty()) {
        if create && !table.contains_key(name) {
            table.insert(name.to_owned(), Value::Table(Table::new()));
        }
        table = table.get_mut(name)?.as_table_mut()?;
    }
    Some(table)
}

/// Collects the byte offsets of all keys.
fn key_offsets(parent: String, table: &DeTable<'_>, found: &mut Vec<(String, usize)>) {
    for (name, value) in table {
        let key = join(&parent, name.get_ref());
        found.push((key.clone(), name.span().start));
        value_offsets(key, value, found);
    }
}

fn value_offsets(key: String, value: &Spanned<DeValue<'_>>, found: &mut Vec<(String, usize)>) {
    match value.get_ref() {
        DeValue::Table(table) => key_offsets(key, table, found),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let key = join(&key, &index.to_string());
                found.push((key.clone(), item.span().start));
                value_offsets(key, item, found);
            }
        }
        _ => {}
    }
}

/// Calls `visit` with every string and its key.
fn visit_strings(parent: String, table: &mut Table, visit: &mut dyn FnMut(&str, &mut String)) {
    for (name, value) in table.iter_mut() {
        visit_value(join(&parent, name), value, visit);
    }
}

fn visit_value(key: String, value: &mut Value, visit: &mut dyn FnMut(&str, &mut String)) {
    match value {
        Value::String(text) => visit(&key, text),
        Value::Table(table) => visit_strings(key, table, visit),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                visit_value(join(&key, &index.to_string()), item, visit);
            }
        }
        _ => {}
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// A path of serde as a dotted key.
fn dotted(path: &serde_path_to_error::Path) -> String {
    let names = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    names.collect::<Vec<_>>().join(".")
}
