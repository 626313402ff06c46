//! JSON Web Tokens (RFC 7519) in compact form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::jose_header::JoseHeader;
use super::{KeySet, Signer};
use crate::model::{Error, Result};

/// Largest accepted token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Result of verifying a token with a key set.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenVerification {
    /// A key of the set has signed these claims. The caller checks their content, such as audience and expiry.
    Verified(Value),
    /// The key is not in the set.
    UnknownKey,
    /// The token is malformed, or its signature is invalid.
    Invalid,
}

impl Signer {
    /// Signs claims as a JWT.
    ///
    /// # Errors
    /// Internal: signing failed.
    pub fn sign_token(&self, claims: &Value) -> Result<String> {
        let header = JoseHeader {
            typ: Some("JWT".to_owned()),
            jku: None,
            ..self.header()
        };
        let header = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header).map_err(Error::internal)?);
        let input = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(input.as_bytes())?);
        Ok(format!("{input}.{signature}"))
    }
}

impl KeySet {
    /// Verifies the signature of a token. The key type decides which algorithms are allowed, not the token's header.
    #[must_use]
    pub fn verify_token(&self, token: &str) -> TokenVerification {
        self.read_token(token).unwrap_or(TokenVerification::Invalid)
    }

    fn read_token(&self, token: &str) -> Option<TokenVerification> {
        let (input, signature) = token
            .rsplit_once('.')
            .filter(|_| token.len() <= MAX_TOKEN_BYTES)?;
        let (header, claims) = input.split_once('.')?;
        let header = JoseHeader::decode(header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut candidates = self.find(&header.kid).peekable();
        if candidates.peek().is_none() {
            return Some(TokenVerification::UnknownKey);
        }
        if !candidates.any(|key| key.verifies(&header.alg, input.as_bytes(), &signature)) {
            return None;
        }
        let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        Some(TokenVerification::Verified(claims))
    }
}
