//! What can be typed of cards.

use clap::{Args, Subcommand};

use super::Common;

#[derive(Debug, Subcommand)]
pub(crate) enum Card {
    /// Show the card of an agent.
    Get(CardGet),
    /// Say what could be better about a card, beyond what the schema asks.
    Lint(CardLint),
    /// Sign a card, and print it.
    Sign(CardSign),
    /// Check the signatures of a card by the keys of --jwks.
    Verify(CardVerify),
}

#[derive(Debug, Args)]
pub(crate) struct CardSign {
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
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CardGet {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    /// Check it against the schema of 1.0
    #[arg(long)]
    pub(crate) validate: bool,
    /// The card that authenticated callers see
    #[arg(long)]
    pub(crate) extended: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CardLint {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    /// Exit with 10 if the card breaks the schema
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CardVerify {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}
