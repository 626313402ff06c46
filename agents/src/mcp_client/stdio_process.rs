//! An MCP server that is a program: started in a group of its own, which ends with it.

use std::io;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::task::TaskTracker;

use super::settings::McpServerSettings;
use crate::command::{ProcessGroup, ProcessPipes, environment};

/// How much of stderr is logged; the rest is thrown away.
const MAX_LOGGED: usize = 64 << 10;

/// A running program. Dropped, it is killed with all of its group.
#[derive(Debug)]
pub(super) struct StdioProcess {
    // Before the leader: a group may be signalled only while its leader has not been reaped.
    _group: ProcessGroup,
    _leader: tokio::process::Child,
}

impl StdioProcess {
    /// Starts it; gives the pipes that it speaks over.
    pub(super) fn start(
        settings: &McpServerSettings,
        tasks: &TaskTracker,
    ) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let (program, args) = settings
            .command
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(environment(&settings.pass_env, &settings.env));
        let (group, leader, pipes) = ProcessGroup::start(command, settings.folder.as_deref())?;
        let ProcessPipes {
            stdin,
            stdout,
            stderr,
        } = pipes;
        tasks.spawn(log_stderr(stderr, program.clone()));
        Ok((
            Self {
                _group: group,
                _leader: leader,
            },
            stdout,
            stdin,
        ))
    }
}

/// Takes all that comes, so that the program never waits for us, until the pipe is closed.
async fn log_stderr(stderr: ChildStderr, program: String) {
    let (mut stderr, mut buffer, mut logged) = (BufReader::new(stderr), vec![0; 4 << 10], 0);
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        if logged < MAX_LOGGED {
            // As debug: what would move the cursor of whoever reads the log is escaped.
            tracing::info!(program, text = ?String::from_utf8_lossy(&buffer[..read]), "mcp server wrote to stderr");
        }
        logged += read;
    }
}
