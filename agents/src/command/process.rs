//! A running command, and how it ends.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use attache::Turn;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

use super::group::{Group, Pipes, signal};
use super::{Command, CommandSettings};

/// How a command ended.
pub(super) enum Ended {
    /// By itself, or because it was asked to.
    Status(ExitStatus),
    /// It took longer than it may.
    TooLate,
}

/// A running command. Dropped, it is killed with all of its group, and reaped.
pub(super) struct Process {
    // Before the child: a group may be signalled only while its leader has not been reaped.
    group: Group,
    child: Child,
    /// Hears of every child that ends, ours among them.
    children: unix::Signal,
}

impl Process {
    /// Starts the command in a group of its own.
    pub(super) fn start(
        command: &Command,
        args: &[String],
        turn: &Turn,
    ) -> io::Result<(Self, Pipes)> {
        // Before the start: an end that comes at once is heard too.
        let children = unix::signal(SignalKind::child())?;
        let mut start = tokio::process::Command::new(&command.line.program);
        start.args(args).env_clear().envs(
            command
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        );
        start.envs(Command::about(turn));
        let (group, child, pipes) = Group::start(start, command.settings.folder.as_deref())?;
        Ok((
            Self {
                group,
                child,
                children,
            },
            pipes,
        ))
    }

    /// Waits for the end of the command, then ends the rest of its group and says how it ended. Asks it to end when
    /// it is `cancelled` and when its time is over, and kills it when there is `enough`.
    pub(super) async fn end(
        &mut self,
        settings: &CommandSettings,
        cancelled: impl Future<Output = ()>,
        enough: impl Future<Output = ()>,
    ) -> io::Result<Ended> {
        let id = self.group.id();
        let begun = Instant::now();
        let ask = async {
            cancelled.await;
            signal(id, Signal::TERM);
            // If it does not listen, the turn is dropped after its grace, and the group killed.
            std::future::pending::<()>().await;
        };
        let overdue = async {
            let Some(timeout) = settings.timeout else {
                return std::future::pending().await;
            };
            tokio::time::sleep(timeout).await;
            signal(id, Signal::TERM);
            tokio::time::sleep(settings.kill_after).await;
        };
        tokio::select! {
            exited = exited(id, &mut self.children) => exited?,
            () = enough => {}
            () = overdue => {}
            () = ask => {}
        }
        self.group.kill();
        let status = self.child.wait().await?;
        let late = settings
            .timeout
            .is_some_and(|timeout| begun.elapsed() >= timeout);
        Ok(if late {
            Ended::TooLate
        } else {
            Ended::Status(status)
        })
    }
}

/// How a command failed, for the caller.
pub(super) fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with exit code {code}"),
        (None, Some(signal)) => format!("the command was killed by signal {signal}"),
        (None, None) => "the command ended in an unknown way".to_owned(),
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::TooLate => f.write_str("took too long"),
        }
    }
}

/// Waits until the leader has ended, and leaves it to be reaped: until then its id cannot become anybody else's.
async fn exited(leader: Option<Pid>, children: &mut unix::Signal) -> io::Result<()> {
    let Some(leader) = leader else { return Ok(()) };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while waitid(WaitId::Pid(leader), look)?.is_none() {
        children.recv().await;
    }
    Ok(())
}
