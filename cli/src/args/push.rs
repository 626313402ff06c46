//! What can be typed of webhooks, by those who register, receive, and look after them.

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
    /// Where to post
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,
    /// The id of the registration [default: the server makes one]
    #[arg(long = "id", value_name = "ID")]
    pub(crate) config_id: Option<String>,
    /// Sent along with every notification; better ATTACHE_PUSH_TOKEN
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The HTTP authentication scheme of the webhook, such as Bearer
    #[arg(long, value_name = "SCHEME")]
    pub(crate) auth_scheme: Option<String>,
    /// What follows the scheme; better ATTACHE_PUSH_CREDENTIALS
    #[arg(long, value_name = "CREDENTIALS", requires = "auth_scheme")]
    pub(crate) auth_credentials: Option<String>,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PushCommand {
    /// Listen for push notifications, and print them. With --task-id the agent is told to send those of that task.
    Listen(Box<PushListenArgs>),
    /// List the webhooks that a running server has given up, or what one of them did not get.
    Deliveries(PushDeliveriesArgs),
    /// Call webhooks that were given up again, from where they were left.
    Retry(PushRetryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PushDeliveriesArgs {
    /// The number of a webhook.
    pub(crate) number: Option<u64>,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushRetryArgs {
    /// Their numbers.
    #[arg(conflicts_with = "all", required_unless_present = "all")]
    pub(crate) numbers: Vec<u64>,

    /// All of them.
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushListenArgs {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    /// Where the agent reaches it, if that is not where it listens
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Refuse notifications without this token; better ATTACHE_PUSH_TOKEN [default with --task-id: a random one]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Refuse notifications without an Authorization of this scheme
    #[arg(long, value_name = "SCHEME")]
    pub(crate) auth_scheme: Option<String>,
    /// What follows the scheme; better ATTACHE_PUSH_CREDENTIALS
    #[arg(long, value_name = "CREDENTIALS", requires = "auth_scheme")]
    pub(crate) auth_credentials: Option<String>,
    /// Refuse notifications that are not signed with a key of the set at this url, such as https://host/.well-known/jwks.json
    #[arg(long, value_name = "URL")]
    pub(crate) key_set: Option<String>,
    /// End after so many [default: with the task, or with Ctrl-C]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct PushConfigIdArgs {
    /// The id of the registration
    #[arg(long = "id", value_name = "ID")]
    pub(crate) config_id: String,
    #[command(flatten)]
    pub(crate) one: TaskIdArgs,
}
