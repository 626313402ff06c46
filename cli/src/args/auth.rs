//! What can be typed to log in and out.

use clap::{Args, Subcommand};

use super::{ClientArgs, CommonFlags};

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Get a token as the card says, and keep it: it goes along from then on.
    Login(AuthLoginArgs),
    /// Show the logins that are kept, without their tokens.
    Status(ClientArgs),
    /// Forget the tokens for an agent.
    Logout(AuthLogoutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AuthLoginArgs {
    /// The security scheme of the card [default: the first that can be logged in to]
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// How: device or code (in a browser) for people, client for programs [default: as the card says]
    #[arg(long, value_name = "FLOW")]
    pub(crate) flow: Option<crate::commands::LoginFlow>,
    /// The client that this program is registered as [ATTACHE_CLIENT_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// A scope to ask for; may be repeated [default: those of the card]
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Vec<String>,
    /// A file with the secret of the client; ATTACHE_CLIENT_SECRET is the other way
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
    /// Forget everything
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}
