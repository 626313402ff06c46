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
mod db;
mod demo;
mod init;
mod keys;
mod kit;
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

use crate::args::{Auth, Card, Command, Common, Config, Push, PushConfig, Task};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::parts::Ordered;
use crate::settings::Settings;
use crate::typed;
pub(crate) use auth::Flow;

pub(crate) async fn run(command: Command, matches: &ArgMatches, words: &[OsString]) -> ExitCode {
    match command {
        Command::Demo(args) => exit::code(demo::run(args).await),
        Command::Serve(args) => exit::code(serve::run(args).await),
        Command::Mcp(args) => {
            let ended = tokio::task::spawn_blocking(move || mcp::run(args)).await;
            ended.unwrap_or(ExitCode::FAILURE)
        }
        Command::Mock(args) => exit::code(mock::run(args).await),
        Command::Check(args) => exit::code(check::run(&args).await),
        Command::Init(args) => exit::code(init::run(&args)),
        Command::Keys(args) => exit::code(keys::run(args)),
        Command::Db(args) => exit::code(db::run(args).await),
        Command::Send(mut args) => {
            let common = std::mem::take(&mut args.common);
            let parts = Ordered::new(&args, matches.subcommand_matches("send").unwrap_or(matches));
            talk(words, &common, async |settings, out| {
                send::run(*args, parts, settings, out).await.map(|()| 0)
            })
            .await
        }
        Command::Chat(args) => {
            talk(words, &args.common, async |settings, out| {
                chat::run(settings, out).await.map(|()| 0)
            })
            .await
        }
        Command::Task(verb) => task_verb(*verb, words).await,
        Command::Card(verb) => match *verb {
            Card::Get(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                talk(words, &common, async |settings, out| {
                    card::get(args, settings, out).await.map(|()| 0)
                })
                .await
            }
            Card::Lint(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                talk(words, &common, async |settings, out| {
                    card_lint::run(args.exit_code, settings, out).await
                })
                .await
            }
            Card::Sign(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                talk(words, &common, async |settings, out| {
                    card_sign::sign(args, settings, out).await.map(|()| 0)
                })
                .await
            }
            Card::Verify(mut args) => {
                let mut common = std::mem::take(&mut args.common);
                common.agent_card = args.reference.take().or(common.agent_card);
                talk(words, &common, async |settings, out| {
                    card_sign::verify(settings, out).await.map(|()| 0)
                })
                .await
            }
        },
        Command::Push(verb) => match *verb {
            Push::Listen(mut args) => {
                let common = std::mem::take(&mut args.common);
                talk(words, &common, async |settings, out| {
                    push_listen::run(*args, settings, out).await.map(|()| 0)
                })
                .await
            }
            Push::Deliveries(args) => exit::code(push::deliveries(&args)),
            Push::Retry(args) => exit::code(push::retry(&args)),
        },
        Command::Auth(verb) => auth_verb(*verb, words).await,
        Command::Config(verb) => match *verb {
            Config::Show(args) => {
                talk(words, &args.common, async |settings, out| {
                    config::show(settings, out).map(|()| 0)
                })
                .await
            }
        },
        Command::Conformance(mut args) => {
            let common = std::mem::take(&mut args.common);
            talk(words, &common, async |settings, out| {
                conformance::run(*args, settings, out).await
            })
            .await
        }
        Command::Bench(mut args) => {
            let common = std::mem::take(&mut args.common);
            // The first interrupt ends what is measured.
            talk_until(2, words, &common, async |settings, out| {
                bench::run(*args, settings, out).await
            })
            .await
        }
        Command::Completion { shell } => completion::run(shell),
    }
}

