//! Response headers with the state of a rate limit.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::reply::ceil_seconds;
use crate::auth::RateLimitStatus;

const IETF_STATUS: HeaderName = HeaderName::from_static("ratelimit");
const IETF_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Sets the headers of a rate limit: `RateLimit` and `RateLimit-Policy` with seconds from now
/// (draft-ietf-httpapi-ratelimit-headers), `X-RateLimit-Reset` with the time in Unix seconds.
pub(super) fn set(headers: &mut HeaderMap, status: &RateLimitStatus) {
    let seconds = ceil_seconds(status.reset);
    headers.insert(LIMIT, status.limit.into());
    headers.insert(REMAINING, status.remaining.into());
    headers.insert(RESET, unix_seconds().saturating_add(seconds).into());
    if let Some(value) = ietf_status(status, seconds) {
        headers.insert(IETF_STATUS, value);
        headers.insert(IETF_POLICY, status.policy.clone());
    }
}

/// The policy begins with the name of the limit.
fn ietf_status(status: &RateLimitStatus, seconds: u64) -> Option<HeaderValue> {
    let policy = status.policy.to_str().ok()?;
    let name = policy.split(';').next()?;
    HeaderValue::try_from(format!("{name};r={};t={seconds}", status.remaining)).ok()
}

/// Current time. Zero before 1970.
fn unix_seconds() -> u64 {
    let now = jiff::Timestamp::now().as_second();
    u64::try_from(now).unwrap_or_default()
}
