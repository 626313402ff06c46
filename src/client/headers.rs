//! What goes with every request, and where it may go.

use ::http::header::{AUTHORIZATION, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::Client;
use super::way::origin;
use crate::model::{Error, Result, Secret, Trace};
use crate::trace;
use crate::wire::header;

const US: &str = concat!("attache/", env!("CARGO_PKG_VERSION"));

impl Client {
    /// Adds what goes with every request. What the caller gave may be a credential, and a card may lead anywhere: it
    /// goes only where the card came from, and where the caller said.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(
            HeaderName::from_static(header::VERSION),
            HeaderValue::from_static(self.way.version.as_str()),
        );
        headers.insert(USER_AGENT, HeaderValue::from_static(US));
        if let Some(uris) = &self.extensions {
            for name in header::extensions(self.way.version) {
                headers.insert(HeaderName::from_static(name), uris.clone());
            }
        }
        for (name, value) in trace::current()
            .or_else(|| self.trace.clone())
            .iter()
            .flat_map(Trace::headers)
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
        let Some(home) = &self.home else { return true };
        let here = origin(&self.way.url);
        here == origin(home) || self.trusted.contains(&here)
    }
}

pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue)> {
    let name: HeaderName = name
        .parse()
        .map_err(|_| Error::invalid("header", "must have a name that HTTP can carry"))?;
    let value = value_of(name.as_str(), value)?;
    Ok((name, value))
}

pub(super) fn bearer(token: &Secret) -> Result<HeaderValue> {
    value_of(
        AUTHORIZATION.as_str(),
        &format!("Bearer {}", token.expose()),
    )
}

pub(super) fn extensions<'a>(uris: impl IntoIterator<Item = &'a str>) -> Result<HeaderValue> {
    let uris = uris.into_iter().collect::<Vec<_>>().join(", ");
    value_of("a2a-extensions", &uris)
}

/// Any of them may be a credential, so none of them prints.
pub(super) fn value_of(name: &str, value: &str) -> Result<HeaderValue> {
    let mut value: HeaderValue = value.parse().map_err(|_| {
        Error::invalid(
            name,
            "must have no control characters: a header cannot carry them",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}
