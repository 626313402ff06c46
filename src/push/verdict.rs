//! What an answer means.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::settings::LONGEST_ASKED;
use crate::egress::{Answer, Silence};
use crate::model::Timestamp;

/// What an attempt came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It arrived.
    Delivered,
    /// It may arrive later: not before this long.
    Later(Duration),
    /// It never will, for this reason.
    Never(String),
}

impl Verdict {
    /// Its name among the counts.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Later(_) => "later",
            Self::Never(_) => "given_up",
        }
    }

    pub(super) fn of(answer: Result<Answer, Silence>, now: Timestamp) -> Self {
        match answer {
            Ok(Answer { status, .. }) if status.is_success() => Self::Delivered,
            Ok(Answer { status, headers }) if may_pass(status) => {
                Self::Later(asked(&headers, now).unwrap_or_default().min(LONGEST_ASKED))
            }
            Ok(Answer { status, .. }) if status.is_redirection() => Self::Never(format!(
                "it answered {} and redirects are not followed",
                status.as_u16()
            )),
            Ok(Answer { status, .. }) => Self::Never(format!("it answered {}", status.as_u16())),
            Err(Silence::Lost | Silence::Late) => Self::Later(Duration::ZERO),
            Err(Silence::Refused(why)) => Self::Never(format!("its url {why}")),
        }
    }
}

/// 05 §5: what is worth another attempt.
fn may_pass(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
    ) || status.is_server_error()
}

/// `Retry-After`, in seconds or as a date.
fn asked(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
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
    use crate::egress::Refused;

    fn answered(status: u16, retry_after: Option<&str>) -> Verdict {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, text.parse().unwrap());
        }
        // Sun, 06 Nov 1994 08:49:37 GMT.
        let now = Timestamp::from_millis(784_111_777_000).unwrap();
        Verdict::of(
            Ok(Answer {
                status: StatusCode::from_u16(status).unwrap(),
                headers,
            }),
            now,
        )
    }

    #[test]
    fn r29_what_each_answer_means() {
        let later = |seconds| Verdict::Later(Duration::from_secs(seconds));
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(answered(status, None), Verdict::Delivered);
        }
        for status in [408, 429, 500, 502, 503, 504, 599] {
            assert_eq!(answered(status, None), later(0));
        }
        assert_eq!(answered(429, Some("7")), later(7));
        assert_eq!(
            answered(503, Some("Sun, 06 Nov 1994 08:50:07 GMT")),
            later(30)
        );
        assert_eq!(
            answered(503, Some("Sun, 06 Nov 1994 08:00:00 GMT")),
            later(0)
        );
        assert_eq!(answered(429, Some("99999999")), later(3600));
        assert_eq!(answered(429, Some("soon")), later(0));
        for status in [301, 302, 307, 308, 400, 401, 403, 404, 410, 422] {
            let Verdict::Never(why) = answered(status, None) else {
                panic!("{status}")
            };
            assert!(why.contains(&status.to_string()), "{why}");
        }
        let now = Timestamp::default();
        for silence in [Silence::Lost, Silence::Late] {
            assert_eq!(Verdict::of(Err(silence), now), later(0));
        }
        let refused = Verdict::of(Err(Silence::Refused(Refused::Address)), now);
        assert_eq!(
            refused,
            Verdict::Never("its url must lead to a public address".to_owned())
        );
    }
}
