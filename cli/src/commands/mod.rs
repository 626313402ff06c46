//! One file per verb.

mod auth;
mod bench;
mod card;
mod card_lint;
mod card_sign;
mod chat;
mod check;
mod completion;
mod config;
mod conformance;
mod conformance_kit;
mod db;
mod demo;
mod init;
mod keys;
mod mcp;
mod mock;
mod push;
mod push_config;
mod push_listen;
mod send;
mod serve;
mod task;
mod task_download;
mod task_list;
mod task_wait;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;

use crate::args::parse;
use crate::args::{
    AuthCommand, CardCommand, CliCommand, CommonFlags, ConfigCommand, PushCommand,
    PushConfigCommand, TaskCommand,
};
use crate::error::{CliError, CliResult};
use crate::exit;
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::parts::PartArgs;
use crate::settings::Settings;
pub(crate) use auth::LoginFlow;

pub(crate) async fn run(command: CliCommand, matches: &ArgMatches, words: &[OsString]) -> ExitCode {
    match command {
        CliCommand::Demo(args) => exit::exit_code(demo::run(args).await),
        CliCommand::Serve(args) => exit::exit_code(serve::run(args).await),
        CliCommand::Mcp(args) => {
            let ended = tokio::task::spawn_blocking(move || mcp::run(args)).await;
            ended.unwrap_or(ExitCode::FAILURE)
        }
        CliCommand::Mock(args) => exit::exit_code(mock::run(args).await),
        CliCommand::Check(args) => exit::exit_code(check::run(&args).await),
        CliCommand::Init(args) => exit::exit_code(init::run(&args)),
        CliCommand::Keys(args) => exit::exit_code(keys::run(args)),
        CliCommand::Db(args) => exit::exit_code(db::run(args).await),
        CliCommand::Send(mut args) => {
            let common = std::mem::take(&mut args.common);
            let parts = PartArgs::new(&args, matches.subcommand_matches("send").unwrap_or(matches));
            run_client(words, &common, async |settings, out| {
                send::run(*args, parts, settings, out).await.map(|()| 0)
            })
            .await
        }
        CliCommand::Chat(args) => {
            run_client(words, &args.common, async |settings, out| {
                chat::run(settings, out).await.map(|()| 0)
            })
            .await
        }
        CliCommand::Task(verb) => task_verb(*verb, words).await,
        CliCommand::Card(verb) => match *verb {
            CardCommand::Get(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                run_client(words, &common, async |settings, out| {
                    card::get(args, settings, out).await.map(|()| 0)
                })
                .await
            }
            CardCommand::Lint(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                run_client(words, &common, async |settings, out| {
                    card_lint::run(args.exit_code, settings, out).await
                })
                .await
            }
            CardCommand::Sign(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                run_client(words, &common, async |settings, out| {
                    card_sign::sign(args, settings, out).await.map(|()| 0)
                })
                .await
            }
            CardCommand::Verify(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                run_client(words, &common, async |settings, out| {
                    card_sign::verify(settings, out).await.map(|()| 0)
                })
                .await
            }
        },
        CliCommand::Push(verb) => match *verb {
            PushCommand::Listen(mut args) => {
                let common = std::mem::take(&mut args.common);
                run_client(words, &common, async |settings, out| {
                    push_listen::run(*args, settings, out).await.map(|()| 0)
                })
                .await
            }
            PushCommand::Deliveries(args) => exit::exit_code(push::deliveries(&args)),
            PushCommand::Retry(args) => exit::exit_code(push::retry(&args)),
        },
        CliCommand::Auth(verb) => auth_verb(*verb, words).await,
        CliCommand::Config(verb) => match *verb {
            ConfigCommand::Show(args) => {
                run_client(words, &args.common, async |settings, out| {
                    config::show(settings, out).map(|()| 0)
                })
                .await
            }
        },
        CliCommand::Conformance(mut args) => {
            let common = std::mem::take(&mut args.common);
            run_client(words, &common, async |settings, out| {
                conformance::run(*args, settings, out).await
            })
            .await
        }
        CliCommand::Bench(mut args) => {
            let common = std::mem::take(&mut args.common);
            // The first interrupt ends what is measured.
            run_client_until(2, words, &common, async |settings, out| {
                bench::run(*args, settings, out).await
            })
            .await
        }
        CliCommand::Completion { shell } => completion::run(shell),
    }
}

