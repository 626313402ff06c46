//! Who is served here: agents by their name and their tenants, and which of them a request is for.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::Service;
use crate::engine::AgentHandle;
use crate::model::{Call, Caller, ErrorKind, Request, Result, Scope, Seq, TraceContext, Version};

/// An agent that is served.
pub(crate) struct AgentEntry {
    /// Its name in this process.
    pub(crate) name: Arc<str>,
    /// What its tasks are kept under.
    pub(crate) namespace: Arc<str>,
    pub(crate) service: Service,
    /// Those whose tasks are kept apart.
    pub(crate) tenants: Vec<Arc<str>>,
    /// Set for one that is to go: it is there as long as something of it is under way.
    pub(crate) draining: Option<Weak<AgentHandle>>,
}

impl AgentEntry {
    /// The same, but to go; nothing if it has gone.
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

/// All agents that are served; the first is the one at the root, and those that are to go come last.
pub(crate) struct Directory {
    entries: Vec<AgentEntry>,
    /// Where each of them is, by its name.
    by_name: HashMap<Arc<str>, usize>,
}

/// What a caller says of a request, whatever carries it.
pub(crate) struct CallMetadata {
    pub(crate) caller: Caller,
    pub(crate) idempotency_key: Option<String>,
    /// The extensions it asks for.
    pub(crate) extensions: Vec<String>,
    /// Where it is in a trace.
    pub(crate) trace: Option<TraceContext>,
    pub(crate) version: Version,
    pub(crate) resume_after: Option<Seq>,
}

impl Directory {
    /// There is at least one.
    pub(crate) fn new(entries: Vec<AgentEntry>) -> Self {
        assert!(!entries.is_empty(), "a server has an agent");
        // Of two with one name the first is meant.
        let places = entries.iter().enumerate().rev();
        let by_name = places.map(|(at, entry)| (entry.name.clone(), at)).collect();
        Self { entries, by_name }
    }

    /// The agent at the root.
    pub(crate) fn root(&self) -> &AgentEntry {
        &self.entries[0]
    }

    /// The agent at a position.
    pub(crate) fn get(&self, position: usize) -> Option<&AgentEntry> {
        self.entries.get(position)
    }

    /// The names of all agents that take messages, the one at the root first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries
            .iter()
            .filter(|entry| entry.draining.is_none())
            .map(|entry| &*entry.name)
    }

    /// Those of them that have no place among `names`, while they have something left to do.
    pub(crate) fn draining_entries(&self, names: &[Arc<str>]) -> Vec<AgentEntry> {
        let removed = self
            .entries
            .iter()
            .filter(|entry| !names.contains(&entry.name));
        removed.filter_map(AgentEntry::to_draining).collect()
    }

    /// Where the agent of this name is.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name
            .get(name)
            .copied()
            .filter(|at| self.entries[*at].is_available())
    }

    /// Who a request to `entry` is for, and the call as that one sees it. A tenant is one of the agent's own, or
    /// at the root names another agent.
    ///
    /// # Errors
    /// Not found, and no more: there is no such tenant.
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
        };
        Ok((entry, call))
    }

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
            .and_then(|at| self.get(at))
            .filter(|other| *other.name == *entry.name || *entry.name == *self.root().name);
        match other {
            Some(other) => Ok((other, "".into())),
            None => Err(ErrorKind::TaskNotFound.into()),
        }
    }
}
