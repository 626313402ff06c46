//! The verbs, one file each, and the dispatch to them.

mod auth;
mod backup;
mod bench;
mod card;
mod card_lint;
mod card_sign;
mod chat;
mod check;
mod completion;
mod config;
mod config_set;
mod conformance;
mod conformance_kit;
mod console;
mod db;
mod demo;
mod docs;
mod doctor;
mod init;
mod keys;
mod mcp;
mod mock;
mod push;
mod push_config;
mod push_listen;
mod reload;
mod restore;
mod send;
mod serve;
mod task;
mod task_download;
mod task_list;
pub(crate) mod task_wait;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use attache::model::TaskId;
use clap::ArgMatches;

use crate::args::{
    AuthCommand, CardCommand, CliCommand, CommonFlags, ConfigCommand, PushCommand,
    PushConfigCommand, TaskCommand,
};
use crate::error::{CliError, CliResult};
use crate::exit::exit_code;
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::parts::PartArgs;
use crate::settings::{Settings, flags};
pub(crate) use auth::LoginFlow;

/// Runs a verb, and returns the exit code. Errors are printed.
pub(crate) async fn run(command: CliCommand, matches: &ArgMatches, words: &[OsString]) -> ExitCode {
    match command {
        CliCommand::Demo(args) => exit_code(words, demo::run(args).await),
        CliCommand::Serve(args) => exit_code(words, serve::run(args, words).await),
        CliCommand::Mock(args) => exit_code(words, mock::run(args).await),
        CliCommand::Mcp(args) => {
            let exit = tokio::task::spawn_blocking(move || mcp::run(args)).await;
            exit.unwrap_or(ExitCode::FAILURE)
        }
        CliCommand::Console(args) => exit_code(words, console::run(&args)),
        CliCommand::Docs(args) => exit_code(words, docs::run(args).await),
        CliCommand::Reload(args) => {
            let mut out = Output::for_command_line(words);
            exit_code(words, reload::run(&args, &mut out))
        }
        CliCommand::Top(args) => {
            let mut out = Output::for_command_line(words);
            let result = top::run(&args, &mut out).await;
            exit_code(words, result)
        }
        CliCommand::Check(args) => {
            let mut out = Output::for_command_line(words);
            match check::run(&args, &mut out).await {
                Ok(code) => ExitCode::from(code),
                Err(error) => exit_code(words, Err(error)),
            }
        }
        CliCommand::Init(args) => exit_code(words, init::run(&args)),
        CliCommand::Keys(args) => {
            exit_code(words, keys::run(args, &mut Output::for_command_line(words)))
        }
        CliCommand::Backup(args) => exit_code(words, backup::run(&args)),
        CliCommand::Restore(args) => exit_code(words, restore::run(&args)),
        CliCommand::Db(args) => exit_code(
            words,
            db::run(args, &mut Output::for_command_line(words)).await,
        ),
        CliCommand::Completion { shell } => completion::run(shell),
        CliCommand::Send(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            let matches = matches.subcommand_matches("send").unwrap_or(matches);
            let parts = PartArgs::new(&args, matches);
            client
                .run_with_code(async |settings, out| send::run(*args, parts, settings, out).await)
                .await
        }
        CliCommand::Chat(mut args) => {
            let common = args.common.clone();
            let stop_signals = if chat::is_interactive() {
                StopSignals::Terminate
            } else {
                StopSignals::Any(1)
            };
            let client = ClientVerb {
                stop_signals,
                ..ClientVerb::new(words, &mut args.common)
            };
            client
                .run(async |settings, out| chat::run(common, settings, out).await)
                .await
        }
        CliCommand::Task(verb) => run_task(*verb, words).await,
        CliCommand::Card(verb) => run_card(*verb, words).await,
        CliCommand::Push(verb) => run_push(*verb, words).await,
        CliCommand::Auth(verb) => run_auth(*verb, words).await,
        CliCommand::Config(verb) => run_config(*verb, words).await,
        CliCommand::Conformance(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run_with_code(async |settings, out| conformance::run(*args, settings, out).await)
                .await
        }
        CliCommand::Doctor(mut args) => {
            let client = ClientVerb::on_card(words, &mut args.common, args.reference.take());
            client
                .run_with_code(async |settings, out| doctor::run(&args, settings, out).await)
                .await
        }
        CliCommand::Bench(mut args) => {
            let client = ClientVerb {
                // The first signal ends the measurement, which then reports its figures.
                stop_signals: StopSignals::Any(2),
                ..ClientVerb::new(words, &mut args.common)
            };
            client
                .run_with_code(async |settings, out| bench::run(*args, settings, out).await)
                .await
        }
    }
}

