//! Settings with their effective values and the sources of these.

use std::fmt;
use std::path::PathBuf;

use super::flags::Flag;
use crate::error::CliError;

/// A flag with its effective value.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) flag: &'static Flag,
    /// Empty if only the default applies.
    pub(crate) values: Vec<String>,
    pub(crate) source: SettingSource,
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingSource {
    Flag,
    /// The environment variable of this name.
    Env(String),
    File {
        path: PathBuf,
        line: usize,
        /// Key of the line.
        variable: String,
        /// Whether the file was discovered in a parent directory, instead of named by the user.
        is_discovered: bool,
    },
    Default,
}

impl Setting {
    /// Whether a flag, a variable or a file sets it.
    pub(crate) fn is_set(&self) -> bool {
        self.source != SettingSource::Default
    }

    /// All values, separated by commas.
    pub(crate) fn text(&self) -> String {
        self.values.join(",")
    }

    /// The value for display: a credential as `***`, the default if nothing sets it.
    pub(crate) fn display_value(&self) -> Option<String> {
        if !self.is_set() {
            return self.flag.default.map(str::to_owned);
        }
        Some(if self.flag.is_secret {
            "***".to_owned()
        } else {
            self.text()
        })
    }

    /// A usage error: the origin, the value unless it is a credential, and the rule that the value breaks.
    pub(crate) fn usage_error(&self, rule: &str) -> CliError {
        let origin = self.origin().unwrap_or_else(|| self.flag.name.to_owned());
        let value = if self.flag.is_secret {
            String::new()
        } else {
            format!(" `{}`", self.text())
        };
        CliError::usage(format!("{origin}{value} {rule}"))
    }

    /// The variable that sets the value, in the environment or in a file.
    pub(crate) fn variable(&self) -> Option<&str> {
        match &self.source {
            SettingSource::Env(variable) | SettingSource::File { variable, .. } => Some(variable),
            SettingSource::Flag | SettingSource::Default => None,
        }
    }

    /// The flag, the variable, or the file and line that sets the value.
    pub(crate) fn origin(&self) -> Option<String> {
        match &self.source {
            SettingSource::Flag => Some(format!("--{}", self.flag.name)),
            SettingSource::Env(variable) => Some(variable.clone()),
            SettingSource::File { path, line, .. } => Some(format!("{}:{line}", path.display())),
            SettingSource::Default => None,
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::Env(_) => "env",
            Self::File { .. } => "file",
            Self::Default => "default",
        })
    }
}

/// The effective values of all flags, in the order of [`FLAGS`](super::flags::FLAGS).
#[derive(Debug, Default)]
pub(crate) struct ResolvedSettings(Vec<Setting>);

impl ResolvedSettings {
    pub(super) fn new(settings: Vec<Setting>) -> Self {
        Self(settings)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// The settings that `config show` and `--help` list.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Setting> {
        self.iter().filter(|setting| setting.flag.is_listed)
    }

    /// The setting of a flag, unless only the default applies.
    pub(crate) fn get(&self, flag: &Flag) -> Option<&Setting> {
        let setting = self
            .0
            .iter()
            .find(|setting| setting.flag.name == flag.name)?;
        setting.is_set().then_some(setting)
    }

    /// The source of a flag's value.
    pub(crate) fn source(&self, flag: &Flag) -> &SettingSource {
        self.get(flag)
            .map_or(&SettingSource::Default, |setting| &setting.source)
    }

    pub(super) fn text(&self, flag: &Flag) -> Option<String> {
        self.get(flag).map(Setting::text)
    }

    pub(super) fn list(&self, flag: &Flag) -> Vec<String> {
        self.get(flag)
            .map(|setting| setting.values.clone())
            .unwrap_or_default()
    }
}
