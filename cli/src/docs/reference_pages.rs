//! Generated reference pages. `UPDATE_DOCS=1 cargo test -p attache-cli --bins page_is_current` writes them.

use std::collections::BTreeMap;
use std::path::Path;

use attache::ErrorKind;
use attache::model::{TaskState, Version};
use attache::wire::errors::{error_name, grpc_code, http_status, jsonrpc_code, reason};
use clap::{Arg, Command, CommandFactory};

use crate::args::Args;
use crate::commands::task_wait::outcome_code;
use crate::error::{CliError, EXIT_BROKEN_PIPE};
use crate::interrupts::INTERRUPTED;

/// Number of commands from which a flag is listed once for all of them.
const MIN_COMMANDS_OF_COMMON_FLAG: usize = 8;

/// Compares a page with its generated text. With the variable `UPDATE_DOCS` it writes the page.
pub(crate) fn assert_generated(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, expected).unwrap();
        return;
    }
    let current = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        current == expected,
        "docs/{page} is stale; UPDATE_DOCS=1 cargo test -p attache-cli --bins page_is_current"
    );
}

fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// Leaf commands with their full names.
fn leaves(command: &Command, prefix: &str, found: &mut Vec<(String, Command)>) {
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
    {
        let name = format!("{prefix} {}", inner.get_name());
        if inner.has_subcommands() {
            leaves(inner, &name, found);
        }
        if !inner.is_subcommand_required_set() {
            found.push((name, inner.clone()));
        }
    }
}

fn flag_name(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let value = values.iter().map(|value| format!(" <{value}>"));
    let value: String = if arg.get_action().takes_values() {
        value.collect()
    } else {
        String::new()
    };
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}{value}"),
        (None, Some(long)) => format!("--{long}{value}"),
        (Some(short), None) => format!("-{short}{value}"),
        (None, None) => value.trim().to_owned(),
    }
}

fn flag_row(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    format!("| `{}` | {} |\n", cell(&flag_name(arg)), cell(&help))
}

/// Flags and arguments of a command in the order of its help, without those of clap.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()))
}

fn cli_page() -> String {
    let mut root = Args::command();
    root.build();
    let mut commands = Vec::new();
    leaves(&root, "attache", &mut commands);
    let mut uses: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (_, command) in &commands {
        for arg in flags(command).filter(|arg| !arg.is_positional()) {
            uses.entry(flag_row(arg)).or_default().0 += 1;
        }
    }
    let is_common = |row: &str| {
        uses.get(row)
            .is_some_and(|(count, _)| *count >= MIN_COMMANDS_OF_COMMON_FLAG)
    };
    let table = "| flag | description |\n| --- | --- |\n";
    let mut page = "# Commands and flags\n\nAll commands of `attache`. [Call agents from a shell](../cli.md) explains \
        output, exit codes and credentials. This page is generated from the program; `attache help <COMMAND>` prints the \
        same.\n\n| command | effect |\n| --- | --- |\n"
        .to_owned();
    for (name, command) in &commands {
        let about = command.get_about().map(ToString::to_string);
        let anchor = name.replace(' ', "-");
        page += &format!(
            "| [`{name}`](#{anchor}) | {} |\n",
            cell(&about.unwrap_or_default())
        );
    }
    page += &format!("\n## Flags of all commands that call agents\n\n{table}");
    page.extend(uses.keys().filter(|row| is_common(row)).map(String::as_str));
    for (name, command) in &commands {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").replace('\n', " ");
        page += &format!("\n## {name}\n\n`{}`\n", cell(usage.trim()));
        let own: String = flags(command)
            .map(flag_row)
            .filter(|row| !is_common(row))
            .collect();
        if !own.is_empty() {
            page += &format!("\n{table}{own}");
        }
    }
    page
}

#[test]
fn the_cli_page_is_current() {
    assert_generated("reference/cli.md", &cli_page());
}

