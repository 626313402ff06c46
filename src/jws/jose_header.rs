//! The protected header of a signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// Protected JOSE header.
#[derive(Serialize, Deserialize)]
pub(super) struct JoseHeader {
    pub(super) alg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jku: Option<String>,
    #[serde(default)]
    pub(super) kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) typ: Option<String>,
    /// Extensions that a verifier must support (RFC 7515 §4.1.11). None is supported, so a header with `crit` is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) crit: Option<serde_json::Value>,
}

impl JoseHeader {
    /// Decodes a base64url header; `None` if it is malformed or has `crit`.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        serde_json::from_slice(&bytes)
            .ok()
            .filter(|header: &Self| header.crit.is_none())
    }
}
