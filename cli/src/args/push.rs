//! Arguments of `attache push` and `attache task push-config`.

use clap::{Args, Subcommand};

use super::{CommonFlags, DataDirArgs, TaskIdArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum PushConfigCommand {
    /// Register a webhook.
    Create(PushConfigCreateArgs),
    /// Show a registration.
    Get(PushConfigIdArgs),
    /// List the registrations of a task.
    List(TaskIdArgs),
    /// Remove a registration.
    Delete(PushConfigIdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PushConfigCreateArgs {
    /// URL of the webhook
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,
    /// Id of the registration [default: assigned by the server]
    #[arg(long = "id", value_name = "ID")]
    pub(crate) config_id: Option<String>,
    /// Token that every notification carries; ATTACHE_PUSH_TOKEN is safer
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// HTTP authentication scheme of the webhook, such as Bearer
    #[arg(long, value_name = "SCHEME")]
    pub(crate) auth_scheme: Option<String>,
    /// Credentials for the scheme; ATTACHE_PUSH_CREDENTIALS is safer
    #[arg(long, value_name = "CREDENTIALS", requires = "auth_scheme")]
    pub(crate) auth_credentials: Option<String>,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PushCommand {
    /// Listen for push notifications, and print them. With --task-id, registers a webhook for that task.
    Listen(Box<PushListenArgs>),
    /// List the failed webhooks of a running server, or the undelivered notifications of one.
    Deliveries(PushDeliveriesArgs),
    /// Retry failed webhooks, from the first undelivered notification.
    Retry(PushRetryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PushDeliveriesArgs {
    /// Number of a webhook.
    pub(crate) number: Option<u64>,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushRetryArgs {
    /// Numbers of the webhooks.
    #[arg(conflicts_with = "all", required_unless_present = "all")]
    pub(crate) numbers: Vec<u64>,

    /// All failed webhooks.
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushListenArgs {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    /// URL of this receiver for the agent, if it is not the listen address
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Refuse notifications without this token. ATTACHE_PUSH_TOKEN is safer [default: random with --task-id]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Refuse notifications without an Authorization header of this scheme
    #[arg(long, value_name = "SCHEME")]
    pub(crate) auth_scheme: Option<String>,
    /// Credentials for the scheme; ATTACHE_PUSH_CREDENTIALS is safer
    #[arg(long, value_name = "CREDENTIALS", requires = "auth_scheme")]
    pub(crate) auth_credentials: Option<String>,
    /// Refuse notifications that no key of this set has signed. Such as https://host/.well-known/jwks.json
    #[arg(long, value_name = "URL")]
    pub(crate) key_set: Option<String>,
    /// Exit after this number of notifications [default: when the task ends]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct PushConfigIdArgs {
    /// Id of the registration
    #[arg(long = "id", value_name = "ID")]
    pub(crate) config_id: String,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}
