//! `attache completion`: prints a completion script for a shell.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;

pub(crate) fn run(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "attache", &mut script);
    // A closed stdout is not an error: the reader has left.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}
