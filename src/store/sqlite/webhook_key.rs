//! Encryption key of the webhook registrations of a SQLite database: a file of its own beside the database.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

use super::error::OpenError;
use crate::rt::create_private_file;
use crate::store::secret_box::{KEY_BYTES, SecretBox, random_key};

/// Name of the key file in the folder of the database.
const KEY_FILE: &str = "attache.key";

/// Loads the key of a database, or creates one.
///
/// # Errors
/// The key is missing or wrong while encrypted rows exist, or a file cannot be accessed.
pub(super) fn open(path: &Path, connection: &mut Connection) -> Result<SecretBox, OpenError> {
    let file = path.with_file_name(KEY_FILE);
    let has_webhooks = has_webhooks(connection).map_err(|error| OpenError::sqlite(path, error))?;
    if has_webhooks && !file.exists() {
        return Err(OpenError::MissingKey {
            file: path.to_owned(),
            key: file,
        });
    }
    let secret_box = load_or_create_key(&file)
        .and_then(SecretBox::new)
        .map_err(|error| OpenError::io(&file, error))?;
    match adopt_database(&secret_box, connection) {
        Ok(true) => Ok(secret_box),
        Ok(false) => Err(OpenError::WrongKey {
            file: path.to_owned(),
            key: file,
        }),
        Err(error) => Err(OpenError::sqlite(path, error)),
    }
}

/// Records the key's fingerprint; `false` if webhooks are encrypted with another key.
fn adopt_database(secret_box: &SecretBox, connection: &mut Connection) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let known = transaction.query_row("SELECT fingerprint FROM encryption_key", (), |row| {
        row.get::<_, Vec<u8>>(0)
    });
    match known.optional()? {
        Some(known) if known == secret_box.fingerprint() => {}
        Some(_) if has_webhooks(&transaction)? => return Ok(false),
        Some(_) | None => {
            transaction.execute("DELETE FROM encryption_key", ())?;
            transaction.execute(
                "INSERT INTO encryption_key VALUES (?1)",
                [secret_box.fingerprint()],
            )?;
        }
    }
    transaction.commit()?;
    Ok(true)
}

fn has_webhooks(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM webhook)", (), |row| {
        row.get(0)
    })
}

fn load_or_create_key(file: &PathBuf) -> io::Result<[u8; KEY_BYTES]> {
    match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => {
            let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, "not a key of 32 bytes");
            return read?.try_into().map_err(wrong);
        }
    }
    let key = random_key()?;
    let mut created = create_private_file(file)?;
    created.write_all(&key)?;
    created.sync_all()?;
    Ok(key)
}
