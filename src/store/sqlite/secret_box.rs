//! Encryption of webhook registrations, which contain credentials.
//!
//! AES-256-GCM with a random nonce per row. The key is in a file of its own beside the database, so a copy of the database
//! alone reveals no credentials.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::error::OpenError;
use crate::rt::create_private_file;
use crate::store::codec::CodecError;

/// Name of the key file in the folder of the database.
const KEY_FILE: &str = "attache.key";
const KEY_BYTES: usize = 32;
/// Associated data: binds a ciphertext to this purpose, in case the key is ever used for another.
const ASSOCIATED_DATA: &[u8] = b"attache webhook 1";

/// Encryption key of the webhook registrations.
pub(super) struct SecretBox {
    key: LessSafeKey,
    fingerprint: [u8; 16],
}

impl fmt::Debug for SecretBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBox(***)")
    }
}

impl SecretBox {
    /// Loads the key of a database, or creates one.
    ///
    /// # Errors
    /// The key is missing or wrong while encrypted rows exist, or a file cannot be accessed.
    pub(super) fn open(path: &Path, connection: &mut Connection) -> Result<Self, OpenError> {
        let file = path.with_file_name(KEY_FILE);
        let has_webhooks =
            has_webhooks(connection).map_err(|error| OpenError::sqlite(path, error))?;
        if has_webhooks && !file.exists() {
            return Err(OpenError::MissingKey {
                file: path.to_owned(),
                key: file,
            });
        }
        let secret_box = load_or_create_key(&file)
            .and_then(Self::new)
            .map_err(|error| OpenError::io(&file, error))?;
        match secret_box.adopt_database(connection) {
            Ok(true) => Ok(secret_box),
            Ok(false) => Err(OpenError::WrongKey {
                file: path.to_owned(),
                key: file,
            }),
            Err(error) => Err(OpenError::sqlite(path, error)),
        }
    }

    fn new(key: [u8; KEY_BYTES]) -> io::Result<Self> {
        let unusable = |_| io::Error::other("the key cannot be used");
        let digest = Sha256::digest(key);
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&digest[..16]);
        Ok(Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).map_err(unusable)?),
            fingerprint,
        })
    }

    /// Records the key's fingerprint; `false` if webhooks are encrypted with another key.
    fn adopt_database(&self, connection: &mut Connection) -> rusqlite::Result<bool> {
        let transaction = connection.transaction()?;
        let known = transaction.query_row("SELECT fingerprint FROM encryption_key", (), |row| {
            row.get::<_, Vec<u8>>(0)
        });
        match known.optional()? {
            Some(known) if known == self.fingerprint => {}
            Some(_) if has_webhooks(&transaction)? => return Ok(false),
            Some(_) | None => {
                transaction.execute("DELETE FROM encryption_key", ())?;
                transaction
                    .execute("INSERT INTO encryption_key VALUES (?1)", [self.fingerprint])?;
            }
        }
        transaction.commit()?;
        Ok(true)
    }

    /// Encrypts a body. The result is the nonce followed by the ciphertext and tag.
    pub(super) fn encrypt(&self, mut body: Vec<u8>) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the system provides randomness");
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(unique, Aad::from(ASSOCIATED_DATA), &mut body)
            .expect("a webhook is shorter than 64 GiB");
        [&nonce[..], &body].concat()
    }

    /// Decrypts the result of [`encrypt`](Self::encrypt).
    pub(super) fn decrypt(&self, encrypted: &[u8]) -> Result<Vec<u8>, CodecError> {
        const WRONG: CodecError = CodecError("a webhook encrypted with another key");
        let (nonce, body) = encrypted.split_at_checked(NONCE_LEN).ok_or(WRONG)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| WRONG)?;
        let mut body = body.to_vec();
        let open = self
            .key
            .open_in_place(nonce, Aad::from(ASSOCIATED_DATA), &mut body)
            .map_err(|_| WRONG)?;
        Ok(open.to_vec())
    }
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
    let mut key = [0; KEY_BYTES];
    // From the system: the generator of aws-lc takes 50 ms to initialize.
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let mut created = create_private_file(file)?;
    created.write_all(&key)?;
    created.sync_all()?;
    Ok(key)
}
