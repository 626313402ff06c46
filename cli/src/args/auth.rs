//! Arguments of `attache auth`.

use clap::{Args, Subcommand};

use super::{ClientArgs, CommonFlags};

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Get a token by the security scheme of the card, and store it: later calls send it.
    Login(AuthLoginArgs),
    /// List the stored logins, without their tokens.
    Status(ClientArgs),
    /// Delete the stored tokens of an agent.
    Logout(AuthLogoutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AuthLoginArgs {
    /// Security scheme of the card [default: the first that supports a login]
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// OAuth flow: device or code (in a browser) for people, client for programs [default: the one of the card]
    #[arg(long, value_name = "FLOW")]
    pub(crate) flow: Option<crate::commands::LoginFlow>,
    /// OAuth client id that this program is registered with [ATTACHE_CLIENT_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// Scope to request; may be repeated [default: those of the card]
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Vec<String>,
    /// File with the client secret; alternatively set ATTACHE_CLIENT_SECRET
    #[arg(long, value_name = "FILE")]
    pub(crate) client_secret_file: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct AuthLogoutArgs {
    /// Only this security scheme
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// Delete all stored tokens
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}
