//! Schema versions, migrations, and the checks of a database when a store is opened.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::error::SqlState;

use super::error::OpenError;
use super::options::{Migrate, Options};
use super::session::{Connector, Purpose, Session};
use crate::store::secret_box::SecretBox;

/// Migrations: number `n` leads from schema version `n - 1` to `n`. Do not change a file; add a new one.
const MIGRATIONS: &[&str] = &[include_str!("migrations/1.sql")];

/// Newest log format that this program reads and writes.
pub(super) const FORMAT_LEVEL: i16 = 1;

/// Oldest supported version of PostgreSQL, as the server numbers versions.
const MIN_SERVER_VERSION: i32 = 140_000;

/// How long a migration is repeated while another session locks a table, and the pause in between.
const MIGRATION_RETRY: Duration = Duration::from_secs(60);
const MIGRATION_PAUSE: Duration = Duration::from_millis(500);

/// Returns the schema version that this program knows.
pub(super) fn known_version() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
}

/// Schema version of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SchemaVersion {
    /// 0 if the schema has no tables.
    pub(super) version: i32,
    pub(super) compatible_since: i32,
}

/// Checks that the schema can be an unquoted name: it is part of statements, and the channel of notifications.
pub(super) fn check_name(schema: &str) -> Result<(), OpenError> {
    let is_name = (1..=63).contains(&schema.len())
        && schema.starts_with(|first: char| first.is_ascii_lowercase())
        && schema
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_name {
        return Ok(());
    }
    Err(OpenError::InvalidSchema {
        schema: schema.to_owned(),
    })
}

/// Checks the server, and creates or migrates the schema.
///
/// # Errors
/// The database cannot be used. The message says why and what to do.
pub(super) async fn prepare(connector: &Connector, secrets: &SecretBox) -> Result<(), OpenError> {
    let options = connector.options();
    check_name(&options.schema)?;
    let session = connector.connect(Purpose::Setup, None).await?;
    let setup = Setup {
        connector,
        session: &session,
    };
    setup.check_server().await?;
    setup.check_durability().await?;
    match setup.check_version().await? {
        Some(found) if options.migrate == Migrate::Never => {
            return Err(OpenError::OldSchema {
                url: Box::new(options.url.clone()),
                found: found.version,
                known: known_version(),
            });
        }
        Some(_) => setup.migrate().await?,
        None => {}
    }
    setup.check_webhook_key(secrets).await
}

/// Creates or migrates the schema, whatever [`Options::migrate`] is. Returns the versions before and after.
///
/// # Errors
/// The database cannot be used, or a live replica is too old for the new schema.
pub(super) async fn migrate(options: Options) -> Result<(u32, u32), OpenError> {
    check_name(&options.schema)?;
    let connector = Connector::new(options).await?;
    let session = connector.connect(Purpose::Setup, None).await?;
    let setup = Setup {
        connector: &connector,
        session: &session,
    };
    setup.check_server().await?;
    let before = setup.check_version().await?;
    setup.migrate().await?;
    let after = known_version();
    let before = before.map_or(after, |found| found.version);
    Ok((before.unsigned_abs(), after.unsigned_abs()))
}

/// Checks and migrations on one session.
struct Setup<'a> {
    connector: &'a Connector,
    session: &'a Session,
}

