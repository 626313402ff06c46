//! One file per verb.

mod demo;
mod keys;
mod serve;

use crate::args::Command;

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Keys(args) => keys::run(args),
    }
}
