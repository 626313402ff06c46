//! Arguments of `attache card`.

use clap::{Args, Subcommand};

use super::CommonFlags;

#[derive(Debug, Subcommand)]
pub(crate) enum CardCommand {
    /// Show the card of an agent.
    Get(CardGetArgs),
    /// Report errors and possible improvements of a card; exit with 1 if it has errors.
    Lint(CardLintArgs),
    /// Sign a card, and print it.
    Sign(CardSignArgs),
    /// Verify the signatures of a card with the keys of --jwks.
    Verify(CardVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CardSignArgs {
    /// The card, as with -a
    pub(crate) reference: Option<String>,
    /// Private key: a PEM file with an EC, Ed25519 or RSA key
    #[arg(long, value_name = "FILE")]
    pub(crate) signing_key: std::path::PathBuf,
    /// Key id, which identifies the public key in its key set
    #[arg(long, value_name = "ID")]
    pub(crate) kid: String,
    /// URL of the published key set, for the signature header
    #[arg(long, value_name = "URL")]
    pub(crate) key_set_url: Option<String>,
    /// Write the public key to this file, as a key set to publish
    #[arg(long, value_name = "FILE")]
    pub(crate) key_set: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct CardGetArgs {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    /// Validate the card against the 1.0 schema
    #[arg(long)]
    pub(crate) validate: bool,
    /// Get the extended card, for authenticated callers
    #[arg(long)]
    pub(crate) extended: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct CardLintArgs {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct CardVerifyArgs {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}
