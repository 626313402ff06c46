//! A process with its group: however it ends, nobody of the group is left.

use std::io;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::signal::unix::{self, SignalKind};

use super::Command;

/// A running command. Dropped, it is killed with all of its group, and reaped.
pub(super) struct Process {
    // Before the child: a group may be signalled only while its leader has not been reaped.
    group: Group,
    child: Child,
    /// Hears of every child that ends, ours among them.
    children: unix::Signal,
}

pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// The processes of a command. Its id is that of the leader, and is nobody else's until the leader is reaped.
struct Group(Option<Pid>);

impl Process {
    /// Starts the command in a group of its own.
    pub(super) fn start(command: &Command) -> io::Result<(Self, Pipes)> {
        // Before the start: an end that comes at once is heard too.
        let children = unix::signal(SignalKind::child())?;
        let mut child = tokio::process::Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let group = Group(id);
        let missing = || io::Error::other("a pipe of the command is missing");
        let pipes = Pipes {
            stdin: child.stdin.take().ok_or_else(missing)?,
            stdout: child.stdout.take().ok_or_else(missing)?,
            stderr: child.stderr.take().ok_or_else(missing)?,
        };
        Ok((Self { group, child, children }, pipes))
    }

    /// Waits for the end of the command, then ends the rest of its group and gives the exit status. Asks it to end
    /// when it is `cancelled`, and kills it when it is `too_much`.
    pub(super) async fn end(
        &mut self,
        cancelled: impl Future<Output = ()>,
        too_much: impl Future<Output = ()>,
    ) -> io::Result<ExitStatus> {
        let id = self.group.0;
        let ask = async {
            cancelled.await;
            signal(id, Signal::TERM);
            // If it does not listen, the turn is dropped after its grace, and the group killed.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            exited = exited(id, &mut self.children) => exited?,
            () = too_much => {}
            () = ask => {}
        }
        self.group.kill();
        self.child.wait().await
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

impl Group {
    /// Kills whoever is left; once, as the leader is reaped after that.
    fn kill(&mut self) {
        signal(self.0.take(), Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A group that is gone needs no signal.
fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}
