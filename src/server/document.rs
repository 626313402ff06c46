//! JSON documents that clients may cache.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use sha2::{Digest, Sha256};

use super::reply::{self, Reply};
use super::settings::ServerSettings;
use crate::model::{Error, Result};

/// JSON document that clients may cache: body, `ETag`, `Last-Modified` and `Cache-Control`.
pub(super) struct Document {
    body: Bytes,
    etag: HeaderValue,
    modified: Option<Timestamp>,
    cache_control: HeaderValue,
}

impl Document {
    /// Creates a document. Its `ETag` is a hash of the body.
    ///
    /// # Errors
    /// Internal: a header value is invalid, which ASCII values never are.
    pub(super) fn new(body: Vec<u8>, settings: &ServerSettings) -> Result<Self> {
        let digest = Sha256::digest(&body);
        let hash: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let cache_control = format!("public, max-age={}", settings.card_max_age.as_secs());
        Ok(Self {
            body: body.into(),
            etag: HeaderValue::from_str(&format!("\"{hash}\"")).map_err(Error::internal)?,
            modified: None,
            cache_control: HeaderValue::from_str(&cache_control).map_err(Error::internal)?,
        })
    }

    /// Sets `Last-Modified` to the current time, in whole seconds.
    pub(super) fn modified_now(mut self) -> Self {
        let seconds = Timestamp::now().as_second();
        self.modified = Timestamp::from_second(seconds).ok();
        self
    }

    /// Sets `Last-Modified` to that of another document.
    pub(super) fn modified_with(mut self, other: &Self) -> Self {
        self.modified = other.modified;
        self
    }

    /// Sets `Last-Modified` to that of an earlier document with the same body.
    pub(super) fn keep_modification_time(&mut self, earlier: &Self) {
        if self.body == earlier.body {
            self.modified = earlier.modified;
        }
    }

    /// Returns the document, or status 304 if the client has it.
    pub(super) fn reply(&self, headers: &HeaderMap) -> Reply {
        let mut reply = if self.is_cached(headers) {
            reply::empty(StatusCode::NOT_MODIFIED)
        } else {
            reply::json(StatusCode::OK, self.body.clone())
        };
        let headers = reply.headers_mut();
        headers.insert(ETAG, self.etag.clone());
        if let Some(date) = self.modified.as_ref().and_then(write_http_date) {
            headers.insert(LAST_MODIFIED, date);
        }
        headers.insert(CACHE_CONTROL, self.cache_control.clone());
        reply
    }

    /// Whether the client has the document. `If-None-Match` overrides `If-Modified-Since`
    /// (RFC 9110, 13.1.3).
    fn is_cached(&self, headers: &HeaderMap) -> bool {
        let mut etags = headers.get_all(IF_NONE_MATCH).iter().peekable();
        if etags.peek().is_some() {
            return etags.any(|etags| self.matches_etag(etags));
        }
        let since = headers.get(IF_MODIFIED_SINCE).and_then(read_http_date);
        match (self.modified, since) {
            (Some(modified), Some(since)) => modified <= since,
            (None, _) | (_, None) => false,
        }
    }

    fn matches_etag(&self, etags: &HeaderValue) -> bool {
        let Ok(etags) = etags.to_str() else {
            return false;
        };
        let mut etags = etags
            .split(',')
            .map(|etag| etag.trim().trim_start_matches("W/"));
        etags.any(|etag| etag == "*" || etag == self.etag)
    }
}

fn write_http_date(time: &Timestamp) -> Option<HeaderValue> {
    let date = rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(time)
        .ok()?;
    HeaderValue::try_from(date).ok()
}

/// Reads a date of a request. Invalid dates are ignored (RFC 9110, 13.1.3).
fn read_http_date(value: &HeaderValue) -> Option<Timestamp> {
    let text = value.to_str().ok()?;
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(document: &Document, headers: &[(http::HeaderName, &str)]) -> u16 {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        document.reply(&headers.collect()).status().as_u16()
    }

    #[test]
    fn conditional_requests_are_answered_with_304() {
        let settings = ServerSettings::default();
        let mut document = Document::new(b"{}".to_vec(), &settings).unwrap();
        document.modified = "2026-11-18T10:00:00Z".parse().ok();
        let date = document.reply(&HeaderMap::new()).headers()[LAST_MODIFIED].clone();
        assert_eq!(date, "Wed, 18 Nov 2026 10:00:00 GMT");
        for (since, expected) in [
            ("Wed, 18 Nov 2026 10:00:00 GMT", 304),
            ("Wed, 18 Nov 2026 10:00:01 GMT", 304),
            ("Wed, 18 Nov 2026 09:59:59 GMT", 200),
            ("yesterday", 200),
            ("", 200),
        ] {
            let headers = [(IF_MODIFIED_SINCE, since)];
            assert_eq!(status(&document, &headers), expected, "{since}");
        }
        let both = [
            (IF_MODIFIED_SINCE, "Wed, 18 Nov 2026 10:00:00 GMT"),
            (IF_NONE_MATCH, "\"other\""),
        ];
        assert_eq!(status(&document, &both), 200, "the ETag decides");
        assert_eq!(status(&document, &[(IF_NONE_MATCH, "*")]), 304);
    }

    #[test]
    fn an_unchanged_document_keeps_its_time() {
        let settings = ServerSettings::default();
        let document = |body: &[u8]| Document::new(body.to_vec(), &settings).unwrap();
        let mut earlier = document(b"{}");
        earlier.modified = "2026-11-18T10:00:00Z".parse().ok();
        let mut same = document(b"{}").modified_now();
        same.keep_modification_time(&earlier);
        assert_eq!(same.modified, earlier.modified);
        let mut changed = document(b"[]").modified_now();
        changed.keep_modification_time(&earlier);
        assert!(changed.modified > earlier.modified);
    }
}
