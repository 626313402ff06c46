//! Who says that a notification is ours: a token with a digest of the body, good for a few minutes and for one webhook.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::notice::EventId;
use crate::model::{Result, TaskId, Timestamp};

/// How long a token is good, in seconds.
const GOOD_FOR: i64 = 300;

/// Signs claims.
pub(crate) type Sign = Box<dyn Fn(&serde_json::Value) -> Result<String> + Send + Sync>;

/// The one who signs notifications, and under which name.
pub(crate) struct Signature {
    issuer: String,
    sign: Sign,
}

/// What is said of one attempt to deliver a notification.
pub(super) struct Attempt<'a> {
    pub(super) url: &'a str,
    pub(super) task: &'a TaskId,
    pub(super) event: EventId,
    pub(super) body: &'a [u8],
    pub(super) now: Timestamp,
    /// Of this attempt alone.
    pub(super) id: String,
}

impl Signature {
    pub(crate) fn new(issuer: String, sign: Sign) -> Self {
        Self { issuer, sign }
    }

    /// A token for one attempt; the next one gets its own, so that a token which comes twice is a copy.
    pub(super) fn token(&self, attempt: &Attempt<'_>) -> Result<String> {
        let now = attempt.now.as_millis().div_euclid(1000);
        let digest: String = Sha256::digest(attempt.body).iter().map(|byte| format!("{byte:02x}")).collect();
        (self.sign)(&json!({
            "iss": self.issuer,
            "aud": attempt.url,
            "iat": now,
            "exp": now + GOOD_FOR,
            "jti": attempt.id,
            "request_body_sha256": digest,
            "taskId": attempt.task,
            "eventId": attempt.event.to_string(),
        }))
    }
}
