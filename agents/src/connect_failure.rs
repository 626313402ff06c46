//! Connection failures, described for the log. Callers do not learn the addresses of backends.

use std::error::Error;
use std::fmt;

use http::Uri;

/// Request that failed before a response arrived: the origin of the server, and the cause.
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
        // The last cause is the error of the operating system; those in between only name layers.
        causes.last().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl Error for ConnectFailure {}

/// Returns scheme, host and port of a URL, without the parts that may hold secrets.
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
    fn the_log_has_origin_and_cause_but_no_secret() {
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
