//! A program with its group: however it ends, nobody of the group is left.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// The processes of a program. Its id is that of the leader, and is nobody else's until the leader is reaped. Dropped,
/// it is killed: whoever holds both drops it before the leader.
#[derive(Debug)]
pub(crate) struct ProcessGroup(Option<Pid>);

/// What a program is spoken with.
pub(crate) struct ProcessPipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl ProcessGroup {
    /// Starts a program in a group of its own, with pipes to it.
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
        let group = Self(
            leader
                .id()
                .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
        );
        let missing = || io::Error::other("a pipe of the program is missing");
        let pipes = ProcessPipes {
            stdin: leader.stdin.take().ok_or_else(missing)?,
            stdout: leader.stdout.take().ok_or_else(missing)?,
            stderr: leader.stderr.take().ok_or_else(missing)?,
        };
        Ok((group, leader, pipes))
    }

    /// The id of the leader, unless it was killed.
    pub(super) fn id(&self) -> Option<Pid> {
        self.0
    }

    /// Kills whoever is left; once, as the leader is reaped after that.
    pub(super) fn kill(&mut self) {
        signal(self.0.take(), Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A group that is gone needs no signal.
pub(super) fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}
