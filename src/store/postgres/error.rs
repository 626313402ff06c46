//! Errors of the PostgreSQL store, with messages for operators.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use tokio_postgres::error::SqlState;

use super::database_url::DatabaseUrl;
use crate::store::codec::CodecError;
use crate::store::{self, HealthProblem};
use crate::telemetry::metrics;

type Cause = Box<dyn StdError + Send + Sync>;

/// Error of opening a store. The message has the cause and the fix. It contains no password.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL of the database is invalid.
    InvalidUrl {
        /// What is wrong.
        reason: String,
    },
    /// The name of the schema is not usable.
    InvalidSchema {
        /// The name.
        schema: String,
    },
    /// The webhook key is not 32 bytes in base64.
    InvalidWebhookKey,
    /// No server answers, or the server is starting or stopping.
    Unreachable {
        /// The database.
        url: Box<DatabaseUrl>,
        /// Cause.
        source: Cause,
    },
    /// The server refuses the user or the password.
    WrongPassword {
        /// The database.
        url: Box<DatabaseUrl>,
        /// Message of the server.
        reason: String,
    },
    /// The server has no database of this name.
    MissingDatabase {
        /// The database.
        url: Box<DatabaseUrl>,
    },
    /// The TLS handshake failed.
    Tls {
        /// The database.
        url: Box<DatabaseUrl>,
        /// Whether the server has no TLS.
        is_unsupported: bool,
        /// Cause.
        source: Cause,
    },
    /// The server or the role has no free connection.
    TooManyConnections {
        /// The database.
        url: Box<DatabaseUrl>,
        /// Connections that a replica needs.
        needed: usize,
    },
    /// The server is a standby, or the database is read-only.
    ReadOnly {
        /// The database.
        url: Box<DatabaseUrl>,
    },
    /// The version of PostgreSQL is too old.
    OldServer {
        /// The database.
        url: Box<DatabaseUrl>,
        /// Version of the server.
        found: String,
    },
    /// A proxy gives statements of one connection to several sessions of the server.
    TransactionPooler {
        /// The database.
        url: Box<DatabaseUrl>,
    },
    /// The role lacks a right.
    MissingRight {
        /// The database.
        url: Box<DatabaseUrl>,
        /// The schema.
        schema: String,
        /// Message of the server.
        reason: String,
    },
    /// The schema has an older version, or is missing, and migrations are disabled.
    OldSchema {
        /// The database.
        url: Box<DatabaseUrl>,
        /// Version in the database; 0 if the schema is missing.
        found: i32,
        /// Version that this program needs.
        known: i32,
    },
    /// The schema was migrated beyond this program.
    NewerSchema {
        /// Version in the database.
        found: i32,
        /// Oldest version whose programs may use the database.
        compatible_since: i32,
        /// Version that this program knows.
        known: i32,
    },
    /// The database may contain a log format that this program cannot read.
    NewerFormat {
        /// Newest log format in the database.
        found: i16,
        /// Newest log format that this program reads.
        known: i16,
    },
    /// A migration excludes a replica that is live.
    OlderReplica {
        /// Name of the replica.
        replica: String,
        /// Schema version that its program knows.
        knows: i32,
        /// Oldest schema version whose programs may use the database after the migration.
        needed: i32,
    },
    /// The schema contains tables of another program.
    ForeignSchema {
        /// The schema.
        schema: String,
    },
    /// The webhooks in the database are encrypted with another key.
    WrongWebhookKey,
    /// No disk space is left on the server.
    Full {
        /// The database.
        url: Box<DatabaseUrl>,
    },
    /// Any other failure.
    Failed {
        /// The database.
        url: Box<DatabaseUrl>,
        /// Cause.
        source: Cause,
    },
}

