//! What goes with every request, and where it may go.

use ::http::header::{AUTHORIZATION, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::Client;
use super::endpoint::origin;
use crate::model::{Error, Result, Secret, TraceContext};
use crate::telemetry::trace;
use crate::wire::header;

const USER_AGENT_VALUE: &str = concat!("attache/", env!("CARGO_PKG_VERSION"));

impl Client {
    /// Adds what goes with every request. What the caller gave may be a credential, and a card may lead anywhere: it
    /// goes only where the card came from, and where the caller said.
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

    /// Whether the agent is where its card came from, or where the caller said that headers may go.
    pub(super) fn is_trusted(&self) -> bool {
        let Some(card_url) = &self.card_url else {
            return true;
        };
        let here = origin(&self.endpoint.url);
        here == origin(card_url) || self.trusted_origins.contains(&here)
    }
}

pub(super) fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue)> {
    let name: HeaderName = name
        .parse()
        .map_err(|_| Error::invalid("header", "must have a name that HTTP can carry"))?;
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

/// Any of them may be a credential, so none of them prints.
pub(super) fn sensitive_value(name: &str, value: &str) -> Result<HeaderValue> {
    let mut value: HeaderValue = value.parse().map_err(|_| {
        Error::invalid(
            name,
            "must have no control characters: a header cannot carry them",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}