impl Setup<'_> {
    fn options(&self) -> &Options {
        self.connector.options()
    }

    /// Refuses old servers, and proxies that change the session between statements.
    async fn check_server(&self) -> Result<(), OpenError> {
        let version: i32 = self
            .value("SELECT current_setting('server_version_num')::int")
            .await?;
        if version < MIN_SERVER_VERSION {
            return Err(OpenError::OldServer {
                url: Box::new(self.options().url.clone()),
                found: self
                    .value("SELECT current_setting('server_version')")
                    .await?,
            });
        }
        // Two sessions at a time: an idle pool would give both statements of one session to the same backend.
        let other = self.connector.connect(Purpose::Setup, None).await?;
        let first = self.backend_of(self.session).await?;
        let second = self.backend_of(&other).await?;
        let again = self.backend_of(self.session).await?;
        if first == second || first != again {
            return Err(OpenError::TransactionPooler {
                url: Box::new(self.options().url.clone()),
            });
        }
        Ok(())
    }

    /// Returns the id of the server process. The simple protocol, because pools handle prepared statements themselves.
    async fn backend_of(&self, session: &Session) -> Result<String, OpenError> {
        let messages = session
            .client()
            .simple_query("SELECT pg_backend_pid()")
            .await;
        let messages = messages.map_err(|error| self.connector.open_error(error))?;
        let backend = messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(backend.unwrap_or_default())
    }

    /// Logs settings of the server with which a crash of its host loses acknowledged writes.
    async fn check_durability(&self) -> Result<(), OpenError> {
        for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
            let sql = format!("SELECT current_setting('{setting}')");
            let value: String = self.value(&sql).await?;
            if value == "off" {
                tracing::warn!(
                    setting,
                    "acknowledged writes may be lost if the database host fails: the setting is off"
                );
            }
        }
        Ok(())
    }

    /// Returns the schema version if it must be migrated.
    async fn check_version(&self) -> Result<Option<SchemaVersion>, OpenError> {
        let found = self.version().await?;
        let known = known_version();
        if found.compatible_since > known {
            return Err(OpenError::NewerSchema {
                found: found.version,
                compatible_since: found.compatible_since,
                known,
            });
        }
        Ok((found.version < known).then_some(found))
    }

    async fn version(&self) -> Result<SchemaVersion, OpenError> {
        // One statement, so one snapshot: another replica may create the tables at the same time.
        let sql = "SELECT count(*) > 0, count(*) FILTER (WHERE relname = 'meta') > 0 FROM pg_class
                   WHERE relnamespace = to_regnamespace(current_schema()) AND relkind IN ('r', 'p', 'v')";
        let row = self.session.client().query_one(sql, &[]).await;
        let found = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let (has_tables, has_meta): (bool, bool) =
            found.map_err(|error| self.connector.open_error(error))?;
        if has_meta {
            let sql = "SELECT schema_version, compatible_since FROM meta";
            let row = self.session.client().query_opt(sql, &[]).await;
            let row = row.map_err(|error| self.connector.open_error(error))?;
            let versions = row.and_then(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?)));
            return match versions {
                Some((version, compatible_since)) => Ok(SchemaVersion {
                    version,
                    compatible_since,
                }),
                None => Err(self.foreign_schema()),
            };
        }
        if has_tables {
            return Err(self.foreign_schema());
        }
        Ok(SchemaVersion {
            version: 0,
            compatible_since: 0,
        })
    }

    fn foreign_schema(&self) -> OpenError {
        OpenError::ForeignSchema {
            schema: self.options().schema.clone(),
        }
    }

    /// Applies the missing migrations. Concurrent replicas wait for each other.
    async fn migrate(&self) -> Result<(), OpenError> {
        let schema = &self.options().schema;
        // Released with the session.
        let wait = format!(
            "SET statement_timeout = 0; SET lock_timeout = 0;
             SELECT pg_advisory_lock(hashtextextended('attache schema {schema}', 0));
             SET lock_timeout = '2s';"
        );
        self.batch(&wait).await?;
        let exists: bool = self
            .value("SELECT to_regnamespace(current_setting('search_path')) IS NOT NULL")
            .await?;
        if !exists {
            self.batch(&format!("CREATE SCHEMA \"{schema}\"")).await?;
        }
        let found = self.version().await?;
        if found.version > 0 && found.version < known_version() {
            tracing::warn!(
                from = found.version,
                to = known_version(),
                "migrating the schema; a backup is made with: pg_dump -n {schema}"
            );
        }
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            let version = i32::try_from(index + 1).unwrap_or(i32::MAX);
            if version > found.version {
                self.check_live_replicas(found.version, compatible_since(migration))
                    .await?;
                self.apply(version, migration).await?;
                tracing::info!(version, schema, "schema migrated");
            }
        }
        self.batch("SELECT pg_advisory_unlock_all()").await
    }

    /// Refuses a migration that excludes the program of a live replica.
    async fn check_live_replicas(&self, version: i32, needed: i32) -> Result<(), OpenError> {
        if version == 0 {
            return Ok(());
        }
        let sql = "SELECT name, schema_version FROM replica WHERE removed IS NULL AND schema_version < $1 LIMIT 1";
        let row = self.session.client().query_opt(sql, &[&needed]).await;
        let row = row.map_err(|error| self.connector.open_error(error))?;
        match row {
            Some(row) => Err(OpenError::OlderReplica {
                replica: row.get(0),
                knows: row.get(1),
                needed,
            }),
            None => Ok(()),
        }
    }

    /// Applies one migration in a transaction. Repeats it while another session locks a table.
    async fn apply(&self, version: i32, migration: &str) -> Result<(), OpenError> {
        let since = compatible_since(migration);
        let record = if version == 1 {
            format!(
                "INSERT INTO meta (schema_version, compatible_since, format_level) VALUES ({version}, {since}, {FORMAT_LEVEL});"
            )
        } else {
            format!("UPDATE meta SET schema_version = {version}, compatible_since = {since};")
        };
        let sql = format!("BEGIN; {migration}; {record} COMMIT;");
        let deadline = Instant::now() + MIGRATION_RETRY;
        loop {
            let Err(error) = self.session.client().batch_execute(&sql).await else {
                return Ok(());
            };
            // Fails only if the connection is lost, which the next statement reports.
            let _ = self.session.client().batch_execute("ROLLBACK").await;
            let is_locked = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
            if !is_locked || Instant::now() >= deadline {
                return Err(self.connector.open_error(error));
            }
            sleep(MIGRATION_PAUSE).await;
        }
    }

    /// Records the fingerprint of the webhook key, or compares it.
    async fn check_webhook_key(&self, secrets: &SecretBox) -> Result<(), OpenError> {
        // Another key may replace the recorded one while nothing is encrypted with it.
        let sql = "UPDATE meta SET webhook_key_fingerprint = $1
                   WHERE webhook_key_fingerprint IS NULL
                       OR NOT EXISTS (SELECT FROM push_config) AND NOT EXISTS (SELECT FROM replica WHERE removed IS NULL)";
        let fingerprint = &secrets.fingerprint()[..];
        let client = self.session.client();
        let failed = |error| self.connector.open_error(error);
        client.execute(sql, &[&fingerprint]).await.map_err(failed)?;
        let sql = "SELECT webhook_key_fingerprint = $1 FROM meta";
        let row = client.query_one(sql, &[&fingerprint]).await;
        if row.map_err(failed)?.get::<_, Option<bool>>(0) == Some(true) {
            return Ok(());
        }
        Err(OpenError::WrongWebhookKey)
    }

    async fn batch(&self, sql: &str) -> Result<(), OpenError> {
        let result = self.session.client().batch_execute(sql).await;
        result.map_err(|error| self.connector.open_error(error))
    }

    /// Returns the only value of a statement without parameters.
    async fn value<T>(&self, sql: &str) -> Result<T, OpenError>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let row = self.session.client().query_one(sql, &[]).await;
        let value = row.and_then(|row| row.try_get(0));
        value.map_err(|error| self.connector.open_error(error))
    }
}

/// Reads the first line of a migration: `-- compatible-since: N`.
fn compatible_since(migration: &str) -> i32 {
    let first = migration.lines().next().unwrap_or_default();
    let number = first.strip_prefix("-- compatible-since: ");
    number
        .and_then(|number| number.trim().parse().ok())
        .expect("a migration names the oldest compatible version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_names_the_oldest_compatible_version() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            let since = compatible_since(migration);
            assert!((1..=i32::try_from(index + 1).unwrap()).contains(&since));
        }
    }

    #[test]
    fn names_of_schemas_need_no_quotes() {
        for name in ["attache", "a_1", &"a".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "Attache", "1a", "a-b", "a\"b", "a b", &"a".repeat(64)] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("cannot be the name of a schema"), "{error}");
        }
    }
}
