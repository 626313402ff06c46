//! What can be typed.

mod auth;
mod bench;
mod card;
mod client;
mod hoist;
mod mcp;
pub(crate) mod parse;
mod push;
mod task;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::config::{FlagValues, StoreKind};

pub(crate) use auth::{AuthCommand, AuthLoginArgs, AuthLogoutArgs};
pub(crate) use bench::{BenchArgs, Scenario};
pub(crate) use card::{CardCommand, CardGetArgs, CardSignArgs};
pub(crate) use client::{
    ClientArgs, CommonFlags, ConfigCommand, ConformanceArgs, PartFlags, SendArgs,
};
pub(crate) use mcp::McpArgs;
pub(crate) use push::{
    PushCommand, PushConfigCommand, PushConfigCreateArgs, PushDeliveriesArgs, PushListenArgs,
    PushRetryArgs,
};
pub(crate) use task::{
    TaskCommand, TaskDownloadArgs, TaskGetArgs, TaskIdArgs, TaskListArgs, TaskWaitArgs,
};

/// Serve and talk to A2A agents.
#[derive(Debug, Parser)]
#[command(name = "attache", version, disable_version_flag = true)]
pub(crate) struct Args {
    /// Print the version
    #[arg(short = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Send a message to an agent, and wait for what comes of it.
    Send(Box<SendArgs>),
    /// Talk with an agent, a line at a time.
    Chat(Box<ClientArgs>),
    /// Show, list, follow and cancel tasks.
    #[command(subcommand)]
    Task(Box<TaskCommand>),
    /// Show and check cards.
    #[command(subcommand)]
    Card(Box<CardCommand>),
    /// Log in to an agent, and out.
    #[command(subcommand)]
    Auth(Box<AuthCommand>),
    /// Receive push notifications; look after the webhooks of a running server.
    #[command(subcommand)]
    Push(Box<PushCommand>),
    /// Show the settings in force.
    #[command(subcommand)]
    Config(Box<ConfigCommand>),
    /// Check whether an agent keeps the rules of the protocol, over every binding it offers.
    Conformance(Box<ConformanceArgs>),
    /// Measure how fast an agent is.
    Bench(Box<BenchArgs>),
    /// Print a script that completes commands in a shell.
    Completion {
        /// bash, zsh, fish, powershell or elvish
        shell: clap_complete::Shell,
    },
    /// Serve a practice agent that shows everything an agent can do.
    #[command(visible_alias = "demo-server")]
    Demo(ServerFlags),
    /// Serve agents: those of a configuration file, or one in a line.
    Serve(ServeArgs),
    /// Serve a script of rules, and let things go wrong as it says: an agent to test clients with.
    Mock(MockArgs),
    /// Offer agents as the tools of an MCP server, to editors and assistants.
    Mcp(McpArgs),
    /// Look at a configuration file, and say what is wrong with it.
    Check(CheckArgs),
    /// Write a configuration file to begin with.
    Init(InitArgs),
    /// Make, list and revoke the keys that callers of an agent show.
    Keys(KeysArgs),
    /// Look after the file that tasks are kept in: check, copy, export, shrink and update it.
    Db(DbArgs),
}

impl CliCommand {
    /// Whether it serves an agent; such a one begins its log when it knows its configuration.
    pub(crate) fn serves(&self) -> bool {
        matches!(self, Self::Demo(_) | Self::Serve(_) | Self::Mock(_))
    }
}

/// Whose server is spoken to.
#[derive(Debug, clap::Args)]
pub(crate) struct DataDirArgs {
    /// The folder of the agent, as it is given to `serve` [default: `attache` in your data directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) verb: KeysCommand,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    pub(crate) verb: DbCommand,

