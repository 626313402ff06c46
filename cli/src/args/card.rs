//! What can be typed of cards.

use clap::{Args, Subcommand};

use super::CommonFlags;

#[derive(Debug, Subcommand)]
pub(crate) enum CardCommand {
    /// Show the card of an agent.
    Get(CardGetArgs),
    /// Say what could be better about a card, beyond what the schema asks.
    Lint(CardLintArgs),
    /// Sign a card, and print it.
    Sign(CardSignArgs),
    /// Check the signatures of a card by the keys of --jwks.
    Verify(CardVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CardSignArgs {
    /// The card, as with -a
    pub(crate) reference: Option<String>,
    /// The private key: a PEM file with an EC, Ed25519 or RSA key
    #[arg(long, value_name = "FILE")]
    pub(crate) signing_key: std::path::PathBuf,
    /// The name under which others know the key
    #[arg(long, value_name = "ID")]
    pub(crate) kid: String,
    /// Say in the signature that the key set is published here
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
    /// Check it against the schema of 1.0
    #[arg(long)]
    pub(crate) validate: bool,
    /// The card that authenticated callers see
    #[arg(long)]
    pub(crate) extended: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(crate) struct CardLintArgs {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    /// Exit with 10 if the card breaks the schema
    #[arg(long)]
    pub(crate) exit_code: bool,
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
