//! The attache program: serve and talk to A2A agents.

mod args;
mod commands;
mod config;
mod data_dir;
mod exit;
mod interrupts;
mod serving;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::Args;

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return exit::not_understood(&error),
    };
    log();
    exit::code(commands::run(args.command).await)
}

/// The log goes to stderr: stdout is for results. `RUST_LOG` says how much of it; without it, what is odd, and what
/// commands complain about.
fn log() {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,attache_agents=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}
