//! The `attache` program: serves A2A agents, and calls them.
//!
//! `main` parses the command line, starts the telemetry of a client verb and dispatches to [`commands`]. Verbs that serve
//! agents start their telemetry themselves, after they have read their configuration. The processes of agents run below this
//! program too, which `main` handles first ([`attache_agents::supervise`]).

mod access;
mod admin;
mod args;
mod backup;
mod bench;
mod card_schema;
mod clock;
mod commands;
mod config;
mod conformance;
#[cfg(unix)]
mod console;
mod data_dir;
mod docs;
mod doctor;
mod error;
mod exit;
mod interrupts;
mod output;
mod parts;
mod private_file;
mod progress;
mod redactor;
mod reference;
mod resume;
mod server;
mod session;
mod settings;
mod signature;
mod sync;
mod task_follower;
mod telemetry;
mod terminal;
mod tls;
mod token_store;
mod top;
mod version;
mod wire_log;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use args::parse::{self, ParsedArgs};
use output::Output;
use tracing::Instrument;

/// jemalloc instead of the system allocator: many small allocations take less memory, recently freed blocks are reused from
/// per-thread caches, and unused pages return to the system. Only for the platform on which this was measured.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    // First: every start of a command waits for it.
    #[cfg(unix)]
    if words
        .get(1)
        .is_some_and(|verb| verb == server::SUPERVISE_VERB)
    {
        return attache_agents::supervise(words.into_iter().skip(2));
    }
    run(words)
}

#[tokio::main]
async fn run(words: Vec<OsString>) -> ExitCode {
    match parse::parse(words.clone()) {
        ParsedArgs::Command(args, matches) => {
            if args.command.is_server() {
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
            // A closed stdout is not an error: the reader has left.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        ParsedArgs::Invalid(error) => {
            Output::for_command_line(&words).print_error(&error);
            ExitCode::from(error.exit)
        }
    }
}
