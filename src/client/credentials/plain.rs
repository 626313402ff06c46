//! Credentials that are what they are.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Credentials, Shown};
use crate::model::{ApiKeySecurityScheme, Error, Result, Secret, SecurityScheme};

/// A token in `Authorization: Bearer`, wherever it comes from.
#[derive(Debug, Clone)]
pub struct Bearer(Secret);

impl Bearer {
    /// This token.
    pub fn new(token: impl Into<Secret>) -> Self {
        Self(token.into())
    }
}

#[async_trait]
impl Credentials for Bearer {
    fn name(&self) -> &str {
        "a bearer token"
    }

    fn fit(&self, scheme: &SecurityScheme) -> bool {
        takes_bearer(scheme)
    }

    async fn show(&self, _: Option<&SecurityScheme>, _: &[String]) -> Result<Vec<Shown>> {
        Ok(vec![Shown::authorization("Bearer", &self.0)])
    }
}

/// Whether a bearer token is what this scheme ends in.
pub(super) fn takes_bearer(scheme: &SecurityScheme) -> bool {
    match scheme {
        SecurityScheme::HttpAuth(http) => http.scheme.eq_ignore_ascii_case("bearer"),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => true,
        SecurityScheme::ApiKey(_) | SecurityScheme::MutualTls(_) => false,
    }
}

/// A name and a password in `Authorization: Basic`.
#[derive(Debug, Clone)]
pub struct Basic {
    user: String,
    password: Secret,
}

impl Basic {
    /// This name, without a colon, and this password.
    pub fn new(user: impl Into<String>, password: impl Into<Secret>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
        }
    }
}

#[async_trait]
impl Credentials for Basic {
    fn name(&self) -> &str {
        "a name and password"
    }

    fn fit(&self, scheme: &SecurityScheme) -> bool {
        matches!(scheme, SecurityScheme::HttpAuth(http) if http.scheme.eq_ignore_ascii_case("basic"))
    }

    async fn show(&self, _: Option<&SecurityScheme>, _: &[String]) -> Result<Vec<Shown>> {
        if self.user.contains(':') {
            return Err(Error::invalid(
                "user",
                "must have no colon: it ends the name",
            ));
        }
        let both = STANDARD.encode(format!("{}:{}", self.user, self.password.expose()));
        Ok(vec![Shown::authorization("Basic", &both.into())])
    }
}

/// A key in a header, a parameter of the url or a cookie, as the card says; or in a place of one's own choice.
#[derive(Debug, Clone)]
pub struct ApiKey {
    key: Secret,
    place: Option<ApiKeySecurityScheme>,
}

impl ApiKey {
    /// Goes where the card says; to the header `X-API-Key` if it does not.
    pub fn new(key: impl Into<Secret>) -> Self {
        Self {
            key: key.into(),
            place: None,
        }
    }

    /// Goes into this header, and into no other place that a card wants.
    pub fn header(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::at("header", name.into(), key.into())
    }

    /// Goes into this parameter of the url. It shows in the logs of servers: a header is better.
    pub fn query(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::at("query", name.into(), key.into())
    }

    /// Goes into this cookie.
    pub fn cookie(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::at("cookie", name.into(), key.into())
    }

    fn at(location: &str, name: String, key: Secret) -> Self {
        let place = ApiKeySecurityScheme {
            location: location.to_owned(),
            name,
            ..Default::default()
        };
        Self {
            key,
            place: Some(place),
        }
    }
}

#[async_trait]
impl Credentials for ApiKey {
    fn name(&self) -> &str {
        "an API key"
    }

    fn fit(&self, scheme: &SecurityScheme) -> bool {
        let SecurityScheme::ApiKey(wanted) = scheme else {
            return false;
        };
        self.place.as_ref().is_none_or(|own| {
            own.location == wanted.location
                && (own.name == wanted.name
                    || own.location == "header" && own.name.eq_ignore_ascii_case(&wanted.name))
        })
    }

    async fn show(&self, scheme: Option<&SecurityScheme>, _: &[String]) -> Result<Vec<Shown>> {
        let wanted = match scheme {
            Some(SecurityScheme::ApiKey(wanted)) => Some(wanted),
            _ => self.place.as_ref(),
        };
        let (location, name) =
            wanted.map_or(("header", "X-API-Key"), |it| (&*it.location, &*it.name));
        let (name, key) = (name.to_owned(), self.key.clone());
        match location {
            "header" => Ok(vec![Shown::Header(name, key)]),
            "query" => Ok(vec![Shown::Query(name, key)]),
            "cookie" => Ok(vec![Shown::Cookie(name, key)]),
            _ => Err(Error::invalid(
                "location",
                "must be header, query or cookie",
            )),
        }
    }
}

/// Says that the client shows a certificate: give that to it with `Client::with_tls`.
#[derive(Debug, Clone, Copy)]
pub struct MutualTls;

#[async_trait]
impl Credentials for MutualTls {
    fn name(&self) -> &str {
        "a client certificate"
    }

    fn fit(&self, scheme: &SecurityScheme) -> bool {
        matches!(scheme, SecurityScheme::MutualTls(_))
    }

    async fn show(&self, _: Option<&SecurityScheme>, _: &[String]) -> Result<Vec<Shown>> {
        Ok(Vec::new())
    }
}
