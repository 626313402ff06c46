//! What was said, key by key, and where.

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

/// Keys whose values are paths, below the folder of the file that names them.
const PATH_KEYS: &[&str] = &[
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "card_signing_key",
    "previous_signing_key",
    "delegation_signing_key",
    "signing_key",
    "data_dir",
    "folder",
    "file",
];

/// What was said, and where. A key is written with dots.
#[derive(Debug, Default)]
pub(super) struct ConfigTree {
    file: String,
    said: Table,
    origins: BTreeMap<String, ValueOrigin>,
    /// By section, the keys that somebody has asked for.
    known: BTreeMap<String, BTreeSet<String>>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueOrigin {
    /// Of the file; `written` if it refers to something else.
    Line {
        line: usize,
        written: Option<String>,
    },
    Environment(&'static str),
    Flag(&'static str),
}

impl ConfigTree {
    /// Reads a file, and fills in what its values refer to.
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
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let wrong = |error: toml::de::Error| {
            let place = error.span().map_or_else(
                || file.clone(),
                |span| format!("{file}:{}", line(span.start)),
            );
            ConfigError::new(place, error.message())
        };
        let spans = DeTable::parse(text).map_err(&wrong)?;
        let said: Table = toml::from_str(text).map_err(wrong)?;
        let mut tree = Self {
            said,
            ..Self {
                file,
                ..Self::default()
            }
        };
        let mut lines = Vec::new();
        places(String::new(), spans.get_ref(), &mut lines);
        tree.origins = lines
            .into_iter()
            .map(|(key, at)| {
                (
                    key,
                    ValueOrigin::Line {
                        line: line(at),
                        written: None,
                    },
                )
            })
            .collect();
        tree.fill(folder, environment)?;
        Ok(tree)
    }

    /// Fills in references, and makes paths absolute to the file.
    fn fill(&mut self, folder: &Path, environment: Environment<'_>) -> Result<(), ConfigError> {
        let mut said = std::mem::take(&mut self.said);
        let mut wrong = None;
        texts(String::new(), &mut said, &mut |key, text| {
            match expand(text, folder, environment) {
                Ok(None) => {}
                Ok(Some(filled)) => {
                    let written = std::mem::replace(text, filled);
                    if let Some(ValueOrigin::Line { written: place, .. }) =
                        self.origins.get_mut(key)
                    {
                        *place = Some(written);
                    }
                }
                Err(why) => {
                    wrong.get_or_insert_with(|| self.error_at(key, why));
                }
            }
            let last = key.rsplit('.').next().unwrap_or(key);
            if PATH_KEYS.contains(&last) && Path::new(text).is_relative() {
                *text = folder.join(&*text).display().to_string();
            }
        });
        self.said = said;
        wrong.map_or(Ok(()), Err)
    }

    /// Says a value in place of what was said.
    pub(super) fn set(&mut self, key: &str, value: Value, origin: ValueOrigin) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        if let Some(table) = table_at(&mut self.said, section, true) {
            table.insert(name.to_owned(), value);
        }
        self.origins.insert(key.to_owned(), origin);
    }

    /// Takes what was said of every key of `T`; `home` is the section that a key stands in.
    pub(super) fn take<T: DeserializeOwned + JsonSchema>(
        &mut self,
        home: impl Fn(&str) -> String,
    ) -> Result<T, ConfigError> {
        let mut own = Table::new();
        for key in keys::<T>() {
            let section = home(&key);
            let said =
                table_at(&mut self.said, &section, false).and_then(|table| table.remove(&key));
            self.known.entry(section).or_default().insert(key.clone());
            own.extend(said.map(|value| (key, value)));
        }
        serde_path_to_error::deserialize(Value::Table(own)).map_err(|error| {
            let path = dotted(error.path());
            let (unknown, what) = explain_reader_error(error.inner().message());
            let key = path.split('.').next().unwrap_or_default();
            let key = match (path.as_str(), unknown) {
                ("", None) => home(key),
                ("", Some(unknown)) => format!("{}.{unknown}", home(key)),
                (path, None) => format!("{}.{path}", home(key)),
                (path, Some(unknown)) => format!("{}.{path}.{unknown}", home(key)),
            };
            self.error_at(&key, what)
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
        match table_at(&mut self.said, section, false).and_then(|table| table.remove(key)) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error_at(&format!("{section}.{key}"), "must be a text")),
        }
    }

    /// The tables below a section, in the order of the file.
    pub(super) fn table_names(&self, section: &str) -> Result<Vec<String>, ConfigError> {
        let Some(value) = self.said.get(section) else {
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

    /// Refuses what nobody has asked for.
    pub(super) fn reject_unknown(&self) -> Result<(), ConfigError> {
        match self.first_unknown(&self.said, "") {
            Some(complaint) => Err(complaint),
            None => Ok(()),
        }
    }

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

    /// The file, by the name it was given by; empty where there is none.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Where a value comes from, if it was said.
    pub(super) fn origin(&self, key: &str) -> Option<&ValueOrigin> {
        self.origins.get(key)
    }

    pub(super) fn describe_origin(&self, key: &str) -> String {
        self.origin(key).map_or_else(
            || "default".to_owned(),
            |origin| origin.describe(&self.file),
        )
    }

    pub(super) fn error_at(&self, key: &str, what: impl fmt::Display) -> ConfigError {
        let mut place = Some(key);
        while let Some(key) = place {
            if let Some(origin) = self.origin(key) {
                return ConfigError::new(origin.describe(&self.file), format!("{key}: {what}"));
            }
            place = key.rsplit_once('.').map(|(above, _)| above);
        }
        let place = if self.file.is_empty() {
            "configuration"
        } else {
            &self.file
        };
        ConfigError::new(place, format!("{key}: {what}"))
    }
}

impl ValueOrigin {
    fn describe(&self, file: &str) -> String {
        match self {
            Self::Line { line, .. } => format!("{file}:{line}"),
            Self::Environment(name) | Self::Flag(name) => (*name).to_owned(),
        }
    }
}

/// The keys that a struct has.
pub(super) fn keys<T: JsonSchema>() -> Vec<String> {
    let schema = T::json_schema(&mut SchemaGenerator::default());
    let properties = schema
        .get("properties")
        .and_then(|properties| properties.as_object());
    properties
        .map(|properties| properties.keys().cloned().collect())
        .unwrap_or_default()
}

fn table_at<'a>(root: &'a mut Table, section: &str, make: bool) -> Option<&'a mut Table> {
    let mut table = root;
    for name in section.split('.').filter(|name| !name.is_empty()) {
        if make && !table.contains_key(name) {
            table.insert(name.to_owned(), Value::Table(Table::new()));
        }
        table = table.get_mut(name)?.as_table_mut()?;
    }
    Some(table)
}

/// Where every key stands in the text.
fn places(above: String, table: &DeTable<'_>, found: &mut Vec<(String, usize)>) {
    for (name, value) in table {
        let key = join(&above, name.get_ref());
        found.push((key.clone(), name.span().start));
        places_in(key, value, found);
    }
}

fn places_in(key: String, value: &Spanned<DeValue<'_>>, found: &mut Vec<(String, usize)>) {
    match value.get_ref() {
        DeValue::Table(table) => places(key, table, found),
        DeValue::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let key = join(&key, &at.to_string());
                found.push((key.clone(), item.span().start));
                places_in(key, item, found);
            }
        }
        _ => {}
    }
}

/// Every text, with its key.
fn texts(above: String, table: &mut Table, visit: &mut dyn FnMut(&str, &mut String)) {
    for (name, value) in table.iter_mut() {
        texts_in(join(&above, name), value, visit);
    }
}

fn texts_in(key: String, value: &mut Value, visit: &mut dyn FnMut(&str, &mut String)) {
    match value {
        Value::String(text) => visit(&key, text),
        Value::Table(table) => texts(key, table, visit),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                texts_in(join(&key, &at.to_string()), item, visit);
            }
        }
        _ => {}
    }
}

fn join(above: &str, name: &str) -> String {
    if above.is_empty() {
        name.to_owned()
    } else {
        format!("{above}.{name}")
    }
}

/// A path as keys are written.
fn dotted(path: &serde_path_to_error::Path) -> String {
    let names = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    names.collect::<Vec<_>>().join(".")
}
