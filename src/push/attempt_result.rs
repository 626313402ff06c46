//! What an answer means.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::settings::MAX_RETRY_AFTER;
use crate::egress::{ResponseHead, SendError};
use crate::model::Timestamp;

/// What an attempt came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AttemptResult {
    /// It arrived.
    Delivered,
    /// It may arrive later: not before this long.
    Retry(Duration),
    /// It never will, for this reason.
    Failed(String),
}

impl AttemptResult {
    /// Its name among the counts.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry(_) => "retry",
            Self::Failed(_) => "failed",
        }
    }

    pub(super) fn from_response(answer: Result<ResponseHead, SendError>, now: Timestamp) -> Self {
        match answer {
            Ok(ResponseHead { status, .. }) if status.is_success() => Self::Delivered,
            Ok(ResponseHead { status, headers }) if is_retryable(status) => Self::Retry(
                retry_after(&headers, now)
                    .unwrap_or_default()
                    .min(MAX_RETRY_AFTER),
            ),
            Ok(ResponseHead { status, .. }) if status.is_redirection() => Self::Failed(format!(
                "it answered {} and redirects are not followed",
                status.as_u16()
            )),
            Ok(ResponseHead { status, .. }) => {
                Self::Failed(format!("it answered {}", status.as_u16()))
            }
            Err(SendError::ConnectionFailed | SendError::TimedOut) => Self::Retry(Duration::ZERO),
            Err(SendError::Blocked(why)) => Self::Failed(format!("its url {why}")),
        }
    }
}

/// 05 §5: what is worth another attempt.
fn is_retryable(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
    ) || status.is_server_error()
}

/// `Retry-After`, in seconds or as a date.
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
    fn r29_what_each_answer_means() {
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
            let AttemptResult::Failed(why) = result_for(status, None) else {
                panic!("{status}")
            };
            assert!(why.contains(&status.to_string()), "{why}");
        }
        let now = Timestamp::default();
        for silence in [SendError::ConnectionFailed, SendError::TimedOut] {
            assert_eq!(AttemptResult::from_response(Err(silence), now), retry(0));
        }
        let refused =
            AttemptResult::from_response(Err(SendError::Blocked(BlockReason::Address)), now);
        assert_eq!(
            refused,
            AttemptResult::Failed("its url must lead to a public address".to_owned())
        );
    }
}
