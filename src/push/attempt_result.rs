//! Classification of a webhook's response: delivered, retry or failed.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::settings::MAX_RETRY_AFTER;
use crate::egress::{ResponseHead, SendError};
use crate::model::Timestamp;

/// Result of one delivery attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AttemptResult {
    Delivered,
    /// Temporary failure. Retry, but not before the delay of `Retry-After`.
    Retry(Duration),
    /// Permanent failure, with the reason.
    Failed(String),
    /// Not sent: the byte budget was exhausted for `outgoing_timeout`. Does not count as an attempt.
    Postponed,
    /// Not sent: another replica has deleted or replaced the webhook, or taken it over.
    Superseded,
}

impl AttemptResult {
    /// Value of the metric label `outcome`.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry(_) => "retry",
            Self::Failed(_) => "failed",
            Self::Postponed => "postponed",
            Self::Superseded => "superseded",
        }
    }

    /// Classifies a response or a send error.
    pub(super) fn from_response(response: Result<ResponseHead, SendError>, now: Timestamp) -> Self {
        match response {
            Ok(ResponseHead { status, .. }) if status.is_success() => Self::Delivered,
            Ok(ResponseHead { status, headers }) if is_retryable(status) => Self::Retry(
                retry_after(&headers, now)
                    .unwrap_or_default()
                    .min(MAX_RETRY_AFTER),
            ),
            Ok(ResponseHead { status, .. }) if status.is_redirection() => Self::Failed(format!(
                "HTTP status {}; redirects are not followed",
                status.as_u16()
            )),
            Ok(ResponseHead { status, .. }) => {
                Self::Failed(format!("HTTP status {}", status.as_u16()))
            }
            Err(SendError::ConnectionFailed | SendError::TimedOut) => Self::Retry(Duration::ZERO),
            Err(SendError::Blocked(error)) => Self::Failed(format!("url {error}")),
        }
    }
}

/// Whether a status is a temporary failure (05 §5).
fn is_retryable(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
    ) || status.is_server_error()
}

/// Reads `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()?;
    let millis = at.as_millisecond().saturating_sub(now.as_millis());
    Some(Duration::from_millis(
        u64::try_from(millis).unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::BlockReason;

    fn result_for(status: u16, retry_after: Option<&str>) -> AttemptResult {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, text.parse().unwrap());
        }
        // Sun, 06 Nov 1994 08:49:37 GMT.
        let now = Timestamp::from_millis(784_111_777_000).unwrap();
        AttemptResult::from_response(
            Ok(ResponseHead {
                status: StatusCode::from_u16(status).unwrap(),
                headers,
            }),
            now,
        )
    }

    #[test]
    fn r29_responses_are_classified() {
        let retry = |seconds| AttemptResult::Retry(Duration::from_secs(seconds));
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(result_for(status, None), AttemptResult::Delivered);
        }
        for status in [408, 429, 500, 502, 503, 504, 599] {
            assert_eq!(result_for(status, None), retry(0));
        }
        assert_eq!(result_for(429, Some("7")), retry(7));
        assert_eq!(
            result_for(503, Some("Sun, 06 Nov 1994 08:50:07 GMT")),
            retry(30)
        );
        assert_eq!(
            result_for(503, Some("Sun, 06 Nov 1994 08:00:00 GMT")),
            retry(0)
        );
        assert_eq!(result_for(429, Some("99999999")), retry(3600));
        assert_eq!(result_for(429, Some("soon")), retry(0));
        for status in [301, 302, 307, 308, 400, 401, 403, 404, 410, 422] {
            let AttemptResult::Failed(reason) = result_for(status, None) else {
                panic!("{status}")
            };
            assert!(reason.contains(&status.to_string()), "{reason}");
        }
        let now = Timestamp::default();
        for error in [SendError::ConnectionFailed, SendError::TimedOut] {
            assert_eq!(AttemptResult::from_response(Err(error), now), retry(0));
        }
        let refused =
            AttemptResult::from_response(Err(SendError::Blocked(BlockReason::Address)), now);
        assert_eq!(
            refused,
            AttemptResult::Failed("url must lead to a public address".to_owned())
        );
    }
}
