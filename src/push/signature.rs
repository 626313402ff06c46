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

impl Signature {
    pub(crate) fn new(issuer: String, sign: Sign) -> Self {
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
            "exp": now + GOOD_FOR,
            "jti": id,
            "request_body_sha256": digest,
            "taskId": task,
            "eventId": event.to_string(),
        }))
    }
}
