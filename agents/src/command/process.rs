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

use super::process_group::{ProcessGroup, ProcessPipes, signal};
use super::{CommandAgent, CommandSettings};

/// How a command ended.
pub(super) enum ProcessEnd {
    /// By itself, or because it was asked to.
    Status(ExitStatus),
    /// It took longer than it may.
    TimedOut,
}

/// A running command. Dropped, it is killed with all of its group, and reaped.
pub(super) struct Process {
    // Before the child: a group may be signalled only while its leader has not been reaped.
    group: ProcessGroup,
    child: Child,
    /// Hears of every child that ends, ours among them.
    child_signals: unix::Signal,
}

impl Process {
    /// Starts the command in a group of its own.
    pub(super) fn start(
        command: &CommandAgent,
        args: &[String],
        turn: &Turn,
    ) -> io::Result<(Self, ProcessPipes)> {
        // Before the start: an end that comes at once is heard too.
        let child_signals = unix::signal(SignalKind::child())?;
        let mut start = tokio::process::Command::new(&command.command_line.program);
        start.args(args).env_clear().envs(
            command
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        );
        start.envs(CommandAgent::turn_env(turn));
        let (group, child, pipes) = ProcessGroup::start(start, command.settings.folder.as_deref())?;
        Ok((
            Self {
                group,
                child,
                child_signals,
            },
            pipes,
        ))
    }

    /// Waits for the end of the command, then ends the rest of its group and says how it ended. Asks it to end when
    /// it is `cancelled` and when its time is over, and kills it when there is `kill`.
    pub(super) async fn end(
        &mut self,
        settings: &CommandSettings,
        cancelled: impl Future<Output = ()>,
        kill: impl Future<Output = ()>,
    ) -> io::Result<ProcessEnd> {
        let id = self.group.id();
        let started_at = Instant::now();
        let terminate = async {
            cancelled.await;
            signal(id, Signal::TERM);
            // If it does not listen, the turn is dropped after its grace, and the group killed.
            std::future::pending::<()>().await;
        };
        let timed_out = async {
            let Some(timeout) = settings.timeout else {
                return std::future::pending().await;
            };
            tokio::time::sleep(timeout).await;
            signal(id, Signal::TERM);
            tokio::time::sleep(settings.kill_after).await;
        };
        tokio::select! {
            exited = exited(id, &mut self.child_signals) => exited?,
            () = kill => {}
            () = timed_out => {}
            () = terminate => {}
        }
        self.group.kill();
        let status = self.child.wait().await?;
        let late = settings
            .timeout
            .is_some_and(|timeout| started_at.elapsed() >= timeout);
        Ok(if late {
            ProcessEnd::TimedOut
        } else {
            ProcessEnd::Status(status)
        })
    }
}

/// How a command failed, for the caller.
pub(super) fn describe_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with exit code {code}"),
        (None, Some(signal)) => format!("the command was killed by signal {signal}"),
        (None, None) => "the command ended in an unknown way".to_owned(),
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::TimedOut => f.write_str("took too long"),
        }
    }
}

/// Waits until the leader has ended, and leaves it to be reaped: until then its id cannot become anybody else's.
async fn exited(leader: Option<Pid>, child_signals: &mut unix::Signal) -> io::Result<()> {
    let Some(leader) = leader else { return Ok(()) };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while waitid(WaitId::Pid(leader), look)?.is_none() {
        child_signals.recv().await;
    }
    Ok(())
}
