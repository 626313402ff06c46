//! Arguments of the verbs that send messages or show settings.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::CommonFlags;

/// Arguments of `attache send`: the parts of a message, in the order of the command line.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Text to send; - reads it from stdin
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartFlags,
    /// Id of the message, to send it again [default: random]
    #[arg(long, value_name = "ID", help_heading = "Interaction")]
    pub(crate) message_id: Option<String>,
    /// Skill that the message is for, by its id on the card
    #[arg(long, value_name = "ID", help_heading = "Interaction")]
    pub(crate) skill: Option<String>,
    /// Report the outcome in the exit code. 10 failed, 11 rejected, 12 canceled, 13 input required, 14 auth required
    #[arg(long, help_heading = "Waiting")]
    pub(crate) exit_status: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

/// Part flags. They may be repeated, and keep their order.
#[derive(Debug, Args, Default)]
pub(crate) struct PartFlags {
    /// Text part
    #[arg(
        long,
        alias = "text-part",
        value_name = "TEXT",
        allow_hyphen_values = true,
        help_heading = "Parts, in this order"
    )]
    pub(crate) text: Vec<String>,
    /// File part: a path, or a URL. A URL is sent unchanged
    #[arg(
        long,
        alias = "file-part",
        value_name = "PATH|URL",
        help_heading = "Parts, in this order"
    )]
    pub(crate) file: Vec<String>,
    /// Data part: JSON from a file, or from stdin with -
    #[arg(
        long,
        alias = "data-part",
        value_name = "PATH|-",
        allow_hyphen_values = true,
        help_heading = "Parts, in this order"
    )]
    pub(crate) data: Vec<String>,
    /// Media type of the preceding part flag
    #[arg(long, value_name = "TYPE", help_heading = "Parts, in this order")]
    pub(crate) media_type: Vec<String>,
}

/// Arguments of `attache conformance`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// Exit with 10 if the agent breaks a rule
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Run the official test kit instead: the directory of an installed checkout of a2a-tck
    #[arg(long, value_name = "DIR", conflicts_with_all = ["webhook", "slow", "ask"])]
    pub(crate) kit: Option<PathBuf>,
    /// URL that the agent accepts as a webhook; it is registered and removed, and never called
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Message that keeps the agent busy, to cancel and follow a running task
    #[arg(long, value_name = "TEXT")]
    pub(crate) slow: Option<String>,
    /// Message that makes the agent ask for input, to answer and cancel an interrupted task
    #[arg(long, value_name = "TEXT")]
    pub(crate) ask: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

/// Arguments of `attache doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    /// Message to send; one that takes some seconds shows whether a proxy buffers
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "hello",
        allow_hyphen_values = true
    )]
    pub(crate) message: String,
    /// Send no message: do not check answer, streaming and buffering
    #[arg(long, conflicts_with = "message")]
    pub(crate) no_message: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the effective settings and their sources.
    Show(ClientArgs),
    /// Store a default for all commands in your settings file.
    Set(ConfigSetArgs),
    /// Remove a default from your settings file.
    Unset(ConfigUnsetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigSetArgs {
    /// Name of the option, such as output or timeout
    pub(crate) name: String,
    /// Its default
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigUnsetArgs {
    /// Name of the option
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

/// Arguments of a client verb without flags of its own.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}
