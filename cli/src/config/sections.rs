//! The sections that are the program's own.

use std::path::PathBuf;

use attache::model::units::ByteSize;
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where it listens, and who may come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerSection {
    /// Where to listen; port 0 takes any that is free.
    pub(crate) listen: String,
    /// Listen where others can reach it, although nobody is asked who they are.
    pub(crate) allow_anonymous: bool,
    /// Where clients reach it, if that is not where it listens: the card says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_url: Option<String>,
    /// Serve over TLS with this certificate: a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate: a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authorities against which the certificates of callers are verified: a PEM file.
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Sign the cards with this private key: a PEM file (EC, Ed25519 or RSA) that only its owner can read. Needs `public_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) card_signing_key: Option<PathBuf>,
    /// Sign them with this one too, until those who check have seen the new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_signing_key: Option<PathBuf>,
    /// Sign for whom agents call others (`forward_caller`) with this private key: a PEM file (EC, Ed25519 or RSA) that only its
    /// owner can read. Servers that have us in `auth.delegation` find the public one at `/.well-known/jwks.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delegation_signing_key: Option<PathBuf>,
    /// Where operators reach it who have a key of `attache keys add --admin`; nowhere if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admin_listen: Option<String>,
    /// Let operators send their keys without TLS to an address that others can reach.
    pub(crate) admin_plain: bool,
    /// The agent at the root; the first one if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<String>,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:41241".to_owned(),
            allow_anonymous: false,
            public_url: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            card_signing_key: None,
            previous_signing_key: None,
            delegation_signing_key: None,
            admin_listen: None,
            admin_plain: false,
            root: None,
        }
    }
}

/// How webhooks are called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PushSection {
    /// Call webhooks on this machine too, for development: whoever may send a message could make the server post to
    /// anything that listens here.
    pub(crate) local_webhooks: bool,
    /// Sign notifications with this private key: a PEM file (EC, Ed25519 or RSA) that only its owner can read. Receivers find the
    /// public one at `/.well-known/jwks.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signing_key: Option<PathBuf>,
}

/// Where tasks are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreSection {
    /// In a SQLite file, in memory until the program ends, or nowhere: then every answer is a message.
    pub(crate) kind: StoreKind,
    /// The folder of the SQLite file; `attache` in your data directory if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<PathBuf>,
    /// With less room than this on the disk `/readyz` says no, while writes still get through.
    #[serde(with = "ByteSize")]
    pub(crate) min_free: usize,
    /// Of how many tasks that were read the SQLite store remembers where they stand: to read one of them again it need not ask
    /// the file. Each takes about half a kilobyte.
    pub(crate) max_known_tasks: usize,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            kind: StoreKind::Sqlite,
            data_dir: None,
            min_free: 256 << 20,
            max_known_tasks: 10_000,
        }
    }
}

/// Where tasks are kept.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreKind {
    /// In a SQLite file.
    #[default]
    Sqlite,
    /// In memory, until the program ends.
    #[value(alias = "local")]
    #[serde(alias = "local")]
    Memory,
    /// Nowhere: no task outlives its turn, and every answer is a message.
    Null,
}

impl StoreKind {
    /// As the file has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
            Self::Null => "null",
        }
    }
}