async fn task_verb(verb: Task, words: &[OsString]) -> ExitCode {
    match verb {
        Task::Get(mut args) => {
            let common = std::mem::take(&mut args.one.common);
            talk(words, &common, async |settings, out| {
                task::get(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        Task::Cancel(mut args) => {
            let common = std::mem::take(&mut args.common);
            talk(words, &common, async |settings, out| {
                task::cancel(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        Task::Subscribe(mut args) => {
            let common = std::mem::take(&mut args.common);
            talk(words, &common, async |settings, out| {
                task::subscribe(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        Task::List(mut args) => {
            let common = std::mem::take(&mut args.common);
            talk(words, &common, async |settings, out| {
                task_list::run(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        Task::Download(mut args) => {
            let common = std::mem::take(&mut args.one.common);
            talk(words, &common, async |settings, out| {
                task_download::run(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        Task::Wait(mut args) => {
            let common = std::mem::take(&mut args.one.common);
            talk(words, &common, async |settings, out| {
                task_wait::run(args, settings, out).await
            })
            .await
        }
        Task::PushConfig(verb) => push_verb(verb, words).await,
    }
}

async fn auth_verb(verb: Auth, words: &[OsString]) -> ExitCode {
    match verb {
        Auth::Login(mut args) => {
            let common = std::mem::take(&mut args.common);
            talk(words, &common, async |settings, out| {
                auth::login(args, settings, out).await.map(|()| 0)
            })
            .await
        }
        Auth::Status(args) => {
            talk(words, &args.common, async |settings, out| {
                auth::status(settings, out).await.map(|()| 0)
            })
            .await
        }
        Auth::Logout(mut args) => {
            let common = std::mem::take(&mut args.common);
            talk(words, &common, async |settings, out| {
                auth::logout(&args, settings, out).await.map(|()| 0)
            })
            .await
        }
    }
}

async fn push_verb(mut verb: PushConfig, words: &[OsString]) -> ExitCode {
    let common = std::mem::take(match &mut verb {
        PushConfig::Create(args) => &mut args.one.common,
        PushConfig::Get(args) | PushConfig::Delete(args) => &mut args.one.common,
        PushConfig::List(args) => &mut args.common,
    });
    talk(words, &common, async |settings, out| {
        push_config::run(verb, settings, out).await.map(|()| 0)
    })
    .await
}

/// Runs a verb that talks to an agent: within its time, until somebody stops it, and whatever happens is reported.
async fn talk(
    words: &[OsString],
    common: &Common,
    verb: impl AsyncFnOnce(&Settings, &mut Output) -> Outcome<u8>,
) -> ExitCode {
    talk_until(1, words, common, verb).await
}

/// The same until somebody has stopped it so many times.
async fn talk_until(
    times: usize,
    words: &[OsString],
    common: &Common,
    verb: impl AsyncFnOnce(&Settings, &mut Output) -> Outcome<u8>,
) -> ExitCode {
    let settings = match typed::settings(common) {
        Ok(settings) => settings,
        Err(failure) => {
            let (format, stream) = typed::format_of(words);
            Output::plain(format, stream).failure(&failure);
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
    for file in settings.exposed() {
        let file = file.display();
        out.warn(&format!(
            "others on this machine can read {file}, which holds a credential: chmod 600 {file}"
        ));
    }
    let result = match Interrupts::new() {
        Ok(interrupts) => bounded(verb, (interrupts, times), &settings, &mut out).await,
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            out.failure(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

async fn bounded(
    verb: impl AsyncFnOnce(&Settings, &mut Output) -> Outcome<u8>,
    (mut interrupts, times): (Interrupts, usize),
    settings: &Settings,
    out: &mut Output,
) -> Outcome<u8> {
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
        exit = interrupted => Failure::interrupted(exit),
        () = time_is_up => Failure::timeout(format!("it took longer than {}", shown(settings.timeout))),
    };
    Err(match out.resume() {
        Some(command) => stopped.of_a_task().hint(command),
        None => stopped,
    })
}

fn shown(timeout: Option<Duration>) -> String {
    timeout
        .map(|timeout| format!("{timeout:?}"))
        .unwrap_or_default()
}

/// The task that a verb is about: named, or set.
fn task_id(named: Option<String>, settings: &Settings) -> Outcome<attache::model::TaskId> {
    let id = named.or_else(|| settings.task_id.clone());
    id.map(Into::into)
        .ok_or_else(|| Failure::usage("no task is named").hint("say which: its id, or --task-id"))
}
