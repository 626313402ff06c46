//! Directory of hosted agents: resolves name and tenant of a request to an agent and a scope.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::Service;
use crate::engine::AgentHandle;
use crate::model::{
    Call, Caller, ClientAddress, ErrorKind, Request, Result, Scope, Seq, TraceContext, Version,
};

/// A hosted agent.
pub(crate) struct AgentEntry {
    /// Name within this server; part of its paths.
    pub(crate) name: Arc<str>,
    /// Namespace of its tasks in the store.
    pub(crate) namespace: Arc<str>,
    pub(crate) service: Service,
    /// Tenants of this agent. Their tasks are isolated from each other.
    pub(crate) tenants: Vec<Arc<str>>,
    /// Set while the agent drains. The entry stays available as long as a running task holds the handle.
    pub(crate) draining: Option<Weak<AgentHandle>>,
}

impl AgentEntry {
    /// Returns a draining copy; `None` if no task of the agent is running.
    pub(crate) fn to_draining(&self) -> Option<Self> {
        let agent = self
            .draining
            .clone()
            .or_else(|| self.service.agent().map(Arc::downgrade));
        let draining = Self {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            service: self.service.to_draining(),
            tenants: self.tenants.clone(),
            draining: agent,
        };
        draining.is_available().then_some(draining)
    }

    fn is_available(&self) -> bool {
        self.draining
            .as_ref()
            .is_none_or(|agent| agent.strong_count() > 0)
    }
}

/// All hosted agents. The first is served at the root path; draining agents come last.
pub(crate) struct Directory {
    entries: Vec<AgentEntry>,
    /// Index into `entries` by name.
    by_name: HashMap<Arc<str>, usize>,
}

/// Metadata of a call, read from headers or gRPC metadata.
pub(crate) struct CallMetadata {
    pub(crate) caller: Caller,
    pub(crate) idempotency_key: Option<String>,
    /// Requested extensions.
    pub(crate) extensions: Vec<String>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) version: Version,
    pub(crate) resume_after: Option<Seq>,
    pub(crate) client: Option<ClientAddress>,
}

impl Directory {
    /// Creates a directory.
    ///
    /// # Panics
    /// `entries` is empty.
    pub(crate) fn new(entries: Vec<AgentEntry>) -> Self {
        assert!(!entries.is_empty(), "a server hosts at least one agent");
        // In reverse, so that the first of two entries with the same name wins.
        let indexed = entries.iter().enumerate().rev();
        let by_name = indexed
            .map(|(index, entry)| (entry.name.clone(), index))
            .collect();
        Self { entries, by_name }
    }

    /// The agent served at the root path.
    pub(crate) fn root(&self) -> &AgentEntry {
        &self.entries[0]
    }

    /// The agent at an index.
    pub(crate) fn get(&self, index: usize) -> Option<&AgentEntry> {
        self.entries.get(index)
    }

    /// Whether there is exactly one agent, which accepts messages.
    pub(crate) fn has_single_agent(&self) -> bool {
        self.entries.len() == 1 && self.root().draining.is_none()
    }

    /// Names of all agents that accept messages, the root agent first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries
            .iter()
            .filter(|entry| entry.draining.is_none())
            .map(|entry| &*entry.name)
    }

    /// Draining copies of the agents that are not in `names` and still have running tasks.
    pub(crate) fn draining_entries(&self, names: &[Arc<str>]) -> Vec<AgentEntry> {
        let removed = self
            .entries
            .iter()
            .filter(|entry| !names.contains(&entry.name));
        removed.filter_map(AgentEntry::to_draining).collect()
    }

    /// Index of the agent with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name
            .get(name)
            .copied()
            .filter(|index| self.entries[*index].is_available())
    }

    /// Resolves a request that was addressed to `entry`: returns the agent it is for and the scoped call.
    ///
    /// The tenant of the request is one of the agent's tenants or, at the root, the name of another agent.
    ///
    /// # Errors
    /// Not found: the tenant does not exist. The error does not say so.
    pub(crate) fn resolve_call<'a>(
        &'a self,
        entry: &'a AgentEntry,
        metadata: CallMetadata,
        request: &Request,
    ) -> Result<(&'a AgentEntry, Call)> {
        let (entry, tenant) = self.resolve(entry, request.tenant())?;
        let CallMetadata {
            caller,
            idempotency_key,
            extensions,
            trace,
            version,
            resume_after,
            client,
        } = metadata;
        let scope = Scope {
            agent: entry.namespace.clone(),
            tenant,
            owner: caller,
        };
        let extensions = entry
            .service
            .activate_extensions(extensions.iter().map(String::as_str));
        let call = Call {
            scope,
            idempotency_key,
            extensions,
            trace,
            version,
            resume_after,
            client,
        };
        Ok((entry, call))
    }

    /// Resolves the tenant. Only the root agent may name another agent as tenant.
    fn resolve<'a>(
        &'a self,
        entry: &'a AgentEntry,
        tenant: Option<&str>,
    ) -> Result<(&'a AgentEntry, Arc<str>)> {
        let Some(tenant) = tenant else {
            return Ok((entry, Arc::default()));
        };
        if let Some(own) = entry.tenants.iter().find(|own| ***own == *tenant) {
            return Ok((entry, own.clone()));
        }
        let other = self
            .position(tenant)
            .and_then(|index| self.get(index))
            .filter(|other| *other.name == *entry.name || *entry.name == *self.root().name);
        match other {
            Some(other) => Ok((other, "".into())),
            None => Err(ErrorKind::TaskNotFound.into()),
        }
    }
}
