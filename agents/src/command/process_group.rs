//! Process groups: a started program and its descendants end together.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::supervisor::{END_SIGNAL, Supervisor};

/// Process group of a program, identified by the process id of its leader.
///
/// Dropping it kills the group, and below a supervising process also descendants that left the group. The id is not reused
/// until the leader is reaped, so an owner of both must drop the group before the leader.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    leader: Option<Pid>,
    is_supervised: bool,
}

/// Standard streams of a program.
pub(crate) struct ProcessPipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl ProcessGroup {
    /// Starts a program in a new process group, with pipes for its standard streams. With a supervisor, the supervising
    /// process is the leader of the group. `command` must have a cleared environment.
    pub(crate) fn start(
        mut command: Command,
        folder: Option<&Path>,
        supervisor: Option<&Supervisor>,
    ) -> io::Result<(Self, Child, ProcessPipes)> {
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        if let Some(supervisor) = supervisor {
            command = supervisor.wrap(command.as_std())?;
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A supervising process that is killed leaves descendants behind.
        let is_supervised = supervisor.is_some();
        command.process_group(0).kill_on_drop(!is_supervised);
        let mut leader = command.spawn()?;
        let id = leader.id().and_then(|id| i32::try_from(id).ok());
        let group = Self {
            leader: id.and_then(Pid::from_raw),
            is_supervised,
        };
        let missing = || io::Error::other("a pipe of the program is missing");
        let pipes = ProcessPipes {
            stdin: leader.stdin.take().ok_or_else(missing)?,
            stdout: leader.stdout.take().ok_or_else(missing)?,
            stderr: leader.stderr.take().ok_or_else(missing)?,
        };
        Ok((group, leader, pipes))
    }

    /// Returns the process id of the leader, or `None` after [`kill`](Self::kill).
    pub(super) fn id(&self) -> Option<Pid> {
        self.leader
    }

    /// Kills the program and its descendants. A supervising process does it on request, and then ends.
    pub(super) fn request_end(&self) {
        match self.leader {
            Some(leader) if self.is_supervised && !has_exited(leader) => request_end(leader),
            leader => signal(leader, Signal::KILL),
        }
    }

    /// Kills all processes of the group. Does nothing the second time, because the leader may have been reaped.
    pub(super) fn kill(&mut self) {
        signal(self.leader.take(), Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.request_end();
    }
}

/// Requests the end of a supervising process. It may be stopped: programs can stop their process group.
fn request_end(supervising: Pid) {
    if let Some(end) = Signal::from_named_raw(END_SIGNAL) {
        let _ = kill_process(supervising, end);
    }
    let _ = kill_process(supervising, Signal::CONT);
}

fn has_exited(leader: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(leader), options), Ok(None))
}

/// Sends a signal to a group. A group without processes is not an error.
pub(super) fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}
