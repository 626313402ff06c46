//! What can be typed of tasks.

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
    /// Follow a task, also across cuts.
    Subscribe(TaskIdArgs),
    /// Write the artifacts of a task to files.
    Download(TaskDownloadArgs),
    /// Webhooks of a task.
    #[command(subcommand)]
    PushConfig(PushConfigCommand),
    /// Wait for a task; the exit code can tell how it went.
    Wait(TaskWaitArgs),
}

/// A verb on one task.
#[derive(Debug, Args)]
pub(crate) struct TaskIdArgs {
    /// The task
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TaskGetArgs {
    /// At most so many messages of history [default: what the server gives]
    #[arg(long, value_name = "N")]
    pub(crate) history: Option<i32>,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskListArgs {
    /// Only in this state: completed, input-required, TASK_STATE_WORKING
    #[arg(long, value_name = "STATE")]
    pub(crate) status: Option<String>,
    /// At most so many on a page
    #[arg(long, value_name = "N")]
    pub(crate) page_size: Option<i32>,
    /// Where the last page ended
    #[arg(long, value_name = "TOKEN")]
    pub(crate) page_token: Option<String>,
    /// All pages
    #[arg(long)]
    pub(crate) all: bool,
    /// Only with a status of this time or later, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// With artifacts
    #[arg(long)]
    pub(crate) include_artifacts: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TaskDownloadArgs {
    /// Where to write [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Only this artifact, by its id; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) artifact: Vec<String>,
    /// Overwrite files that are there
    #[arg(long)]
    pub(crate) force: bool,
    /// Fetch what is named by a url as well, without credentials and only from the public internet
    #[arg(long)]
    pub(crate) fetch_urls: bool,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskWaitArgs {
    /// Wait through an interruption that is resolved elsewhere: auth or input; may be repeated
    #[arg(long, value_name = "WHAT")]
    pub(crate) through: Vec<String>,
    /// Wait for this state, or an end
    #[arg(long, value_name = "STATE")]
    pub(crate) until: Option<String>,
    /// Exit with 10 failed, 11 rejected, 12 canceled, 13 input required, 14 auth required
    #[arg(long)]
    pub(crate) exit_on_outcome: bool,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}
