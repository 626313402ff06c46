//! How the program ends: 0 it worked, 1 it did not, 2 it was not understood; verbs that talk to agents also have 3
//! not reached, 4 not let in, 5 out of time. A [`CliError`](crate::error::CliError) knows its own.

use std::io;
use std::process::ExitCode;

use crate::error::EXIT_BROKEN_PIPE;

const EXIT_FAILURE: u8 = 1;

/// Says on stderr what went wrong, with every cause; ends in silence where nobody reads our stdout any more.
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

/// What a verb of our own writes goes to stdout alone, or says that it does not.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = error.downcast_ref::<io::Error>();
    broken.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error with what caused it. Some say of themselves what their cause says, or the reverse.
fn describe(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let mut said = causes.next().unwrap_or_default();
    let mut last = said.clone();
    for cause in causes {
        if !said.ends_with(&cause) && !cause.ends_with(&last) {
            said = format!("{said}: {cause}");
        }
        last = cause;
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_says_of_its_cause_is_said_once() {
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
