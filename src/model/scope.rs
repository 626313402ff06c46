//! Who calls, and what they may see.

use std::sync::{Arc, LazyLock};

use super::{Seq, TraceContext, Version};

/// Somebody who calls us, by the name that authentication gave them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller(Arc<str>);

impl Caller {
    /// Whoever calls where nobody has to say who they are.
    #[must_use]
    pub fn anonymous() -> Self {
        // Where nobody has to say who they are this is every caller.
        static ANONYMOUS: LazyLock<Caller> = LazyLock::new(|| Caller::new("anonymous"));
        ANONYMOUS.clone()
    }

    /// A caller that authentication knows.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Whose tasks: the only way to a log leads through one of these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The agent, by its name in this process.
    pub agent: Arc<str>,
    /// The tenant; empty for none.
    pub tenant: Arc<str>,
    /// The caller who owns the tasks.
    pub owner: Caller,
}

/// What surrounds one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Whose tasks it may see.
    pub scope: Scope,
    /// The caller's word for this request, under which it may be sent again.
    pub idempotency_key: Option<String>,
    /// The extensions that are active, by URI.
    pub extensions: Vec<String>,
    /// The trace it belongs to. Within a turn it is that of the turn.
    pub trace: Option<TraceContext>,
    /// The version of the protocol it is made in: its webhooks are called in the same.
    pub version: Version,
    /// The last position that the caller of a stream has seen.
    pub resume_after: Option<Seq>,
}

impl Call {
    /// A call within a scope, and nothing else.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            idempotency_key: None,
            extensions: Vec::new(),
            trace: None,
            version: Version::V1,
            resume_after: None,
        }
    }

    /// Who calls.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.scope.owner
    }
}
