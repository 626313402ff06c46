//! Exit codes: 0 success, 1 failure, 2 usage error; client verbs also have 3 unreachable, 4 not authorized, 5 timeout.
//!
//! A [`CliError`] has its own exit code. This module is for verbs that return `anyhow` errors.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::error::{CliError, EXIT_BROKEN_PIPE};
use crate::output::Output;

/// Prints an error with its causes in the format of the command line, and returns the exit code. A closed stdout is not
/// reported.
pub(crate) fn exit_code(words: &[OsString], result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::from(EXIT_BROKEN_PIPE),
        Err(error) => {
            let error = to_cli_error(error);
            Output::for_command_line(words).print_error(&error);
            ExitCode::from(error.exit)
        }
    }
}

/// Converts an error of a verb outside the CLI contract.
fn to_cli_error(error: anyhow::Error) -> CliError {
    match error.downcast::<CliError>() {
        Ok(error) => error,
        Err(error) if error.is::<ConfigError>() => CliError::config_invalid(describe(&error)),
        Err(error) => CliError::failed(describe(&error)),
    }
}

/// Whether a write to stdout failed because the reader has closed it. Errors of other writes carry context.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Formats an error with its causes, separated by colons. A cause that the text before it already contains is omitted.
fn describe(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let mut text = causes.next().unwrap_or_default();
    let mut last = text.clone();
    for cause in causes {
        if !text.ends_with(&cause) && !cause.ends_with(&last) {
            text = format!("{text}: {cause}");
        }
        last = cause;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let error = anyhow::anyhow!("no room")
            .context("cannot write a: no room")
            .context("b");
        assert_eq!(describe(&error), "b: cannot write a: no room");
        assert_eq!(describe(&anyhow::anyhow!("x").context("y")), "y: x");
        let error = anyhow::anyhow!("code 26: no database")
            .context("no database")
            .context("cannot open a: no database");
        assert_eq!(describe(&error), "cannot open a: no database");
    }
}
