//! One file per verb.

mod check;
mod demo;
mod init;
mod mock;
mod serve;

use crate::args::Command;

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Mock(args) => mock::run(args).await,
        Command::Check(args) => check::run(&args),
        Command::Init(args) => init::run(&args),
    }
}
