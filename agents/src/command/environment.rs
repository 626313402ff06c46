//! Environment variables of started programs.

use std::collections::BTreeMap;
use std::ffi::OsString;

use attache::Turn;
use attache::model::{Call, Message, Secret};

use crate::backend_context::backend_context_id;

/// Variables of the server's environment that every program receives. None of them holds a secret.
const DEFAULT_ENV_VARS: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
];

/// Returns the environment of a program: default variables, those named in `passed`, and those set in `configured`.
pub(crate) fn environment<'a>(
    passed: &'a [String],
    configured: &'a BTreeMap<String, Secret>,
) -> impl Iterator<Item = (OsString, OsString)> + 'a {
    let names = DEFAULT_ENV_VARS
        .iter()
        .copied()
        .chain(passed.iter().map(String::as_str));
    let inherited = names.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    inherited.chain(
        configured
            .iter()
            .map(|(name, value)| (name.into(), value.expose().into())),
    )
}

/// Returns the variables that describe a turn. Empty values are left out.
pub(super) fn turn_variables(turn: &Turn) -> impl Iterator<Item = (&'static str, String)> {
    let trace = turn.trace();
    let parent = trace.as_ref().map(|trace| trace.parent().to_owned());
    let state = trace
        .as_ref()
        .and_then(|trace| trace.state().map(str::to_owned));
    let variables = [
        ("ATTACHE_TASK_ID", turn.task_id().to_string()),
        ("ATTACHE_CONTEXT_ID", backend_context_id(turn).to_string()),
        ("ATTACHE_MESSAGE_ID", turn.message().message_id.to_string()),
        ("ATTACHE_CALLER", turn.caller().name().to_owned()),
        ("ATTACHE_TENANT", turn.call().scope.tenant.to_string()),
        ("TRACEPARENT", parent.unwrap_or_default()),
        ("TRACESTATE", state.unwrap_or_default()),
    ];
    valid_variables(variables)
}

/// Returns the variables that describe a message without a task. Empty values are left out.
pub(super) fn message_variables(
    message: &Message,
    call: &Call,
) -> impl Iterator<Item = (&'static str, String)> {
    valid_variables([
        ("ATTACHE_MESSAGE_ID", message.message_id.to_string()),
        ("ATTACHE_CALLER", call.caller().name().to_owned()),
        ("ATTACHE_TENANT", call.scope.tenant.to_string()),
    ])
}

/// Callers choose message ids freely, and an environment variable cannot contain NUL.
fn valid_variables<const N: usize>(
    variables: [(&'static str, String); N],
) -> impl Iterator<Item = (&'static str, String)> {
    variables
        .into_iter()
        .filter(|(_, value)| !value.is_empty() && !value.contains('\0'))
}