async fn run_task(verb: TaskCommand, words: &[OsString]) -> ExitCode {
    match verb {
        TaskCommand::Get(mut args) => {
            let client = ClientVerb::new(words, &mut args.one.common);
            client
                .run(async |settings, out| task::get(args, settings, out).await)
                .await
        }
        TaskCommand::Cancel(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| task::cancel(args, settings, out).await)
                .await
        }
        TaskCommand::Subscribe(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| task::subscribe(args, settings, out).await)
                .await
        }
        TaskCommand::List(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| task_list::run(args, settings, out).await)
                .await
        }
        TaskCommand::Download(mut args) => {
            let client = ClientVerb::new(words, &mut args.one.common);
            client
                .run(async |settings, out| task_download::run(args, settings, out).await)
                .await
        }
        TaskCommand::Wait(mut args) => {
            let client = ClientVerb::new(words, &mut args.one.common);
            client
                .run_with_code(async |settings, out| task_wait::run(args, settings, out).await)
                .await
        }
        TaskCommand::PushConfig(verb) => run_push_config(verb, words).await,
    }
}

async fn run_card(verb: CardCommand, words: &[OsString]) -> ExitCode {
    match verb {
        CardCommand::Get(mut args) => {
            let client = ClientVerb::on_card(words, &mut args.common, args.reference.take());
            client
                .run(async |settings, out| card::get(args, settings, out).await)
                .await
        }
        CardCommand::Lint(mut args) => {
            let client = ClientVerb::on_card(words, &mut args.common, args.reference.take());
            client
                .run_with_code(async |settings, out| card_lint::run(settings, out).await)
                .await
        }
        CardCommand::Sign(mut args) => {
            let client = ClientVerb::on_card(words, &mut args.common, args.reference.take());
            client
                .run(async |settings, out| card_sign::sign(args, settings, out).await)
                .await
        }
        CardCommand::Verify(mut args) => {
            let client = ClientVerb::on_card(words, &mut args.common, args.reference.take());
            client.run(card_sign::verify).await
        }
    }
}

async fn run_config(verb: ConfigCommand, words: &[OsString]) -> ExitCode {
    match verb {
        ConfigCommand::Show(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| config::show(settings, out))
                .await
        }
        ConfigCommand::Set(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| config_set::set(&args.name, &args.value, settings, out))
                .await
        }
        ConfigCommand::Unset(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| config_set::unset(&args.name, settings, out))
                .await
        }
    }
}

async fn run_push(verb: PushCommand, words: &[OsString]) -> ExitCode {
    match verb {
        PushCommand::Listen(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| push_listen::run(*args, settings, out).await)
                .await
        }
        PushCommand::Deliveries(args) => exit_code(words, push::deliveries(&args)),
        PushCommand::Retry(args) => exit_code(words, push::retry(&args)),
    }
}

async fn run_push_config(mut verb: PushConfigCommand, words: &[OsString]) -> ExitCode {
    let common = match &mut verb {
        PushConfigCommand::Create(args) => &mut args.one.common,
        PushConfigCommand::Get(args) | PushConfigCommand::Delete(args) => &mut args.one.common,
        PushConfigCommand::List(args) => &mut args.common,
    };
    let client = ClientVerb::new(words, common);
    client
        .run(async |settings, out| push_config::run(verb, settings, out).await)
        .await
}

async fn run_auth(verb: AuthCommand, words: &[OsString]) -> ExitCode {
    match verb {
        AuthCommand::Login(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| auth::login(args, settings, out).await)
                .await
        }
        AuthCommand::Status(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client.run(auth::status).await
        }
        AuthCommand::Logout(mut args) => {
            let client = ClientVerb::new(words, &mut args.common);
            client
                .run(async |settings, out| auth::logout(&args, settings, out).await)
                .await
        }
    }
}

