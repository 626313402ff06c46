//! What a request carries: its media type and its bytes, within limits.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::settings::ServerSettings;
use crate::model::{Error, ErrorKind, Result};

/// How much more is read and thrown away, so that a caller who is still sending gets to see the refusal.
const MAX_DISCARDED: usize = 64 << 20;

/// Refuses what does not say that it is JSON; saying nothing is fine. A browser cannot send these types to another
/// site without asking first.
pub(super) fn check_type(headers: &HeaderMap) -> Result<()> {
    let all_json = |value: &HeaderValue| value.to_str().is_ok_and(is_json);
    match headers.get_all(CONTENT_TYPE).iter().all(all_json) {
        true => Ok(()),
        false => Err(ErrorKind::UnsupportedMediaType.into()),
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.contains('/') && essence.ends_with("+json"))
}

/// Reads a body whole, within the limits.
pub(super) async fn read(body: Incoming, settings: &ServerSettings) -> Result<Vec<u8>> {
    match timeout(settings.body_timeout, read_at_most(body, settings.max_body_bytes)).await {
        Ok(read) => read,
        Err(_) => Err(Error::new(ErrorKind::Canceled).with_message("the body did not arrive in time")),
    }
}

async fn read_at_most(mut body: Incoming, limit: usize) -> Result<Vec<u8>> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(announced.min(limit).min(64 << 10));
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        // The caller left, or spoke no HTTP; nobody will read what we say to that.
        let frame = frame.map_err(|cause| Error::new(ErrorKind::Canceled).with_source(cause))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= limit {
            bytes.extend_from_slice(&data);
        } else if length > limit.saturating_add(MAX_DISCARDED) {
            break;
        }
    }
    if length <= limit {
        return Ok(bytes);
    }
    let message = format!("Payload too large: more than {limit} bytes (max_body_bytes)");
    Err(Error::new(ErrorKind::PayloadTooLarge).with_message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s79_only_json_gets_in() {
        for (media_type, accepted) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/a2a+json", true),
            ("application/vnd.x+json;v=1", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=application/json", false),
            ("json", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, media_type.parse().unwrap())]);
            assert_eq!(check_type(&headers).is_ok(), accepted, "{media_type}");
        }
        assert!(check_type(&HeaderMap::new()).is_ok());
    }
}
