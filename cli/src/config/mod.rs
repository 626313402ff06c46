//! The configuration: flag before environment before file before default, decided here and nowhere else.

mod agents;
mod auth;
mod error;
mod expand;
mod exposed_secrets;
mod layers;
mod print;
mod restart_only;
mod schema;
mod sections;
mod telemetry;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;

use attache::auth::CallerLimits;
use attache::model::Limits;
use attache::{EgressPolicy, HostedAgent, PushSettings, ServerSettings, Settings};

use agents::{AgentConfig, BuiltAgent};
pub(crate) use auth::AuthSection;
pub(crate) use error::ConfigError;
pub(crate) use layers::{Environment, FlagValues};
pub(crate) use print::print;
pub(crate) use restart_only::RestartOnly;
pub(crate) use schema::schema;
pub(crate) use sections::{PushSection, ServerSection, StoreKind, StoreSection};
pub(crate) use telemetry::{LogFormat, SpanNames, TelemetrySection};
use tree::ConfigTree;

/// What a new file begins with.
pub(crate) const STARTER: &str = include_str!("starter.toml");

/// What is said in `[store]` of what the engine does.
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

/// Everything that can be set, with where each value came from.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) server: ServerSection,
    pub(crate) server_settings: ServerSettings,
    pub(crate) store: StoreSection,
    pub(crate) engine: Settings,
    pub(crate) limits: Limits,
    pub(crate) push: PushSection,
    pub(crate) push_settings: PushSettings,
    pub(crate) egress: EgressPolicy,
    pub(crate) auth: AuthSection,
    caller_limits: CallerLimits,
    pub(crate) telemetry: TelemetrySection,
    /// In the order of the file.
    pub(crate) agents: Vec<AgentConfig>,
    tree: ConfigTree,
}

impl Config {
    /// Reads a file, if there is one, with what the environment and flags say instead.
    ///
    /// # Errors
    /// What is wrong, with its place.
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
        let config = Self {
            server: tree.take(|_| "server".to_owned())?,
            server_settings: tree.take(|_| "server".to_owned())?,
            store: tree.take(|_| "store".to_owned())?,
            engine: tree.take(|key| section_of(key).to_owned())?,
            limits: tree.take(|_| "limits".to_owned())?,
            push: tree.take(|_| "push".to_owned())?,
            push_settings: tree.take(|_| "push".to_owned())?,
            egress: tree.take(|_| "egress".to_owned())?,
            auth: tree.take(|_| "auth".to_owned())?,
            caller_limits: tree.take(|_| "auth.limits".to_owned())?,
            telemetry: tree.take(|_| "telemetry".to_owned())?,
            agents: agents::take(&mut tree)?,
            tree: ConfigTree::default(),
        };
        tree.reject_unknown()?;
        Ok(Self { tree, ..config })
    }

    /// How much each caller may do, if anything is said of it.
    pub(crate) fn caller_limits(&self) -> Option<&CallerLimits> {
        self.tree.origin("auth.limits").map(|_| &self.caller_limits)
    }

    /// How webhooks are called; also those on this machine, if `local`.
    pub(crate) fn push(&self, local: bool) -> PushSettings {
        let mut push = self.push_settings.clone();
        push.egress = self.egress.clone();
        push.egress.loopback |= local || self.push.local_webhooks;
        push
    }

    /// Makes the agents; the one at the root comes first. Nobody is asked for anything.
    ///
    /// # Errors
    /// What is wrong with one of them, with its place.
    pub(crate) fn build_agents(&self) -> Result<Vec<HostedAgent>, ConfigError> {
        self.build_agents_with(BTreeMap::new())
    }

    /// The same, to be served: those are asked who know what an agent can do. Gives too what is odd.
    ///
    /// # Errors
    /// What is wrong with one of them, with its place.
    pub(crate) async fn open_agents(&self) -> Result<(Vec<HostedAgent>, Vec<String>), ConfigError> {
        let asked = agents::ask(&self.agents, |agent| self.has_skill_rules(agent)).await;
        let (known, mut odd) = asked.map_err(|(key, why)| self.tree.error_at(&key, why))?;
        odd.extend(self.exposed_secret());
        Ok((self.build_agents_with(known)?, odd))
    }

    fn build_agents_with(
        &self,
        known: BTreeMap<String, BuiltAgent>,
    ) -> Result<Vec<HostedAgent>, ConfigError> {
        let signer = self
            .server
            .delegation_signing_key
            .as_deref()
            .map(crate::access::signer)
            .transpose();
        let complain = |why| {
            self.tree
                .error_at("server.delegation_signing_key", format!("{why:#}"))
        };
        let signer = signer.map_err(complain)?;
        let served = agents::build(&self.agents, known, signer.as_ref());
        let mut served = served.map_err(|(key, why)| self.tree.error_at(&key, why))?;
        if let Some(root) = &self.server.root {
            match self.agents.iter().position(|agent| agent.name == *root) {
                Some(at) => served[..=at].rotate_right(1),
                None => {
                    return Err(self
                        .tree
                        .error_at("server.root", format!("there is no agent `{root}`")));
                }
            }
        }
        Ok(served)
    }
}

/// The section that a setting of the engine stands in.
fn section_of(key: &str) -> &'static str {
    match key {
        _ if STORE_KEYS.contains(&key) => "store",
        "trace_metadata" => "telemetry",
        _ => "limits",
    }
}

#[cfg(test)]
mod tests;
