//! The command line: verbs, flags and positional arguments, and their help texts.
//!
//! The flags of client verbs and of server verbs are tables of data ([`settings::flags`](crate::settings::flags),
//! [`OVERRIDES`](crate::config::OVERRIDES)); [`CommonFlags`] and [`ServerFlags`] turn them into clap arguments.

mod auth;
mod bench;
mod card;
mod client;
mod common;
mod console;
mod docs;
mod help;
mod hoist;
mod mcp;
mod output;
pub(crate) mod parse;
mod push;
mod server;
mod task;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub(crate) use auth::{AuthCommand, AuthLoginArgs, AuthLogoutArgs};
pub(crate) use bench::{BenchArgs, Scenario};
pub(crate) use card::{CardCommand, CardGetArgs, CardSignArgs};
pub(crate) use client::{
    ClientArgs, ConfigCommand, ConformanceArgs, DoctorArgs, PartFlags, SendArgs,
};
pub(crate) use common::CommonFlags;
pub(crate) use console::ConsoleArgs;
pub(crate) use docs::{DocsArgs, DocsCommand};
pub(crate) use mcp::{McpArgs, McpLimitArgs};
use output::OutputFlag;
pub(crate) use push::{
    PushCommand, PushConfigCommand, PushConfigCreateArgs, PushDeliveriesArgs, PushListenArgs,
    PushRetryArgs,
};
pub(crate) use server::ServerFlags;
pub(crate) use task::{
    TaskCommand, TaskDownloadArgs, TaskGetArgs, TaskIdArgs, TaskListArgs, TaskWaitArgs,
};

/// Serve A2A agents, and call them.
#[derive(Debug, Parser)]
#[command(name = "attache", version, disable_version_flag = true)]
pub(crate) struct Args {
    /// Print the version
    #[arg(short = 'v', visible_short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Send a message to an agent, and wait for the result.
    Send(Box<SendArgs>),
    /// Chat with an agent; without a terminal, each line of stdin is a message.
    Chat(Box<ClientArgs>),
    /// Show, list, follow and cancel tasks.
    #[command(subcommand)]
    Task(Box<TaskCommand>),
    /// Show, check and sign agent cards.
    #[command(subcommand)]
    Card(Box<CardCommand>),
    /// Log in to an agent, and out.
    #[command(subcommand)]
    Auth(Box<AuthCommand>),
    /// Receive push notifications; list and retry failed webhooks of a running server.
    #[command(subcommand)]
    Push(Box<PushCommand>),
    /// Show the effective settings, and store defaults.
    #[command(subcommand)]
    Config(Box<ConfigCommand>),
    /// Check an agent against the protocol, over each binding it offers.
    Conformance(Box<ConformanceArgs>),
    /// Find out why an agent does not answer: network, card, interfaces, credentials, streaming.
    Doctor(Box<DoctorArgs>),
    /// Measure the throughput and latency of an agent; exit with 1 if requests fail.
    Bench(Box<BenchArgs>),
    /// Print a completion script for a shell.
    Completion {
        /// bash, zsh, fish, powershell or elvish
        shell: clap_complete::Shell,
    },
    /// Serve the demo agent, which shows all features of the protocol.
    #[command(visible_alias = "demo-server")]
    Demo(ServerFlags),
    /// Serve agents: those of a configuration file, or one given by a flag.
    Serve(ServeArgs),
    /// Serve a scripted agent with injected faults, to test clients.
    Mock(MockArgs),
    /// Offer agents as the tools of an MCP server, to editors and assistants.
    Mcp(McpArgs),
    /// Open the web console of a running server.
    Console(ConsoleArgs),
    /// Read and search the documentation.
    Docs(DocsArgs),
    /// Watch a running server: open tasks, rates, failed webhooks.
    Top(TopArgs),
    /// Make a running server read its configuration again.
    Reload(ReloadArgs),
    /// Validate a configuration file; report all errors at once.
    Check(CheckArgs),
    /// Write a starter configuration file.
    Init(InitArgs),
    /// Create, list and revoke API keys of callers.
    Keys(KeysArgs),
    /// Check, export, shrink and migrate the task database.
    Db(DbArgs),
    /// Write database, keys and configuration into one archive; a server may be running.
    Backup(BackupArgs),
    /// Restore an archive of `attache backup`; no server may be running.
    Restore(RestoreArgs),
}

impl CliCommand {
    /// Whether the verb serves an agent. Such a verb starts its log after it has read its configuration.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Self::Demo(_) | Self::Serve(_) | Self::Mock(_))
    }
}

/// The data directory of a server.
#[derive(Debug, clap::Args)]
pub(crate) struct DataDirArgs {
    /// Data directory of the server, as given to `serve` [default: `attache` in your data directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) folder: DataDirArgs,

