//! Exit codes: 0 success, 1 failure, 2 usage error; client verbs also have 3 unreachable, 4 not authorized, 5 timeout.
//!
//! A [`CliError`](crate::error::CliError) has its own exit code. This module is for verbs that return `anyhow` errors.

use std::io;
use std::process::ExitCode;

use crate::error::EXIT_BROKEN_PIPE;

const EXIT_FAILURE: u8 = 1;

/// Prints an error with its causes to stderr, and returns the exit code. A closed stdout is not reported.
pub(crate) fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::from(EXIT_BROKEN_PIPE),
        Err(error) => {
            eprintln!("error: {}", describe(&error));
            ExitCode::from(EXIT_FAILURE)
        }
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
