//! Encryption of webhook registrations, which contain credentials.
//!
//! AES-256-GCM with a random nonce per row. The key is stored apart from the database, so a copy of the database alone
//! reveals no credentials.

use std::fmt;
use std::io;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use super::codec::CodecError;

/// Size of a key in bytes.
pub(super) const KEY_BYTES: usize = 32;
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
    pub(super) fn new(key: [u8; KEY_BYTES]) -> io::Result<Self> {
        let unusable = |_| io::Error::other("the key cannot be used");
        let digest = Sha256::digest(key);
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&digest[..16]);
        Ok(Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).map_err(unusable)?),
            fingerprint,
        })
    }

    /// Returns the first half of the key's SHA-256 digest.
    pub(super) fn fingerprint(&self) -> &[u8; 16] {
        &self.fingerprint
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

/// Returns a new random key.
///
/// # Errors
/// The system provides no randomness.
pub(super) fn random_key() -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    // From the system: the generator of aws-lc takes 50 ms to initialize.
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    Ok(key)
}
