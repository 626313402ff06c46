//! Propagation of the trace context and of the caller's identity to backends and other agents.
//!
//! Every outgoing request carries the trace context of the turn. If the operator set `forward_caller`, it also names
//! the caller and the tenant. For other Attache servers a signed delegation token proves both (`attache::jws::Delegation`).

use std::time::Duration;

use attache::jws::{Delegation, Signer};
use attache::model::TraceContext;
use attache::{Client, Turn};
use http::request::Builder;

use crate::lineage::Lineage;

/// Time that a delegation token stays valid after the timeout of the call, so that the call can still be canceled.
const TOKEN_SLACK: Duration = Duration::from_secs(60);

/// Settings for forwarding the caller's identity.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallerPropagation {
    /// Whether outgoing calls name the caller and the tenant.
    pub(crate) forward_caller: bool,
    /// Key that signs delegation tokens; without it the caller is named in plain headers only.
    pub(crate) signer: Option<Signer>,
}

/// Claims of a delegation token for one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingCall<'a> {
    /// Lineage of the new task, if the call starts one.
    pub(crate) lineage: Option<&'a Lineage>,
    /// Timeout of the call.
    pub(crate) timeout: Duration,
}

impl CallerPropagation {
    /// Returns a client that sends trace context, caller headers and delegation token with every call.
    ///
    /// # Errors
    /// The name of the caller is not a valid header value, or signing fails.
    pub(crate) fn client_for_turn(
        &self,
        client: Client,
        turn: &Turn,
        call: OutgoingCall<'_>,
    ) -> attache::Result<Client> {
        let client = match turn.trace() {
            Some(trace) => client.with_trace(trace),
            None => client,
        };
        let mut headers = caller_headers(turn, self.forward_caller);
        let client = headers.try_fold(client, |client, (name, value)| {
            client.with_header(name, value)
        })?;
        self.add_token(client, self.signed_caller(turn), call)
    }

    /// Returns a client that sends a delegation token for `caller`, for calls after the end of the turn.
    ///
    /// # Errors
    /// Signing fails.
    pub(crate) fn client_for_caller(
        &self,
        client: Client,
        caller: Option<&str>,
    ) -> attache::Result<Client> {
        let call = OutgoingCall {
            lineage: None,
            timeout: Duration::ZERO,
        };
        self.add_token(client, caller, call)
    }

    /// Returns the caller named in the delegation token of this turn, if there is one.
    pub(crate) fn signed_caller<'a>(&self, turn: &'a Turn) -> Option<&'a str> {
        (self.forward_caller && self.signer.is_some()).then(|| turn.caller().name())
    }

    fn add_token(
        &self,
        client: Client,
        caller: Option<&str>,
        call: OutgoingCall<'_>,
    ) -> attache::Result<Client> {
        let (Some(signer), Some(caller)) = (&self.signer, caller) else {
            return Ok(client);
        };
        let delegation = Delegation {
            caller: caller.to_owned(),
            lineage: call.lineage.map(Lineage::to_value),
        };
        let token = delegation.sign(signer, call.timeout + TOKEN_SLACK)?;
        client.with_header(Delegation::HEADER, &token)
    }
}

/// Adds trace context and caller headers to a plain HTTP request.
pub(crate) fn add_headers(mut request: Builder, turn: &Turn, forward_caller: bool) -> Builder {
    for (name, value) in turn.trace().iter().flat_map(TraceContext::headers) {
        request = request.header(name, value);
    }
    for (name, value) in caller_headers(turn, forward_caller) {
        request = request.header(name, value);
    }
    request
}

/// Returns headers for the verified caller and its tenant; none of them unless `forward_caller` is set.
fn caller_headers(turn: &Turn, forward_caller: bool) -> impl Iterator<Item = (&'static str, &str)> {
    let tenant = &*turn.call().scope.tenant;
    let headers = [
        ("attache-caller", turn.caller().name()),
        ("attache-tenant", tenant),
    ];
    headers
        .into_iter()
        .filter(move |(_, value)| forward_caller && !value.is_empty())
}
