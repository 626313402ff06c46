//! Where settings come from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::dotenv::Dotenv;
use crate::args::Common;
use crate::failure::{Failure, Outcome};

/// What can be set, in the order it is shown.
const SPECS: &[Spec] = &[
    Spec::of("agent-card"),
    Spec {
        default: Some("text"),
        ..Spec::of("output")
    },
    Spec {
        variable: None,
        default: Some("false"),
        ..Spec::of("stream")
    },
    Spec {
        default: Some("false"),
        ..Spec::of("async")
    },
    Spec {
        default: Some("true for send, false for task get"),
        ..Spec::of("wait")
    },
    Spec {
        default: Some("2s"),
        ..Spec::of("poll-interval")
    },
    Spec {
        default: Some("none"),
        ..Spec::of("timeout")
    },
    Spec::of("task-id"),
    Spec::of("context-id"),
    Spec {
        many: Some(','),
        default: Some("the order of the card"),
        ..Spec::of("transport")
    },
    Spec {
        default: Some("the highest both speak, from 1.0 up"),
        ..Spec::of("a2a-version")
    },
    Spec {
        secret: true,
        ..Spec::of("bearer")
    },
    Spec {
        secret: true,
        ..Spec::of("api-key")
    },
    Spec {
        secret: true,
        many: Some('\n'),
        ..Spec::of("svc-param")
    },
    Spec::of("metadata"),
    Spec {
        default: Some("false"),
        ..Spec::of("insecure")
    },
    Spec {
        default: Some("false"),
        ..Spec::of("verbose")
    },
    Spec {
        default: Some("false"),
        ..Spec::of("debug")
    },
    Spec {
        variable: Some("ATTACHE_"),
        many: Some(','),
        ..Spec::of("extension")
    },
    Spec {
        variable: Some("ATTACHE_"),
        many: Some(','),
        ..Spec::of("allow-host")
    },
    Spec {
        variable: Some("ATTACHE_"),
        default: Some("false"),
        ..Spec::of("card-auth")
    },
    Spec {
        variable: Some("ATTACHE_"),
        ..Spec::of("catalog")
    },
    Spec {
        variable: Some("ATTACHE_"),
        default: Some("false"),
        ..Spec::of("no-cache")
    },
    Spec {
        variable: Some("ATTACHE_"),
        ..Spec::of("jwks")
    },
    Spec {
        variable: Some("ATTACHE_"),
        default: Some("false"),
        ..Spec::of("require-signature")
    },
    Spec {
        variable: Some("ATTACHE_"),
        ..Spec::of("ca")
    },
    Spec {
        variable: Some("ATTACHE_"),
        ..Spec::of("cert")
    },
    Spec {
        variable: Some("ATTACHE_"),
        ..Spec::of("key")
    },
];

struct Spec {
    name: &'static str,
    /// How its variable begins; some are never taken from the surroundings.
    variable: Option<&'static str>,
    /// What parts several values in a variable.
    many: Option<char>,
    secret: bool,
    default: Option<&'static str>,
}

impl Spec {
    const fn of(name: &'static str) -> Self {
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
    pub(crate) source: Source,
    pub(crate) default: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
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
        self.source != Source::Default
    }

    pub(crate) fn text(&self) -> String {
        self.values.join(",")
    }

    /// What may be shown of it.
    pub(crate) fn shown(&self) -> Option<String> {
        match self.is_set() {
            true if self.secret => Some("***".to_owned()),
            true => Some(self.text()),
            false => self.default.map(str::to_owned),
        }
    }

    pub(crate) fn refuse(&self, rule: &str) -> Failure {
        let what = if self.secret {
            String::new()
        } else {
            format!(" `{}`", self.text())
        };
        Failure::usage(format!(
            "{}{what} {rule}",
            self.origin().unwrap_or_else(|| self.name.to_owned())
        ))
    }

    /// The flag, the variable, or the file and line it comes from.
    pub(crate) fn origin(&self) -> Option<String> {
        match &self.source {
            Source::Flag => Some(format!("--{}", self.name)),
            Source::Env(variable) => Some(variable.clone()),
            Source::File { path, line, .. } => Some(format!("{}:{line}", path.display())),
            Source::Default => None,
        }
    }
}

impl fmt::Display for Source {
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
pub(crate) struct Sources {
    pub(crate) env: BTreeMap<String, String>,
    /// The file that was named, or the nearest `.env`.
    pub(super) local: Option<Dotenv>,
    pub(super) named: bool,
    pub(super) global: Option<Dotenv>,
    /// `a2a-cli` in the user's configuration directory.
    pub(super) folder: Option<PathBuf>,
    /// The same among what may be deleted at any time.
    pub(super) cache: Option<PathBuf>,
}

impl Sources {
    /// Reads the variables and files of this process.
    pub(crate) fn of_process(config: Option<&str>) -> Outcome<Self> {
        let ours = |name: &str| name.starts_with("A2ACLI_") || name.starts_with("ATTACHE_");
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let env = env.filter(|(name, _)| ours(name));
        let env = env
            .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
            .collect();
        let folder = directory("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("a2a-cli"));
        let cache = directory("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("a2a-cli"));
        let local = match config {
            Some(path) => Some(named(Path::new(path))?),
            None => nearest()?,
        };
        let global = folder
            .as_ref()
            .map(|folder| read(&folder.join(".env")))
            .transpose()?
            .flatten();
        Ok(Self {
            env,
            local,
            named: config.is_some(),
            global,
            folder,
            cache,
        })
    }

    /// Every setting, with its value and where that comes from.
    pub(crate) fn resolve(&self, common: &Common) -> Vec<Setting> {
        let agent = self.find(&SPECS[0], common, None);
        let of_agent = agent
            .values
            .first()
            .and_then(|reference| self.file_of(reference));
        SPECS
            .iter()
            .map(|spec| self.find(spec, common, of_agent.as_ref()))
            .collect()
    }

    fn find(&self, spec: &Spec, common: &Common, of_agent: Option<&Dotenv>) -> Setting {
        let setting = |values, source| Setting {
            name: spec.name,
            values,
            secret: spec.secret,
            source,
            default: spec.default,
        };
        let typed = common.given(spec.name);
        if !typed.is_empty() {
            return setting(typed, Source::Flag);
        }
        let Some(variable) = spec.variable() else {
            return setting(Vec::new(), Source::Default);
        };
        if let Some(value) = self.env.get(&variable) {
            return setting(spec.split(value), Source::Env(variable));
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
                    Source::File {
                        path: file.path.clone(),
                        line,
                        found,
                    },
                );
            }
        }
        setting(Vec::new(), Source::Default)
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
                .folder
                .as_ref()?
                .join("agents")
                .join(format!("{}.env", host.replace(':', "_"))),
        )
        .ok()?
    }
}

fn named(path: &Path) -> Outcome<Dotenv> {
    read(path)?.ok_or_else(|| {
        Failure::usage(format!(
            "--config {}: there is no such file",
            path.display()
        ))
    })
}

fn read(path: &Path) -> Outcome<Option<Dotenv>> {
    let cannot = |error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    Dotenv::read(path).transpose().map_err(cannot)
}

/// The nearest `.env`, from the working directory up.
fn nearest() -> Outcome<Option<Dotenv>> {
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
