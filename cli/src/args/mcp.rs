//! What can be typed to be an MCP server.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// A configuration file whose agents are offered; they run in this process.
    #[arg(value_name = "FILE", required_unless_present = "agents")]
    pub(crate) file: Option<PathBuf>,

    /// An agent that is offered: a host or origin, the url of a card, or the file of one; may be repeated
    #[arg(short = 'a', long = "agent-card", value_name = "REF")]
    pub(crate) agents: Vec<String>,

    /// Serve over streamable HTTP at /mcp there, not over stdin and stdout
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,

    /// The key that clients show as `Authorization: Bearer`, in a file; ATTACHE_MCP_KEY says it too. An address that others
    /// can reach needs one
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) key_file: Option<PathBuf>,

    /// A name that clients may call it by, besides those of this machine; may be repeated
    #[arg(long, value_name = "HOST", requires = "listen")]
    pub(crate) host: Vec<String>,

    /// How long a call waits before it comes back with the id of its task
    #[arg(long, value_name = "DURATION", default_value = "45s")]
    pub(crate) wait: String,
}
