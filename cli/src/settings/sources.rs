//! Sources of settings: the environment and the dotenv files.
//!
//! Precedence, highest first: flag, variable, local file (`--config`, else the nearest `.env`), file of the agent, global
//! file, default.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::dotenv::{Dotenv, is_own_variable};
use super::flags::{self, FLAGS, Flag};
use super::setting::{ResolvedSettings, Setting, SettingSource};
use crate::args::CommonFlags;
use crate::error::{CliError, CliResult};

/// Sources of settings besides the command line.
#[derive(Debug, Default)]
pub(crate) struct SettingSources {
    /// Variables that begin with `A2ACLI_` or `ATTACHE_`.
    pub(crate) env: BTreeMap<String, String>,
    /// The file of `--config`, else the nearest `.env`.
    pub(super) local: Option<Dotenv>,
    /// Whether `--config` names the local file.
    pub(super) is_local_named: bool,
    pub(super) global: Option<Dotenv>,
    /// `a2a-cli` in the user's configuration directory.
    pub(super) config_dir: Option<PathBuf>,
    /// `a2a-cli` in the user's cache directory.
    pub(super) cache_dir: Option<PathBuf>,
    /// Whether stdout is a terminal: only then do the variables for terminals apply.
    pub(super) is_terminal: bool,
}

impl SettingSources {
    /// Reads the environment and the files of this process; `config` is the value of `--config`.
    pub(crate) fn from_process(config: Option<&str>) -> CliResult<Self> {
        let config_dir =
            user_directory("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("a2a-cli"));
        let cache_dir = user_directory("XDG_CACHE_HOME", ".cache").map(|dir| dir.join("a2a-cli"));
        let local = match config {
            Some(path) => Some(read_named(Path::new(path))?),
            None => nearest_dotenv()?,
        };
        let global = match &config_dir {
            Some(dir) => read(&dir.join(".env"))?,
            None => None,
        };
        Ok(Self {
            env: own_variables(),
            local,
            is_local_named: config.is_some(),
            global,
            config_dir,
            cache_dir,
            is_terminal: std::io::stdout().is_terminal(),
        })
    }

    /// Resolves every flag to its effective value.
    pub(crate) fn resolve(&self, common: &CommonFlags) -> ResolvedSettings {
        let agent = self.find(&flags::AGENT_CARD, common, None);
        let agent_file = agent
            .values
            .first()
            .and_then(|reference| self.agent_file(reference));
        let settings = FLAGS
            .iter()
            .map(|flag| self.find(flag, common, agent_file.as_ref()));
        ResolvedSettings::new(settings.collect())
    }

    fn find(
        &self,
        flag: &'static Flag,
        common: &CommonFlags,
        agent_file: Option<&Dotenv>,
    ) -> Setting {
        let setting = |values, source| Setting {
            flag,
            values,
            source,
        };
        let typed = common.values(flag);
        if !typed.is_empty() {
            return setting(typed.to_vec(), SettingSource::Flag);
        }
        let variables = self.variables(flag);
        for variable in &variables {
            if let Some(value) = self.env.get(variable) {
                return setting(flag.split(value), SettingSource::Env(variable.clone()));
            }
        }
        match self.find_in_files(&variables, agent_file) {
            Some((value, source)) => setting(flag.split(&value), source),
            None => setting(Vec::new(), SettingSource::Default),
        }
    }

    /// The variables that may set the flag, highest precedence first.
    fn variables(&self, flag: &Flag) -> Vec<String> {
        let for_terminal = flag.terminal_variable.filter(|_| self.is_terminal);
        let for_terminal = for_terminal.map(str::to_owned);
        for_terminal.into_iter().chain(flag.variable()).collect()
    }

    /// Looks variables up in the local file, the file of the agent and the global file, in this order.
    fn find_in_files(
        &self,
        variables: &[String],
        agent_file: Option<&Dotenv>,
    ) -> Option<(String, SettingSource)> {
        let files = [self.local.as_ref(), agent_file, self.global.as_ref()];
        files.into_iter().flatten().find_map(|file| {
            let found = variables
                .iter()
                .find_map(|variable| Some((variable, file.get(variable)?)));
            let (variable, (value, line)) = found?;
            let is_local = self
                .local
                .as_ref()
                .is_some_and(|local| local.path == file.path);
            let source = SettingSource::File {
                path: file.path.clone(),
                line,
                variable: variable.clone(),
                is_discovered: is_local && !self.is_local_named,
            };
            Some((value.to_owned(), source))
        })
    }

    /// The settings file of one agent: `agents/<host>.env` in the configuration directory.
    fn agent_file(&self, reference: &str) -> Option<Dotenv> {
        let rest = reference
            .split_once("://")
            .map_or(reference, |(_, rest)| rest);
        let host = rest
            .split(['/', '?', '#'])
            .next()
            .filter(|host| !host.is_empty() && !host.starts_with('.'))?;
        let name = format!("{}.env", host.replace(':', "_"));
        let path = self.config_dir.as_ref()?.join("agents").join(name);
        read(&path).ok()?
    }
}

/// The variables of this process that are ours. Values that are not UTF-8 are converted lossily.
fn own_variables() -> BTreeMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        is_own_variable(&name).then(|| (name, value.to_string_lossy().into_owned()))
    });
    variables.collect()
}

