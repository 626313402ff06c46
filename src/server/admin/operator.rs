//! Operator of a request to the admin interface.

use std::sync::Arc;

use crate::auth::{CredentialLifetime, Identity, OperatorRole};

/// Wildcard in the tenants of a key.
const ALL_TENANTS: &str = "*";

/// Listener on which a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListenerKind {
    /// Unix socket in the data directory.
    Socket,
    /// TCP address for operators with a key.
    Tcp,
}

impl ListenerKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Tcp => "tcp",
        }
    }
}

/// Authenticated operator with its permissions. Clones are cheap.
#[derive(Debug, Clone)]
pub(super) struct Operator {
    /// `key:ann`, `link` or `socket`.
    pub(super) name: Arc<str>,
    pub(super) role: OperatorRole,
    pub(super) listener: ListenerKind,
    /// `None`: all.
    pub(super) agents: Option<Arc<[String]>>,
    /// `None`: all.
    pub(super) tenants: Option<Arc<[String]>>,
    lifetime: CredentialLifetime,
}

impl Operator {
    /// Operator of the socket: the owner of the process.
    pub(super) fn socket() -> Self {
        Self::admin("socket", ListenerKind::Socket)
    }

    /// Operator who opened a one-time link.
    pub(super) fn link() -> Self {
        Self::admin("link", ListenerKind::Tcp)
    }

    fn admin(name: &str, listener: ListenerKind) -> Self {
        Self {
            name: name.into(),
            role: OperatorRole::Admin,
            listener,
            agents: None,
            tenants: None,
            lifetime: CredentialLifetime::default(),
        }
    }

    /// Operator with a key. A key without tenants is allowed all of them.
    pub(super) fn with_key(identity: &Identity) -> Self {
        let tenants = identity.allowed_tenants();
        let is_restricted =
            !tenants.is_empty() && tenants.iter().all(|tenant| tenant != ALL_TENANTS);
        Self {
            name: identity.caller().name().into(),
            role: identity.operator_role().unwrap_or(OperatorRole::Viewer),
            listener: ListenerKind::Tcp,
            agents: identity.allowed_agents().map(Arc::from),
            tenants: is_restricted.then(|| Arc::from(tenants)),
            lifetime: identity.lifetime().clone(),
        }
    }

    /// Lifetime of the key.
    pub(super) fn lifetime(&self) -> &CredentialLifetime {
        &self.lifetime
    }
}
