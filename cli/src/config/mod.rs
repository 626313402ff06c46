//! Configuration of a server. Precedence: flag, environment, file, default.
//!
//! A [`ConfigTree`] holds the values with their origins. Each section takes its keys out of the tree; keys that no section
//! takes are refused.

mod agents;
mod all_errors;
mod auth;
mod console;
mod database;
mod error;
mod expand;
mod exposed_secrets;
mod hooks;
mod layers;
mod print;
mod programs;
mod renamed;
mod restart_only;
mod schema;
mod sections;
mod summary;
mod telemetry;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attache::auth::CallerLimits;
use attache::jws::Signer;
use attache::model::Limits;
use attache::{EgressPolicy, HostedAgent, PushSettings, ServerSettings, Settings};
use attache_agents::Supervisor;

pub(crate) use agents::AgentConfig;
use agents::{AgentResources, BuiltAgent};
pub(crate) use all_errors::{CheckedConfig, check};
pub(crate) use auth::AuthSection;
pub(crate) use console::ConsoleSection;
use database::ClusterSection;
pub(crate) use error::ConfigError;
use error::KeyError;
use hooks::HooksSection;
pub(crate) use layers::{Environment, FlagValues, OVERRIDES, Override, OverrideKind, ServerFlag};
pub(crate) use print::PrintedConfig;
pub(crate) use restart_only::RestartOnly;
pub(crate) use schema::schema;
pub(crate) use sections::{PushSection, ServerSection, StoreKind, StoreSection};
pub(crate) use summary::ConfigSummary;
pub(crate) use telemetry::{LogFormat, SpanNames, TelemetrySection};
use tree::ConfigTree;

/// Content of a starter file.
pub(crate) const STARTER: &str = include_str!("starter.toml");

/// Engine settings in the section `[store]`.
const STORE_KEYS: &[&str] = &[
    "max_tasks",
    "max_age",
    "max_parked_age",
    "max_anonymous_waiting_tasks",
    "orphan_timeout",
    "task_cache_bytes",
    "store_timeout",
    "sweep_every",
];

/// The whole configuration, with the origin of each value.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) server: ServerSection,
    pub(crate) server_settings: ServerSettings,
    pub(crate) store: StoreSection,
    pub(crate) cluster: ClusterSection,
    pub(crate) engine: Settings,
    pub(crate) limits: Limits,
    pub(crate) push: PushSection,
    pub(crate) push_settings: PushSettings,
    pub(crate) egress: EgressPolicy,
    pub(crate) auth: AuthSection,
    pub(crate) caller_limits: CallerLimits,
    pub(crate) telemetry: TelemetrySection,
    pub(crate) console: ConsoleSection,
    hooks: HooksSection,
    /// In the order of the file.
    pub(crate) agents: Vec<AgentConfig>,
    /// Supervisor of the processes of agents. It is known when the store is open.
    pub(crate) supervisor: Option<Supervisor>,
    /// Whether an agent whose worker does not start is an error, instead of a warning.
    pub(crate) requires_workers: bool,
    tree: ConfigTree,
}

