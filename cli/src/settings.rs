//! The settings in force: flag, variable, local file, file of the agent, global file, default, in this order.

mod dotenv;
pub(crate) mod duration;
mod sources;

use std::time::Duration;

use attache::model::{Binding, Object, Secret};

use crate::args::CommonFlags;
use crate::error::{CliError, CliResult};
use crate::redactor::Redactor;
pub(crate) use sources::{Setting, SettingSource, SettingSources};

/// How often to look, unless said otherwise.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OutputFormat {
    #[default]
    Text,
    Json,
}

/// All that flags, variables and files say to the verbs that talk to agents.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// Each of them with where it comes from.
    pub(crate) all: Vec<Setting>,
    pub(crate) agent: Option<String>,
    pub(crate) format: OutputFormat,
    pub(crate) stream: bool,
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
    /// Whether credentials go along for the card as well.
    pub(crate) card_auth: bool,
    /// Where `@name` is an entry.
    pub(crate) catalog: Option<String>,
    pub(crate) no_cache: bool,
    /// The keys that cards may be signed with: a file, or a url.
    pub(crate) jwks: Option<String>,
    pub(crate) require_signature: bool,
    pub(crate) ca: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    /// The file named by `--config`, for the commands we print.
    pub(crate) config: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// `a2a-cli` in the user's configuration directory.
    pub(crate) config_dir: Option<std::path::PathBuf>,
    /// The same among what may be deleted at any time.
    pub(crate) cache_dir: Option<std::path::PathBuf>,
    /// The credentials among all this, and those that come up later.
    pub(crate) redactor: Redactor,
}

impl Settings {
    pub(crate) fn new(common: &CommonFlags, sources: &SettingSources) -> CliResult<Self> {
        let all = sources.resolve(common);
        let find = |name: &str| {
            all.iter()
                .find(|setting| setting.name == name)
                .filter(|it| it.is_set())
        };
        let text = |name: &str| find(name).map(Setting::text);
        let list = |name: &str| {
            find(name)
                .map(|setting| setting.values.clone())
                .unwrap_or_default()
        };
        let flag = |name: &str| find(name).map_or(Ok(false), boolean);
        let duration = |name: &str| find(name).map(read_duration).transpose();
        let mut settings = Self {
            agent: text("agent-card"),
            format: find("output").map_or(Ok(OutputFormat::Text), format)?,
            stream: flag("stream")?,
            detach: flag("async")?,
            wait: flag("wait")?,
            poll_interval: duration("poll-interval")?.map(|it| it.max(MIN_POLL_INTERVAL)),
            timeout: duration("timeout")?,
            task_id: text("task-id"),
            context_id: text("context-id"),
            transports: find("transport").map_or(Ok(Vec::new()), transports)?,
            version: find("a2a-version").map(version).transpose()?,
            bearer: text("bearer").map(Secret::from),
            api_key: text("api-key").map(Secret::from),
            service_params: find("svc-param").map_or(Ok(Vec::new()), service_params)?,
            metadata: find("metadata").map(object).transpose()?,
            insecure: flag("insecure")?,
            verbose: flag("verbose")?,
            debug: flag("debug")?,
            extensions: list("extension"),
            allowed_hosts: list("allow-host"),
            card_auth: flag("card-auth")?,
            catalog: text("catalog"),
            no_cache: flag("no-cache")?,
            jwks: text("jwks"),
            require_signature: flag("require-signature")?,
            ca: text("ca"),
            cert: text("cert"),
            key: text("key"),
            config: common.config.clone(),
            endpoint: common.endpoint.clone(),
            config_dir: sources.config_dir.clone(),
            cache_dir: sources.cache_dir.clone(),
            all: Vec::new(),
            redactor: Redactor::default(),
        };
        settings.resolve_conflicts(common)?;
        settings.redactor = Redactor::from_settings(&settings);
        settings.all = all;
        Ok(settings)
    }

    /// What was typed beats what lay around; two typed wishes that exclude each other are a mistake.
    fn resolve_conflicts(&mut self, common: &CommonFlags) -> CliResult {
        let typed = |value: &Option<String>, on: bool| value.is_some() && on;
        let (detach, wait) = (
            typed(&common.detach, self.detach),
            typed(&common.wait, self.wait),
        );
        if detach && wait {
            return Err(CliError::usage("--async and --wait exclude each other"));
        }
        if detach && self.stream {
            return Err(CliError::usage("--async and --stream exclude each other"));
        }
        self.detach &= detach || !(wait || self.stream);
        Ok(())
    }

    /// Where the value of a setting comes from.
    pub(crate) fn source(&self, name: &str) -> Option<&SettingSource> {
        Some(&self.all.iter().find(|setting| setting.name == name)?.source)
    }

    /// Whether the user trusts this host, whatever leads there.
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        self.allowed_hosts
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// Files with a credential in force that others on this machine can read.
    pub(crate) fn exposed_files(&self) -> Vec<&std::path::Path> {
        let secret = self.all.iter().filter(|setting| setting.secret);
        let mut files: Vec<_> = secret
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

    /// Whether any credential would go along.
    pub(crate) fn has_credential(&self) -> bool {
        self.bearer.is_some()
            || self.api_key.is_some()
            || self
                .service_params
                .iter()
                .any(|(name, _)| crate::redactor::is_credential(name))
    }
}

#[cfg(unix)]
fn is_readable_by_others(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &std::path::Path) -> bool {
    false
}

fn boolean(setting: &Setting) -> CliResult<bool> {
    match setting.text().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" | "" => Ok(false),
        _ => Err(setting.usage_error("must be true or false")),
    }
}

