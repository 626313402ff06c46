//! Locations of an API key in a request.

use std::borrow::Cow;

use super::{AuthError, RequestCredentials, SchemeInfo};
use crate::model::{ApiKeySecurityScheme, Base64, HttpAuthSecurityScheme, SecurityScheme};

/// Location of an API key in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyLocation {
    /// `Authorization: Bearer`.
    Bearer,
    /// `Authorization: Basic` with the caller name as user and the key as password.
    Basic,
    /// A header of this name.
    Header(String),
    /// A query parameter. Proxies log it; prefer another location.
    Query(String),
    /// A cookie of this name.
    Cookie(String),
}

/// A key found in a request.
pub(super) struct PresentedKey<'a> {
    pub(super) secret: Cow<'a, str>,
    /// Caller name that accompanies the key, with Basic authentication.
    pub(super) user: Option<String>,
}

impl KeyLocation {
    /// Reads the key at this location; `None` if there is none.
    ///
    /// # Errors
    /// The credential is malformed or present twice.
    pub(super) fn read<'a>(
        &self,
        credentials: &RequestCredentials<'a>,
    ) -> Result<Option<PresentedKey<'a>>, AuthError> {
        let secret = match self {
            Self::Bearer => credentials.authorization("Bearer")?.map(Cow::from),
            Self::Header(name) => credentials.header(name)?.map(Cow::from),
            Self::Query(name) => credentials.query(name)?,
            Self::Cookie(name) => credentials.cookie(name)?.map(Cow::from),
            Self::Basic => {
                let Some(text) = credentials.authorization("Basic")? else {
                    return Ok(None);
                };
                let key = parse_basic(text).ok_or(AuthError::InvalidCredential)?;
                return Ok(Some(key));
            }
        };
        Ok(secret.map(|secret| PresentedKey { secret, user: None }))
    }

    /// Describes the location for the agent card.
    pub(super) fn scheme_info(&self) -> SchemeInfo {
        match self {
            Self::Bearer => http_scheme("bearer", "Bearer", "Bearer realm=\"attache\""),
            Self::Basic => http_scheme(
                "basic",
                "Basic",
                "Basic realm=\"attache\", charset=\"UTF-8\"",
            ),
            Self::Header(name) => key_scheme("header", name),
            Self::Query(name) => key_scheme("query", name),
            Self::Cookie(name) => key_scheme("cookie", name),
        }
    }
}

fn http_scheme(name: &str, scheme: &str, challenge: &str) -> SchemeInfo {
    SchemeInfo {
        name: name.to_owned(),
        scheme: SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
            scheme: scheme.to_owned(),
            ..HttpAuthSecurityScheme::default()
        }),
        challenge: challenge.to_owned(),
        has_scopes: false,
    }
}

fn key_scheme(location: &str, name: &str) -> SchemeInfo {
    SchemeInfo {
        name: format!("{location}Key"),
        scheme: SecurityScheme::ApiKey(ApiKeySecurityScheme {
            location: location.to_owned(),
            name: name.to_owned(),
            ..ApiKeySecurityScheme::default()
        }),
        challenge: format!("ApiKey realm=\"attache\", in=\"{location}\", name=\"{name}\""),
        has_scopes: false,
    }
}

/// Decodes `user:password` of Basic authentication.
fn parse_basic<'a>(text: &str) -> Option<PresentedKey<'a>> {
    let bytes = Base64::parse(text).ok()?.decode();
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(PresentedKey {
        secret: password.to_owned().into(),
        user: Some(user.to_owned()),
    })
}