    #[command(flatten)]
    _output: OutputFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) folder: DataDirArgs,

    /// Address of the admin API, instead of the data directory; ATTACHE_ADMIN_KEY has the operator key
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    pub(crate) server: Option<String>,

    /// Time between two readings
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) interval: String,

    #[command(flatten)]
    _output: OutputFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) verb: KeysCommand,

    #[command(flatten)]
    _output: OutputFlag,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    pub(crate) verb: DbCommand,

    #[command(flatten)]
    _output: OutputFlag,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// Path of the archive; the file must not exist. It contains secrets.
    #[arg(value_name = "ARCHIVE")]
    pub(crate) file: PathBuf,

    /// Configuration file of the server, to include it; `store.data_dir` in it is the default of --data-dir
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// The archive.
    #[arg(value_name = "ARCHIVE")]
    pub(crate) file: PathBuf,

    /// Path for the configuration file of the archive [default: `agents.toml` in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Replace existing files; they are kept in a directory `replaced-<TIME>` in the data directory.
    #[arg(long)]
    pub(crate) replace: bool,

    /// Restore even if callers were authenticated before and are not afterwards.
    #[arg(long)]
    pub(crate) allow_anonymous: bool,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Check the integrity of the whole file; a server may be using it.
    Check,
    /// Print every task with its owner, a JSON object per line; a server may be using the file.
    Export,
    /// Shrink the file by the space of deleted tasks; no server may be using it.
    Vacuum,
    /// Migrate the file of an older version, after a backup next to it; no server may be using it.
    Migrate,
    /// Print a new key for `store.webhook_key`: it encrypts webhooks in a PostgreSQL database. Every replica needs the same key.
    Key,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and print it, once: only its digest is stored. From then on the server requires a credential.
    Add(KeysAddArgs),
    /// List the keys with their ids, callers and permissions.
    List,
    /// Revoke a key by its id, or all keys of a caller.
    Revoke {
        /// Id of a key, or name of a caller.
        key: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeysAddArgs {
    /// Name of the caller. Keys with the same name identify the same caller, with the same tasks.
    pub(crate) name: String,

    /// Scope to grant; may be repeated.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,

    /// Agent that the key is valid for, by name; may be repeated [default: all]
    #[arg(long = "agent", value_name = "NAME")]
    pub(crate) agents: Vec<String>,

    /// Tenant that the key is valid for; may be repeated, `*` is every tenant [default: none]
    #[arg(long = "tenant", value_name = "NAME")]
    pub(crate) tenants: Vec<String>,

    /// Create an operator key for `--admin-listen`; agents do not accept it.
    #[arg(long, conflicts_with = "scopes")]
    pub(crate) admin: bool,

    /// Role of an operator key: viewer, approver, operator or admin [default: admin]
    #[arg(long, value_name = "ROLE", requires = "admin")]
    pub(crate) role: Option<attache::auth::OperatorRole>,

    /// Lifetime in days [default: unlimited]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MockArgs {
    /// The script.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Configuration file [default: agents.toml]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Print the JSON Schema of configuration files, for editors.
    #[arg(long, exclusive = true)]
    pub(crate) schema: bool,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,

    #[command(flatten)]
    _output: OutputFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// The file to write; `-` for stdout.
    #[arg(value_name = "FILE", default_value = "agents.toml")]
    pub(crate) file: PathBuf,

    /// Overwrite an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) agent: AgentSource,
    #[command(flatten)]
    pub(crate) server: ServerFlags,

    /// Reload configuration and worker code on a change.
    #[arg(long, conflicts_with_all = ["echo", "print_config"])]
    pub(crate) watch: bool,

    /// Print every setting with its source, and exit.
    #[arg(long)]
    pub(crate) print_config: bool,

    #[command(flatten)]
    _output: OutputFlag,
}

/// The agent to serve: one of these, by default the configuration file in the working directory.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct AgentSource {
    /// Configuration, agent.py or agent.mjs [default: agents.toml]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Serve an agent that echoes its messages.
    #[arg(long)]
    pub(crate) echo: bool,

    /// Serve an agent that runs a command per message: stdin is the text, stdout the answer. Quotes work as in a
    /// shell, but no shell runs.
    #[cfg(unix)]
    #[arg(long, value_name = "COMMAND", value_parser = attache_agents::CommandAgent::parse)]
    pub(crate) exec: Option<attache_agents::CommandAgent>,
}

impl AgentSource {
    /// Whether a flag gives the agent, so that no file is read.
    pub(crate) fn has_own_agent(&self) -> bool {
        #[cfg(unix)]
        if self.exec.is_some() {
            return true;
        }
        self.echo
    }
}
