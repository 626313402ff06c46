//! Public HTTP client for agents, for URLs that the operator names.

use std::error::Error as _;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy;

use super::{ConnectError, Egress, Protocol, ResponseBody, check_url};
use crate::model::{Error, Result};

/// HTTP client for URLs that the operator named. Only the form of the URL is checked, not its address. Clones share
/// connections.
#[derive(Clone)]
pub struct HttpClient(Egress);

/// Response with an unread body.
pub struct HttpResponse(Response<ResponseBody>);

impl HttpClient {
    /// Returns a client with its own connection pool.
    #[must_use]
    pub fn new() -> Self {
        Self(Egress::trusted())
    }

    /// Checks whether requests can be sent to this URL: supported scheme, no credentials in it.
    ///
    /// # Errors
    /// Invalid parameters, with the reason.
    pub fn check(url: &Uri) -> Result<()> {
        check_url(url)
    }

    /// Sends a request and waits for the response head. Redirects are not followed, nothing is retried, and only the
    /// connection attempt has a timeout.
    ///
    /// # Errors
    /// Invalid parameters for an invalid URL. Unavailable if the server is unreachable or the connection was lost.
    pub async fn send(&self, request: Request<Bytes>) -> Result<HttpResponse> {
        self.0
            .send(request, Protocol::Http1)
            .await
            .map(HttpResponse)
    }

    /// Returns the cause of a failed connection; `None` if `error` has another cause.
    #[must_use]
    pub fn connect_error(error: &Error) -> Option<ConnectError> {
        ConnectError::from_error(error)
    }

    /// Whether a failed request may have reached the server. If not, it is safe to send it again.
    #[must_use]
    pub fn may_have_been_sent(error: &Error) -> bool {
        let cause = error
            .source()
            .and_then(|cause| cause.downcast_ref::<legacy::Error>());
        !cause.is_some_and(legacy::Error::is_connect)
    }
}

impl Default for HttpClient {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Http")
    }
}

impl From<Response<ResponseBody>> for HttpResponse {
    fn from(response: Response<ResponseBody>) -> Self {
        Self(response)
    }
}

impl HttpResponse {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// Returns the next chunk of the body; `None` at its end.
    ///
    /// # Errors
    /// Unavailable if the connection was lost.
    pub async fn chunk(&mut self) -> Option<Result<Bytes>> {
        loop {
            match self.0.body_mut().next().await? {
                Ok(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Some(Ok(bytes));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads the whole body, up to a limit in bytes.
    ///
    /// # Errors
    /// Unavailable if the connection was lost. Invalid agent response if the body is larger.
    pub async fn read(self, limit: usize) -> Result<Vec<u8>> {
        self.0.into_body().read(limit).await
    }
}

impl std::fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HttpResponse").field(&self.status()).finish()
    }
}