impl Config {
    /// Reads a file, if there is one, and applies the environment and flags.
    ///
    /// # Errors
    /// A value or key is invalid; the error has its file and line.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: Environment<'_>,
        flags: &FlagValues,
    ) -> Result<Self, ConfigError> {
        let mut tree = match file {
            Some(file) => ConfigTree::read(file, environment)?,
            None => ConfigTree::default(),
        };
        layers::apply(&mut tree, environment, flags)?;
        Self::from_tree(tree)
    }

    /// Takes all sections out of a tree.
    fn from_tree(mut tree: ConfigTree) -> Result<Self, ConfigError> {
        let config = Self {
            server: tree.take(|_| "server".to_owned())?,
            server_settings: tree.take(|_| "server".to_owned())?,
            store: tree.take(|_| "store".to_owned())?,
            cluster: tree.take(|_| "cluster".to_owned())?,
            engine: tree.take(|key| section_of(key).to_owned())?,
            limits: tree.take(|_| "limits".to_owned())?,
            push: tree.take(|_| "push".to_owned())?,
            push_settings: tree.take(|_| "push".to_owned())?,
            egress: tree.take(|_| "egress".to_owned())?,
            auth: tree.take(|_| "auth".to_owned())?,
            caller_limits: tree.take(|_| "auth.limits".to_owned())?,
            telemetry: tree.take(|_| "telemetry".to_owned())?,
            console: tree.take(|_| "console".to_owned())?,
            hooks: tree.take(|_| String::new())?,
            agents: agents::take(&mut tree)?,
            supervisor: None,
            requires_workers: false,
            tree: ConfigTree::default(),
        };
        tree.reject_unknown()?;
        Ok(Self { tree, ..config })
    }

    /// Files of agents whose changes need new worker processes.
    pub(crate) fn worker_files(&self) -> Vec<PathBuf> {
        let files = self.agents.iter().filter_map(|agent| agent.worker_file());
        files.map(Path::to_owned).collect()
    }

    /// Settings of webhook delivery; `allow_loopback` permits loopback addresses in any case.
    pub(crate) fn push(&self, allow_loopback: bool) -> PushSettings {
        let mut push = self.push_settings.clone();
        push.egress = self.egress.clone();
        push.egress.loopback |= allow_loopback || self.push.local_webhooks;
        push
    }

    /// Builds the agents without network access; the one at the root comes first.
    ///
    /// # Errors
    /// An agent is invalid; the error has its file and line.
    pub(crate) fn build_agents(&self) -> Result<Vec<HostedAgent>, ConfigError> {
        self.build_agents_with(BTreeMap::new())
    }

    /// Builds the agents to serve, and queries MCP servers for their skills. Also returns warnings.
    ///
    /// # Errors
    /// An agent is invalid; the error has its file and line.
    pub(crate) async fn open_agents(&self) -> Result<(Vec<HostedAgent>, Vec<String>), ConfigError> {
        let signer = self.delegation_signer()?;
        let resources = AgentResources {
            signer: signer.as_ref(),
            supervisor: self.supervisor.as_ref(),
            requires_workers: self.requires_workers,
        };
        let queried =
            agents::query_skills(&self.agents, resources, |agent| self.has_skill_rules(agent))
                .await;
        let (built, mut warnings) = queried.map_err(|error| self.error(&error))?;
        warnings.extend(self.exposed_secret());
        Ok((self.build_agents_with(built)?, warnings))
    }

    fn build_agents_with(
        &self,
        built: BTreeMap<String, BuiltAgent>,
    ) -> Result<Vec<HostedAgent>, ConfigError> {
        let signer = self.delegation_signer()?;
        let resources = AgentResources {
            signer: signer.as_ref(),
            supervisor: self.supervisor.as_ref(),
            requires_workers: self.requires_workers,
        };
        let hosted = agents::build(&self.agents, built, resources);
        let mut hosted = hosted.map_err(|error| self.error(&error))?;
        if let Some(root) = &self.server.root {
            match self.agents.iter().position(|agent| agent.name == *root) {
                Some(index) => hosted[..=index].rotate_right(1),
                None => {
                    return Err(self
                        .tree
                        .error_at("server.root", format!("there is no agent `{root}`")));
                }
            }
        }
        Ok(hosted)
    }

    /// Reads the key that signs delegation claims.
    fn delegation_signer(&self) -> Result<Option<Signer>, ConfigError> {
        let key = self.server.delegation_signing_key.as_deref();
        key.map(crate::access::signer).transpose().map_err(|error| {
            self.tree
                .error_at("server.delegation_signing_key", format!("{error:#}"))
        })
    }

    /// Builds the server hooks.
    ///
    /// # Errors
    /// A hook is invalid; the error has its file and line.
    pub(crate) fn build_hooks(&self) -> Result<Vec<attache::Hook>, ConfigError> {
        let built = self.hooks.build(self.supervisor.as_ref());
        built.map_err(|error| self.error(&error))
    }

    /// Adds the file and line to an error of a key.
    fn error(&self, error: &KeyError) -> ConfigError {
        self.tree.error_at(&error.key, &error.message)
    }
}

/// The section of an engine setting.
fn section_of(key: &str) -> &'static str {
    match key {
        _ if STORE_KEYS.contains(&key) => "store",
        "trace_metadata" => "telemetry",
        _ => "limits",
    }
}

#[cfg(test)]
mod tests;
