//! A stored API key. Only the SHA-256 digest of its secret is kept.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Identity, OperatorRole};
use crate::model::{Secret, Timestamp};

/// Prefix of generated keys, recognizable to people and secret scanners.
const PREFIX: &str = "att_";

/// Prefix of the names of callers with a key.
pub(super) const CALLER_PREFIX: &str = "key:";

/// Stored API key: its caller, permissions and lifetime, and the digest of the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ApiKey {
    /// Id of this key; not secret.
    pub id: String,
    /// Name of the caller. Keys with the same name belong to one caller, so that a key can be rotated without a gap.
    pub name: String,
    /// SHA-256 of the secret, in hexadecimal. Generated secrets have 244 random bits, so a fast hash suffices.
    digest: String,
    /// Granted scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Allowed agents; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Allowed tenants; `*`: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// Role of an operator key; `None`: admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<OperatorRole>,
    /// Creation time, in Unix milliseconds.
    pub created_ms: i64,
    /// Expiry, in Unix milliseconds; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
}

impl ApiKey {
    /// Generates a key for a caller. Returns the secret, which is not stored, and the record to store.
    #[must_use]
    pub fn generate(name: &str) -> (Secret, Self) {
        let secret = format!(
            "{PREFIX}{}{}",
            Uuid::new_v4().simple(),
            Uuid::new_v4().simple()
        );
        let key = Self::from_secret(name, &secret);
        (secret.into(), key)
    }

    pub(super) fn from_secret(name: &str, secret: &str) -> Self {
        let random = Uuid::new_v4().simple().to_string();
        Self {
            id: random.chars().take(8).collect(),
            name: name.to_owned(),
            digest: hex(&secret_digest(secret)),
            scopes: Vec::new(),
            agents: None,
            tenants: Vec::new(),
            role: None,
            created_ms: now_ms(),
            expires_ms: None,
        }
    }

    /// Whether the key has expired.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms())
    }

    /// Creation time.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        Timestamp::from_millis(self.created_ms).unwrap_or_default()
    }

    /// Expiry, if the key has one.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires_ms.and_then(Timestamp::from_millis)
    }

    pub(super) fn identity(&self) -> Identity {
        let identity = Identity::named(&format!("{CALLER_PREFIX}{}", self.name))
            .scopes(&self.scopes)
            .tenants(&self.tenants)
            .role(self.role.unwrap_or(OperatorRole::Admin));
        match &self.agents {
            Some(agents) => identity.agents(agents),
            None => identity,
        }
    }

    /// Digest of the secret; `None` if the stored text is malformed.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        from_hex(&self.digest)
    }
}

pub(super) fn secret_digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Current time, in Unix milliseconds.
pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let pairs = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    pairs.collect::<Option<Vec<_>>>()?.try_into().ok()
}
