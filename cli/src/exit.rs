//! How the program ends: 0 it worked, 1 it did not, 2 it was not understood.

use std::process::ExitCode;

const FAILED: u8 = 1;
const NOT_UNDERSTOOD: u8 = 2;

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

/// Help and version come this way too, and are no error.
pub(crate) fn not_understood(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell if the terminal is gone.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(NOT_UNDERSTOOD) } else { ExitCode::SUCCESS }
}
