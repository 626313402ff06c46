//! Somebody who is known, and what they may do.

use crate::model::Caller;

/// Somebody who is known, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    caller: Caller,
    scopes: Vec<String>,
    /// `None`: all.
    agents: Option<Vec<String>>,
    tenants: Vec<String>,
}

/// In a list of tenants: every one.
const EVERY: &str = "*";

impl Identity {
    /// A caller of this name: all of its tasks are kept under it. The ready-made authenticators begin it with their kind
    /// (`key:`, `jwt:`, `cert:`), so that nobody of one kind is taken for somebody of another.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { caller: Caller::named(name), scopes: Vec::new(), agents: None, tenants: Vec::new() }
    }

    /// Nobody in particular.
    pub(crate) fn anonymous() -> Self {
        Self { caller: Caller::anonymous(), scopes: Vec::new(), agents: None, tenants: Vec::new() }
    }

    /// Gives these scopes.
    #[must_use]
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Allows these agents, by their name in the server, and no others. Until it is called all are allowed.
    #[must_use]
    pub fn agents<S: Into<String>>(mut self, agents: impl IntoIterator<Item = S>) -> Self {
        self.agents.get_or_insert_default().extend(agents.into_iter().map(Into::into));
        self
    }

    /// Allows these tenants; `*` is every one. Until it is called none is allowed, only no tenant at all.
    #[must_use]
    pub fn tenants<S: Into<String>>(mut self, tenants: impl IntoIterator<Item = S>) -> Self {
        self.tenants.extend(tenants.into_iter().map(Into::into));
        self
    }

    /// Who it is.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether they have a scope.
    #[must_use]
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope)
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.caller == Caller::anonymous()
    }

    pub(super) fn may_call(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|own| own == agent))
    }

    pub(super) fn may_enter(&self, tenant: &str) -> bool {
        tenant.is_empty() || self.tenants.iter().any(|own| own == tenant || own == EVERY)
    }
}
