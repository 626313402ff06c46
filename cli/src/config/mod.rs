//! The configuration: flag before environment before file before default, decided here and nowhere else.

mod agents;
mod auth;
mod complaint;
mod expand;
mod exposed;
mod fixed;
mod layers;
mod print;
mod schema;
mod sections;
mod telemetry;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;

use attache::auth::Allowance;
use attache::model::Limits;
use attache::{PushSettings, Reach, Served, ServerSettings, Settings};

use agents::{AgentConfig, Made};
pub(crate) use auth::AuthSection;
pub(crate) use complaint::Complaint;
pub(crate) use fixed::Fixed;
pub(crate) use layers::{Environment, Given};
pub(crate) use print::print;
pub(crate) use schema::schema;
pub(crate) use sections::{PushSection, ServerSection, StoreKind, StoreSection};
pub(crate) use telemetry::{LogFormat, Names, TelemetrySection};
use tree::Tree;

/// What a new file begins with.
pub(crate) const STARTER: &str = include_str!("starter.toml");

/// What is said in `[store]` of what the engine does.
const STORED: &[&str] = &[
    "max_tasks",
    "max_age",
    "max_parked_age",
    "max_parked_tasks",
    "max_silent_age",
    "max_resting_bytes",
    "store_timeout",
    "sweep_every",
];

/// Everything that can be set, with where each value came from.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) server: ServerSection,
    pub(crate) serving: ServerSettings,
    pub(crate) store: StoreSection,
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) push: PushSection,
    pub(crate) pushing: PushSettings,
    pub(crate) reach: Reach,
    pub(crate) auth: AuthSection,
    allowance: Allowance,
    pub(crate) telemetry: TelemetrySection,
    /// In the order of the file.
    pub(crate) agents: Vec<AgentConfig>,
    tree: Tree,
}

impl Config {
    /// Reads a file, if there is one, with what the environment and flags say instead.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: Environment<'_>,
        given: &Given,
    ) -> Result<Self, Complaint> {
        let mut tree = match file {
            Some(file) => Tree::read(file, environment)?,
            None => Tree::default(),
        };
        layers::apply(&mut tree, environment, given)?;
        let config = Self {
            server: tree.take(|_| "server".to_owned())?,
            serving: tree.take(|_| "server".to_owned())?,
            store: tree.take(|_| "store".to_owned())?,
            settings: tree.take(|key| home_of(key).to_owned())?,
            limits: tree.take(|_| "limits".to_owned())?,
            push: tree.take(|_| "push".to_owned())?,
            pushing: tree.take(|_| "push".to_owned())?,
            reach: tree.take(|_| "egress".to_owned())?,
            auth: tree.take(|_| "auth".to_owned())?,
            allowance: tree.take(|_| "auth.allowance".to_owned())?,
            telemetry: tree.take(|_| "telemetry".to_owned())?,
            agents: agents::take(&mut tree)?,
            tree: Tree::default(),
        };
        tree.nothing_left()?;
        Ok(Self { tree, ..config })
    }

    /// How much each caller may do, if anything is said of it.
    pub(crate) fn allowance(&self) -> Option<&Allowance> {
        self.tree.origin("auth.allowance").map(|_| &self.allowance)
    }

    /// How webhooks are called; also those on this machine, if `local`.
    pub(crate) fn push(&self, local: bool) -> PushSettings {
        let mut push = self.pushing.clone();
        push.reach = self.reach.clone();
        push.reach.loopback |= local || self.push.local_webhooks;
        push
    }

    /// Makes the agents; the one at the root comes first. Nobody is asked for anything.
    ///
    /// # Errors
    /// What is wrong with one of them, with its place.
    pub(crate) fn build(&self) -> Result<Vec<Served>, Complaint> {
        self.build_with(BTreeMap::new())
    }

    /// The same, to be served: those are asked who know what an agent can do. Gives too what is odd.
    ///
    /// # Errors
    /// What is wrong with one of them, with its place.
    pub(crate) async fn open(&self) -> Result<(Vec<Served>, Vec<String>), Complaint> {
        let asked = agents::ask(&self.agents, |agent| self.has_skill_rules(agent)).await;
        let (known, mut odd) = asked.map_err(|(key, why)| self.tree.complain(&key, why))?;
        odd.extend(self.exposed());
        Ok((self.build_with(known)?, odd))
    }

    fn build_with(&self, known: BTreeMap<String, Made>) -> Result<Vec<Served>, Complaint> {
        let signer = self
            .server
            .node_signing_key
            .as_deref()
            .map(crate::access::signer)
            .transpose();
        let complain = |why| {
            self.tree
                .complain("server.node_signing_key", format!("{why:#}"))
        };
        let signer = signer.map_err(complain)?;
        let served = agents::build(&self.agents, known, signer.as_ref());
        let mut served = served.map_err(|(key, why)| self.tree.complain(&key, why))?;
        if let Some(root) = &self.server.root {
            match self.agents.iter().position(|agent| agent.name == *root) {
                Some(at) => served[..=at].rotate_right(1),
                None => {
                    return Err(self
                        .tree
                        .complain("server.root", format!("there is no agent `{root}`")));
                }
            }
        }
        Ok(served)
    }
}

/// The section that a setting of the engine stands in.
fn home_of(key: &str) -> &'static str {
    match key {
        _ if STORED.contains(&key) => "store",
        "trace_metadata" => "telemetry",
        _ => "limits",
    }
}

#[cfg(test)]
mod tests;
