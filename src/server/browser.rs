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

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, DELETE");
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "A2A-Version, A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate, X-RateLimit-Limit, \
     X-RateLimit-Remaining, X-RateLimit-Reset",
);
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Which pages may call.
pub(super) struct Browsers {
    origins: Vec<String>,
    /// The names under which a browser may know us; `None` where anybody may.
    hosts: Option<Vec<String>>,
    /// Where we listen, as most of those name it who come from this machine.
    own: String,
}

/// What becomes of a request.
pub(super) enum Visit {
    /// It comes from no other page.
    Own,
    /// It comes from a page that may call; the answer says so.
    From(HeaderValue),
    /// It is answered here.
    Answered(Reply),
}

impl Browsers {
    /// Pages of these origins may call what listens on `address`. There a name that somebody has bent to this machine
    /// is no way in, unless it is the public one.
    pub(super) fn new(origins: &[String], address: SocketAddr, public: Option<&str>) -> Self {
        let hosts = address.ip().is_loopback().then(|| {
            let public =
                public.and_then(|url| Some(url.parse::<Uri>().ok()?.host()?.to_ascii_lowercase()));
            ["localhost".to_owned()].into_iter().chain(public).collect()
        });
        let origins = origins
            .iter()
            .map(|origin| origin.trim_end_matches('/').to_owned())
            .collect();
        Self {
            origins,
            hosts,
            own: address.to_string(),
        }
    }

    /// `authority` is the host that HTTP/2 names. A proxy that is `trusted` comes with the names of its clients.
    pub(super) fn visit(
        &self,
        method: &Method,
        authority: Option<&str>,
        headers: &HeaderMap,
        trusted: bool,
    ) -> Visit {
        let host = headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .or(authority)
            .unwrap_or_default();
        if !trusted && !self.is_us(host) {
            return refused(
                "this host name is not known here; set public_url to the address that is used\n",
            );
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return Visit::Own;
        };
        if is_same(origin, host) {
            return Visit::Own;
        }
        if !self
            .origins
            .iter()
            .any(|known| known == "*" || origin == known.as_str())
        {
            return refused(
                "pages of this origin may not call; cors_origins names those that may\n",
            );
        }
        match *method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            true => Visit::Answered(preflight(origin, headers)),
            false => Visit::From(origin.clone()),
        }
    }

    fn is_us(&self, host: &str) -> bool {
        let Some(hosts) = self.hosts.as_ref().filter(|_| host != self.own) else {
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
fn is_same(origin: &HeaderValue, host: &str) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn refused(why: &'static str) -> Visit {
    Visit::Answered(reply::plain(StatusCode::FORBIDDEN, why))
}

/// What a browser asks before it lets a page call.
fn preflight(origin: &HeaderValue, headers: &HeaderMap) -> Reply {
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    allow(reply.headers_mut(), origin.clone());
    let answer = reply.headers_mut();
    answer.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    answer.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(asked) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    reply
}

/// Lets the page read the answer. Never with cookies: nobody is known by them here.
pub(super) fn allow(answer: &mut HeaderMap, origin: HeaderValue) {
    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    answer.append(VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(
        browsers: &Browsers,
        method: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Option<String>, u16> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        match browsers.visit(&method.parse().unwrap(), None, &headers.collect(), false) {
            Visit::Own => Ok(None),
            Visit::From(origin) => Ok(Some(origin.to_str().unwrap().to_owned())),
            Visit::Answered(reply) => Err(reply.status().as_u16()),
        }
    }

    #[test]
    fn s78_a_page_calls_only_where_it_may() {
        let address = "127.0.0.1:41241".parse().unwrap();
        let origins = ["https://app.example.com".to_owned()];
        let browsers = Browsers::new(&origins, address, Some("https://agent.example.com/x"));
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
                visit(&browsers, method, headers),
                expected,
                "{method} {headers:?}"
            );
        }
    }

    #[test]
    fn s78_nobody_may_call_from_elsewhere_unless_told() {
        let browsers = Browsers::new(&[], "10.0.0.1:80".parse().unwrap(), None);
        let headers = [
            ("host", "agent.example.com"),
            ("origin", "https://agent.example.com"),
        ];
        assert_eq!(visit(&browsers, "POST", &headers), Ok(None));
        let headers = [
            ("host", "agent.example.com"),
            ("origin", "https://app.example.com"),
        ];
        assert_eq!(visit(&browsers, "POST", &headers), Err(403));
        let all = Browsers::new(&["*".to_owned()], "10.0.0.1:80".parse().unwrap(), None);
        assert_eq!(
            visit(&all, "POST", &headers),
            Ok(Some("https://app.example.com".to_owned()))
        );
    }
}
