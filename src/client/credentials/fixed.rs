//! Fixed credentials: bearer token, basic authentication, API key, client certificate.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{AuthParam, CredentialProvider};
use crate::model::{ApiKeySecurityScheme, Error, Result, Secret, SecurityScheme};

/// Token in `Authorization: Bearer`.
#[derive(Debug, Clone)]
pub struct BearerAuth(Secret);

impl BearerAuth {
    /// Uses this token.
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

/// Whether a scheme is satisfied by a bearer token.
pub(super) fn accepts_bearer(scheme: &SecurityScheme) -> bool {
    match scheme {
        SecurityScheme::HttpAuth(http) => http.scheme.eq_ignore_ascii_case("bearer"),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => true,
        SecurityScheme::ApiKey(_) | SecurityScheme::MutualTls(_) => false,
    }
}

/// User name and password in `Authorization: Basic`.
#[derive(Debug, Clone)]
pub struct BasicAuth {
    user: String,
    password: Secret,
}

impl BasicAuth {
    /// Uses this user name, which must not contain a colon, and this password.
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
            return Err(Error::invalid("user", "must not contain a colon"));
        }
        let both = STANDARD.encode(format!("{}:{}", self.user, self.password.expose()));
        Ok(vec![AuthParam::authorization("Basic", &both.into())])
    }
}

/// API key in a header, a query parameter or a cookie, as the card declares or at a fixed location.
#[derive(Debug, Clone)]
pub struct ApiKeyAuth {
    key: Secret,
    /// Fixed location; `None`: the location that the card declares.
    location: Option<ApiKeySecurityScheme>,
}

impl ApiKeyAuth {
    /// Sends the key at the location that the card declares, or in the header `X-API-Key` without a card.
    pub fn new(key: impl Into<Secret>) -> Self {
        Self {
            key: key.into(),
            location: None,
        }
    }

    /// Sends the key in this header only.
    pub fn header(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::with_location("header", name.into(), key.into())
    }

    /// Sends the key in this query parameter only. URLs appear in server logs: a header is safer.
    pub fn query(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        Self::with_location("query", name.into(), key.into())
    }

    /// Sends the key in this cookie only.
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
        let SecurityScheme::ApiKey(declared) = scheme else {
            return false;
        };
        self.location.as_ref().is_none_or(|fixed| {
            fixed.location == declared.location
                && (fixed.name == declared.name
                    || fixed.location == "header"
                        && fixed.name.eq_ignore_ascii_case(&declared.name))
        })
    }

    async fn auth_params(
        &self,
        scheme: Option<&SecurityScheme>,
        _: &[String],
    ) -> Result<Vec<AuthParam>> {
        let declared = match scheme {
            Some(SecurityScheme::ApiKey(declared)) => Some(declared),
            _ => self.location.as_ref(),
        };
        let (location, name) =
            declared.map_or(("header", "X-API-Key"), |it| (&*it.location, &*it.name));
        let name = name.to_owned();
        let key = self.key.clone();
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

/// Marker for a client that presents a certificate, set with `Client::with_tls`.
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
