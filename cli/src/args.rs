//! What can be typed.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Serve and talk to A2A agents.
#[derive(Debug, Parser)]
#[command(name = "attache", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a practice agent that says back what it is told, and remembers its tasks.
    #[command(visible_alias = "demo-server")]
    Demo(Demo),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:41241")]
    pub(crate) listen: String,

    /// Where to keep tasks: in a SQLite file, or in memory until the program ends.
    #[arg(long, value_name = "KIND", default_value = "sqlite")]
    pub(crate) store: StoreKind,

    /// The folder of the SQLite file [default: `attache/demo` in your data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Where tasks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// In a SQLite file.
    Sqlite,
    /// In memory, until the program ends.
    Memory,
}
