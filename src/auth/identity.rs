//! Identity of a caller and its permissions.

use std::net::IpAddr;

use super::ip_key::ip_key;
use super::{CredentialLifetime, OperatorRole, Revocation};
use crate::model::{Caller, CallerKey, Timestamp};

/// Authenticated caller with its permissions: scopes, agents and tenants.
///
/// Identities are equal if caller and permissions are. The lifetime of the credential does not count.
#[derive(Debug, Clone)]
pub struct Identity {
    caller: Caller,
    scopes: Vec<String>,
    /// `None`: all agents.
    agents: Option<Vec<String>>,
    tenants: Vec<String>,
    /// Role on the admin interface. `None` unless the identity has an operator key.
    role: Option<OperatorRole>,
    lifetime: CredentialLifetime,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.caller == other.caller
            && self.scopes == other.scopes
            && self.agents == other.agents
            && self.tenants == other.tenants
            && self.role == other.role
    }
}

impl Eq for Identity {}

/// Wildcard in a list of tenants.
const ALL_TENANTS: &str = "*";

impl Identity {
    /// Creates an identity. Tasks belong to this name. The built-in authenticators prefix it with their kind (`key:`, `jwt:`,
    /// `cert:`), so that callers of different kinds never collide.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            caller: Caller::new(name),
            scopes: Vec::new(),
            agents: None,
            tenants: Vec::new(),
            role: None,
            lifetime: CredentialLifetime::default(),
        }
    }

    /// The identity of all anonymous callers.
    pub(crate) fn anonymous() -> Self {
        Self {
            caller: Caller::anonymous(),
            scopes: Vec::new(),
            agents: None,
            tenants: Vec::new(),
            role: None,
            lifetime: CredentialLifetime::default(),
        }
    }

    /// Grants scopes.
    #[must_use]
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Restricts the caller to these agents, by their name in the server. Without this, all agents are allowed.
    #[must_use]
    pub fn agents<S: Into<String>>(mut self, agents: impl IntoIterator<Item = S>) -> Self {
        self.agents
            .get_or_insert_default()
            .extend(agents.into_iter().map(Into::into));
        self
    }

    /// Allows these tenants; `*` allows all. Without this, only requests without a tenant are allowed.
    #[must_use]
    pub fn tenants<S: Into<String>>(mut self, tenants: impl IntoIterator<Item = S>) -> Self {
        self.tenants.extend(tenants.into_iter().map(Into::into));
        self
    }

    /// Sets the role on the admin interface.
    pub(super) fn role(mut self, role: OperatorRole) -> Self {
        self.role = Some(role);
        self
    }

    /// Returns the role on the admin interface. It counts only for keys that the interface accepts.
    pub(crate) fn operator_role(&self) -> Option<OperatorRole> {
        self.role
    }

    /// Returns the agents that the identity is restricted to; `None`: all.
    pub(crate) fn allowed_agents(&self) -> Option<&[String]> {
        self.agents.as_deref()
    }

    /// Returns the tenants that the identity is allowed.
    pub(crate) fn allowed_tenants(&self) -> &[String] {
        &self.tenants
    }

    /// Sets when the credential expires. Streams that were opened with it end then.
    #[must_use]
    pub fn valid_until(mut self, expiry: Timestamp) -> Self {
        self.lifetime.expires_ms = Some(expiry.as_millis());
        self
    }

    /// Makes the credential revocable. Streams that were opened with it end when it is revoked.
    #[must_use]
    pub fn revoked_by(mut self, revocation: &Revocation) -> Self {
        self.lifetime.revocation = Some(revocation.clone());
        self
    }

    /// Lifetime of the credential that identified the caller.
    pub(crate) fn lifetime(&self) -> &CredentialLifetime {
        &self.lifetime
    }

    /// The caller.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether the caller has a scope.
    #[must_use]
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope)
    }

    /// Returns the other caller with the intersection of both permissions. The credential is that of this caller.
    pub(super) fn intersect(&self, other: Self) -> Self {
        let tenants = if self.has_all_tenants() {
            other.tenants
        } else if other.has_all_tenants() {
            self.tenants.clone()
        } else {
            let common = |tenant: &String| self.tenants.contains(tenant);
            other.tenants.into_iter().filter(common).collect()
        };
        let scopes = other
            .scopes
            .into_iter()
            .filter(|scope| self.has_scope(scope))
            .collect();
        let agents = match (&self.agents, other.agents) {
            (None, agents) => agents,
            (Some(own), None) => Some(own.clone()),
            (Some(own), Some(agents)) => {
                let common = |agent: &String| own.contains(agent);
                Some(agents.into_iter().filter(common).collect())
            }
        };
        Self {
            caller: other.caller,
            scopes,
            agents,
            tenants,
            role: None,
            lifetime: self.lifetime.clone(),
        }
    }

    fn has_all_tenants(&self) -> bool {
        self.tenants.iter().any(|tenant| tenant == ALL_TENANTS)
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.caller == Caller::anonymous()
    }

    /// Returns the key of the caller in limits, at this address.
    pub(crate) fn key(&self, client: IpAddr) -> CallerKey {
        if self.is_anonymous() {
            CallerKey::Address(ip_key(client))
        } else {
            CallerKey::Caller(self.caller.clone())
        }
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
    fn s61_intersected_identities_have_common_permissions() {
        let delegator = Identity::named("key:node")
            .scopes(["read", "write"])
            .agents(["a", "b"])
            .tenants(["*"]);
        let ann = Identity::named("key:ann")
            .scopes(["read", "admin"])
            .agents(["b", "c"])
            .tenants(["acme"]);
        let both = delegator.intersect(ann.clone());
        assert_eq!(both.caller().name(), "key:ann");
        assert!(both.has_scope("read") && !both.has_scope("write") && !both.has_scope("admin"));
        assert_eq!(
            ["a", "b", "c"].map(|agent| both.can_call(agent)),
            [false, true, false]
        );
        assert!(both.can_access_tenant("acme") && !both.can_access_tenant("other"));
        let free = Identity::named("key:node").intersect(ann);
        assert_eq!(["b", "x"].map(|agent| free.can_call(agent)), [true, false]);
        assert!(
            !free.can_access_tenant("acme"),
            "the delegator has no tenant"
        );
    }
}
