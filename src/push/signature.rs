//! Who says that a notification is ours: a token with a digest of the body, good for a few minutes and for one webhook.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::notification::EventId;
use crate::model::{Result, TaskId, Timestamp};

/// How long a token is good, in seconds.
const TOKEN_LIFETIME_SECONDS: i64 = 300;

/// Signs claims.
pub(crate) type SignFn = Box<dyn Fn(&serde_json::Value) -> Result<String> + Send + Sync>;

/// The one who signs notifications, and under which name.
pub(crate) struct NotificationSigner {
    issuer: String,
    sign: SignFn,
}

impl NotificationSigner {
    pub(crate) fn new(issuer: String, sign: SignFn) -> Self {
        Self { issuer, sign }
    }

    /// A token for one attempt to deliver; the next one gets its own, so that a token which comes twice is a copy.
    pub(super) fn token(
        &self,
        url: &str,
        (task, event): (&TaskId, EventId),
        body: &[u8],
        now: Timestamp,
        id: String,
    ) -> Result<String> {
        let now = now.as_millis().div_euclid(1000);
        let digest: String = Sha256::digest(body)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        (self.sign)(&json!({
            "iss": self.issuer,
            "aud": url,
            "iat": now,
            "exp": now + TOKEN_LIFETIME_SECONDS,
            "jti": id,
            "request_body_sha256": digest,
            "taskId": task,
            "eventId": event.to_string(),
        }))
    }
}
