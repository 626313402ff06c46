//! Arguments of `attache task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{CommonFlags, PushConfigCommand};

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Show a task: its state, artifacts and history.
    Get(TaskGetArgs),
    /// Cancel a task.
    Cancel(TaskIdArgs),
    /// List tasks, a page at a time.
    List(TaskListArgs),
    /// Follow the events of a task, across lost connections.
    Subscribe(TaskIdArgs),
    /// Write the artifacts of a task to files.
    Download(TaskDownloadArgs),
    /// Webhooks of a task.
    #[command(subcommand)]
    PushConfig(PushConfigCommand),
    /// Wait for a task; the exit code can report its outcome.
    Wait(TaskWaitArgs),
}

/// Arguments of a verb on one task.
#[derive(Debug, Args)]
pub(crate) struct TaskIdArgs {
    /// Id of the task
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TaskGetArgs {
    /// Maximum number of history messages [default: the one of the server]
    #[arg(long, value_name = "N")]
    pub(crate) history: Option<i32>,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskListArgs {
    /// Only tasks in this state: completed, input-required, TASK_STATE_WORKING
    #[arg(long, value_name = "STATE")]
    pub(crate) status: Option<String>,
    /// Maximum number of tasks per page
    #[arg(long, value_name = "N")]
    pub(crate) page_size: Option<i32>,
    /// Token of the next page, from the previous one
    #[arg(long, value_name = "TOKEN")]
    pub(crate) page_token: Option<String>,
    /// All pages
    #[arg(long)]
    pub(crate) all: bool,
    /// Only tasks whose status changed at this time or later, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Include artifacts
    #[arg(long)]
    pub(crate) include_artifacts: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TaskDownloadArgs {
    /// Target directory [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Only this artifact, by id; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) artifact: Vec<String>,
    /// Overwrite existing files
    #[arg(long)]
    pub(crate) force: bool,
    /// Also fetch parts given by URL, without credentials and only from the public internet
    #[arg(long)]
    pub(crate) fetch_urls: bool,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskWaitArgs {
    /// Keep waiting through interruptions that are resolved elsewhere: auth or input; may be repeated
    #[arg(long, value_name = "WHAT")]
    pub(crate) through: Vec<String>,
    /// Wait for this state, or a final one
    #[arg(long, value_name = "STATE")]
    pub(crate) until: Option<String>,
    /// Exit with 10 failed, 11 rejected, 12 canceled, 13 input required, 14 auth required
    #[arg(long)]
    pub(crate) exit_on_outcome: bool,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}
