//! MCP server as a child process, in its own process group.

use std::io;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::task::TaskTracker;

use super::settings::McpServerSettings;
use crate::command::{ProcessGroup, environment};

/// Maximum number of bytes of stderr that are logged; the rest is discarded.
const MAX_LOGGED: usize = 64 << 10;

/// Running MCP server. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct StdioProcess {
    // Declared before `_leader`, so it is dropped first: the group may be signaled only until its leader is reaped.
    _group: ProcessGroup,
    _leader: tokio::process::Child,
}

impl StdioProcess {
    /// Starts the program. Returns its stdout and stdin for the transport, and logs its stderr in the background.
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
        let (group, leader, pipes) = ProcessGroup::start(
            command,
            settings.folder.as_deref(),
            settings.supervisor.as_ref(),
        )?;
        tasks.spawn(log_stderr(pipes.stderr, program.clone()));
        let process = Self {
            _group: group,
            _leader: leader,
        };
        Ok((process, pipes.stdout, pipes.stdin))
    }
}

/// Reads stderr to its end, even beyond the log limit, so that the program never blocks on a full pipe.
async fn log_stderr(stderr: ChildStderr, program: String) {
    let mut stderr = BufReader::new(stderr);
    let mut buffer = vec![0; 4 << 10];
    let mut logged = 0;
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        if logged < MAX_LOGGED {
            // Debug formatting escapes control characters, which could move the cursor of a terminal (S55).
            let text = String::from_utf8_lossy(&buffer[..read]);
            tracing::info!(program, ?text, "mcp server wrote to stderr");
        }
        logged += read;
    }
}
