//! Check of the content type of a request.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::model::{ErrorKind, Result};

/// Suffix of JSON media types (RFC 6839).
const JSON_SUFFIX: &str = "+json";

/// Refuses requests that are not JSON, or are compressed. A missing `Content-Type` is accepted.
///
/// A browser cannot send a JSON content type to another site without a CORS preflight (S79). Bodies
/// are never decompressed, so there are no decompression bombs.
///
/// # Errors
/// Unsupported media type.
pub(in crate::server) fn check_content_type(headers: &HeaderMap) -> Result<()> {
    // The first comparison covers almost all requests.
    let is_json_type =
        |value: &HeaderValue| value == "application/json" || value.to_str().is_ok_and(is_json);
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let is_uncompressed = headers.get_all(CONTENT_ENCODING).iter().all(is_identity);
    if is_uncompressed && headers.get_all(CONTENT_TYPE).iter().all(is_json_type) {
        Ok(())
    } else {
        Err(ErrorKind::UnsupportedMediaType.into())
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let suffix = essence
        .len()
        .checked_sub(JSON_SUFFIX.len())
        .and_then(|start| essence.get(start..));
    essence.eq_ignore_ascii_case("application/json")
        || (essence.contains('/')
            && suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(JSON_SUFFIX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s79_only_json_content_types_are_accepted() {
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
            assert_eq!(
                check_content_type(&headers).is_ok(),
                accepted,
                "{media_type}"
            );
        }
        assert!(check_content_type(&HeaderMap::new()).is_ok());
    }
}
