//! Verification of signed push notifications: a JWT over the body, the task and the request.

use ::http::HeaderMap;
use ::http::header::AUTHORIZATION;
use async_trait::async_trait;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{PushVerifier, VerificationError, VerifiedClaims, constant_time_eq};
use crate::jws::PublishedKeys;
use crate::model::TaskId;
use crate::wire::header::NOTIFICATION_JWT;

/// Tolerated difference between the clocks of sender and receiver, in seconds.
const CLOCK_SKEW_SECONDS: i64 = 60;
/// Maximum age of a token in seconds, whatever its `exp` claim is.
const MAX_TOKEN_AGE_SECONDS: i64 = 600;

/// Verifier of signed notifications; see [`PushReceiver::with_verifier`](crate::PushReceiver::with_verifier).
///
/// The signature covers the whole body and the task id. A token is at most 10 minutes old and valid for one request. The
/// sender publishes its keys; the receiver must know that they are the sender's.
#[derive(Debug)]
pub struct PushSignatureVerifier {
    keys: PublishedKeys,
    issuer: Option<String>,
    audience: Option<String>,
}

impl PushSignatureVerifier {
    /// Accepts notifications that are signed with one of these keys.
    #[must_use]
    pub fn new(keys: PublishedKeys) -> Self {
        Self {
            keys,
            issuer: None,
            audience: None,
        }
    }

    /// Requires this issuer (claim `iss`), usually the URL of the agent such as `https://agents.example.com`.
    #[must_use]
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        Self {
            issuer: Some(issuer.into()),
            ..self
        }
    }

    /// Requires this audience (claim `aud`): the URL of the webhook as registered.
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
        let is_current = claims.iat <= now + CLOCK_SKEW_SECONDS
            && claims.iat >= now - MAX_TOKEN_AGE_SECONDS
            && claims.exp > now - CLOCK_SKEW_SECONDS;
        let has_issuer = self
            .issuer
            .as_ref()
            .is_none_or(|issuer| *issuer == claims.iss);
        let has_audience = self
            .audience
            .as_ref()
            .is_none_or(|audience| claims.aud.contains(audience));
        let covers_body =
            constant_time_eq(digest.as_bytes(), claims.request_body_sha256.as_bytes());
        is_current && has_issuer && has_audience && covers_body && !claims.jti.is_empty()
    }
}

/// Claims of the token of a notification.
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

/// Claim `aud`: one value or a list.
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
    fn contains(&self, expected: &str) -> bool {
        match self {
            Self::One(one) => one == expected,
            Self::Many(many) => many.iter().any(|one| one == expected),
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
        if !self.accepts(&claims, body, jiff::Timestamp::now().as_second()) {
            return Err(VerificationError::Invalid);
        }
        Ok(VerifiedClaims {
            request_id: Some(claims.jti),
            task_id: claims.task,
            event_id: claims.event,
        })
    }
}

/// Returns the token from its own header, or from `Authorization: Bearer` as other senders use it.
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
