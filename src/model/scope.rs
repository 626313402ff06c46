//! Caller identity and task scope of a request.

use std::sync::{Arc, LazyLock};

use super::{Seq, TraceContext, Version};

/// Authenticated caller, identified by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller(Arc<str>);

impl Caller {
    /// Returns the caller used when authentication is disabled.
    #[must_use]
    pub fn anonymous() -> Self {
        // Shared: without authentication every call clones it.
        static ANONYMOUS: LazyLock<Caller> = LazyLock::new(|| Caller::new("anonymous"));
        ANONYMOUS.clone()
    }

    /// Creates a caller from the name that authentication determined.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Network address of a client, for limits: an IPv4 address, or the network of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress([u8; 16]);

impl ClientAddress {
    /// Creates the address from an IPv6 address. One subscriber usually controls a whole /64, so
    /// only the prefix counts, unless it is a mapped IPv4 address.
    #[must_use]
    pub fn from_ipv6(octets: [u8; 16]) -> Self {
        let is_ipv4 = octets.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        let mut key = octets;
        if !is_ipv4 {
            key[8..].fill(0);
        }
        Self(key)
    }
}

/// Key under which limits count a caller: its name, or the address of an anonymous caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerKey {
    /// Authenticated caller.
    Caller(Caller),
    /// Anonymous caller.
    Address(ClientAddress),
}

impl CallerKey {
    /// Returns the key of a caller. `client` is the address of its client, if it is known.
    #[must_use]
    pub fn new(caller: &Caller, client: Option<ClientAddress>) -> Self {
        match client {
            Some(client) if *caller == Caller::anonymous() => Self::Address(client),
            _ => Self::Caller(caller.clone()),
        }
    }
}

/// Set of tasks visible to a call: one agent, one tenant, one owner. Every store lookup takes a
/// scope, so a task of another owner is indistinguishable from a missing one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Name of the agent in this process.
    pub agent: Arc<str>,
    /// Tenant; empty if there is none.
    pub tenant: Arc<str>,
    /// Caller that owns the tasks.
    pub owner: Caller,
}

/// Metadata of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Tasks visible to the request.
    pub scope: Scope,
    /// Idempotency key: a repeated request with the same key returns the original result (04 §3.4).
    pub idempotency_key: Option<String>,
    /// URIs of the active extensions.
    pub extensions: Vec<String>,
    /// W3C trace context. Within a turn it is the context of the turn.
    pub trace: Option<TraceContext>,
    /// Protocol version of the request. Webhooks that it registers are called in the same version.
    pub version: Version,
    /// Position after which a stream resumes (`Last-Event-ID`).
    pub resume_after: Option<Seq>,
    /// Network address of the client, if it is known.
    pub client: Option<ClientAddress>,
}

impl Call {
    /// Creates a call with defaults.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            idempotency_key: None,
            extensions: Vec::new(),
            trace: None,
            version: Version::V1,
            resume_after: None,
            client: None,
        }
    }

    /// Returns the key of the caller in limits.
    #[must_use]
    pub fn caller_key(&self) -> CallerKey {
        CallerKey::new(self.caller(), self.client)
    }

    /// Returns the caller.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.scope.owner
    }
}
