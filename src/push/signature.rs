//! Signatures of push notifications: a short-lived JWT per attempt, bound to the body and the webhook URL.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::notification::Notification;
use crate::model::{Result, Timestamp};
use crate::store::Webhook;

/// Lifetime of a token, in seconds.
const TOKEN_LIFETIME_SECONDS: i64 = 300;

/// Signs claims as a JWT.
pub(crate) type SignFn = Box<dyn Fn(&serde_json::Value) -> Result<String> + Send + Sync>;

/// Signs notifications in the name of an issuer.
pub(crate) struct NotificationSigner {
    issuer: String,
    sign: SignFn,
}

impl NotificationSigner {
    pub(crate) fn new(issuer: String, sign: SignFn) -> Self {
        Self { issuer, sign }
    }

    /// Signs one delivery attempt. Each attempt has its own `jti`, so a receiver can reject a replayed token.
    pub(super) fn sign(
        &self,
        webhook: &Webhook,
        notification: &Notification,
        now: Timestamp,
        token_id: String,
    ) -> Result<String> {
        let now = now.as_millis().div_euclid(1000);
        let digest: String = Sha256::digest(&notification.body)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        (self.sign)(&json!({
            "iss": self.issuer,
            "aud": webhook.registration.config.url,
            "iat": now,
            "exp": now + TOKEN_LIFETIME_SECONDS,
            "jti": token_id,
            "request_body_sha256": digest,
            "taskId": webhook.task.id,
            "eventId": notification.event_id.to_string(),
        }))
    }
}
