//! `[[hooks]]`: server hooks, in the order in which they run.

mod kind;

use std::collections::BTreeMap;
#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use attache::model::units::{HumanDuration, OptionalByteSize};
use attache::model::{Operation, Secret, Version};
use attache::wire::method::method_name;
use attache::{FailurePolicy, Hook, HookPhase};
#[cfg(unix)]
use attache_agents::CommandSpec;
use attache_agents::{DenialKind, Supervisor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::error::{KeyError, unknown_name};
use super::print::REDACTED;
#[cfg(unix)]
use super::programs::{ProgramSpec, command_program};
use kind::HookKind;

/// Server hooks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HooksSection {
    /// Server hooks, in the order in which they run before a call. After a call they run in reverse order.
    pub(crate) hooks: Vec<HookSection>,
}

/// A server hook.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookSection {
    /// Name in logs and metrics, unique among the hooks.
    name: String,
    /// Type of the hook.
    #[serde(rename = "type")]
    kind: HookKind,
    /// Phases: `call`, `response`, `event`. Default: all that the type has. `mask` has `call` and `event`, `deny` has
    /// `call`, `http` and `command` have all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    on: Vec<HookPhase>,
    /// A2A 1.0 names of the methods whose calls and responses the hook intercepts. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    methods: Vec<String>,
    /// Names of the agents that the hook is for. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    agents: Vec<String>,
    /// Time that the hook has for one call, response or event.
    #[serde(default = "default_timeout", with = "HumanDuration")]
    timeout: Duration,
    /// Decision in place of a hook that fails or exceeds its timeout.
    #[serde(default)]
    on_failure: FailurePolicy,
    /// Regular expressions: text that is masked, or that refuses a message (`mask`, `deny`; required).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patterns: Option<Vec<String>>,
    /// Text in place of a match (`mask`). Default: `***`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replacement: Option<String>,
    /// Longest match that is found across the chunks of an artifact (`mask`). A longer start of a match is a failure. Default: 1KiB.
    #[serde(
        default,
        with = "OptionalByteSize",
        skip_serializing_if = "Option::is_none"
    )]
    max_match_bytes: Option<usize>,
    /// Message for the caller of a refused message (`deny`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Error of a refused message (`deny`). Default: `permission_denied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<DenialKind>,
    /// URL that documents are posted to (`http`; required).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Additional request headers, for example credentials (`http`).
    #[serde(
        default,
        serialize_with = "redact",
        skip_serializing_if = "Option::is_none"
    )]
    headers: Option<BTreeMap<String, Secret>>,
    /// Maximum number of concurrent requests (`http`). One caller may have half of them; further ones wait. Default: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_requests: Option<usize>,
    /// Program and arguments: a list of words, or a line that is split into words like in a shell, without expansion
    /// (`command`; required).
    #[cfg(unix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<CommandSpec>,
    /// Whether the line is run by `sh -c` (`command`).
    #[cfg(unix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shell: Option<bool>,
    /// Working directory (`command`).
    #[cfg(unix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
    /// Variables of the server's environment that the program receives, in addition to `PATH`, `HOME` and similar ones
    /// (`command`).
    #[cfg(unix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pass_env: Option<Vec<String>>,
    /// Additional environment variables (`command`).
    #[cfg(unix)]
    #[serde(
        default,
        serialize_with = "redact",
        skip_serializing_if = "Option::is_none"
    )]
    env: Option<BTreeMap<String, Secret>>,
    /// Maximum number of concurrent processes (`command`). One caller may have half of them; further ones wait. Default: 16.
    #[cfg(unix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_processes: Option<usize>,
    /// Maximum size of a reply (`http`, `command`). A larger one is a failure. Default: 10MiB.
    #[serde(
        default,
        with = "OptionalByteSize",
        skip_serializing_if = "Option::is_none"
    )]
    max_reply: Option<usize>,
}

fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

/// Serializes the names of secrets, with redacted values.
fn redact<S: Serializer>(
    secrets: &Option<BTreeMap<String, Secret>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let names = secrets.iter().flat_map(BTreeMap::keys);
    serializer.collect_map(names.map(|name| (name, REDACTED)))
}

impl HooksSection {
    /// Builds the hooks. The supervisor is for their processes.
    ///
    /// # Errors
    /// A setting is invalid.
    pub(crate) fn build(&self, supervisor: Option<&Supervisor>) -> Result<Vec<Hook>, KeyError> {
        let hooks = self.hooks.iter().enumerate();
        hooks
            .map(|(index, hook)| {
                let section = format!("hooks.{index}");
                let built = hook.build(supervisor);
                built.map_err(|error| error.in_section(&section))
            })
            .collect()
    }
}

impl HookSection {
    /// The program that the hook runs; `None` if it runs none, or a shell runs it.
    #[cfg(unix)]
    pub(super) fn program(&self) -> Option<ProgramSpec<'_>> {
        let command = self.command.as_ref()?;
        if self.shell == Some(true) {
            return None;
        }
        Some(ProgramSpec {
            key: "command".to_owned(),
            name: command_program(command)?,
            folder: self.folder.as_deref(),
            env: self.env.as_ref(),
        })
    }

    fn build(&self, supervisor: Option<&Supervisor>) -> Result<Hook, KeyError> {
        self.check_keys()?;
        if self.timeout.is_zero() {
            return Err(KeyError::new("timeout", "must be longer than 0 s"));
        }
        let phases = self.kind.phases();
        if let Some(other) = self.on.iter().find(|phase| !phases.contains(phase)) {
            let message = format!(
                "a hook of type `{}` does not run on `{}`",
                self.kind.as_str(),
                other.as_str()
            );
            return Err(KeyError::new("on", message));
        }
        let phases = if self.on.is_empty() { phases } else { &self.on };
        Ok(self
            .build_interceptor(supervisor)?
            .phases(phases.iter().copied())
            .operations(self.operations()?)
            .agents(self.agents.iter())
            .timeout(self.timeout)
            .on_failure(self.on_failure))
    }

    fn operations(&self) -> Result<Vec<Operation>, KeyError> {
        let name = |operation: Operation| method_name(operation, Version::V1);
        let find = |method: &String| {
            let mut all = Operation::ALL.into_iter();
            let found = all.find(|operation| name(*operation) == Some(method));
            let known = Operation::ALL.into_iter().filter_map(name);
            found.ok_or_else(|| KeyError::new("methods", unknown_name("method", method, known)))
        };
        self.methods.iter().map(find).collect()
    }
}