impl OpenError {
    /// Returns whether the error may pass without a change by the operator.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::TooManyConnections { .. }
                | Self::ReadOnly { .. }
                | Self::Full { .. }
        )
    }

    /// Returns the problem that callers may see.
    pub(super) fn health_problem(&self) -> HealthProblem {
        match self {
            Self::ReadOnly { .. } | Self::MissingRight { .. } => HealthProblem::ReadOnly,
            Self::Full { .. } => HealthProblem::Full,
            Self::NewerSchema { .. } | Self::NewerFormat { .. } => HealthProblem::NewerSchema,
            _ => HealthProblem::Unreachable,
        }
    }

    /// Classifies an error of opening a connection or of the first statements.
    pub(super) fn new(context: &OpenContext<'_>, error: tokio_postgres::Error) -> Self {
        let url = Box::new(context.url.clone());
        let Some(refused) = error.as_db_error() else {
            return Self::from_transport(url, error);
        };
        let reason = refused.message().to_owned();
        let code = refused.code();
        if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        {
            Self::WrongPassword { url, reason }
        } else if *code == SqlState::INVALID_CATALOG_NAME {
            Self::MissingDatabase { url }
        } else if *code == SqlState::TOO_MANY_CONNECTIONS {
            let needed = context.connections;
            Self::TooManyConnections { url, needed }
        } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            Self::ReadOnly { url }
        } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            Self::MissingRight {
                url,
                schema: context.schema.to_owned(),
                reason,
            }
        } else if *code == SqlState::DISK_FULL {
            Self::Full { url }
        } else if Failure::of(&error) == Failure::Lost {
            Self::Unreachable {
                url,
                source: Box::new(error),
            }
        } else {
            Self::Failed {
                url,
                source: Box::new(error),
            }
        }
    }

    /// Classifies an error that is not an answer of the server.
    fn from_transport(url: Box<DatabaseUrl>, error: tokio_postgres::Error) -> Self {
        let message = error.to_string();
        let cause = error.source();
        let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
        // The driver reports a read-only server like a refused connection.
        if io.is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied) {
            return Self::ReadOnly { url };
        }
        if message == "error performing TLS handshake" {
            let is_unsupported =
                cause.is_some_and(|cause| cause.to_string() == "server does not support TLS");
            return Self::Tls {
                url,
                is_unsupported,
                source: Box::new(error),
            };
        }
        if message == "authentication error" || message == "invalid configuration" {
            let reason = cause.map_or(message, ToString::to_string);
            return Self::WrongPassword { url, reason };
        }
        Self::Unreachable {
            url,
            source: Box::new(error),
        }
    }

    /// The server did not answer in time.
    pub(super) fn timed_out(url: &DatabaseUrl) -> Self {
        Self::Unreachable {
            url: Box::new(url.clone()),
            source: Box::new(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }
}

/// What an [`OpenError`] names besides its cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenContext<'a> {
    pub(super) url: &'a DatabaseUrl,
    pub(super) schema: &'a str,
    pub(super) connections: usize,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidUrl { reason } => write!(
                f,
                "the URL of the database is invalid: {reason}; expected postgres://user:password@host:port/database"
            ),
            Self::InvalidSchema { schema } => write!(
                f,
                "{schema:?} cannot be the name of a schema: use 1 to 63 lower-case letters, digits and underscores, \
                 and begin with a letter"
            ),
            Self::InvalidWebhookKey => f.write_str(
                "the webhook key is not 32 bytes in base64: create one with `attache db key` and give every replica the same",
            ),
            Self::Unreachable { url, source } => write!(
                f,
                "cannot reach {url}: {}; check that the server runs and that host and port are right",
                causes(&**source)
            ),
            Self::WrongPassword { url, reason } => {
                write!(f, "{url} refuses the login: {reason}; check user and password")
            }
            Self::MissingDatabase { url } => write!(
                f,
                "{url} does not exist: create it with CREATE DATABASE \"{}\"",
                url.database()
            ),
            Self::Tls {
                url,
                is_unsupported: true,
                ..
            } => write!(
                f,
                "{url} does not offer TLS: enable it on the server, or add sslmode=disable to the URL if the network is trusted"
            ),
            Self::Tls { url, source, .. } => write!(
                f,
                "the TLS handshake with {url} failed: {}; name the authority of the server's certificate in store.ca, and use a \
                 host name that the certificate contains",
                causes(&**source)
            ),
            Self::TooManyConnections { url, needed } => write!(
                f,
                "{url} has no free connection: a replica needs {needed}; raise max_connections or the limit of the role, or lower \
                 store.readers and store.writers"
            ),
            Self::ReadOnly { url } => write!(
                f,
                "{url} is read-only: it is a standby, or default_transaction_read_only is on; name the primary, or all hosts, in \
                 the URL"
            ),
            Self::OldServer { url, found } => write!(
                f,
                "{url} is PostgreSQL {found}, and version 14 or newer is needed: upgrade the server"
            ),
            Self::TransactionPooler { url } => write!(
                f,
                "{url} is a pool that changes the session between statements: use a session pool or a direct connection"
            ),
            Self::MissingRight {
                url,
                schema,
                reason,
            } => write!(
                f,
                "the role {:?} lacks a right on {url}: {reason}; make it the owner of the schema: CREATE SCHEMA {schema} \
                 AUTHORIZATION \"{}\"",
                url.user(),
                url.user()
            ),
            Self::OldSchema {
                url,
                found: 0,
                known: _,
            } => write!(
                f,
                "{url} has no tables yet and store.migrate is \"never\": run `attache db migrate`"
            ),
            Self::OldSchema { url, found, known } => write!(
                f,
                "{url} has schema version {found}, this program needs {known}, and store.migrate is \"never\": run \
                 `attache db migrate`"
            ),
            Self::NewerSchema {
                found,
                compatible_since,
                known,
            } => write!(
                f,
                "the database has schema version {found} and needs a program that knows at least {compatible_since}; this program \
                 knows {known}: use the newer program"
            ),
            Self::NewerFormat { found, known } => write!(
                f,
                "the database has log format {found}, and this program reads formats up to {known}: use the newer program"
            ),
            Self::OlderReplica {
                replica,
                knows,
                needed,
            } => write!(
                f,
                "the replica {replica} is live and knows schema version {knows}, and the migration excludes programs that know \
                 less than {needed}: stop it first"
            ),
            Self::ForeignSchema { schema } => write!(
                f,
                "the schema {schema} has tables of another program: choose another schema"
            ),
            Self::WrongWebhookKey => f.write_str(
                "the webhooks in the database are encrypted with another key: give every replica the same store.webhook_key",
            ),
            Self::Full { url } => write!(
                f,
                "no disk space is left on the server of {url}: free some space; no restart is needed"
            ),
            Self::Failed { url, source } => {
                write!(f, "cannot open {url}: {}", causes(&**source))
            }
        }
    }
}