    #[command(flatten)]
    pub(crate) folder: DataDirArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Read the whole file and say what is wrong with it; a server may be using it.
    Check,
    /// Make a copy of one moment, and a store of its own; a server may be using the file.
    Backup {
        /// Where the copy goes; nothing may be there.
        file: PathBuf,
    },
    /// Print every task as a line of JSON, with whose it is; a server may be using the file.
    Export,
    /// Give back the room of what was removed; no server may be using the file.
    Vacuum,
    /// Bring the file of an older program up to date, after a copy was put beside it; no server may be using it.
    Migrate,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print it, once: only its digest is kept. From then on callers are asked for one.
    Add(KeysAddArgs),
    /// List the keys: their ids, whose they are, and what they are for.
    List,
    /// Revoke a key by its id, or all keys of a name.
    Revoke {
        /// The id of a key, or the name of a caller.
        key: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeysAddArgs {
    /// Whose key it is. Keys of one name are one caller, who sees the same tasks with each of them.
    pub(crate) name: String,

    /// A scope that it gives; may be repeated.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,

    /// An agent that it is for, by its name; may be repeated [default: all]
    #[arg(long = "agent", value_name = "NAME")]
    pub(crate) agents: Vec<String>,

    /// A tenant that it is for; may be repeated, `*` is every one [default: none]
    #[arg(long = "tenant", value_name = "NAME")]
    pub(crate) tenants: Vec<String>,

    /// A key of an operator, for `--admin-listen`: no agent takes it.
    #[arg(long, conflicts_with_all = ["scopes", "agents", "tenants"])]
    pub(crate) admin: bool,

    /// After how many days it ends [default: never]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MockArgs {
    /// The script.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) serving: ServerFlags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The configuration file.
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    pub(crate) file: Option<PathBuf>,

    /// Print the JSON Schema of configuration files, for editors.
    #[arg(long, exclusive = true)]
    pub(crate) schema: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// The file to write; `-` for stdout.
    #[arg(value_name = "FILE", default_value = "agents.toml")]
    pub(crate) file: PathBuf,

    /// Write over a file that is there.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) agent: AgentSource,
    #[command(flatten)]
    pub(crate) serving: ServerFlags,

    /// Print every setting with where it comes from, and serve nothing.
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// Which agent is served: exactly one of these.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct AgentSource {
    /// A configuration file: `attache init` writes one.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// An agent that says back what it is told.
    #[arg(long)]
    pub(crate) echo: bool,

    /// An agent that runs a command for every message: the text goes to its stdin, its stdout comes back. Quotes
    /// work as in a shell, but there is none.
    #[cfg(unix)]
    #[arg(long, value_name = "COMMAND", value_parser = attache_agents::CommandAgent::parse)]
    pub(crate) exec: Option<attache_agents::CommandAgent>,
}

/// How any agent is served.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerFlags {
    /// Where to listen; port 0 takes any that is free [default: 127.0.0.1:41241]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,

    /// Serve those too who show no key: where others can reach it, anybody may come.
    #[arg(long)]
    pub(crate) allow_anonymous: bool,

    /// Where clients reach it, if that is not where it listens: the card says so.
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,

    /// Serve over TLS with this certificate: a PEM file, the certificate first, then those that vouch for it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of the certificate: a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Verify the certificates that callers show against these authorities: a PEM file. The name in a certificate says who
    /// calls.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Where operators reach it who have a key of `attache keys add --admin`. An address that others can reach needs TLS.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) admin_listen: Option<String>,

    /// Also call webhooks on this machine: for development, since whoever may call the agent then reaches what listens
    /// here. The demo does while it listens on this machine alone.
    #[arg(long)]
    pub(crate) local_webhooks: bool,

    /// Where to keep tasks: in a SQLite file, in memory until the program ends, or nowhere: then every answer is a
    /// message [default: sqlite]
    #[arg(long, value_name = "KIND")]
    pub(crate) store: Option<StoreKind>,

    /// The folder of the SQLite file [default: `attache` in your data directory, for the demo `demo` below it]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

impl ServerFlags {
    /// What was said, by the keys of the configuration.
    pub(crate) fn flag_values(&self) -> FlagValues {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let mut flags = FlagValues::default();
        flags.set("server.listen", self.listen.as_deref());
        flags.set(
            "server.allow_anonymous",
            self.allow_anonymous.then_some(true),
        );
        flags.set("server.public_url", self.public_url.as_deref());
        flags.set("server.tls_cert", path(&self.tls_cert));
        flags.set("server.tls_key", path(&self.tls_key));
        flags.set("server.tls_client_ca", path(&self.tls_client_ca));
        flags.set("server.admin_listen", self.admin_listen.as_deref());
        flags.set("push.local_webhooks", self.local_webhooks.then_some(true));
        flags.set("store.kind", self.store.map(StoreKind::name));
        flags.set("store.data_dir", path(&self.data_dir));
        flags
    }
}
