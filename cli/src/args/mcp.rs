//! Arguments of `attache mcp`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Configuration file whose agents are offered; they run in this process.
    #[arg(value_name = "FILE", required_unless_present_any = ["agents", "docs"])]
    pub(crate) file: Option<PathBuf>,

    /// Agent to offer: a host, or the URL or file of a card. May be repeated
    #[arg(short = 'a', long = "agent-card", value_name = "REF")]
    pub(crate) agents: Vec<String>,

    /// Offer the documentation of this program. Tools list, read and search its pages
    #[arg(long)]
    pub(crate) docs: bool,

    /// Serve over HTTP at /mcp on this address. Otherwise over stdin and stdout
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,

    /// File with keys of clients, one per line. They send one as `Authorization: Bearer`. ATTACHE_MCP_KEY sets one
    /// key. Required if other machines can reach the server, by its address or `--host`
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) key_file: Option<PathBuf>,

    /// Accepted `Host` name. Besides those of the local machine; may be repeated
    #[arg(long, value_name = "HOST", requires = "listen")]
    pub(crate) host: Vec<String>,

    /// Serve clients without a key even if other machines can reach the server
    #[arg(long, requires = "listen")]
    pub(crate) allow_anonymous: bool,

    /// Time until a call returns the id of its unfinished task
    #[arg(long, value_name = "DURATION", default_value = "45s")]
    pub(crate) wait: String,

    #[command(flatten)]
    pub(crate) limits: McpLimitArgs,
}

/// Limits of `attache mcp` over HTTP. A caller is a key, or the address of a client without one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits over HTTP")]
pub(crate) struct McpLimitArgs {
    /// Maximum concurrent connections [default: 256]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_connections: Option<usize>,

    /// Maximum from one address. Loopback addresses have no limit [default: half of all]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_connections_per_address: Option<usize>,

    /// Maximum with one key [default: half of all]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_connections_per_caller: Option<usize>,

    /// Maximum sessions [default: 1024]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_sessions: Option<usize>,

    /// Maximum of one caller [default: half of all]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) max_sessions_per_caller: Option<usize>,

    /// End of a session without messages. Longer than --wait [default: 5m]
    #[arg(long, value_name = "DURATION", requires = "listen")]
    pub(crate) session_timeout: Option<String>,

    /// Timeout of a request head. Also of an idle connection [default: 10s]
    #[arg(long, value_name = "DURATION", requires = "listen")]
    pub(crate) header_timeout: Option<String>,

    /// Timeout of a request body [default: 30s]
    #[arg(long, value_name = "DURATION", requires = "listen")]
    pub(crate) body_timeout: Option<String>,

    /// Timeout of a write that makes no progress because the client does not read [default: 1m]
    #[arg(long, value_name = "DURATION", requires = "listen")]
    pub(crate) write_timeout: Option<String>,

    /// Maximum memory of request bodies until their calls end. One caller uses at most half of it [default: 64MiB]
    #[arg(long, value_name = "SIZE", requires = "listen")]
    pub(crate) max_buffered_body_bytes: Option<String>,
}