fn format(setting: &Setting) -> CliResult<OutputFormat> {
    match setting.text().as_str() {
        "text" => Ok(OutputFormat::Text),
        "json" => Ok(OutputFormat::Json),
        _ => Err(setting
            .usage_error("must be text or json")
            .hint("for one JSON object per event: -o json --stream")),
    }
}

fn read_duration(setting: &Setting) -> CliResult<Duration> {
    duration::parse(&setting.text())
        .ok_or_else(|| setting.usage_error("must be a duration such as 500ms, 2s or 1m30s"))
}

/// The names that cards use; the URI of a binding that we do not know stays as it is.
fn transports(setting: &Setting) -> CliResult<Vec<String>> {
    let read = |word: &String| {
        let word = word.trim();
        match word.to_ascii_lowercase().as_str() {
            "jsonrpc" | "json-rpc" => Ok(Binding::JsonRpc.as_str().to_owned()),
            "http+json" | "rest" => Ok(Binding::HttpJson.as_str().to_owned()),
            "grpc" => Ok(Binding::Grpc.as_str().to_owned()),
            _ if word.contains("://") || word.starts_with("urn:") => Ok(word.to_owned()),
            _ => {
                Err(setting.usage_error("must be jsonrpc, http+json, grpc or the URI of a binding"))
            }
        }
    };
    setting.values.iter().map(read).collect()
}

fn version(setting: &Setting) -> CliResult<String> {
    let text = setting.text();
    let numbers = text
        .split('.')
        .all(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()));
    match numbers || text == "auto" {
        true => Ok(text),
        false => Err(setting.usage_error("must be a version such as 1.0, or auto")),
    }
}

fn service_params(setting: &Setting) -> CliResult<Vec<(String, Secret)>> {
    let read = |pair: &String| {
        let at = pair.find([':', '=']).filter(|at| *at > 0);
        let at = at.ok_or_else(|| setting.usage_error("must be NAME:VALUE"))?;
        Ok((
            pair[..at].trim().to_owned(),
            Secret::from(pair[at + 1..].trim()),
        ))
    };
    setting.values.iter().map(read).collect()
}

fn object(setting: &Setting) -> CliResult<Object> {
    serde_json::from_str(&setting.text()).map_err(|_| setting.usage_error("must be a JSON object"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(common: CommonFlags, env: &[(&str, &str)]) -> CliResult<Settings> {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::new(
            &common,
            &SettingSources {
                env: env.collect(),
                ..SettingSources::default()
            },
        )
    }

    #[test]
    fn send_002_what_is_typed_beats_what_lies_around() {
        let around = [("A2ACLI_ASYNC", "1"), ("A2ACLI_STREAM", "1")];
        let plain = settings(CommonFlags::default(), &around).unwrap();
        assert!(
            plain.detach && !plain.stream,
            "a variable cannot make it stream"
        );
        let yes = || Some("true".to_owned());
        assert!(
            !settings(
                CommonFlags {
                    wait: yes(),
                    ..CommonFlags::default()
                },
                &around
            )
            .unwrap()
            .detach
        );
        assert!(
            !settings(
                CommonFlags {
                    stream: yes(),
                    ..CommonFlags::default()
                },
                &around
            )
            .unwrap()
            .detach
        );
        let no = CommonFlags {
            detach: Some("false".to_owned()),
            ..CommonFlags::default()
        };
        assert!(!settings(no, &around).unwrap().detach);
        for other in [
            CommonFlags {
                detach: yes(),
                wait: yes(),
                ..CommonFlags::default()
            },
            CommonFlags {
                detach: yes(),
                stream: yes(),
                ..CommonFlags::default()
            },
        ] {
            assert_eq!(settings(other, &[]).unwrap_err().exit, 2);
        }
    }

    #[test]
    fn tx_002_bindings_are_read_in_every_spelling() {
        let all = [(
            "A2ACLI_TRANSPORT",
            "json-rpc,REST, gRPC,https://x.example/binding",
        )];
        let names = settings(CommonFlags::default(), &all).unwrap().transports;
        assert_eq!(
            names,
            ["JSONRPC", "HTTP+JSON", "GRPC", "https://x.example/binding"]
        );
        assert_eq!(
            settings(CommonFlags::default(), &[("A2ACLI_TRANSPORT", "pigeon")])
                .unwrap_err()
                .exit,
            2
        );
    }

    #[test]
    fn auth_001_a_service_parameter_splits_at_the_first_colon_or_equals_sign() {
        let common = CommonFlags {
            svc_param: vec!["X-A: b:c".to_owned(), "y=d:e".to_owned()],
            ..CommonFlags::default()
        };
        let read = settings(common, &[]).unwrap().service_params;
        let read: Vec<_> = read
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose()))
            .collect();
        assert_eq!(read, [("X-A", "b:c"), ("y", "d:e")]);
    }
}
