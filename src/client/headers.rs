//! Headers of every request, and the origins that may receive those of the caller.

use ::http::header::{AUTHORIZATION, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::Client;
use super::endpoint::origin;
use crate::model::{Error, Result, Secret, TraceContext};
use crate::telemetry::trace;
use crate::wire::header;

/// Value of `User-Agent`.
const USER_AGENT_VALUE: &str = concat!("attache/", env!("CARGO_PKG_VERSION"));

impl Client {
    /// Adds the headers of every request: version, user agent, extensions, trace context and the caller's own.
    ///
    /// The caller's headers may be credentials, and a card may lead to any origin. They are sent only to the origin of the
    /// card and to trusted origins.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(
            HeaderName::from_static(header::VERSION),
            HeaderValue::from_static(self.endpoint.version.as_str()),
        );
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        if let Some(uris) = &self.extensions {
            for name in header::extension_headers(self.endpoint.version) {
                headers.insert(HeaderName::from_static(name), uris.clone());
            }
        }
        for (name, value) in trace::current()
            .or_else(|| self.trace.clone())
            .iter()
            .flat_map(TraceContext::headers)
        {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        if self.is_trusted() {
            headers.extend(self.headers.clone());
        }
    }

    /// Whether the endpoint has the origin of its card, or an origin that the caller trusts.
    pub(super) fn is_trusted(&self) -> bool {
        let Some(card_url) = &self.card_url else {
            return true;
        };
        let target = origin(&self.endpoint.url);
        target == origin(card_url) || self.trusted_origins.contains(&target)
    }
}

pub(super) fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue)> {
    let name: HeaderName = name
        .parse()
        .map_err(|_| Error::invalid("header", "must be a valid HTTP header name"))?;
    let value = sensitive_value(name.as_str(), value)?;
    Ok((name, value))
}

pub(super) fn bearer_value(token: &Secret) -> Result<HeaderValue> {
    sensitive_value(
        AUTHORIZATION.as_str(),
        &format!("Bearer {}", token.expose()),
    )
}

pub(super) fn extensions_value<'a>(uris: impl IntoIterator<Item = &'a str>) -> Result<HeaderValue> {
    let uris = uris.into_iter().collect::<Vec<_>>().join(", ");
    sensitive_value("a2a-extensions", &uris)
}

/// Parses a header value and marks it as sensitive, so that it is never logged: it may be a credential.
pub(super) fn sensitive_value(name: &str, value: &str) -> Result<HeaderValue> {
    let mut value: HeaderValue = value
        .parse()
        .map_err(|_| Error::invalid(name, "must not contain control characters"))?;
    value.set_sensitive(true);
    Ok(value)
}
