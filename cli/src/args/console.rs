//! Arguments of `attache console`.

use clap::Args;

use super::DataDirArgs;

#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// Print the address only, and open no browser
    #[arg(long)]
    pub(crate) no_open: bool,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}
