//! What goes along to whoever is called for a turn: its place in a trace and, where the operator wants it, who calls.

use std::time::Duration;

use attache::jws::{Delegation, Signer};
use attache::model::TraceContext;
use attache::{Client, Turn};
use http::request::Builder;

use crate::lineage::Lineage;

/// Longer than the call itself: it may have to be stopped.
const TOKEN_SLACK: Duration = Duration::from_secs(60);

/// What another agent is told of whoever asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallerPropagation {
    /// Whether it is told who calls.
    pub(crate) forward_caller: bool,
    /// Signs that, for those who are of our own.
    pub(crate) signer: Option<Signer>,
}

/// What a call to another agent is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingCall<'a> {
    /// Whose work it begins a part of.
    pub(crate) lineage: Option<&'a Lineage>,
    /// How long it may take.
    pub(crate) time: Duration,
}

impl CallerPropagation {
    /// Lets a client send it with every call.
    ///
    /// # Errors
    /// The caller has a name that no header can carry; or it cannot be signed.
    pub(crate) fn client(
        &self,
        client: Client,
        turn: &Turn,
        errand: OutgoingCall<'_>,
    ) -> attache::Result<Client> {
        let client = match turn.trace() {
            Some(trace) => client.with_trace(trace),
            None => client,
        };
        let mut told = caller(turn, self.forward_caller);
        let client = told.try_fold(client, |client, (name, value)| {
            client.with_header(name, value)
        })?;
        self.sign(client, self.caller(turn), errand)
    }

    /// Lets a client send for whom it calls, where there is no turn any more.
    ///
    /// # Errors
    /// It cannot be signed.
    pub(crate) fn attach_caller(
        &self,
        client: Client,
        caller: Option<&str>,
    ) -> attache::Result<Client> {
        self.sign(
            client,
            caller,
            OutgoingCall {
                lineage: None,
                time: Duration::ZERO,
            },
        )
    }

    /// For whom it is signed that we call, if it is.
    pub(crate) fn caller<'a>(&self, turn: &'a Turn) -> Option<&'a str> {
        (self.forward_caller && self.signer.is_some()).then(|| turn.caller().name())
    }

    fn sign(
        &self,
        client: Client,
        caller: Option<&str>,
        errand: OutgoingCall<'_>,
    ) -> attache::Result<Client> {
        let (Some(signer), Some(caller)) = (&self.signer, caller) else {
            return Ok(client);
        };
        let lineage = errand.lineage.map(Lineage::to_value);
        let token = Delegation {
            caller: caller.to_owned(),
            lineage,
        }
        .sign(signer, errand.time + TOKEN_SLACK)?;
        client.with_header(Delegation::HEADER, &token)
    }
}

/// Puts it into a request that is for no agent.
pub(crate) fn add_headers(mut request: Builder, turn: &Turn, forward_caller: bool) -> Builder {
    for (name, value) in turn.trace().iter().flat_map(TraceContext::headers) {
        request = request.header(name, value);
    }
    for (name, value) in caller(turn, forward_caller) {
        request = request.header(name, value);
    }
    request
}

/// The verified caller, and the tenant if there is one.
fn caller(turn: &Turn, wanted: bool) -> impl Iterator<Item = (&'static str, &str)> {
    let tenant = &*turn.call().scope.tenant;
    let caller = [
        ("attache-caller", turn.caller().name()),
        ("attache-tenant", tenant),
    ];
    caller
        .into_iter()
        .filter(move |(_, value)| wanted && !value.is_empty())
}
