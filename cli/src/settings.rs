//! Effective settings of the client verbs: flag, variable, local file, file of the agent, global file, default.

mod dotenv;
pub(crate) mod duration;
pub(crate) mod flags;
mod setting;
mod sources;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use attache::FileEncoding;
use attache::model::{Object, Secret};

use crate::args::CommonFlags;
use crate::error::{CliError, CliResult};
use crate::redactor::Redactor;
pub(crate) use setting::{ResolvedSettings, Setting, SettingSource};
pub(crate) use sources::SettingSources;
pub(crate) use value::parse_bool;

/// Default time between polls.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OutputFormat {
    #[default]
    Text,
    Json,
    /// The text of the answer on stdout, ids and state on stderr.
    Plain,
    /// For people: flowing text, styles and a status line.
    Pretty,
}

impl OutputFormat {
    /// The format with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            "plain" => Some(Self::Plain),
            "pretty" => Some(Self::Pretty),
            _ => None,
        }
    }

    /// Whether the CLI contract defines the format, so that `A2ACLI_OUTPUT` may name it.
    pub(crate) fn is_of_contract(self) -> bool {
        match self {
            Self::Text | Self::Json => true,
            Self::Plain | Self::Pretty => false,
        }
    }
}

/// Effective settings of a client verb, parsed.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// All flags with their sources.
    pub(crate) resolved: ResolvedSettings,
    pub(crate) agent: Option<String>,
    pub(crate) format: OutputFormat,
    pub(crate) stream: bool,
    /// `--async`.
    pub(crate) detach: bool,
    pub(crate) wait: bool,
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) task_id: Option<String>,
    pub(crate) context_id: Option<String>,
    pub(crate) transports: Vec<String>,
    pub(crate) version: Option<String>,
    pub(crate) bearer: Option<Secret>,
    pub(crate) api_key: Option<Secret>,
    pub(crate) service_params: Vec<(String, Secret)>,
    pub(crate) metadata: Option<Object>,
    pub(crate) insecure: bool,
    pub(crate) verbose: bool,
    pub(crate) debug: bool,
    pub(crate) extensions: Vec<String>,
    pub(crate) allowed_hosts: Vec<String>,
    /// Content of files over the protobuf forms of 0.3.
    pub(crate) v03_files: FileEncoding,
    /// Whether the card request carries credentials.
    pub(crate) card_auth: bool,
    /// The catalog that `@name` refers to.
    pub(crate) catalog: Option<String>,
    pub(crate) no_cache: bool,
    /// Key set for card signatures: a file or a URL.
    pub(crate) jwks: Option<String>,
    pub(crate) require_signature: bool,
    pub(crate) ca: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// `a2a-cli` in the user's configuration directory.
    pub(crate) config_dir: Option<PathBuf>,
    /// `a2a-cli` in the user's cache directory.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Redacts the credentials of these settings, and those added later.
    pub(crate) redactor: Redactor,
}

impl Settings {
    /// Resolves the settings of a verb from its flags and from this process.
    pub(crate) fn load(common: &CommonFlags) -> CliResult<Self> {
        let sources = SettingSources::from_process(common.value(&flags::CONFIG))?;
        Self::new(common, &sources)
    }

    /// Resolves and parses all settings.
    pub(crate) fn new(common: &CommonFlags, sources: &SettingSources) -> CliResult<Self> {
        let resolved = sources.resolve(common);
        let switch = |flag| resolved.get(flag).map_or(Ok(false), parse_bool);
        let duration = |flag| resolved.get(flag).map(value::parse_duration).transpose();
        let mut settings = Self {
            agent: resolved.text(&flags::AGENT_CARD),
            format: resolved
                .get(&flags::OUTPUT)
                .map_or(Ok(OutputFormat::Text), value::parse_format)?,
            stream: switch(&flags::STREAM)?,
            detach: switch(&flags::ASYNC)?,
            wait: switch(&flags::WAIT)?,
            poll_interval: duration(&flags::POLL_INTERVAL)?
                .map(|interval| interval.max(MIN_POLL_INTERVAL)),
            timeout: duration(&flags::TIMEOUT)?,
            task_id: resolved.text(&flags::TASK_ID),
            context_id: resolved.text(&flags::CONTEXT_ID),
            transports: resolved
                .get(&flags::TRANSPORT)
                .map_or(Ok(Vec::new()), value::parse_transports)?,
            version: resolved
                .get(&flags::A2A_VERSION)
                .map(value::parse_version)
                .transpose()?,
            bearer: resolved.text(&flags::BEARER).map(Secret::from),
            api_key: resolved.text(&flags::API_KEY).map(Secret::from),
            service_params: resolved
                .get(&flags::SVC_PARAM)
                .map_or(Ok(Vec::new()), value::parse_service_params)?,
            metadata: resolved
                .get(&flags::METADATA)
                .map(value::parse_metadata)
                .transpose()?,
            insecure: switch(&flags::INSECURE)?,
            verbose: switch(&flags::VERBOSE)?,
            debug: switch(&flags::DEBUG)?,
            extensions: resolved.list(&flags::EXTENSION),
            v03_files: resolved
                .get(&flags::V03_FILES)
                .map_or(Ok(FileEncoding::Auto), value::parse_file_encoding)?,
            allowed_hosts: resolved.list(&flags::ALLOW_HOST),
            card_auth: switch(&flags::CARD_AUTH)?,
            catalog: resolved.text(&flags::CATALOG),
            no_cache: switch(&flags::NO_CACHE)?,
            jwks: resolved.text(&flags::JWKS),
            require_signature: switch(&flags::REQUIRE_SIGNATURE)?,
            ca: resolved.text(&flags::CA),
            cert: resolved.text(&flags::CERT),
            key: resolved.text(&flags::KEY),
            endpoint: resolved.text(&flags::ENDPOINT),
            config_dir: sources.config_dir.clone(),
            cache_dir: sources.cache_dir.clone(),
            resolved: ResolvedSettings::default(),
            redactor: Redactor::default(),
        };
        settings.resolve_conflicts(common)?;
        settings.redactor = Redactor::from_settings(&settings);
        settings.resolved = resolved;
        Ok(settings)
    }

