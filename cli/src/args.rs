//! What can be typed.

use clap::{Parser, Subcommand};

/// Serve and talk to A2A agents.
#[derive(Debug, Parser)]
#[command(name = "attache", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a practice agent that says back what it is told; its tasks are gone when it stops.
    #[command(visible_alias = "demo-server")]
    Demo(Demo),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:41241")]
    pub(crate) listen: String,
}
