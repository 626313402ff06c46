//! Credentials that are what they are.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{AuthParam, CredentialProvider};
use crate::model::{ApiKeySecurityScheme, Error, Result, Secret, SecurityScheme};

/// A token in `Authorization: Bearer`, wherever it comes from.
#[derive(Debug, Clone)]
pub struct BearerAuth(Secret);

impl BearerAuth {
    /// This token.
    pub fn new(token: impl Into<Secret>) -> Self {
        Self(token.into())
    }
}

#[async_trait]
impl CredentialProvider for BearerAuth {
    fn name(&self) -> &str {
        "a bearer token"
    }

    fn supports(&self, scheme: &SecurityScheme) -> bool {
        accepts_bearer(scheme)
    }

    async fn auth_params(
        &self,
        _: Option<&SecurityScheme>,
        _: &[String],
    ) -> Result<Vec<AuthParam>> {
        Ok(vec![AuthParam::authorization("Bearer", &self.0)])
    }
}

/// Whether a bearer token is what this scheme ends in.
pub(super) fn accepts_bearer(scheme: &SecurityScheme) -> bool {
    match scheme {
        SecurityScheme::HttpAuth(http) => http.scheme.eq_ignore_ascii_case("bearer"),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => true,
        SecurityScheme::ApiKey(_) | SecurityScheme::MutualTls(_) => false,
    }
}

/// A name and a password in `Authorization: Basic`.
#[derive(Debug, Clone)]
pub struct BasicAuth {
    user: String,
    password: Secret,
}

impl BasicAuth {
    /// This name, without a colon, and this password.
    pub fn new(user: impl Into<String>, password: impl Into<Secret>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
        }
    }
}

#[async_trait]
impl CredentialProvider for BasicAuth {
    fn name(&self) -> &str {
        "a name and password"
    }

    fn supports(&self, scheme: &SecurityScheme) -> bool {
        matches!(scheme, SecurityScheme::HttpAuth(http) if http.scheme.eq_ignore_ascii_case("basic"))
    }

    async fn auth_params(
        &self,
        _: Option<&SecurityScheme>,
        _: &[String],
    ) -> Result<Vec<AuthParam>> {
        if self.user.contains(':') {
            return Err(Error::invalid(
                "user",
                "must have no colon: it ends the name",
            ));
        }
        let both = STANDARD.encode(format!("{}:{}", self.user, self.password.expose()));
        Ok(vec![AuthParam::authorization("Basic", &both.into())])
    }
}

/// A key in a header, a parameter of the url or a cookie, as the card says; or in a place of one's own choice.
#[derive(Debug, Clone)]
pub struct ApiKeyAuth {
    key: Secret,
    location: Option<ApiKeySecurityScheme>,
}

impl ApiKeyAuth {
    /// Goes where the card says; to the header `X-API-Key` if it does not.
    pub fn new(key: impl Into<Secret>) -> Self {
        Self {
            key: key.into(),
            location: None,
        }
    }

    /// Goes into this header, and into no other place that a card wants.
    pub fn header(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::with_location("header", name.into(), key.into())
    }

    /// Goes into this parameter of the url. It shows in the logs of servers: a header is better.
    pub fn query(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::with_location("query", name.into(), key.into())
    }

    /// Goes into this cookie.
    pub fn cookie(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::with_location("cookie", name.into(), key.into())
    }

    fn with_location(location: &str, name: String, key: Secret) -> Self {
        let location = ApiKeySecurityScheme {
            location: location.to_owned(),
            name,
            ..Default::default()
        };
        Self {
            key,
            location: Some(location),
        }
    }
}

#[async_trait]
impl CredentialProvider for ApiKeyAuth {
    fn name(&self) -> &str {
        "an API key"
    }

    fn supports(&self, scheme: &SecurityScheme) -> bool {
        let SecurityScheme::ApiKey(wanted) = scheme else {
            return false;
        };
        self.location.as_ref().is_none_or(|own| {
            own.location == wanted.location
                && (own.name == wanted.name
                    || own.location == "header" && own.name.eq_ignore_ascii_case(&wanted.name))
        })
    }

    async fn auth_params(
        &self,
        scheme: Option<&SecurityScheme>,
        _: &[String],
    ) -> Result<Vec<AuthParam>> {
        let wanted = match scheme {
            Some(SecurityScheme::ApiKey(wanted)) => Some(wanted),
            _ => self.location.as_ref(),
        };
        let (location, name) =
            wanted.map_or(("header", "X-API-Key"), |it| (&*it.location, &*it.name));
        let (name, key) = (name.to_owned(), self.key.clone());
        match location {
            "header" => Ok(vec![AuthParam::Header(name, key)]),
            "query" => Ok(vec![AuthParam::Query(name, key)]),
            "cookie" => Ok(vec![AuthParam::Cookie(name, key)]),
            _ => Err(Error::invalid(
                "location",
                "must be header, query or cookie",
            )),
        }
    }
}

/// Says that the client shows a certificate: give that to it with `Client::with_tls`.
#[derive(Debug, Clone, Copy)]
pub struct MutualTlsAuth;

#[async_trait]
impl CredentialProvider for MutualTlsAuth {
    fn name(&self) -> &str {
        "a client certificate"
    }

    fn supports(&self, scheme: &SecurityScheme) -> bool {
        matches!(scheme, SecurityScheme::MutualTls(_))
    }

    async fn auth_params(
        &self,
        _: Option<&SecurityScheme>,
        _: &[String],
    ) -> Result<Vec<AuthParam>> {
        Ok(Vec::new())
    }
}