    /// Makes typed flags override `A2ACLI_ASYNC`, and refuses typed flags that exclude each other.
    fn resolve_conflicts(&mut self, common: &CommonFlags) -> CliResult {
        let is_async_typed = self.detach && common.has(&flags::ASYNC);
        let is_wait_typed = self.wait && common.has(&flags::WAIT);
        if is_async_typed && is_wait_typed {
            return Err(CliError::usage("--async and --wait exclude each other"));
        }
        if is_async_typed && self.stream {
            return Err(CliError::usage("--async and --stream exclude each other"));
        }
        self.detach &= is_async_typed || !(is_wait_typed || self.stream);
        Ok(())
    }

    /// Whether `--allow-host` names this host.
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        self.allowed_hosts
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// Files that contain an effective credential and that other users can read.
    pub(crate) fn exposed_files(&self) -> Vec<&Path> {
        let secrets = self
            .resolved
            .iter()
            .filter(|setting| setting.flag.is_secret);
        let mut files: Vec<_> = secrets
            .filter_map(|setting| match &setting.source {
                SettingSource::File { path, .. } if is_readable_by_others(path) => {
                    Some(path.as_path())
                }
                _ => None,
            })
            .collect();
        files.dedup();
        files
    }

    /// Whether the settings contain any credential.
    pub(crate) fn has_credential(&self) -> bool {
        let has_secret_param = || {
            self.service_params
                .iter()
                .any(|(name, _)| crate::redactor::is_credential(name))
        };
        self.bearer.is_some() || self.api_key.is_some() || has_secret_param()
    }
}

#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(common: &CommonFlags, env: &[(&str, &str)]) -> CliResult<Settings> {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let sources = SettingSources {
            env: env.collect(),
            ..SettingSources::default()
        };
        Settings::new(common, &sources)
    }

    fn typed(flags: &[&'static flags::Flag]) -> CommonFlags {
        let common = CommonFlags::default();
        flags
            .iter()
            .fold(common, |common, flag| common.with(flag, "true"))
    }

    #[test]
    fn send_002_typed_flags_override_the_environment() {
        let env = [("A2ACLI_ASYNC", "1"), ("A2ACLI_STREAM", "1")];
        let plain = settings(&CommonFlags::default(), &env).unwrap();
        assert!(plain.detach, "a variable sets --async");
        assert!(!plain.stream, "a variable does not set --stream");
        for flag in [&flags::WAIT, &flags::STREAM] {
            let settings = settings(&typed(&[flag]), &env).unwrap();
            assert!(!settings.detach, "{}", flag.name);
        }
        let no_async = CommonFlags::default().with(&flags::ASYNC, "false");
        assert!(!settings(&no_async, &env).unwrap().detach);
        for other in [&flags::WAIT, &flags::STREAM] {
            let error = settings(&typed(&[&flags::ASYNC, other]), &[]).unwrap_err();
            assert_eq!(error.exit, 2, "{}", other.name);
        }
    }

    #[test]
    fn tx_002_bindings_are_read_in_every_spelling() {
        let env = [(
            "A2ACLI_TRANSPORT",
            "json-rpc,REST, gRPC,https://x.example/binding",
        )];
        let names = settings(&CommonFlags::default(), &env).unwrap().transports;
        assert_eq!(
            names,
            ["JSONRPC", "HTTP+JSON", "GRPC", "https://x.example/binding"]
        );
        let unknown = settings(&CommonFlags::default(), &[("A2ACLI_TRANSPORT", "pigeon")]);
        assert_eq!(unknown.unwrap_err().exit, 2);
    }

    #[test]
    fn auth_001_a_service_parameter_splits_at_the_first_colon_or_equals_sign() {
        let common = CommonFlags::default()
            .with(&flags::SVC_PARAM, "X-A: b:c")
            .with(&flags::SVC_PARAM, "y=d:e");
        let params = settings(&common, &[]).unwrap().service_params;
        let params: Vec<_> = params
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose()))
            .collect();
        assert_eq!(params, [("X-A", "b:c"), ("y", "d:e")]);
    }
}
