//! How the program ends: 0 it worked, 1 it did not, 2 it was not understood; verbs that talk to agents also have 3
//! not reached, 4 not let in, 5 out of time. A [`Failure`](crate::failure::Failure) knows its own.

use std::process::ExitCode;

const FAILED: u8 = 1;

/// Says on stderr what went wrong, with every cause.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
