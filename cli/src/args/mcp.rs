//! Arguments of `attache mcp`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Configuration file whose agents are offered; they run in this process.
    #[arg(value_name = "FILE", required_unless_present = "agents")]
    pub(crate) file: Option<PathBuf>,

    /// Agent to offer: a host or origin, or the URL or file of a card; may be repeated
    #[arg(short = 'a', long = "agent-card", value_name = "REF")]
    pub(crate) agents: Vec<String>,

    /// Serve over streamable HTTP at /mcp on this address, not over stdin and stdout
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,

    /// File with the key that clients send as `Authorization: Bearer`; alternatively set ATTACHE_MCP_KEY. Required if other
    /// machines can reach the server, by its address or `--host`
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
}
