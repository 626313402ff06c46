//! Checks of HTTP/1 request heads that two servers could read differently (request smuggling, D21).

use http::header::{HOST, TRANSFER_ENCODING};
use http::{Request, StatusCode, Version};
use hyper::body::Body;

/// Reason to refuse the head of an HTTP/1 request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadError {
    /// HTTP/1.1 without a `Host`, or with several (RFC 9112, 3.2).
    Host,
    /// A transfer coding other than `chunked` (RFC 9112, 6.1).
    TransferCoding,
}

impl HeadError {
    /// Returns the status of the reply. The connection must be closed after it.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::BAD_REQUEST,
            Self::TransferCoding => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// Returns the body of the reply.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Host => "an HTTP/1.1 request needs exactly one Host header\n",
            Self::TransferCoding => "unknown transfer coding; use chunked\n",
        }
    }
}

/// Checks the head of a request that two servers could read differently. HTTP/2 requests always pass.
///
/// # Errors
/// The reason to refuse the request.
pub fn check_http1_head<B: Body>(request: &Request<B>) -> Result<(), HeadError> {
    let headers = request.headers();
    if request.version() == Version::HTTP_11 {
        let mut hosts = headers.get_all(HOST).iter();
        if hosts.next().is_none() || hosts.next().is_some() {
            return Err(HeadError::Host);
        }
    }
    // A body of known length has no transfer coding.
    if request.body().size_hint().exact().is_some() {
        return Ok(());
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(HeadError::TransferCoding),
    }
}
