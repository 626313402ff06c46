//! Notifications that say who sent them, in a token that the sender has signed.

use ::http::HeaderMap;
use ::http::header::AUTHORIZATION;
use async_trait::async_trait;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{PushVerifier, VerificationError, VerifiedClaims, constant_time_eq};
use crate::jws::PublishedKeys;
use crate::model::TaskId;
use crate::wire::header::NOTIFICATION_JWT;

/// How much clocks may differ, in seconds.
const CLOCK_SKEW_SECONDS: i64 = 60;
/// The oldest token that is taken, however long it says that it is good, in seconds.
const MAX_TOKEN_AGE_SECONDS: i64 = 600;

/// What the signature of a notification has to say: see [`PushReceiver::with_verifier`](crate::PushReceiver::with_verifier). It is
/// over the whole body and for one task, not older than a few minutes, and good for one request. The sender publishes its
/// keys; that they are its keys is for the receiver to know.
#[derive(Debug)]
pub struct PushSignatureVerifier {
    keys: PublishedKeys,
    issuer: Option<String>,
    audience: Option<String>,
}

impl PushSignatureVerifier {
    /// Notifications are signed with one of these keys.
    #[must_use]
    pub fn new(keys: PublishedKeys) -> Self {
        Self {
            keys,
            issuer: None,
            audience: None,
        }
    }

    /// The sender calls itself so: where it is, such as `https://agents.example.com`.
    #[must_use]
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        Self {
            issuer: Some(issuer.into()),
            ..self
        }
    }

    /// They are for us: the url of the webhook, as it was registered.
    #[must_use]
    pub fn audience(self, url: impl Into<String>) -> Self {
        Self {
            audience: Some(url.into()),
            ..self
        }
    }

    fn accepts(&self, claims: &NotificationClaims, body: &[u8], now: i64) -> bool {
        let digest: String = Sha256::digest(body)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let is_new = claims.iat <= now + CLOCK_SKEW_SECONDS
            && claims.iat >= now - MAX_TOKEN_AGE_SECONDS
            && claims.exp > now - CLOCK_SKEW_SECONDS;
        let is_from = self
            .issuer
            .as_ref()
            .is_none_or(|issuer| *issuer == claims.iss);
        let is_for = self
            .audience
            .as_ref()
            .is_none_or(|audience| claims.aud.contains(audience));
        let is_of_body = constant_time_eq(digest.as_bytes(), claims.request_body_sha256.as_bytes());
        is_new && is_from && is_for && is_of_body && !claims.jti.is_empty()
    }
}

#[derive(Deserialize)]
struct NotificationClaims {
    #[serde(default)]
    iss: String,
    #[serde(default)]
    aud: AudienceClaim,
    iat: i64,
    exp: i64,
    jti: String,
    request_body_sha256: String,
    #[serde(rename = "taskId")]
    task: Option<TaskId>,
    #[serde(rename = "eventId")]
    event: Option<String>,
}

/// One, or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum AudienceClaim {
    One(String),
    Many(Vec<String>),
}

impl Default for AudienceClaim {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl AudienceClaim {
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|one| one == wanted),
        }
    }
}

#[async_trait]
impl PushVerifier for PushSignatureVerifier {
    async fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<VerifiedClaims, VerificationError> {
        let token = bearer_token(headers).ok_or(VerificationError::Invalid)?;
        let claims = self
            .keys
            .verify_claims(token)
            .await
            .map_err(|_| VerificationError::Unavailable)?
            .ok_or(VerificationError::Invalid)?;
        let claims: NotificationClaims =
            serde_json::from_value(claims).map_err(|_| VerificationError::Invalid)?;
        match self.accepts(&claims, body, jiff::Timestamp::now().as_second()) {
            true => Ok(VerifiedClaims {
                request_id: Some(claims.jti),
                task_id: claims.task,
                event_id: claims.event,
            }),
            false => Err(VerificationError::Invalid),
        }
    }
}

/// Under a name of its own, or as others send it.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let own = headers
        .get(NOTIFICATION_JWT)
        .map(|value| value.to_str().ok());
    own.unwrap_or_else(|| {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| token.trim_start())
    })
}
