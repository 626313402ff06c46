//! The attache program: serve and talk to A2A agents.

mod access;
mod admin;
mod args;
mod bench;
mod card;
mod commands;
mod config;
mod conformance;
mod data_dir;
mod exit;
mod failure;
mod follow;
mod interrupts;
mod logins;
mod masks;
mod output;
mod parts;
mod reference;
mod resume;
mod serving;
mod session;
mod settings;
mod signature;
mod telemetry;
mod tls;
mod typed;
mod version;
mod waiting;
mod wire_log;

use std::io::Write;
use std::process::ExitCode;

use output::Output;
use tracing::Instrument;
use typed::Typed;

/// Takes less room for many small pieces than the system's, has those at hand that were just freed, and gives back what is not
/// used for a while.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    match typed::read(words.clone()) {
        Typed::Command(args, matches) => {
            if args.command.serves() {
                return commands::run(args.command, &matches, &words).await;
            }
            let telemetry = telemetry::talking();
            let code = commands::run(args.command, &matches, &words)
                .instrument(telemetry::verb(&words))
                .await;
            telemetry.end().await;
            code
        }
        Typed::Shown(text) => {
            // Nobody is left to tell if the reader is gone.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Typed::Wrong(failure) => {
            let (format, stream) = typed::format_of(&words);
            Output::plain(format, stream).failure(&failure);
            ExitCode::from(failure.exit)
        }
    }
}
