//! Credentials of a request: headers, query, cookies and client certificate.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};

use super::AuthError;

/// Parts of a request that may contain a credential. A credential that is present twice is refused (S84).
pub struct RequestCredentials<'a> {
    headers: &'a HeaderMap,
    query: &'a str,
    peer: IpAddr,
    client: IpAddr,
    certificate: Option<&'a [u8]>,
}

impl<'a> RequestCredentials<'a> {
    pub(crate) fn new(
        headers: &'a HeaderMap,
        query: Option<&'a str>,
        peer: IpAddr,
        certificate: Option<&'a [u8]>,
    ) -> Self {
        Self {
            headers,
            query: query.unwrap_or_default(),
            peer,
            client: peer,
            certificate,
        }
    }

    /// Sets the address of a client behind a trusted proxy.
    pub(crate) fn with_client(self, client: IpAddr) -> Self {
        Self { client, ..self }
    }

    /// Returns a header, or an entry of the gRPC metadata.
    ///
    /// # Errors
    /// The header is present more than once, or is not text.
    pub fn header(&self, name: &str) -> Result<Option<&'a str>, AuthError> {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let text = value.to_str().map_err(|_| AuthError::InvalidCredential)?;
        require_single(text, values.next().is_none())
    }

    /// Returns the part of `Authorization` after a scheme such as `Bearer`; `None` for another scheme.
    ///
    /// # Errors
    /// As [`header`](Self::header).
    pub fn authorization(&self, scheme: &str) -> Result<Option<&'a str>, AuthError> {
        let Some(text) = self.header(AUTHORIZATION.as_str())? else {
            return Ok(None);
        };
        let (given, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(given.eq_ignore_ascii_case(scheme).then(|| rest.trim()))
    }

    /// Returns a query parameter.
    ///
    /// # Errors
    /// The parameter is present more than once.
    pub fn query(&self, name: &str) -> Result<Option<Cow<'a, str>>, AuthError> {
        let mut values =
            form_urlencoded::parse(self.query.as_bytes()).filter(|(key, _)| key == name);
        let Some((_, value)) = values.next() else {
            return Ok(None);
        };
        require_single(value, values.next().is_none())
    }

    /// Returns a cookie.
    ///
    /// # Errors
    /// The cookie is present more than once.
    pub fn cookie(&self, name: &str) -> Result<Option<&'a str>, AuthError> {
        let lines = self
            .headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|line| line.to_str().ok());
        let pairs = lines
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value.trim_matches('"'));
        let Some(value) = values.next() else {
            return Ok(None);
        };
        require_single(value, values.next().is_none())
    }

    /// The client certificate in DER, verified by the TLS handshake.
    #[must_use]
    pub fn certificate(&self) -> Option<&'a [u8]> {
        self.certificate
    }

    /// Address of the TCP peer.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Address of the client: of the TCP peer, or the one that a trusted proxy reports.
    #[must_use]
    pub fn client(&self) -> IpAddr {
        self.client
    }
}

fn require_single<T>(value: T, is_single: bool) -> Result<Option<T>, AuthError> {
    if is_single {
        Ok(Some(value))
    } else {
        Err(AuthError::InvalidCredential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn with<T>(
        headers: &[(&'static str, &str)],
        query: &str,
        check: impl FnOnce(&RequestCredentials<'_>) -> T,
    ) -> T {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        check(&RequestCredentials::new(
            &headers,
            Some(query),
            Ipv4Addr::LOCALHOST.into(),
            None,
        ))
    }

    #[test]
    fn credentials_are_read_from_every_location() {
        with(
            &[("authorization", "bearer  t"), ("cookie", "a=1; k=\"v\"")],
            "x=1&key=a%2Bb",
            |found| {
                assert_eq!(found.authorization("Bearer").unwrap(), Some("t"));
                assert_eq!(found.authorization("Basic").unwrap(), None);
                assert_eq!(found.cookie("k").unwrap(), Some("v"));
                assert_eq!(found.query("key").unwrap().as_deref(), Some("a+b"));
                assert_eq!(found.header("x-api-key").unwrap(), None);
            },
        );
    }

    #[test]
    fn s84_duplicate_credentials_are_refused() {
        with(
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            "",
            |found| {
                assert!(found.authorization("Bearer").is_err());
            },
        );
        with(
            &[("cookie", "k=1"), ("cookie", "k=2")],
            "key=1&key=1",
            |found| {
                assert!(found.cookie("k").is_err());
                assert!(found.query("key").is_err());
            },
        );
    }
}
