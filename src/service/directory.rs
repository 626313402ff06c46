//! Who is served here: agents by their name and their tenants, and which of them a request is for.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::Service;
use crate::engine::Worker;
use crate::model::{Call, Caller, ErrorKind, Request, Result, Scope, Seq, Trace, Version};

/// An agent that is served.
pub(crate) struct Resident {
    /// Its name in this process.
    pub(crate) name: Arc<str>,
    /// What its tasks are kept under.
    pub(crate) namespace: Arc<str>,
    pub(crate) service: Service,
    /// Those whose tasks are kept apart.
    pub(crate) tenants: Vec<Arc<str>>,
    /// Set for one that is to go: it is there as long as something of it is under way.
    pub(crate) leaving: Option<Weak<Worker>>,
}

impl Resident {
    /// The same, but to go; nothing if it has gone.
    pub(crate) fn to_go(&self) -> Option<Self> {
        let leaving = self
            .leaving
            .clone()
            .or_else(|| self.service.worker().map(Arc::downgrade));
        let to_go = Self {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            service: self.service.leaving(),
            tenants: self.tenants.clone(),
            leaving,
        };
        to_go.is_there().then_some(to_go)
    }

    fn is_there(&self) -> bool {
        self.leaving
            .as_ref()
            .is_none_or(|worker| worker.strong_count() > 0)
    }
}

/// All agents that are served; the first is the one at the root, and those that are to go come last.
pub(crate) struct Directory {
    residents: Vec<Resident>,
    /// Where each of them is, by its name.
    by_name: HashMap<Arc<str>, usize>,
}

/// What a caller says of a request, whatever carries it.
pub(crate) struct Asking {
    pub(crate) caller: Caller,
    pub(crate) idempotency_key: Option<String>,
    /// The extensions it asks for.
    pub(crate) extensions: Vec<String>,
    /// Where it is in a trace.
    pub(crate) trace: Option<Trace>,
    pub(crate) version: Version,
    pub(crate) last_seen: Option<Seq>,
}

impl Directory {
    /// There is at least one.
    pub(crate) fn new(residents: Vec<Resident>) -> Self {
        assert!(!residents.is_empty(), "a server has an agent");
        // Of two with one name the first is meant.
        let places = residents.iter().enumerate().rev();
        let by_name = places
            .map(|(at, resident)| (resident.name.clone(), at))
            .collect();
        Self { residents, by_name }
    }

    /// The agent at the root.
    pub(crate) fn first(&self) -> &Resident {
        &self.residents[0]
    }

    /// The agent at a position.
    pub(crate) fn at(&self, position: usize) -> Option<&Resident> {
        self.residents.get(position)
    }

    /// The names of all agents that take messages, the one at the root first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.residents
            .iter()
            .filter(|resident| resident.leaving.is_none())
            .map(|resident| &*resident.name)
    }

    /// Those of them that have no place among `names`, while they have something left to do.
    pub(crate) fn to_go(&self, names: &[Arc<str>]) -> Vec<Resident> {
        let going = self
            .residents
            .iter()
            .filter(|resident| !names.contains(&resident.name));
        going.filter_map(Resident::to_go).collect()
    }

    /// Where the agent of this name is.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name
            .get(name)
            .copied()
            .filter(|at| self.residents[*at].is_there())
    }

    /// Who a request to `resident` is for, and the call as that one sees it. A tenant is one of the agent's own, or
    /// at the root names another agent.
    ///
    /// # Errors
    /// Not found, and no more: there is no such tenant.
    pub(crate) fn enter<'a>(
        &'a self,
        resident: &'a Resident,
        asking: Asking,
        request: &Request,
    ) -> Result<(&'a Resident, Call)> {
        let (resident, tenant) = self.resolve(resident, request.tenant())?;
        let Asking {
            caller,
            idempotency_key,
            extensions,
            trace,
            version,
            last_seen,
        } = asking;
        let scope = Scope {
            agent: resident.namespace.clone(),
            tenant,
            owner: caller,
        };
        let extensions = resident
            .service
            .activate(extensions.iter().map(String::as_str));
        let call = Call {
            scope,
            idempotency_key,
            extensions,
            trace,
            version,
            last_seen,
        };
        Ok((resident, call))
    }

    fn resolve<'a>(
        &'a self,
        resident: &'a Resident,
        tenant: Option<&str>,
    ) -> Result<(&'a Resident, Arc<str>)> {
        let Some(tenant) = tenant else {
            return Ok((resident, Arc::default()));
        };
        if let Some(own) = resident.tenants.iter().find(|own| ***own == *tenant) {
            return Ok((resident, own.clone()));
        }
        let other = self
            .position(tenant)
            .and_then(|at| self.at(at))
            .filter(|other| *other.name == *resident.name || *resident.name == *self.first().name);
        match other {
            Some(other) => Ok((other, "".into())),
            None => Err(ErrorKind::TaskNotFound.into()),
        }
    }
}
