//! Schema versions and migrations.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use super::error::{DatabaseError, OpenError};
use super::file_lock::with_suffix;
use super::open::private_file_options;

/// Migrations: number `n` leads from schema version `n - 1` to `n`. Do not change a statement; add a new file.
pub(super) const MIGRATIONS: &[&str] = &[include_str!("../migrations/1.sql")];

/// SQLite application id of our files: `Attc`.
const APPLICATION_ID: i32 = 0x4174_7463;

/// Application id of files that were written before the first release: `A2At`. Their schemas are not supported.
pub(super) const PRERELEASE_APPLICATION_ID: i32 = 0x4132_4174;

/// Returns the schema version of a file; 0 if the file is empty.
///
/// # Errors
/// The file belongs to another program, was written before the first release, or has a newer schema.
pub(super) fn version(connection: &Connection, path: &Path) -> Result<u32, OpenError> {
    let failed = |error| OpenError::sqlite(path, error);
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = pragma("application_id").map_err(failed)?;
    let version = u32::try_from(pragma("user_version").map_err(failed)?);
    let tables = "SELECT count(*) FROM sqlite_schema";
    let is_empty = connection
        .query_row(tables, (), |row| row.get::<_, i64>(0))
        .map_err(failed)?
        == 0;
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    match version {
        Ok(0) if application == 0 && is_empty => Ok(0),
        Ok(found @ 1..) if application == APPLICATION_ID => match found {
            _ if found > known => Err(OpenError::NewerSchema {
                file: path.to_owned(),
                found,
                known,
            }),
            _ => Ok(found),
        },
        Ok(found @ 1..) if application == PRERELEASE_APPLICATION_ID => {
            Err(OpenError::PrereleaseSchema {
                file: path.to_owned(),
                found,
            })
        }
        _ => Err(OpenError::ForeignDatabase {
            file: path.to_owned(),
        }),
    }
}

/// Backs the file up as `<name>-v<version>.backup` and applies the missing migrations in one transaction.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
    version: u32,
    migrations: &[&str],
) -> Result<(), OpenError> {
    let missing = migrations
        .get(usize::try_from(version).unwrap_or(usize::MAX)..)
        .unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    if version > 0 {
        let copy = with_suffix(path, &format!("-v{version}.backup"));
        back_up(connection, path, &copy)
            .map_err(|source| OpenError::Backup { file: copy, source })?;
    }
    apply(connection, missing, migrations.len()).map_err(|error| OpenError::sqlite(path, error))
}

fn apply(connection: &mut Connection, missing: &[&str], version: usize) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in missing {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(
        None,
        "user_version",
        i64::try_from(version).unwrap_or(i64::MAX),
    )?;
    transaction.commit()
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Writes a consistent, private copy. It appears under its name only when complete.
pub(super) fn back_up(connection: &Connection, path: &Path, copy: &Path) -> Result<(), Cause> {
    let part: PathBuf = with_suffix(copy, ".part");
    let name = part
        .to_str()
        .ok_or_else(|| io::Error::other("the file name is not Unicode"))?;
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = private_file_options().create_new(true).open(&part)?;
    connection
        .execute("VACUUM INTO ?1", [name])
        .map_err(|error| DatabaseError::new(path, error))?;
    file.sync_all()?;
    fs::rename(&part, copy)?;
    Ok(())
}
