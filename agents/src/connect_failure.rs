//! Who could not be reached, and why: for the log alone, since callers need not know who works for us.

use std::error::Error;
use std::fmt;

use http::Uri;

/// Somebody did not answer.
#[derive(Debug)]
pub(crate) struct ConnectFailure {
    origin: String,
    error: attache::Error,
}

impl ConnectFailure {
    pub(crate) fn new(url: &Uri, error: attache::Error) -> Self {
        Self {
            origin: origin(url),
            error,
        }
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.error)?;
        let causes = std::iter::successors(self.error.source(), |cause| (*cause).source());
        // What the system says is at the end; what is between only says where.
        causes.last().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl Error for ConnectFailure {}

/// Scheme, host and port of a url: nothing in it that could be secret.
pub(crate) fn origin(url: &Uri) -> String {
    let port = url
        .port_u16()
        .map_or_else(String::new, |port| format!(":{port}"));
    format!(
        "{}://{}{port}",
        url.scheme_str().unwrap_or("http"),
        url.host().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_whom_and_why_and_no_secret() {
        let url = Uri::from_static("http://me:hunter2@127.0.0.1:9/v1?key=hunter2");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = attache::Error::from(attache::ErrorKind::Unavailable)
            .with_message("cannot connect")
            .with_source(refused);
        assert_eq!(
            ConnectFailure::new(&url, error).to_string(),
            "http://127.0.0.1:9: cannot connect: connection refused"
        );
    }
}