/// Kinds of errors in the order of the page.
const KINDS: &[ErrorKind] = &[
    ErrorKind::Parse,
    ErrorKind::InvalidRequest,
    ErrorKind::PayloadTooLarge,
    ErrorKind::RequestTimeout,
    ErrorKind::MethodNotFound,
    ErrorKind::MethodNotAllowed,
    ErrorKind::InvalidParams,
    ErrorKind::Internal,
    ErrorKind::TaskNotFound,
    ErrorKind::TaskNotCancelable,
    ErrorKind::PushNotificationNotSupported,
    ErrorKind::UnsupportedOperation,
    ErrorKind::ContentTypeNotSupported,
    ErrorKind::UnsupportedMediaType,
    ErrorKind::InvalidAgentResponse,
    ErrorKind::ExtendedAgentCardNotConfigured,
    ErrorKind::ExtensionSupportRequired,
    ErrorKind::VersionNotSupported,
    ErrorKind::Unauthenticated,
    ErrorKind::PermissionDenied,
    ErrorKind::RateLimited,
    ErrorKind::Unavailable,
    ErrorKind::Canceled,
    ErrorKind::DeadlineExceeded,
];

/// Cause of an error and what to do. A new kind does not compile until it is here; list it in [`KINDS`] too.
fn cause_and_fix(kind: ErrorKind) -> [&'static str; 2] {
    match kind {
        ErrorKind::Parse => ["The body is not JSON", "Correct the body"],
        ErrorKind::InvalidRequest => [
            "The body is JSON, but not a valid request",
            "Read the named field in the message",
        ],
        ErrorKind::PayloadTooLarge => [
            "The body exceeds `server.max_body_bytes`",
            "Send files by URL, or raise the limit",
        ],
        ErrorKind::RequestTimeout => [
            "The request did not arrive within `server.header_timeout` or `body_timeout`",
            "Retry; check the network",
        ],
        ErrorKind::MethodNotFound => [
            "The method or path does not exist",
            "Check method name, path and version",
        ],
        ErrorKind::MethodNotAllowed => [
            "The path does not support this HTTP method",
            "Use the method of the specification",
        ],
        ErrorKind::InvalidParams => [
            "A parameter is missing or invalid",
            "Correct the fields that the details name",
        ],
        ErrorKind::Internal => ["Internal error", "Search the log for the `errorId`"],
        ErrorKind::TaskNotFound => [
            "The task does not exist, or belongs to another caller, tenant or agent",
            "Check id, credentials and tenant",
        ],
        ErrorKind::TaskNotCancelable => ["The task has ended", "Read the task"],
        ErrorKind::PushNotificationNotSupported => {
            ["The agent does not support webhooks", "Poll or stream"]
        }
        ErrorKind::UnsupportedOperation => [
            "The agent or the state of the task does not allow the operation",
            "Read the card and the task",
        ],
        ErrorKind::ContentTypeNotSupported => [
            "The agent does not accept the media type of a part",
            "Use an input mode of the card",
        ],
        ErrorKind::UnsupportedMediaType => [
            "The media type of the request is not accepted",
            "Send `application/json`",
        ],
        ErrorKind::InvalidAgentResponse => [
            "The agent violated the protocol",
            "Report it to the author of the agent; the log has the cause",
        ],
        ErrorKind::ExtendedAgentCardNotConfigured => {
            ["The agent has no extended card", "Use the public card"]
        }
        ErrorKind::ExtensionSupportRequired => [
            "The agent requires an extension",
            "Declare it in `A2A-Extensions`",
        ],
        ErrorKind::VersionNotSupported => [
            "The protocol version is not supported",
            "Use a version of the card",
        ],
        ErrorKind::Unauthenticated => ["No valid credential", "Send one that the card declares"],
        ErrorKind::PermissionDenied => [
            "The credential does not permit the operation",
            "Ask the operator for the missing scope",
        ],
        ErrorKind::RateLimited => [
            "A rate limit or quota is exceeded",
            "Wait for `Retry-After`",
        ],
        ErrorKind::Unavailable => [
            "The server cannot handle the request now",
            "Retry with backoff and the same `Idempotency-Key`",
        ],
        ErrorKind::Canceled => [
            "The caller closed the connection",
            "None: the task continues",
        ],
        ErrorKind::DeadlineExceeded => [
            "The deadline of the call expired",
            "Follow the task by its id",
        ],
        ErrorKind::Other(_) => [
            "Error of another server with a code of its own",
            "See the message",
        ],
    }
}

/// States in which `task wait` stops.
const ENDS: [TaskState; 6] = [
    TaskState::Completed,
    TaskState::Failed,
    TaskState::Rejected,
    TaskState::Canceled,
    TaskState::InputRequired,
    TaskState::AuthRequired,
];

