//! Where settings come from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::dotenv::Dotenv;
use crate::args::CommonFlags;
use crate::error::{CliError, CliResult};

/// What can be set, in the order it is shown.
const FLAGS: &[FlagSpec] = &[
    FlagSpec::new("agent-card"),
    FlagSpec {
        default: Some("text"),
        ..FlagSpec::new("output")
    },
    FlagSpec {
        variable: None,
        default: Some("false"),
        ..FlagSpec::new("stream")
    },
    FlagSpec {
        default: Some("false"),
        ..FlagSpec::new("async")
    },
    FlagSpec {
        default: Some("true for send, false for task get"),
        ..FlagSpec::new("wait")
    },
    FlagSpec {
        default: Some("2s"),
        ..FlagSpec::new("poll-interval")
    },
    FlagSpec {
        default: Some("none"),
        ..FlagSpec::new("timeout")
    },
    FlagSpec::new("task-id"),
    FlagSpec::new("context-id"),
    FlagSpec {
        many: Some(','),
        default: Some("the order of the card"),
        ..FlagSpec::new("transport")
    },
    FlagSpec {
        default: Some("the highest both speak, from 1.0 up"),
        ..FlagSpec::new("a2a-version")
    },
    FlagSpec {
        secret: true,
        ..FlagSpec::new("bearer")
    },
    FlagSpec {
        secret: true,
        ..FlagSpec::new("api-key")
    },
    FlagSpec {
        secret: true,
        many: Some('\n'),
        ..FlagSpec::new("svc-param")
    },
    FlagSpec::new("metadata"),
    FlagSpec {
        default: Some("false"),
        ..FlagSpec::new("insecure")
    },
    FlagSpec {
        default: Some("false"),
        ..FlagSpec::new("verbose")
    },
    FlagSpec {
        default: Some("false"),
        ..FlagSpec::new("debug")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        many: Some(','),
        ..FlagSpec::new("extension")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        many: Some(','),
        ..FlagSpec::new("allow-host")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        default: Some("false"),
        ..FlagSpec::new("card-auth")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        ..FlagSpec::new("catalog")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        default: Some("false"),
        ..FlagSpec::new("no-cache")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        ..FlagSpec::new("jwks")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        default: Some("false"),
        ..FlagSpec::new("require-signature")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        ..FlagSpec::new("ca")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        ..FlagSpec::new("cert")
    },
    FlagSpec {
        variable: Some("ATTACHE_"),
        ..FlagSpec::new("key")
    },
];

struct FlagSpec {
    name: &'static str,
    /// How its variable begins; some are never taken from the surroundings.
    variable: Option<&'static str>,
    /// What parts several values in a variable.
    many: Option<char>,
    secret: bool,
    default: Option<&'static str>,
}

impl FlagSpec {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            variable: Some("A2ACLI_"),
            many: None,
            secret: false,
            default: None,
        }
    }

    fn variable(&self) -> Option<String> {
        Some(format!(
            "{}{}",
            self.variable?,
            self.name.to_ascii_uppercase().replace('-', "_")
        ))
    }

    fn split(&self, value: &str) -> Vec<String> {
        match self.many {
            None => vec![value.to_owned()],
            Some(by) => value
                .split(by)
                .map(|it| it.trim().to_owned())
                .filter(|it| !it.is_empty())
                .collect(),
        }
    }
}

/// A setting in force.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<String>,
    pub(crate) secret: bool,
    pub(crate) source: SettingSource,
    pub(crate) default: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingSource {
    Flag,
    Env(String),
    /// `found` is a file that nobody named: it only lay in a folder above.
    File {
        path: PathBuf,
        line: usize,
        found: bool,
    },
    Default,
}

impl Setting {
    pub(crate) fn is_set(&self) -> bool {
        self.source != SettingSource::Default
    }

    pub(crate) fn text(&self) -> String {
        self.values.join(",")
    }

    /// What may be shown of it.
    pub(crate) fn display_value(&self) -> Option<String> {
        match self.is_set() {
            true if self.secret => Some("***".to_owned()),
            true => Some(self.text()),
            false => self.default.map(str::to_owned),
        }
    }

    pub(crate) fn usage_error(&self, rule: &str) -> CliError {
        let what = if self.secret {
            String::new()
        } else {
            format!(" `{}`", self.text())
        };
        CliError::usage(format!(
            "{}{what} {rule}",
            self.origin().unwrap_or_else(|| self.name.to_owned())
        ))
    }

