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
const ALL_TENANTS: &str = "*";

impl Identity {
    /// A caller of this name: all of its tasks are kept under it. The ready-made authenticators begin it with their kind
    /// (`key:`, `jwt:`, `cert:`), so that nobody of one kind is taken for somebody of another.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            caller: Caller::new(name),
            scopes: Vec::new(),
            agents: None,
            tenants: Vec::new(),
        }
    }

    /// Nobody in particular.
    pub(crate) fn anonymous() -> Self {
        Self {
            caller: Caller::anonymous(),
            scopes: Vec::new(),
            agents: None,
            tenants: Vec::new(),
        }
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
        self.agents
            .get_or_insert_default()
            .extend(agents.into_iter().map(Into::into));
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

    /// Both of them: what only one may do is not allowed. It is called by the name of the other.
    pub(super) fn intersect(&self, other: Self) -> Self {
        let agents = match (&self.agents, other.agents) {
            (None, agents) => agents,
            (Some(own), None) => Some(own.clone()),
            (Some(own), Some(agents)) => Some(
                agents
                    .into_iter()
                    .filter(|agent| own.contains(agent))
                    .collect(),
            ),
        };
        let every = |tenants: &[String]| tenants.iter().any(|tenant| tenant == ALL_TENANTS);
        let tenants = match (every(&self.tenants), every(&other.tenants)) {
            (true, _) => other.tenants,
            (false, true) => self.tenants.clone(),
            (false, false) => other
                .tenants
                .into_iter()
                .filter(|tenant| self.tenants.contains(tenant))
                .collect(),
        };
        let scopes = other
            .scopes
            .into_iter()
            .filter(|scope| self.has_scope(scope))
            .collect();
        Self {
            caller: other.caller,
            scopes,
            agents,
            tenants,
        }
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.caller == Caller::anonymous()
    }

    pub(super) fn can_call(&self, agent: &str) -> bool {
        self.agents
            .as_ref()
            .is_none_or(|agents| agents.iter().any(|own| own == agent))
    }

    pub(super) fn can_access_tenant(&self, tenant: &str) -> bool {
        tenant.is_empty()
            || self
                .tenants
                .iter()
                .any(|own| own == tenant || own == ALL_TENANTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s61_two_together_may_do_what_both_may() {
        let node = Identity::named("key:node")
            .scopes(["read", "write"])
            .agents(["a", "b"])
            .tenants(["*"]);
        let ann = Identity::named("key:ann")
            .scopes(["read", "admin"])
            .agents(["b", "c"])
            .tenants(["acme"]);
        let both = node.intersect(ann.clone());
        assert_eq!(both.caller().name(), "key:ann");
        assert!(both.has_scope("read") && !both.has_scope("write") && !both.has_scope("admin"));
        assert_eq!(
            ["a", "b", "c"].map(|agent| both.can_call(agent)),
            [false, true, false]
        );
        assert!(both.can_access_tenant("acme") && !both.can_access_tenant("other"));
        let free = Identity::named("key:node").intersect(ann);
        assert_eq!(["b", "x"].map(|agent| free.can_call(agent)), [true, false]);
        assert!(!free.can_access_tenant("acme"), "the node has no tenant");
    }
}
