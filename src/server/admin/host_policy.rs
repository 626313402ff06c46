//! Checks of `Host`, `Origin` and `Sec-Fetch-Site` on the admin address (S78).
//!
//! A page of another site or another port can make a browser send requests here, with the cookie of the console. Such a
//! request names its origin, and is refused before it is routed. A name that was rebound to this machine is not ours.

use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Method, Request, Uri};

/// Accepted hosts and origins of one listener.
pub(super) struct HostPolicy {
    address: SocketAddr,
    /// URL of the console behind a proxy.
    console_url: Option<Uri>,
}

/// Part of a request that names a foreign site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignRequest {
    Host,
    Origin,
    FetchSite,
}

impl ForeignRequest {
    /// Returns the reason for the operator.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Host => "the host name is not that of this server",
            Self::Origin => "the request comes from another origin",
            Self::FetchSite => "the request comes from another site",
        }
    }
}

impl HostPolicy {
    /// Creates the policy of a listener.
    pub(super) fn new(address: SocketAddr, console_url: Option<Uri>) -> Self {
        Self {
            address,
            console_url,
        }
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The request comes from a foreign site.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), ForeignRequest> {
        let headers = request.headers();
        let host = text(headers, HOST.as_str())
            .or_else(|| {
                request
                    .uri()
                    .authority()
                    .map(|authority| authority.as_str())
            })
            .unwrap_or_default();
        if !self.is_own_host(host, headers) {
            return Err(ForeignRequest::Host);
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            if !is_origin_of(origin, host) && !self.is_console_origin(origin) {
                return Err(ForeignRequest::Origin);
            }
        }
        match text(headers, "sec-fetch-site") {
            None | Some("same-origin") => Ok(()),
            // Typed address, bookmark or link of another program.
            Some("none") if is_page(request) => Ok(()),
            Some(_) => Err(ForeignRequest::FetchSite),
        }
    }

    /// Whether the host is a loopback name, the listening address or that of the console.
    ///
    /// A listener that other machines can reach has names that it does not know. A key in a header is not sent by a
    /// browser on its own, so such a request may use any of them.
    fn is_own_host(&self, host: &str, headers: &HeaderMap) -> bool {
        let name = host_name(host);
        let is_console = |url: &Uri| {
            url.authority()
                .is_some_and(|own| own.as_str().eq_ignore_ascii_case(host))
        };
        if name.eq_ignore_ascii_case("localhost")
            || self.console_url.as_ref().is_some_and(is_console)
        {
            return true;
        }
        let ip = name.parse::<IpAddr>();
        if self.address.ip().is_loopback() {
            return ip.is_ok_and(|ip| ip.is_loopback());
        }
        ip.is_ok() || headers.contains_key(AUTHORIZATION) || headers.contains_key("x-api-key")
    }

    fn is_console_origin(&self, origin: &str) -> bool {
        self.console_url.as_ref().is_some_and(|url| {
            url.authority()
                .is_some_and(|own| is_origin_of(origin, own.as_str()))
        })
    }
}

/// Whether the request is for a page or a health check, which a browser may open directly.
fn is_page<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    request.method() == Method::GET && !path.starts_with(super::api::PREFIX)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the name without the port and the brackets of an IPv6 address.
fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_matches(['[', ']'])
}

/// Whether an origin has this host and port.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<(), ForeignRequest> {
        let url = Uri::from_static("https://ops.example/console/");
        let policy = HostPolicy::new(address.parse().unwrap(), Some(url));
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        policy.check(&request.body(()).unwrap())
    }

    #[test]
    fn s78_foreign_hosts_and_origins_are_refused() {
        let api = "/api/v1/tasks";
        let local = "127.0.0.1:41242";
        let own = ("host", local);
        for (headers, expected) in [
            (vec![own], Ok(())),
            (vec![("host", "localhost:41242")], Ok(())),
            (vec![("host", "[::1]:41242")], Ok(())),
            (vec![("host", "ops.example")], Ok(())),
            (vec![("host", "evil.example")], Err(ForeignRequest::Host)),
            (vec![("host", "192.0.2.1:41242")], Err(ForeignRequest::Host)),
            (
                vec![("host", "evil.example"), ("authorization", "Bearer x")],
                Err(ForeignRequest::Host),
            ),
            (vec![own, ("origin", "http://127.0.0.1:41242")], Ok(())),
            (
                vec![own, ("origin", "http://127.0.0.1:8000")],
                Err(ForeignRequest::Origin),
            ),
            (vec![own, ("origin", "null")], Err(ForeignRequest::Origin)),
            (vec![own, ("origin", "https://ops.example")], Ok(())),
            (vec![own, ("sec-fetch-site", "same-origin")], Ok(())),
            (
                vec![own, ("sec-fetch-site", "same-site")],
                Err(ForeignRequest::FetchSite),
            ),
            (
                vec![own, ("sec-fetch-site", "cross-site")],
                Err(ForeignRequest::FetchSite),
            ),
            (
                vec![own, ("sec-fetch-site", "none")],
                Err(ForeignRequest::FetchSite),
            ),
        ] {
            assert_eq!(check(local, api, &headers), expected, "{headers:?}");
        }
        let typed = [own, ("sec-fetch-site", "none")];
        assert_eq!(check(local, "/console/", &typed), Ok(()));
    }

    #[test]
    fn s78_a_public_listener_accepts_unknown_names_with_a_key_only() {
        let open = "0.0.0.0:41242";
        let named = ("host", "attache.internal:41242");
        assert_eq!(check(open, "/metrics", &[named]), Err(ForeignRequest::Host));
        let key = ("authorization", "Bearer x");
        assert_eq!(check(open, "/metrics", &[named, key]), Ok(()));
        assert_eq!(
            check(open, "/healthz", &[("host", "192.0.2.1:41242")]),
            Ok(())
        );
    }
}