/// A run of a client verb: loads its settings, bounds it by `--timeout` and signals, and prints its error.
struct ClientVerb<'a> {
    words: &'a [OsString],
    common: CommonFlags,
    stop_signals: StopSignals,
}

/// Signals that stop a verb.
#[derive(Debug, Clone, Copy)]
enum StopSignals {
    /// This number of signals.
    Any(usize),
    /// SIGTERM; the verb handles SIGINT.
    Terminate,
}

impl<'a> ClientVerb<'a> {
    /// Takes the flags out of the arguments of the verb.
    fn new(words: &'a [OsString], common: &mut CommonFlags) -> Self {
        Self {
            words,
            common: std::mem::take(common),
            stop_signals: StopSignals::Any(1),
        }
    }

    /// A verb on a card, whose positional reference overrides `--agent-card`.
    fn on_card(words: &'a [OsString], common: &mut CommonFlags, card: Option<String>) -> Self {
        let mut client = Self::new(words, common);
        client.common.replace(&flags::AGENT_CARD, card);
        client
    }

    async fn run(self, verb: impl AsyncFnOnce(&Settings, &mut Output) -> CliResult) -> ExitCode {
        self.run_with_code(async |settings, out| verb(settings, out).await.map(|()| 0))
            .await
    }

    /// Runs a verb that returns an exit code.
    async fn run_with_code(
        self,
        verb: impl AsyncFnOnce(&Settings, &mut Output) -> CliResult<u8>,
    ) -> ExitCode {
        let settings = match Settings::load(&self.common) {
            Ok(settings) => settings,
            Err(error) => {
                Output::for_command_line(self.words).print_error(&error);
                return ExitCode::from(error.exit);
            }
        };
        let mut out = Output::new(&settings);
        warn_of_exposure(&settings, &mut out);
        match run_bounded(verb, self.stop_signals, &settings, &mut out).await {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                out.print_error(&error);
                ExitCode::from(error.exit)
            }
        }
    }
}

/// Warns of `--insecure`, and of files with credentials that other users can read.
fn warn_of_exposure(settings: &Settings, out: &mut Output) {
    if settings.insecure && settings.has_credential() {
        out.warn(
            "CERTIFICATES ARE NOT CHECKED (--insecure): an attacker on the network can read the credential",
        );
    } else if settings.insecure {
        out.warn("certificates are not checked (--insecure)");
    }
    for file in settings.exposed_files() {
        let file = file.display();
        out.warn(&format!(
            "other users can read {file}, which contains a credential: chmod 600 {file}"
        ));
    }
}

/// Runs a verb until it ends, `--timeout` expires or these signals have arrived.
async fn run_bounded(
    verb: impl AsyncFnOnce(&Settings, &mut Output) -> CliResult<u8>,
    stop_signals: StopSignals,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<u8> {
    let mut interrupts = Interrupts::new()?;
    let timeout = async {
        match settings.timeout {
            Some(timeout) => {
                tokio::time::sleep(timeout).await;
                CliError::timeout(format!("no result within {timeout:?} (--timeout)"))
            }
            None => std::future::pending().await,
        }
    };
    let interrupt = async {
        CliError::interrupted(match stop_signals {
            StopSignals::Any(count) => {
                for _ in 1..count {
                    interrupts.next().await;
                }
                interrupts.exit_code().await
            }
            StopSignals::Terminate => interrupts.terminated().await,
        })
    };
    let stopped = tokio::select! {
        result = verb(settings, out) => return result,
        interrupted = interrupt => interrupted,
        timed_out = timeout => timed_out,
    };
    Err(match out.resume_command() {
        Some(command) => stopped.with_task_note().hint(command),
        None => stopped,
    })
}

/// The task of a verb: the positional id, else `--task-id`.
fn task_id(id: Option<String>, settings: &Settings) -> CliResult<TaskId> {
    id.or_else(|| settings.task_id.clone())
        .map(TaskId::from)
        .ok_or_else(|| CliError::usage("no task is given").hint("give its id, or --task-id"))
}
