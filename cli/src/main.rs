//! The attache program: serve and talk to A2A agents.

mod access;
mod admin;
mod args;
mod bench;
mod card_schema;
mod commands;
mod config;
mod conformance;
mod data_dir;
mod error;
mod exit;
mod interrupts;
mod output;
mod parts;
mod progress;
mod redactor;
mod reference;
mod resume;
mod server;
mod session;
mod settings;
mod signature;
mod task_follower;
mod telemetry;
mod tls;
mod token_store;
mod version;
mod wire_log;

use std::io::Write;
use std::process::ExitCode;

use args::parse::{self, ParsedArgs};
use output::Output;
use tracing::Instrument;

/// Takes less room for many small pieces than the system's, has those at hand that were just freed, and gives back what is not
/// used for a while.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    match parse::parse(words.clone()) {
        ParsedArgs::Command(args, matches) => {
            if args.command.serves() {
                return commands::run(args.command, &matches, &words).await;
            }
            let telemetry = telemetry::init_client();
            let code = commands::run(args.command, &matches, &words)
                .instrument(telemetry::command_span(&words))
                .await;
            telemetry.shutdown().await;
            code
        }
        ParsedArgs::Help(text) => {
            // Nobody is left to tell if the reader is gone.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        ParsedArgs::Invalid(failure) => {
            let (format, stream) = parse::error_format(&words);
            Output::with_format(format, stream).print_error(&failure);
            ExitCode::from(failure.exit)
        }
    }
}
