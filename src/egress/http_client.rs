//! Plain HTTP for agents: requests to places that the operator names.

use std::error::Error as _;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy;

use super::{Egress, Protocol, ResponseBody, check_url};
use crate::model::{Error, Result};

/// Sends plain HTTP requests for an agent, to places that the operator named: nothing is checked but the url itself.
/// A clone shares the connections.
#[derive(Clone)]
pub struct HttpClient(Egress);

/// The answer to a request, whose body is still to be read.
pub struct HttpResponse(Response<ResponseBody>);

impl HttpClient {
    /// A sender with connections of its own.
    #[must_use]
    pub fn new() -> Self {
        Self(Egress::trusted())
    }

    /// Whether requests can be sent to this url at all: its scheme is one that we speak, and no credentials are in it.
    ///
    /// # Errors
    /// Invalid parameters: why not.
    pub fn check(url: &Uri) -> Result<()> {
        check_url(url)
    }

    /// Sends a request and waits for the head of the answer. Redirects are not followed, nothing is tried again, and
    /// only connecting has a deadline.
    ///
    /// # Errors
    /// Invalid parameters: the url. Unavailable: the place cannot be reached, or went silent.
    pub async fn send(&self, request: Request<Bytes>) -> Result<HttpResponse> {
        self.0
            .send(request, Protocol::Http1)
            .await
            .map(HttpResponse)
    }

    /// Whether a request that failed so may have reached somebody. If not, it is safe to send it again.
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
    fn from(answer: Response<ResponseBody>) -> Self {
        Self(answer)
    }
}

impl HttpResponse {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// Unavailable: the connection was lost.
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

    /// Reads the body whole, up to a limit in bytes.
    ///
    /// # Errors
    /// Unavailable: the connection was lost. Invalid agent response: the body is larger.
    pub async fn read(self, limit: usize) -> Result<Vec<u8>> {
        self.0.into_body().read(limit).await
    }
}

impl std::fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HttpResponse").field(&self.status()).finish()
    }
}
