//! Sections of the program itself: `[server]`, `[push]` and `[store]`.

use std::path::PathBuf;
use std::time::Duration;

use attache::model::units::{ByteSize, HumanDuration};
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::database::{MaxBytes, MigrateMode, StoreUrl};

/// Listen addresses, TLS and signing keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerSection {
    /// Listen address. Port 0 selects a free port.
    pub(crate) listen: String,
    /// Also serve callers without a credential. Required to serve without authentication if other machines can reach the
    /// server: by its listen address, `public_url` or `trusted_proxies`.
    pub(crate) allow_anonymous: bool,
    /// URL of the server for clients, if it is not the listen address. The card contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_url: Option<String>,
    /// Certificate chain for TLS: a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate: a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authorities of client certificates: a PEM file.
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Private key that signs the cards: a PEM file (EC, Ed25519 or RSA) that only its owner can read. Needs `public_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) card_signing_key: Option<PathBuf>,
    /// Previous key, which also signs the cards during a key rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_signing_key: Option<PathBuf>,
    /// Private key that signs delegation claims, which name the original caller (`forward_caller`): a PEM file (EC,
    /// Ed25519 or RSA) that only its owner can read. The public key is at `/.well-known/jwks.json`, for the `auth.delegation`
    /// of other servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delegation_signing_key: Option<PathBuf>,
    /// Address of the admin API, for keys of `attache keys add --admin`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admin_listen: Option<String>,
    /// Allow the admin API without TLS on an address that other machines can reach.
    pub(crate) admin_plain: bool,
    /// Maximum number of concurrent connections of the admin socket, and of the admin address. One address has half of
    /// them, a loopback address all. Beyond it, the oldest connection without a valid key is closed for a new one.
    pub(crate) admin_max_connections: usize,
    /// Agent at the root. Default: the first one.
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
            admin_max_connections: 32,
            root: None,
        }
    }
}

/// Webhook delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PushSection {
    /// Allow webhooks on loopback addresses, for development: callers can make the server post to local services.
    pub(crate) local_webhooks: bool,
    /// Private key that signs notifications: a PEM file (EC, Ed25519 or RSA) that only its owner can read. The public key is at
    /// `/.well-known/jwks.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signing_key: Option<PathBuf>,
}

/// Task store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreSection {
    /// A SQLite file, a PostgreSQL database that several replicas share, memory until the process ends, or none, where every
    /// answer is a message. Default: `postgres` if there is a `url`, otherwise `sqlite`.
    pub(crate) kind: StoreKind,
    /// PostgreSQL database: `postgres://user:password@host:port,host2/database`. Connections use TLS and verify the server;
    /// only `sslmode=disable` in the URL switches TLS off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<StoreUrl>,
    /// Schema of the tables in the PostgreSQL database.
    pub(crate) schema: String,
    /// Authorities of the certificate of the PostgreSQL server, besides those of the system: a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate for the PostgreSQL server: a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Private key of the client certificate: a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
    /// File with the key that encrypts webhooks in the PostgreSQL database: 32 bytes in base64, equal on every replica
    /// (`attache db key`). The variable `ATTACHE_WEBHOOK_KEY` contains the key itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) webhook_key: Option<PathBuf>,
    /// Number of connections that write to the PostgreSQL database. 4 to 8 pay off if a commit takes milliseconds.
    pub(crate) writers: usize,
    /// Number of connections that read from the PostgreSQL database.
    pub(crate) readers: usize,
    /// Size of the PostgreSQL database above which `/readyz` fails. Writes still succeed.
    pub(crate) max_bytes: MaxBytes,
    /// Whether a start creates or migrates the tables of the PostgreSQL database.
    pub(crate) migrate: MigrateMode,
    /// Directory of the SQLite file, the keys of callers and the admin socket. Default: `attache` in your data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Free disk space below which `/readyz` fails. Writes still succeed.
    #[serde(with = "ByteSize")]
    pub(crate) min_free: usize,
    /// Number of threads and connections that read from the SQLite file. Further reads wait.
    pub(crate) max_readers: usize,
    /// How long a start waits until the commands of the previous server have ended. Then the start fails.
    #[serde(with = "HumanDuration")]
    pub(crate) command_exit_timeout: Duration,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            kind: StoreKind::Sqlite,
            url: None,
            schema: "attache".to_owned(),
            ca: None,
            client_cert: None,
            client_key: None,
            webhook_key: None,
            writers: 2,
            readers: 4,
            max_bytes: MaxBytes::default(),
            migrate: MigrateMode::default(),
            data_dir: None,
            min_free: 256 << 20,
            max_readers: 4,
            command_exit_timeout: Duration::from_secs(10),
        }
    }
}

/// Kind of task store.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreKind {
    /// A SQLite file.
    #[default]
    Sqlite,
    /// A PostgreSQL database, which several replicas share.
    Postgres,
    /// Memory, until the process ends.
    #[value(alias = "local")]
    #[serde(alias = "local")]
    Memory,
    /// None: no task outlives its turn, and every answer is a message.
    Null,
}

impl StoreKind {
    /// The name in a file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Memory => "memory",
            Self::Null => "null",
        }
    }
}
