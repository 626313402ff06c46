//! A running program, and the way it ends.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

use super::CommandSettings;
use super::process_group::{ProcessGroup, ProcessPipes, signal};
use crate::supervisor::Supervisor;

/// Time in which a supervising process ends the program and its descendants. Then its process group is killed.
const SUPERVISED_END_TIMEOUT: Duration = Duration::from_secs(5);

/// End of a process.
pub(super) enum ProcessEnd {
    /// The process exited by itself, after SIGTERM, or by SIGKILL.
    Exited(ExitStatus),
    /// The process ran longer than its timeout.
    TimedOut,
}

/// Running process group. Dropping it kills the group and reaps the leader.
pub(crate) struct Process {
    // Declared before `child`, so it is dropped first: the group may be signaled only until its leader is reaped.
    group: ProcessGroup,
    child: Child,
    /// SIGCHLD notifications. They arrive for every child of this process.
    child_signals: unix::Signal,
}

impl Process {
    /// Starts a program in a new process group. `program` must have a cleared environment.
    pub(crate) fn start(
        program: Command,
        folder: Option<&Path>,
        supervisor: Option<&Supervisor>,
    ) -> io::Result<(Self, ProcessPipes)> {
        // Registered before the start, so that no SIGCHLD is missed.
        let child_signals = unix::signal(SignalKind::child())?;
        let (group, child, pipes) = ProcessGroup::start(program, folder, supervisor)?;
        let process = Self {
            group,
            child,
            child_signals,
        };
        Ok((process, pipes))
    }

    /// Waits until the program ends, then kills the rest of its group.
    ///
    /// Sends SIGTERM when `cancelled` resolves and at the timeout, and SIGKILL when `kill` resolves.
    pub(super) async fn wait(
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
            // If the program ignores SIGTERM, the turn is dropped after the grace period, which kills the group.
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
            exited = wait_for_exit(id, &mut self.child_signals) => exited?,
            () = kill => {}
            () = timed_out => {}
            () = terminate => {}
        }
        let status = self.end().await?;
        let has_timed_out = settings
            .timeout
            .is_some_and(|timeout| started_at.elapsed() >= timeout);
        Ok(if has_timed_out {
            ProcessEnd::TimedOut
        } else {
            ProcessEnd::Exited(status)
        })
    }

    /// Waits until the program ends or `kill` resolves, then kills the rest of its group.
    pub(crate) async fn wait_or_kill(
        &mut self,
        kill: impl Future<Output = ()>,
    ) -> io::Result<ExitStatus> {
        let id = self.group.id();
        tokio::select! {
            exited = wait_for_exit(id, &mut self.child_signals) => exited?,
            () = kill => {}
        }
        self.end().await
    }

    /// Kills the processes of the group that are left, and reaps the leader.
    async fn end(&mut self) -> io::Result<ExitStatus> {
        self.group.request_end();
        let ended = wait_for_exit(self.group.id(), &mut self.child_signals);
        let _ = tokio::time::timeout(SUPERVISED_END_TIMEOUT, ended).await;
        self.group.kill();
        self.child.wait().await
    }
}

/// Describes a failed exit status to the caller.
pub(super) fn describe_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with exit code {code}"),
        (None, Some(signal)) => format!("the command was killed by signal {signal}"),
        (None, None) => "the command ended with an unknown status".to_owned(),
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "{status}"),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

/// Waits until the leader has exited, without reaping it: until it is reaped, its process id is not reused.
async fn wait_for_exit(leader: Option<Pid>, child_signals: &mut unix::Signal) -> io::Result<()> {
    let Some(leader) = leader else { return Ok(()) };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while waitid(WaitId::Pid(leader), options)?.is_none() {
        child_signals.recv().await;
    }
    Ok(())
}