/// Errors of the command line that the protocol does not name, with cause and action.
fn command_line_errors() -> [(CliError, &'static str, &'static str); 9] {
    [
        (
            CliError::usage(""),
            "An argument or a setting is invalid",
            "`attache help <COMMAND>`",
        ),
        (
            CliError::internal(""),
            "Any other failure, such as a file that cannot be written",
            "Read the message",
        ),
        (
            CliError::card_invalid(""),
            "The card of the agent is invalid",
            "`attache card lint -a <AGENT>`",
        ),
        (
            CliError::card_not_found(""),
            "A server answers, but has no agent card",
            "Check the URL; `-a` also takes the URL of a card",
        ),
        (
            CliError::unreachable(""),
            "No connection to the agent",
            "Check address and network; `--debug` shows the requests",
        ),
        (
            CliError::credentials_missing(""),
            "The agent requires a credential",
            "`attache auth login`, or set `A2ACLI_BEARER` or `A2ACLI_API_KEY`",
        ),
        (
            CliError::auth_failed(""),
            "The agent refused the credential",
            "Use a valid one; ask the operator for the missing scope",
        ),
        (
            CliError::timeout(""),
            "`--timeout` expired. The task continues",
            "Run the command of the hint",
        ),
        (
            CliError::interrupted(INTERRUPTED),
            "SIGINT; 143 after SIGTERM. The task continues",
            "Run the command of the hint",
        ),
    ]
}

fn errors_page() -> String {
    let mut page = "# Errors\n\nErrors of a server, by binding and version. The same kind has the same reason \
        (`google.rpc.ErrorInfo`) on every binding. This page is generated from the tables of the program. \
        [Handle errors](../examples/errors.md) has code in five languages.\n\n## Codes\n\n\
        A cell with two values has the one of 1.0, then the one of 0.3, 0.2 and 0.1.\n\n\
        | name | JSON-RPC | HTTP | gRPC | reason |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
    let both = |v1: String, v03: String| {
        if v1 == v03 {
            v1
        } else {
            format!("{v1}, {v03}")
        }
    };
    for &kind in KINDS {
        let http = both(
            http_status(kind, Version::V1).to_string(),
            http_status(kind, Version::V03).to_string(),
        );
        let grpc = both(
            grpc_code(kind, Version::V1).as_str().to_owned(),
            grpc_code(kind, Version::V03).as_str().to_owned(),
        );
        let name = error_name(kind, Version::V1);
        let code = jsonrpc_code(kind);
        let reason = reason(kind);
        page += &format!("| `{name}` | {code} | {http} | {grpc} | `{reason}` |\n");
    }
    page += "\n## Causes\n\n| kind (`ErrorKind`) | cause | what to do |\n| --- | --- | --- |\n";
    for kind in KINDS.iter().copied().chain([ErrorKind::Other(0)]) {
        let [cause, fix] = cause_and_fix(kind);
        let kind = format!("{kind:?}").replace("(0)", "(code)");
        page += &format!("| `{kind}` | {cause} | {fix} |\n");
    }
    page += "\n## Exit codes\n\nWith `-o json` a failure of the command line has `code`, the name above or one of these:\n\n\
        | code | exit | cause | what to do |\n| --- | --- | --- | --- |\n";
    for (error, cause, fix) in command_line_errors() {
        let CliError { code, exit, .. } = error;
        page += &format!("| `{code}` | {exit} | {cause} | {fix} |\n");
    }
    page += &format!(
        "| | {EXIT_BROKEN_PIPE} | The reader of the output has closed it | None |\n\n\
         `task wait --exit-on-outcome` and `send --exit-status` exit with the state of the task:\n\n| state | exit |\n| --- | --- |\n"
    );
    for state in ENDS {
        let exit = outcome_code(state);
        page += &format!("| `{state}` | {exit} |\n");
    }
    page += "\n## Related\n\n\
        - [Reasons of `/readyz`](../operate.md#health)\n\
        - [Messages of the store](../store.md#error-messages)\n\
        - [Errors of chat completions](../chat-completions.md#errors)\n";
    page
}

#[test]
fn the_errors_page_is_current() {
    assert_generated("reference/errors.md", &errors_page());
}
