//! Tokens: claims with a signature, in the compact form of JSON Web Tokens (RFC 7519).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{JoseHeader, KeySet, Signer};
use crate::model::{Error, Result};

/// The longest token that is looked at, in bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// What a key set says of a token.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenVerification {
    /// One of its keys signed it. What the claims say is for the caller to check.
    Verified(Value),
    /// It is of a key that is not among them.
    UnknownKey,
    /// It is no token, or the signature is not good.
    Invalid,
}

impl Signer {
    /// Signs claims.
    ///
    /// # Errors
    /// Internal: the key cannot sign.
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
    /// Checks the signature of a token. A key says how it may be used, whatever the token says.
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
        let mut known = self.find(&header.kid).peekable();
        if known.peek().is_none() {
            return Some(TokenVerification::UnknownKey);
        }
        if !known.any(|key| key.verifies(&header.alg, input.as_bytes(), &signature)) {
            return None;
        }
        let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        Some(TokenVerification::Verified(claims))
    }
}
