//! Options of the PostgreSQL store.

use std::fmt;
use std::fs;
use std::process;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::database_url::DatabaseUrl;
use super::error::OpenError;
use crate::egress::ClientTls;
use crate::store::secret_box::{KEY_BYTES, random_key};

/// Options of a [`Postgres`](super::Postgres) store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Hosts, database, user and password.
    pub url: DatabaseUrl,
    /// Schema that holds all tables, and the channel of notifications.
    pub schema: String,
    /// Trusted certificate authorities and the client certificate. Unused with `sslmode=disable`.
    pub tls: ClientTls,
    /// Encrypts webhook registrations; equal on every replica.
    pub webhook_key: WebhookKey,
    /// Number of connections that commit groups. 4 to 8 pay off if a commit takes milliseconds.
    pub writers: usize,
    /// Number of connections that serve reads.
    pub readers: usize,
    /// Capacity of the queue in front of the writers. Further writes wait for a free slot.
    pub queue_capacity: usize,
    /// Size of the database in bytes above which the store reports
    /// [`AlmostFull`](crate::store::HealthProblem::AlmostFull), while writes still succeed.
    pub max_bytes: Option<u64>,
    /// Whether the store may change the schema.
    pub migrate: Migrate,
    /// Name of this replica for operators.
    pub replica_name: String,
    /// The other replicas evict this one if its heartbeats stop for this long.
    pub lease: Duration,
    /// Limit of the server for one statement. The client waits 2 seconds longer.
    pub statement_timeout: Duration,
    /// Limit of the server for the wait on a lock.
    pub lock_timeout: Duration,
    /// Limit for opening a connection to one host, with TLS and login.
    pub connect_timeout: Duration,
    /// How long a write other than an append is repeated while the database cannot be reached. Appends are repeated as long
    /// as the engine waits for them.
    pub write_timeout: Duration,
    /// Whether [`Postgres::open`](super::Postgres::open) succeeds if the database cannot be reached. Heartbeats then open it.
    pub start_unreachable: bool,
}

/// Whether the store may change the schema of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migrate {
    /// A missing or older schema is created or migrated when the store is opened.
    #[default]
    Auto,
    /// An older schema is refused. [`migrate`](super::migrate) changes it.
    Never,
}

impl Options {
    /// Returns the default options for a database.
    #[must_use]
    pub fn new(url: DatabaseUrl, webhook_key: WebhookKey) -> Self {
        Self {
            url,
            schema: "attache".to_owned(),
            tls: ClientTls::new(),
            webhook_key,
            writers: 2,
            readers: 4,
            queue_capacity: 1024,
            max_bytes: None,
            migrate: Migrate::Auto,
            replica_name: default_replica_name(),
            lease: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(10),
            start_unreachable: false,
        }
    }

    /// Returns the number of connections that a replica with these options keeps open.
    #[must_use]
    pub fn connections(&self) -> usize {
        // One for the membership, one for notifications.
        self.writers.max(1) + self.readers.max(1) + 2
    }
}

/// Returns host name and process id.
fn default_replica_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map_or("replica", str::trim);
    format!("{host}/{}", process::id())
}

/// Key of 32 bytes that encrypts webhook registrations.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookKey([u8; KEY_BYTES]);

impl WebhookKey {
    /// Returns a new random key.
    ///
    /// # Errors
    /// The system provides no randomness.
    pub fn random() -> std::io::Result<Self> {
        random_key().map(Self)
    }

    /// Reads a key from base64, as [`to_base64`](Self::to_base64) writes it. White space around it is ignored.
    ///
    /// # Errors
    /// The text is not 32 bytes in base64.
    pub fn from_base64(text: &str) -> Result<Self, OpenError> {
        let bytes = STANDARD.decode(text.trim()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(OpenError::InvalidWebhookKey)
    }

    /// Returns the key in base64.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    pub(super) fn bytes(&self) -> [u8; KEY_BYTES] {
        self.0
    }
}

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey(***)")
    }
}