fn read_named(path: &Path) -> CliResult<Dotenv> {
    read(path)?.ok_or_else(|| {
        CliError::usage(format!(
            "--config {}: there is no such file",
            path.display()
        ))
    })
}

/// Reads a file; `None` if it does not exist.
fn read(path: &Path) -> CliResult<Option<Dotenv>> {
    Dotenv::read(path)
        .transpose()
        .map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))
}

/// Finds the nearest `.env`, from the working directory upwards.
fn nearest_dotenv() -> CliResult<Option<Dotenv>> {
    let Ok(working_dir) = std::env::current_dir() else {
        return Ok(None);
    };
    let mut candidates = working_dir.ancestors().map(|dir| dir.join(".env"));
    match candidates.find(|path| path.is_file()) {
        Some(path) => read(&path),
        None => Ok(None),
    }
}

/// A directory of the user: the one of the variable if it is absolute, else `default` in the home directory.
fn user_directory(variable: &str, default: &str) -> Option<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from(variable)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(from("HOME")?.join(default)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{OutputFormat, Settings};

    /// The format for these variables, on a terminal or not.
    fn format(is_terminal: bool, env: &[(&str, &str)], global: &str) -> CliResult<OutputFormat> {
        let sources = SettingSources {
            env: env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            global: Some(Dotenv::parse(Path::new("global"), global)),
            is_terminal,
            ..SettingSources::default()
        };
        Settings::new(&CommonFlags::default(), &sources).map(|settings| settings.format)
    }

    #[test]
    fn a_default_for_people_applies_only_on_a_terminal() {
        let pretty = "ATTACHE_OUTPUT=pretty\n";
        assert_eq!(format(true, &[], pretty).unwrap(), OutputFormat::Pretty);
        assert_eq!(format(false, &[], pretty).unwrap(), OutputFormat::Text);
        let json = [("A2ACLI_OUTPUT", "json")];
        assert_eq!(
            format(true, &json, pretty).unwrap(),
            OutputFormat::Json,
            "the environment precedes files"
        );
        let both = [("A2ACLI_OUTPUT", "json"), ("ATTACHE_OUTPUT", "plain")];
        assert_eq!(format(true, &both, "").unwrap(), OutputFormat::Plain);
        assert_eq!(format(false, &both, "").unwrap(), OutputFormat::Json);
    }

    #[test]
    fn the_variable_of_the_contract_names_only_formats_of_the_contract() {
        let error = format(true, &[("A2ACLI_OUTPUT", "pretty")], "").unwrap_err();
        assert_eq!(error.exit, 2);
        assert!(error.hint.unwrap().contains("ATTACHE_OUTPUT=pretty"));
        let error = format(true, &[("ATTACHE_OUTPUT", "yaml")], "").unwrap_err();
        assert!(error.message.contains("ATTACHE_OUTPUT `yaml`"), "{error:?}");
    }
}
