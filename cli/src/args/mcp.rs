//! Arguments of `attache mcp`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Configuration file whose agents are offered; they run in this process.
    #[arg(value_name = "FILE", required_unless_present_any = ["agents", "docs"])]
    pub(crate) file: Option<PathBuf>,

    /// Agent to offer: a host or origin, or the URL or file of a card; may be repeated
    #[arg(short = 'a', long = "agent-card", value_name = "REF")]
    pub(crate) agents: Vec<String>,

    /// Offer the documentation of this program: tools that list, read and search its pages
    #[arg(long)]
    pub(crate) docs: bool,

    /// Serve over streamable HTTP at /mcp on this address, not over stdin and stdout
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,

    /// File with keys, one per line, of which clients send one as `Authorization: Bearer`; alternatively set
    /// ATTACHE_MCP_KEY. Required if other machines can reach the server, by its address or `--host`
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) key_file: Option<PathBuf>,

    /// Accepted `Host` name, besides those of the local machine; may be repeated
    #[arg(long, value_name = "HOST", requires = "listen")]
    pub(crate) host: Vec<String>,

    /// Serve clients without a key even if other machines can reach the server
    #[arg(long, requires = "listen")]
    pub(crate) allow_anonymous: bool,

    /// Time after which a call returns the id of its unfinished task
    #[arg(long, value_name = "DURATION", default_value = "45s")]
    pub(crate) wait: String,

    #[command(flatten)]
    pub(crate) limits: McpLimitArgs,
}

/// Limits of `attache mcp` over HTTP. A caller is a key, or the address of a client without one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits over HTTP")]
pub(crate) struct McpLimitArgs {
    /// Maximum number of concurrent connections [default: 256]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_connections: Option<usize>,

    /// Maximum number of concurrent connections from one address that is not a loopback address [default: half of
    /// --max-connections]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_connections_per_address: Option<usize>,

    /// Maximum number of concurrent connections with one key [default: half of --max-connections]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_connections_per_caller: Option<usize>,

    /// Maximum number of sessions [default: 1024]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_sessions: Option<usize>,

    /// Maximum number of sessions of one caller [default: half of --max-sessions]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_sessions_per_caller: Option<usize>,

    /// Time after which a session without messages ends; longer than --wait [default: 5m]
    #[arg(long, value_name = "DURATION", requires = "listen")]
    pub(crate) session_timeout: Option<String>,

    /// Timeout for the head of a request, and of an idle connection [default: 10s]
    #[arg(long, value_name = "DURATION", requires = "listen")]
    pub(crate) header_timeout: Option<String>,

    /// Timeout for the body of a request [default: 30s]
    #[arg(long, value_name = "DURATION", requires = "listen")]
    pub(crate) body_timeout: Option<String>,

    /// Maximum memory of all request bodies that have not arrived completely; one caller uses at most half of it
    /// [default: 64MiB]
    #[arg(long, value_name = "SIZE", requires = "listen")]
    pub(crate) max_buffered_body_bytes: Option<String>,
}
