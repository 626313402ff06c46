//! Pages that call: whom they may call for, and whether they call us at all.
//!
//! A page in a browser can make its visitor send requests that the visitor never meant. Where only this machine can
//! reach us, a host name that is not ours was bent to it; and a request that says which page it comes from must come
//! from one that may call.

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
    "A2A-Version, A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate, X-RateLimit-Limit, \
     X-RateLimit-Remaining, X-RateLimit-Reset",
);
const PREFLIGHT_MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Which pages may call.
pub(super) struct OriginPolicy {
    origins: Vec<String>,
    /// The names under which a browser may know us; `None` where anybody may.
    hosts: Option<Vec<String>>,
    /// Where we listen, as most of those name it who come from this machine.
    listen_address: String,
}

/// What becomes of a request.
pub(super) enum OriginCheck {
    /// It comes from no other page.
    SameOrigin,
    /// It comes from a page that may call; the answer says so.
    Allowed(HeaderValue),
    /// It is answered here.
    Answered(Reply),
}

impl OriginPolicy {
    /// Pages of these origins may call what listens on `address`. There a name that somebody has bent to this machine
    /// is no way in, unless it is the public one.
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

    /// `authority` is the host that HTTP/2 names. A proxy that is `trusted` comes with the names of its clients.
    pub(super) fn check(
        &self,
        method: &Method,
        authority: Option<&str>,
        headers: &HeaderMap,
        trusted: bool,
    ) -> OriginCheck {
        let host = headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .or(authority)
            .unwrap_or_default();
        if !trusted && !self.is_own_host(host) {
            return forbidden(
                "this host name is not known here; set public_url to the address that is used\n",
            );
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
            .any(|known| known == "*" || origin == known.as_str())
        {
            return forbidden(
                "pages of this origin may not call; cors_origins names those that may\n",
            );
        }
        match *method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            true => OriginCheck::Answered(preflight(origin, headers)),
            false => OriginCheck::Allowed(origin.clone()),
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        let Some(hosts) = self.hosts.as_ref().filter(|_| host != self.listen_address) else {
            return true;
        };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_matches(['[', ']']);
        // No host at all is no browser.
        name.is_empty()
            || name.parse::<IpAddr>().is_ok()
            || hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Whether a page calls where it came from.
fn is_same_origin(origin: &HeaderValue, host: &str) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn forbidden(reason: &'static str) -> OriginCheck {
    OriginCheck::Answered(reply::text(StatusCode::FORBIDDEN, reason))
}

/// What a browser asks before it lets a page call.
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

/// Lets the page read the answer. Never with cookies: nobody is known by them here.
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
            // Not even a browser says where it comes from when a page reads what it takes for its own host.
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
            // A name that was bent to this machine.
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
