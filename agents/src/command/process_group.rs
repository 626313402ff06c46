//! Process groups: a started program and its descendants end together.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// Process group of a program, identified by the process id of its leader.
///
/// Dropping it kills the group. The id is not reused until the leader is reaped, so an owner of both must drop the group
/// before the leader.
#[derive(Debug)]
pub(crate) struct ProcessGroup(Option<Pid>);

/// Standard streams of a program.
pub(crate) struct ProcessPipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl ProcessGroup {
    /// Starts a program in a new process group, with pipes for its standard streams.
    pub(crate) fn start(
        mut command: Command,
        folder: Option<&Path>,
    ) -> io::Result<(Self, Child, ProcessPipes)> {
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut leader = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = leader.id().and_then(|id| i32::try_from(id).ok());
        let group = Self(id.and_then(Pid::from_raw));
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
        self.0
    }

    /// Kills all processes of the group. Does nothing the second time, because the leader may have been reaped.
    pub(super) fn kill(&mut self) {
        signal(self.0.take(), Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a group. A group without processes is not an error.
pub(super) fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}
