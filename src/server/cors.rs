//! CORS, and protection against cross-site requests and DNS rebinding (S78).
//!
//! A web page can make a browser send requests on behalf of its user. A server on loopback refuses
//! unknown `Host` names, because such a name was rebound to this machine. A request with an
//! `Origin` must come from the server's own origin or from one in `cors_origins`.

use std::net::{IpAddr, SocketAddr};

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::reply::{self, Reply};

const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, DELETE");
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "A2A-Version, A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate, RateLimit, \
     RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset",
);
const PREFLIGHT_MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Origins and host names that are accepted.
pub(super) struct OriginPolicy {
    /// Values of `cors_origins`, without a trailing slash.
    origins: Vec<String>,
    /// Accepted `Host` names. `None` unless the server listens on loopback.
    hosts: Option<Vec<String>>,
    /// Listening address, the most common `Host` of local clients.
    listen_address: String,
}

/// Result of checking `Host` and `Origin` of a request.
pub(super) enum OriginCheck {
    /// Not a cross-origin request.
    SameOrigin,
    /// Request from an allowed origin. The reply needs CORS headers.
    Allowed(HeaderValue),
    /// Refused request or preflight, with its reply.
    Answered(Box<Reply>),
}

impl OriginPolicy {
    /// Creates the policy of a server that listens on `address`. On loopback the host of
    /// `public_url` is accepted too.
    pub(super) fn new(origins: &[String], address: SocketAddr, public_url: Option<&str>) -> Self {
        let hosts = address.ip().is_loopback().then(|| {
            let public = public_url
                .and_then(|url| Some(url.parse::<Uri>().ok()?.host()?.to_ascii_lowercase()));
            ["localhost".to_owned()].into_iter().chain(public).collect()
        });
        let origins = origins
            .iter()
            .map(|origin| origin.trim_end_matches('/').to_owned())
            .collect();
        Self {
            origins,
            hosts,
            listen_address: address.to_string(),
        }
    }

    /// Checks a request. `authority` is the HTTP/2 pseudo-header. A trusted proxy may send any
    /// `Host`.
    pub(super) fn check(
        &self,
        method: &Method,
        authority: Option<&str>,
        headers: &HeaderMap,
        is_trusted_proxy: bool,
    ) -> OriginCheck {
        let host = headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .or(authority)
            .unwrap_or_default();
        if !is_trusted_proxy && !self.is_own_host(host) {
            return forbidden("unknown host name; set public_url to the URL that clients use\n");
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return OriginCheck::SameOrigin;
        };
        if is_same_origin(origin, host) {
            return OriginCheck::SameOrigin;
        }
        if !self
            .origins
            .iter()
            .any(|allowed| allowed == "*" || origin == allowed.as_str())
        {
            return forbidden("origin not allowed; add it to cors_origins\n");
        }
        if *method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            OriginCheck::Answered(Box::new(preflight(origin, headers)))
        } else {
            OriginCheck::Allowed(origin.clone())
        }
    }

    /// Whether `host` is an accepted name, an IP address, or missing.
    fn is_own_host(&self, host: &str) -> bool {
        let Some(hosts) = self.hosts.as_ref().filter(|_| host != self.listen_address) else {
            return true;
        };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_matches(['[', ']']);
        // Browsers always send a host.
        name.is_empty()
            || name.parse::<IpAddr>().is_ok()
            || hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Whether the origin has the same host and port as the request.
fn is_same_origin(origin: &HeaderValue, host: &str) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn forbidden(reason: &'static str) -> OriginCheck {
    OriginCheck::Answered(Box::new(reply::text(StatusCode::FORBIDDEN, reason)))
}

/// Returns the reply to a CORS preflight request.
fn preflight(origin: &HeaderValue, headers: &HeaderMap) -> Reply {
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    add_cors_headers(reply.headers_mut(), origin.clone());
    let cors = reply.headers_mut();
    cors.insert(ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
    cors.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE);
    if let Some(requested) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        cors.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
    }
    reply
}

/// Adds the headers that let a page read the reply. Credentials (cookies) are never allowed.
pub(super) fn add_cors_headers(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        origin_policy: &OriginPolicy,
        method: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Option<String>, u16> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        match origin_policy.check(&method.parse().unwrap(), None, &headers.collect(), false) {
            OriginCheck::SameOrigin => Ok(None),
            OriginCheck::Allowed(origin) => Ok(Some(origin.to_str().unwrap().to_owned())),
            OriginCheck::Answered(reply) => Err(reply.status().as_u16()),
        }
    }

    #[test]
    fn s78_origin_and_host_are_checked() {
        let address = "127.0.0.1:41241".parse().unwrap();
        let origins = ["https://app.example.com".to_owned()];
        let origin_policy =
            OriginPolicy::new(&origins, address, Some("https://agent.example.com/x"));
        let local = ("host", "localhost:41241");
        for (method, headers, expected) in [
            ("POST", &[][..], Ok(None)),
            // DNS rebinding: a browser sends no `Origin` on same-origin reads.
            ("GET", &[("host", "evil.example:41241")], Err(403)),
            (
                "POST",
                &[local, ("origin", "http://localhost:41241")],
                Ok(None),
            ),
            (
                "POST",
                &[
                    ("host", "127.0.0.1:41241"),
                    ("origin", "http://127.0.0.1:41241"),
                ],
                Ok(None),
            ),
            (
                "POST",
                &[("host", "[::1]:41241"), ("origin", "http://[::1]:41241")],
                Ok(None),
            ),
            (
                "POST",
                &[
                    ("host", "agent.example.com"),
                    ("origin", "https://agent.example.com"),
                ],
                Ok(None),
            ),
            (
                "POST",
                &[local, ("origin", "https://evil.example")],
                Err(403),
            ),
            ("POST", &[local, ("origin", "null")], Err(403)),
            // DNS rebinding.
            (
                "POST",
                &[
                    ("host", "evil.example:41241"),
                    ("origin", "http://evil.example:41241"),
                ],
                Err(403),
            ),
            (
                "GET",
                &[
                    ("host", "evil.example:41241"),
                    ("sec-fetch-site", "same-origin"),
                ],
                Err(403),
            ),
            ("GET", &[local, ("sec-fetch-site", "none")], Ok(None)),
            (
                "OPTIONS",
                &[local, ("origin", "https://evil.example")],
                Err(403),
            ),
            (
                "OPTIONS",
                &[
                    local,
                    ("origin", "https://app.example.com"),
                    ("access-control-request-method", "POST"),
                ],
                Err(204),
            ),
            (
                "POST",
                &[local, ("origin", "https://app.example.com")],
                Ok(Some("https://app.example.com".to_owned())),
            ),
        ] {
            assert_eq!(
                check(&origin_policy, method, headers),
                expected,
                "{method} {headers:?}"
            );
        }
    }

    #[test]
    fn s78_other_origins_need_cors_origins() {
        let origin_policy = OriginPolicy::new(&[], "10.0.0.1:80".parse().unwrap(), None);
        let headers = [
            ("host", "agent.example.com"),
            ("origin", "https://agent.example.com"),
        ];
        assert_eq!(check(&origin_policy, "POST", &headers), Ok(None));
        let headers = [
            ("host", "agent.example.com"),
            ("origin", "https://app.example.com"),
        ];
        assert_eq!(check(&origin_policy, "POST", &headers), Err(403));
        let all = OriginPolicy::new(&["*".to_owned()], "10.0.0.1:80".parse().unwrap(), None);
        assert_eq!(
            check(&all, "POST", &headers),
            Ok(Some("https://app.example.com".to_owned()))
        );
    }
}
