//! What goes along to whoever is called for a turn: its place in a trace and, where the operator wants it, who calls.

use attache::model::Trace;
use attache::{Client, Turn};
use http::request::Builder;

/// Puts it into a request.
pub(crate) fn request(mut request: Builder, turn: &Turn, forward_caller: bool) -> Builder {
    for (name, value) in turn.trace().iter().flat_map(Trace::headers) {
        request = request.header(name, value);
    }
    for (name, value) in caller(turn, forward_caller) {
        request = request.header(name, value);
    }
    request
}

/// Lets a client send it with every call.
///
/// # Errors
/// The caller has a name that no header can carry.
pub(crate) fn client(client: Client, turn: &Turn, forward_caller: bool) -> attache::Result<Client> {
    let client = match turn.trace() {
        Some(trace) => client.with_trace(trace),
        None => client,
    };
    caller(turn, forward_caller).try_fold(client, |client, (name, value)| client.with_header(name, value))
}

/// The verified caller, and the tenant if there is one.
fn caller(turn: &Turn, wanted: bool) -> impl Iterator<Item = (&'static str, &str)> {
    let tenant = &*turn.call().scope.tenant;
    let caller = [("attache-caller", turn.caller().name()), ("attache-tenant", tenant)];
    caller.into_iter().filter(move |(_, value)| wanted && !value.is_empty())
}
