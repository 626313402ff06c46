//! Hook that posts documents to an HTTP service.

use std::collections::BTreeMap;
use std::fmt;

use attache::model::units::ByteSize;
use attache::model::{CallerKey, Secret};
use attache::{FairSemaphore, HookError, HttpClient};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Request, Uri};
use serde::{Deserialize, Serialize};

use crate::connect_failure::{ConnectFailure, origin};
use crate::outgoing::{self, parse_headers, parse_url};
use crate::redact;

const JSON: &str = "application/json";

/// Settings of a hook that posts documents to a URL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpHookSettings {
    /// URL that documents are posted to. Redirects are not followed.
    pub url: String,
    /// Additional request headers, for example credentials.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Maximum size of a reply. A larger one is a failure.
    #[serde(with = "ByteSize")]
    pub max_reply: usize,
    /// Maximum number of concurrent requests. One caller may have half of them; further ones wait.
    pub max_requests: usize,
}

impl Default for HttpHookSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            headers: BTreeMap::new(),
            max_reply: 10 << 20,
            max_requests: 64,
        }
    }
}

/// Error for invalid [`HttpHookSettings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHookSettingsError {
    /// Invalid key.
    pub key: &'static str,
    reason: String,
}

/// Client of the service.
#[derive(Debug)]
pub(super) struct HttpTransport {
    url: Uri,
    headers: HeaderMap,
    max_reply: usize,
    client: HttpClient,
    permits: FairSemaphore<CallerKey>,
}

impl HttpTransport {
    pub(super) fn new(settings: HttpHookSettings) -> Result<Self, HttpHookSettingsError> {
        let invalid = |key| move |reason| HttpHookSettingsError { key, reason };
        for (key, value) in [
            ("max_reply", settings.max_reply),
            ("max_requests", settings.max_requests),
        ] {
            if value == 0 {
                return Err(invalid(key)("must be at least 1".to_owned()));
            }
        }
        let mut headers: HeaderMap =
            parse_headers(&settings.headers).map_err(invalid("headers"))?;
        for (name, value) in [
            (ACCEPT, JSON),
            (CONTENT_TYPE, JSON),
            (USER_AGENT, outgoing::USER_AGENT),
        ] {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        Ok(Self {
            url: parse_url(&settings.url).map_err(invalid("url"))?,
            headers,
            max_reply: settings.max_reply,
            client: HttpClient::new(),
            permits: FairSemaphore::new(settings.max_requests, None),
        })
    }

    /// Posts a document and returns the reply.
    ///
    /// # Errors
    /// The service is unreachable, its status is not 2xx, or the reply is too large.
    pub(super) async fn exchange(
        &self,
        caller: CallerKey,
        document: Vec<u8>,
    ) -> Result<Vec<u8>, HookError> {
        let _permit = self.permits.acquire(caller).await;
        let mut request = Request::post(self.url.clone()).body(Bytes::from(document))?;
        request.headers_mut().clone_from(&self.headers);
        let unreachable = |error| ConnectFailure::new(&self.url, error);
        let response = self.client.send(request).await.map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("{} returned status {status}", origin(&self.url)).into());
        }
        let reply = response.read(self.max_reply).await.map_err(unreachable)?;
        Ok(reply)
    }
}

impl fmt::Display for HttpHookSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for HttpHookSettingsError {}