impl StdError for OpenError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Unreachable { source, .. }
            | Self::Tls { source, .. }
            | Self::Failed { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// Joins an error and its causes: the driver's own messages name no cause.
fn causes(error: &(dyn StdError + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Class of a failed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection is gone, or the answer is late: a write may have been committed.
    Lost,
    /// A concurrent statement is the cause. A retry may succeed.
    Contention,
    /// Every write fails for this reason.
    Unwritable(HealthProblem),
    /// Stored bytes cannot be decoded.
    Damaged,
    /// Any other failure of this statement.
    Other,
}

impl Failure {
    fn of(error: &tokio_postgres::Error) -> Self {
        let Some(code) = error.code() else {
            let is_io = error
                .source()
                .is_some_and(|source| source.is::<io::Error>());
            // Without code and cause: an unexpected message or a timeout. The state of the connection is unknown.
            let is_lost = error.is_closed() || is_io || error.source().is_none();
            return if is_lost { Self::Lost } else { Self::Other };
        };
        match code.code() {
            "57P01" | "57P02" | "57P03" | "57P05" => Self::Lost,
            "23505" | "40P01" | "40001" | "55P03" => Self::Contention,
            "53100" => Self::Unwritable(HealthProblem::Full),
            "53200" => Self::Unwritable(HealthProblem::Failing),
            "25006" | "42501" => Self::Unwritable(HealthProblem::ReadOnly),
            code if code.starts_with("08") => Self::Lost,
            _ => Self::Other,
        }
    }
}

/// Error of a statement, with advice for the operator.
#[derive(Debug)]
pub(super) struct DatabaseError {
    pub(super) failure: Failure,
    message: String,
    source: Option<Cause>,
}

impl DatabaseError {
    pub(super) fn new(error: tokio_postgres::Error) -> Self {
        let failure = Failure::of(&error);
        let message = match failure {
            Failure::Lost => "the connection to PostgreSQL is lost",
            Failure::Unwritable(HealthProblem::Full) => {
                "no disk space is left on the database server: free some space; no restart is needed"
            }
            Failure::Unwritable(HealthProblem::ReadOnly) => {
                "the database cannot be written: it is a standby, or the role lacks a right"
            }
            Failure::Contention | Failure::Unwritable(_) | Failure::Damaged | Failure::Other => {
                "PostgreSQL failed"
            }
        };
        let message = match error.as_db_error() {
            Some(refused) => format!(
                "{message}: {} (SQLSTATE {})",
                refused.message(),
                refused.code().code()
            ),
            None => format!("{message}: {}", causes(&error)),
        };
        Self {
            failure,
            message,
            source: Some(Box::new(error)),
        }
    }

    /// No answer arrived before the client's deadline.
    pub(super) fn late() -> Self {
        Self::lost("PostgreSQL did not answer in time")
    }

    /// The connection was abandoned.
    pub(super) fn lost(message: &str) -> Self {
        Self {
            failure: Failure::Lost,
            message: message.to_owned(),
            source: None,
        }
    }

    /// The write was refused by this program.
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self {
            failure: Failure::Other,
            message: message.into(),
            source: None,
        }
    }

    pub(super) fn damaged(cause: CodecError) -> Self {
        Self {
            failure: Failure::Damaged,
            message: "a row of the database is damaged: restore a backup".to_owned(),
            source: Some(Box::new(cause)),
        }
    }

    pub(super) fn into_store_error(self) -> store::Error {
        if self.failure == Failure::Damaged {
            metrics::record_damaged_row();
            store::Error::Damaged(Box::new(self))
        } else {
            store::Error::Failed(Box::new(self))
        }
    }
}

impl From<DatabaseError> for store::Error {
    fn from(error: DatabaseError) -> Self {
        error.into_store_error()
    }
}

impl From<OpenError> for store::Error {
    fn from(error: OpenError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl From<CodecError> for DatabaseError {
    fn from(error: CodecError) -> Self {
        Self::damaged(error)
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for DatabaseError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
