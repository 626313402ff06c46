//! The store kind `postgres`: its values, the section `[cluster]`, and the options of the store.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use attache::ClientTls;
use attache::model::units::{HumanDuration, format_size, parse_size};
use attache::store::postgres::{DatabaseUrl, Migrate, Options, WebhookKey};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::KeyError;
use super::layers::Environment;
use super::print::REDACTED;
use super::{Config, ConfigError, StoreKind};

/// Text for no limit.
const UNLIMITED: &str = "unlimited";

/// Variable with the key that encrypts webhooks.
const WEBHOOK_KEY_VARIABLE: &str = "ATTACHE_WEBHOOK_KEY";

/// Supported leases.
const LEASES: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(60);

/// Maximum number of connections of one kind. Counters have a shard number below 256 for each writer.
const MAX_CONNECTIONS: usize = 255;

/// Replicas that share a PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// Name of this replica for operators. Default: host name and process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replica_name: Option<String>,
    /// The other replicas take over the tasks of a replica whose heartbeats stop for this long: 500ms to 60s.
    #[serde(with = "HumanDuration")]
    pub(crate) lease: Duration,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self {
            replica_name: None,
            lease: Duration::from_secs(3),
        }
    }
}

/// URL of a database. It is printed without its password.
#[derive(Clone, PartialEq)]
pub(crate) struct StoreUrl {
    url: DatabaseUrl,
    /// Text of the URL, with [`REDACTED`] in place of a password.
    redacted: String,
}

impl StoreUrl {
    fn parse(text: &str) -> Result<Self, attache::store::postgres::OpenError> {
        Ok(Self {
            url: text.parse()?,
            redacted: without_password(text),
        })
    }
}

/// Replaces the password of a URL, before the host or among the parameters.
pub(super) fn without_password(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut redacted = base.to_owned();
    // The driver ends the credentials at the first @, and the name of the user at the first colon.
    if let Some((scheme, rest)) = base.split_once("://")
        && let Some((credentials, host)) = rest.split_once('@')
        && let Some((user, _)) = credentials.split_once(':')
    {
        redacted = format!("{scheme}://{user}:{REDACTED}@{host}");
    }
    let mut separator = '?';
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        redacted.push(separator);
        match parameter.split_once('=') {
            Some(("password", _)) => redacted.push_str(&format!("password={REDACTED}")),
            _ => redacted.push_str(parameter),
        }
        separator = '&';
    }
    redacted
}

impl Eq for StoreUrl {}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redacted.fmt(f)
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.redacted)
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for StoreUrl {
    fn schema_name() -> Cow<'static, str> {
        "StoreUrl".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Maximum size of a database in bytes; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MaxBytes(pub(crate) Option<usize>);

impl Serialize for MaxBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.map_or_else(|| UNLIMITED.to_owned(), format_size);
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for MaxBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MaxBytesVisitor;

        impl Visitor<'_> for MaxBytesVisitor {
            type Value = MaxBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"100GB\", or \"unlimited\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<MaxBytes, E> {
                if text == UNLIMITED {
                    return Ok(MaxBytes(None));
                }
                let bytes = parse_size(text);
                let bytes = bytes.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self));
                Ok(MaxBytes(Some(bytes?)))
            }
        }

        deserializer.deserialize_str(MaxBytesVisitor)
    }
}

impl JsonSchema for MaxBytes {
    fn schema_name() -> Cow<'static, str> {
        "MaxBytes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Whether a start creates or migrates the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MigrateMode {
    /// Yes.
    #[default]
    Auto,
    /// No: `attache db migrate` does, with a role that owns the schema.
    Never,
}

impl Config {
    /// Returns the options of the PostgreSQL database; `None` if the store is of another kind.
    ///
    /// # Errors
    /// A setting is missing or invalid, or a file cannot be read.
    pub(crate) fn postgres_options(
        &self,
        environment: Environment<'_>,
    ) -> Result<Option<Options>, ConfigError> {
        if self.store.kind != StoreKind::Postgres {
            return Ok(None);
        }
        let options = self.read_postgres_options(environment);
        options.map(Some).map_err(|error| self.error(&error))
    }