async fn task_verb(verb: TaskCommand, words: &[OsString]) -> ExitCode {
    match verb {
        TaskCommand::Get(mut args) => {
            let common = std::mem::take(&mut args.one.common);
            run_client(words, &common, async |settings, out| {
                task::get(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        TaskCommand::Cancel(mut args) => {
            let common = std::mem::take(&mut args.common);
            run_client(words, &common, async |settings, out| {
                task::cancel(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        TaskCommand::Subscribe(mut args) => {
            let common = std::mem::take(&mut args.common);
            run_client(words, &common, async |settings, out| {
                task::subscribe(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        TaskCommand::List(mut args) => {
            let common = std::mem::take(&mut args.common);
            run_client(words, &common, async |settings, out| {
                task_list::run(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        TaskCommand::Download(mut args) => {
            let common = std::mem::take(&mut args.one.common);
            run_client(words, &common, async |settings, out| {
                task_download::run(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        TaskCommand::Wait(mut args) => {
            let common = std::mem::take(&mut args.one.common);
            run_client(words, &common, async |settings, out| {
                task_wait::run(args, settings, out).await
            })
            .await
        }
        TaskCommand::PushConfig(verb) => push_verb(verb, words).await,
    }
}

async fn auth_verb(verb: AuthCommand, words: &[OsString]) -> ExitCode {
    match verb {
        AuthCommand::Login(mut args) => {
            let common = std::mem::take(&mut args.common);
            run_client(words, &common, async |settings, out| {
                auth::login(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        AuthCommand::Status(args) => {
            run_client(words, &args.common, async |settings, out| {
                auth::status(settings, out).await.map(|()| 0)
            })
            .await
        }
        AuthCommand::Logout(mut args) => {
            let common = std::mem::take(&mut args.common);
            run_client(words, &common, async |settings, out| {
                auth::logout(&args, settings, out).await.map(|()| 0)
            })
            .await
        }
    }
}

async fn push_verb(mut verb: PushConfigCommand, words: &[OsString]) -> ExitCode {
    let common = std::mem::take(match &mut verb {
        PushConfigCommand::Create(args) => &mut args.one.common,
        PushConfigCommand::Get(args) | PushConfigCommand::Delete(args) => &mut args.one.common,
        PushConfigCommand::List(args) => &mut args.common,
    });
    run_client(words, &common, async |settings, out| {
        push_config::run(verb, settings, out).await.map(|()| 0)
    })
    .await
}

/// Runs a verb that talks to an agent: within its time, until somebody stops it, and whatever happens is reported.
async fn run_client(
    words: &[OsString],
    common: &CommonFlags,
    verb: impl AsyncFnOnce(&Settings, &mut Output) -> CliResult<u8>,
) -> ExitCode {
    run_client_until(1, words, common, verb).await
}

/// The same until somebody has stopped it so many times.
async fn run_client_until(
    times: usize,
    words: &[OsString],
    common: &CommonFlags,
    verb: impl AsyncFnOnce(&Settings, &mut Output) -> CliResult<u8>,
) -> ExitCode {
    let settings = match parse::load_settings(common) {
        Ok(settings) => settings,
        Err(failure) => {
            let (format, stream) = parse::error_format(words);
            Output::with_format(format, stream).print_error(&failure);
            return ExitCode::from(failure.exit);
        }
    };
    let mut out = Output::new(&settings);
    match (settings.insecure, settings.has_credential()) {
        (true, true) => out.warn(
            "CERTIFICATES ARE NOT CHECKED (--insecure): anybody on the way can take the credential",
        ),
        (true, false) => out.warn("certificates are not checked (--insecure)"),
        (false, _) => {}
    }
    for file in settings.exposed_files() {
        let file = file.display();
        out.warn(&format!(
            "others on this machine can read {file}, which holds a credential: chmod 600 {file}"
        ));
    }
    let result = match Interrupts::new() {
        Ok(interrupts) => run_bounded(verb, (interrupts, times), &settings, &mut out).await,
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            out.print_error(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

async fn run_bounded(
    verb: impl AsyncFnOnce(&Settings, &mut Output) -> CliResult<u8>,
    (mut interrupts, times): (Interrupts, usize),
    settings: &Settings,
    out: &mut Output,
) -> CliResult<u8> {
    let time_is_up = async {
        match settings.timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let interrupted = async {
        for _ in 1..times {
            interrupts.next().await;
        }
        interrupts.exit_code().await
    };
    let stopped = tokio::select! {
        done = verb(settings, out) => return done,
        exit = interrupted => CliError::interrupted(exit),
        () = time_is_up => CliError::timeout(format!("it took longer than {}", format_timeout(settings.timeout))),
    };
    Err(match out.resume_command() {
        Some(command) => stopped.with_task_note().hint(command),
        None => stopped,
    })
}

fn format_timeout(timeout: Option<Duration>) -> String {
    timeout
        .map(|timeout| format!("{timeout:?}"))
        .unwrap_or_default()
}

/// The task that a verb is about: named, or set.
fn task_id(named: Option<String>, settings: &Settings) -> CliResult<attache::model::TaskId> {
    let id = named.or_else(|| settings.task_id.clone());
    id.map(Into::into)
        .ok_or_else(|| CliError::usage("no task is named").hint("say which: its id, or --task-id"))
}