    /// The flag, the variable, or the file and line it comes from.
    pub(crate) fn origin(&self) -> Option<String> {
        match &self.source {
            SettingSource::Flag => Some(format!("--{}", self.name)),
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

/// Everything around the command line that can hold a setting.
#[derive(Debug, Default)]
pub(crate) struct SettingSources {
    pub(crate) env: BTreeMap<String, String>,
    /// The file that was named, or the nearest `.env`.
    pub(super) local: Option<Dotenv>,
    pub(super) named: bool,
    pub(super) global: Option<Dotenv>,
    /// `a2a-cli` in the user's configuration directory.
    pub(super) config_dir: Option<PathBuf>,
    /// The same among what may be deleted at any time.
    pub(super) cache_dir: Option<PathBuf>,
}

impl SettingSources {
    /// Reads the variables and files of this process.
    pub(crate) fn from_process(config: Option<&str>) -> CliResult<Self> {
        let ours = |name: &str| name.starts_with("A2ACLI_") || name.starts_with("ATTACHE_");
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let env = env.filter(|(name, _)| ours(name));
        let env = env
            .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
            .collect();
        let config_dir =
            directory("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("a2a-cli"));
        let cache_dir = directory("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("a2a-cli"));
        let local = match config {
            Some(path) => Some(named(Path::new(path))?),
            None => nearest()?,
        };
        let global = config_dir
            .as_ref()
            .map(|folder| read(&folder.join(".env")))
            .transpose()?
            .flatten();
        Ok(Self {
            env,
            local,
            named: config.is_some(),
            global,
            config_dir,
            cache_dir,
        })
    }

    /// Every setting, with its value and where that comes from.
    pub(crate) fn resolve(&self, common: &CommonFlags) -> Vec<Setting> {
        let agent = self.find(&FLAGS[0], common, None);
        let of_agent = agent
            .values
            .first()
            .and_then(|reference| self.file_of(reference));
        FLAGS
            .iter()
            .map(|spec| self.find(spec, common, of_agent.as_ref()))
            .collect()
    }

    fn find(&self, spec: &FlagSpec, common: &CommonFlags, of_agent: Option<&Dotenv>) -> Setting {
        let setting = |values, source| Setting {
            name: spec.name,
            values,
            secret: spec.secret,
            source,
            default: spec.default,
        };
        let typed = common.given(spec.name);
        if !typed.is_empty() {
            return setting(typed, SettingSource::Flag);
        }
        let Some(variable) = spec.variable() else {
            return setting(Vec::new(), SettingSource::Default);
        };
        if let Some(value) = self.env.get(&variable) {
            return setting(spec.split(value), SettingSource::Env(variable));
        }
        let files = [
            (self.local.as_ref(), !self.named),
            (of_agent, false),
            (self.global.as_ref(), false),
        ];
        for (file, found) in files
            .into_iter()
            .filter_map(|(file, found)| Some((file?, found)))
        {
            if let Some((value, line)) = file.get(&variable) {
                return setting(
                    spec.split(value),
                    SettingSource::File {
                        path: file.path.clone(),
                        line,
                        found,
                    },
                );
            }
        }
        setting(Vec::new(), SettingSource::Default)
    }

    /// Settings for one agent alone, by its host.
    fn file_of(&self, reference: &str) -> Option<Dotenv> {
        let rest = reference
            .split_once("://")
            .map_or(reference, |(_, rest)| rest);
        let host = rest
            .split(['/', '?', '#'])
            .next()
            .filter(|host| !host.is_empty() && !host.starts_with('.'))?;
        read(
            &self
                .config_dir
                .as_ref()?
                .join("agents")
                .join(format!("{}.env", host.replace(':', "_"))),
        )
        .ok()?
    }
}

fn named(path: &Path) -> CliResult<Dotenv> {
    read(path)?.ok_or_else(|| {
        CliError::usage(format!(
            "--config {}: there is no such file",
            path.display()
        ))
    })
}

fn read(path: &Path) -> CliResult<Option<Dotenv>> {
    let cannot = |error| CliError::usage(format!("cannot read {}: {error}", path.display()));
    Dotenv::read(path).transpose().map_err(cannot)
}

/// The nearest `.env`, from the working directory up.
fn nearest() -> CliResult<Option<Dotenv>> {
    let Ok(here) = std::env::current_dir() else {
        return Ok(None);
    };
    for folder in here.ancestors() {
        let path = folder.join(".env");
        if path.is_file() {
            return read(&path);
        }
    }
    Ok(None)
}

/// A directory of the user: the one that is set, or the usual one.
fn directory(variable: &str, usual: &str) -> Option<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|it| !it.is_empty())
            .map(PathBuf::from)
    };
    from(variable)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(from("HOME")?.join(usual)))
}
