//! An MCP server that is a program: started in a group of its own, which ends with it.

use std::io;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::task::TaskTracker;

use super::settings::McpServerSettings;
use crate::command::{Group, environment};

/// How much of stderr is logged; the rest is thrown away.
const MAX_LOGGED: usize = 64 << 10;

/// A running program. Dropped, it is killed with all of its group.
#[derive(Debug)]
pub(super) struct Child {
    // Before the leader: a group may be signalled only while its leader has not been reaped.
    _group: Group,
    _leader: tokio::process::Child,
}

impl Child {
    /// Starts it; gives the pipes that it speaks over.
    pub(super) fn start(
        settings: &McpServerSettings,
        tasks: &TaskTracker,
    ) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let (program, args) = settings.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        if let Some(folder) = &settings.folder {
            command.current_dir(folder);
        }
        let mut leader = command
            .args(args)
            .env_clear()
            .envs(environment(&settings.pass_env, &settings.env))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Group::of(&leader);
        let missing = || io::Error::other("a pipe of the program is missing");
        let stdin = leader.stdin.take().ok_or_else(missing)?;
        let stdout = leader.stdout.take().ok_or_else(missing)?;
        let stderr = leader.stderr.take().ok_or_else(missing)?;
        tasks.spawn(log(stderr, program.clone()));
        Ok((Self { _group: group, _leader: leader }, stdout, stdin))
    }
}

/// Takes all that comes, so that the program never waits for us, until the pipe is closed.
async fn log(stderr: ChildStderr, program: String) {
    let (mut stderr, mut buffer, mut logged) = (BufReader::new(stderr), vec![0; 4 << 10], 0);
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        if logged < MAX_LOGGED {
            // As debug: what would move the cursor of whoever reads the log is escaped.
            tracing::info!(program, text = ?String::from_utf8_lossy(&buffer[..read]), "mcp server wrote to stderr");
        }
        logged += read;
    }
}