    fn read_postgres_options(&self, environment: Environment<'_>) -> Result<Options, KeyError> {
        let store = &self.store;
        let url = store.url.as_ref().ok_or_else(|| {
            KeyError::new(
                "store.url",
                "the key `url` is missing: name the database, for example postgres://user:password@host/database, or set ATTACHE_STORE_URL",
            )
        })?;
        if !LEASES.contains(&self.cluster.lease) {
            return Err(KeyError::new("cluster.lease", "must be 500ms to 60s"));
        }
        for (key, count) in [
            ("store.writers", store.writers),
            ("store.readers", store.readers),
        ] {
            if !(1..=MAX_CONNECTIONS).contains(&count) {
                return Err(KeyError::new(
                    key,
                    format!("must be 1 to {MAX_CONNECTIONS}"),
                ));
            }
        }
        let key = self.webhook_key(environment)?;
        let mut options = Options::new(url.url.clone(), key);
        options.schema.clone_from(&store.schema);
        options.tls = self.database_tls()?;
        options.writers = store.writers;
        options.readers = store.readers;
        options.max_bytes = store.max_bytes.0.map(|bytes| bytes as u64);
        options.migrate = match store.migrate {
            MigrateMode::Auto => Migrate::Auto,
            MigrateMode::Never => Migrate::Never,
        };
        if let Some(name) = &self.cluster.replica_name {
            options.replica_name.clone_from(name);
        }
        options.lease = self.cluster.lease;
        options.write_timeout = self.engine.store_timeout;
        Ok(options)
    }

    /// Reads the key of webhooks from the environment, else from its file.
    fn webhook_key(&self, environment: Environment<'_>) -> Result<WebhookKey, KeyError> {
        if let Some(key) = environment(WEBHOOK_KEY_VARIABLE).filter(|key| !key.is_empty()) {
            return WebhookKey::from_base64(&key).map_err(|error| {
                KeyError::new(
                    "store.webhook_key",
                    format!("{WEBHOOK_KEY_VARIABLE}: {error}"),
                )
            });
        }
        let file = self.store.webhook_key.as_ref().ok_or_else(|| {
            KeyError::new(
                "store.webhook_key",
                "the key `webhook_key` is missing: create one with `attache db key > webhook.key`, and name the file on every replica, \
                 or set ATTACHE_WEBHOOK_KEY to the key",
            )
        })?;
        let text = read_file("store.webhook_key", file)?;
        let key = WebhookKey::from_base64(&String::from_utf8_lossy(&text));
        key.map_err(|error| {
            KeyError::new("store.webhook_key", format!("{}: {error}", file.display()))
        })
    }

    /// Returns the trusted authorities and the client certificate for the database.
    fn database_tls(&self) -> Result<ClientTls, KeyError> {
        let store = &self.store;
        let mut tls = ClientTls::new();
        if let Some(file) = &store.ca {
            tls = tls
                .authority(&read_file("store.ca", file)?)
                .map_err(|error| KeyError::new("store.ca", error))?;
        }
        match (&store.client_cert, &store.client_key) {
            (Some(certificate), Some(key)) => {
                let certificate = read_file("store.client_cert", certificate)?;
                let key = read_file("store.client_key", key)?;
                let tls = tls.certificate(&certificate, &key);
                tls.map_err(|error| KeyError::new("store.client_cert", error))
            }
            (None, None) => Ok(tls),
            (Some(_), None) => Err(KeyError::new(
                "store.client_cert",
                "needs store.client_key: name both or none",
            )),
            (None, Some(_)) => Err(KeyError::new(
                "store.client_key",
                "needs store.client_cert: name both or none",
            )),
        }
    }
}

fn read_file(key: &str, file: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(file)
        .map_err(|error| KeyError::new(key, format!("cannot read {}: {error}", file.display())))
}
