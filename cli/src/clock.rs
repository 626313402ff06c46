//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use attache::model::Timestamp;

/// Current time, in Unix milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "client verbs have no engine whose clock they could use"
)]
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Current time.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(now_ms()).unwrap_or_default()
}
