//! Random tokens of sessions and links. Only their digests are kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(super) fn new(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Whether a token has this digest, in constant time.
    pub(super) fn matches(&self, token: &str) -> bool {
        self.0.ct_eq(&Self::new(token).0).into()
    }
}

/// Returns a token of 256 random bits that is valid in URLs and headers.
///
/// # Errors
/// The system has no random source.
pub(super) fn random_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
