//! JWT verification: bearer tokens (RFC 7519) of one issuer.

mod issuer_keys;

use std::fmt;

use async_trait::async_trait;
use jsonwebtoken::{Validation, decode, decode_header};
use serde::{Deserialize, Serialize};

use super::{AuthError, Authenticator, Identity, RequestCredentials, SchemeInfo};
use crate::model::{
    Error, HttpAuthSecurityScheme, OpenIdConnectSecurityScheme, Result, SecurityScheme, Timestamp,
};
use issuer_keys::{IssuerKeys, KeySource};

/// Tolerated clock skew, in seconds.
const LEEWAY_SECONDS: u32 = 60;
/// Largest accepted token.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Longest accepted key id.
const MAX_KID_BYTES: usize = 256;

/// Signature algorithm of tokens. HMAC is not supported: the issuer would have to share its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are those of RFC 7518 and RFC 8037")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl From<Algorithm> for jsonwebtoken::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Rs256 => Self::RS256,
            Algorithm::Rs384 => Self::RS384,
            Algorithm::Rs512 => Self::RS512,
            Algorithm::Ps256 => Self::PS256,
            Algorithm::Ps384 => Self::PS384,
            Algorithm::Ps512 => Self::PS512,
            Algorithm::Es256 => Self::ES256,
            Algorithm::Es384 => Self::ES384,
            Algorithm::EdDsa => Self::EdDSA,
        }
    }
}

/// Authenticates callers by bearer tokens of one issuer: JSON Web Tokens (RFC 7519) with `iss`, `sub`, `aud` and `exp`.
///
/// The caller name is `jwt:{iss}|{sub}`; its scopes are those of `scope` and `scp`.
pub struct Jwt {
    issuer: String,
    audiences: Vec<AcceptedAudience>,
    algorithms: Vec<jsonwebtoken::Algorithm>,
    tenant_claim: Option<String>,
    uses_discovery: bool,
    keys: IssuerKeys,
}

/// An accepted `aud` value.
struct AcceptedAudience {
    name: String,
    /// The only agent that tokens of this audience may call; `None`: every agent.
    agent: Option<String>,
}

impl Jwt {
    /// Accepts tokens of an issuer for an audience. The keys are found by OpenID Connect discovery at
    /// `{issuer}/.well-known/openid-configuration`, fetched on first use and again when they change.
    ///
    /// # Errors
    /// Invalid: the issuer is not an absolute URL that may be called.
    pub fn discover(issuer: &str, audience: &str) -> Result<Self> {
        let url = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let source = KeySource::Discovery {
            url: parse_url(&url)?,
            issuer: issuer.to_owned(),
        };
        Ok(Self {
            uses_discovery: true,
            ..Self::new(issuer, audience, source)
        })
    }

    /// Accepts tokens of an issuer for an audience, signed with a key of the JWK set at `url`.
    ///
    /// # Errors
    /// Invalid: `url` is not an absolute URL that may be called.
    pub fn key_set(issuer: &str, audience: &str, url: &str) -> Result<Self> {
        Ok(Self::new(issuer, audience, KeySource::Url(parse_url(url)?)))
    }

    fn new(issuer: &str, audience: &str, source: KeySource) -> Self {
        Self {
            issuer: issuer.to_owned(),
            audiences: vec![AcceptedAudience {
                name: audience.to_owned(),
                agent: None,
            }],
            algorithms: [
                Algorithm::Rs256,
                Algorithm::Ps256,
                Algorithm::Es256,
                Algorithm::EdDsa,
            ]
            .map(Into::into)
            .to_vec(),
            tenant_claim: None,
            uses_discovery: false,
            keys: IssuerKeys::new(source),
        }
    }

    /// Sets the accepted signature algorithms. Default: RS256, PS256, ES256 and EdDSA.
    #[must_use]
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().map(Into::into).collect();
        self
    }

    /// Accepts another audience, whose tokens may call only this agent.
    #[must_use]
    pub fn agent_audience(mut self, agent: &str, audience: &str) -> Self {
        self.audiences.push(AcceptedAudience {
            name: audience.to_owned(),
            agent: Some(agent.to_owned()),
        });
        self
    }

    /// Sets the claim with the tenants of a caller: a string or a list of strings. Default: no claim, so no tenants.
    #[must_use]
    pub fn tenant_claim(mut self, claim: &str) -> Self {
        self.tenant_claim = Some(claim.to_owned());
        self
    }

    /// Sets the minimum interval between two fetches of the issuer's keys. Default: 5 seconds.
    #[must_use]
    pub fn min_fetch_interval(mut self, interval: std::time::Duration) -> Self {
        self.keys.min_fetch_interval = interval;
        self
    }

    /// Verifies signature, issuer, audience and lifetime of a token.
    async fn verify(&self, token: &str) -> std::result::Result<Identity, AuthError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::InvalidCredential);
        }
        let header = decode_header(token).map_err(invalid_token)?;
        // RFC 7515 §4.1.11: a token with a critical extension that the verifier does not support is invalid. None is supported.
        if header.crit.is_some() {
            return Err(AuthError::InvalidCredential);
        }
        // Checked before the key lookup, so that a token cannot choose an algorithm that is not allowed.
        if !self.algorithms.contains(&header.alg)
            || header
                .kid
                .as_ref()
                .is_some_and(|kid| kid.len() > MAX_KID_BYTES)
        {
            return Err(AuthError::InvalidCredential);
        }
        let key = self
            .keys
            .find(header.kid.as_deref(), header.alg)
            .await?
            .ok_or(AuthError::InvalidCredential)?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_SECONDS.into();
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(
            &self
                .audiences
                .iter()
                .map(|audience| &audience.name)
                .collect::<Vec<_>>(),
        );
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let claims = decode::<JwtClaims>(token, &key, &validation)
            .map_err(invalid_token)?
            .claims;
        self.identity_from_claims(&claims)
            .ok_or(AuthError::InvalidCredential)
    }

    /// Identity of the verified claims; `None` if the subject is empty.
    fn identity_from_claims(&self, claims: &JwtClaims) -> Option<Identity> {
        if claims.sub.is_empty() {
            return None;
        }
        let mut identity = Identity::named(&format!("jwt:{}|{}", self.issuer, claims.sub));
        let audiences = claims.aud.texts();
        let matched = self
            .audiences
            .iter()
            .filter(|own| audiences.contains(&own.name.as_str()));
        if matched.clone().all(|own| own.agent.is_some()) {
            identity = identity.agents(matched.filter_map(|own| own.agent.clone()));
        }
        for scopes in [&claims.scope, &claims.scp] {
            identity = identity.scopes(
                scopes
                    .texts()
                    .iter()
                    .flat_map(|text| text.split_whitespace()),
            );
        }
        let tenants = self
            .tenant_claim
            .as_ref()
            .and_then(|claim| claims.others.get(claim));
        let tenants =
            tenants.and_then(|value| serde_json::from_value::<StringOrList>(value.clone()).ok());
        // The wildcard `*` is part of the server configuration; an issuer must not grant it.
        let tenants = tenants.unwrap_or_default();
        let identity =
            identity.tenants(tenants.texts().into_iter().filter(|tenant| *tenant != "*"));
        Some(match claims.expiry() {
            Some(expiry) => identity.valid_until(expiry),
            None => identity,
        })
    }
}

/// Logs the kind of error. The caller does not learn it.
fn invalid_token(error: jsonwebtoken::errors::Error) -> AuthError {
    tracing::debug!(kind = ?std::mem::discriminant(error.kind()), "token rejected");
    AuthError::InvalidCredential
}

fn parse_url(url: &str) -> Result<http::Uri> {
    let uri = url
        .parse()
        .map_err(|_| Error::invalid("url", "must be an absolute URL"))?;
    crate::egress::check_url(&uri)?;
    Ok(uri)
}

#[derive(Deserialize)]
struct JwtClaims {
    sub: String,
    aud: StringOrList,
    /// Seconds since 1970, possibly with a fraction.
    exp: f64,
    #[serde(default)]
    scope: StringOrList,
    #[serde(default)]
    scp: StringOrList,
    #[serde(flatten)]
    others: serde_json::Map<String, serde_json::Value>,
}

impl JwtClaims {
    /// Time after which the token is refused; `None` if it is beyond the year 9999.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a cast of a float saturates, and the range is checked"
    )]
    fn expiry(&self) -> Option<Timestamp> {
        let seconds = self.exp + f64::from(LEEWAY_SECONDS);
        Timestamp::from_millis((seconds * 1000.0) as i64)
    }
}

/// A string or a list of strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum StringOrList {
    One(String),
    Many(Vec<String>),
}

impl Default for StringOrList {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl StringOrList {
    fn texts(&self) -> Vec<&str> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
        }
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwt")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Authenticator for Jwt {
    async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> std::result::Result<Option<Identity>, AuthError> {
        match credentials.authorization("Bearer")? {
            Some(token) => self.verify(token).await.map(Some),
            None => Ok(None),
        }
    }

    /// An identity without scopes and tenants: those are only known from a token.
    fn find_identity(&self, name: &str) -> Option<Identity> {
        let subject = name
            .strip_prefix("jwt:")?
            .strip_prefix(&self.issuer)?
            .strip_prefix('|')?;
        (!subject.is_empty()).then(|| Identity::named(name))
    }

    fn schemes(&self) -> Vec<SchemeInfo> {
        let scheme = if self.uses_discovery {
            SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                open_id_connect_url: self.keys.source().to_owned(),
                ..OpenIdConnectSecurityScheme::default()
            })
        } else {
            SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
                scheme: "Bearer".to_owned(),
                bearer_format: Some("JWT".to_owned()),
                ..HttpAuthSecurityScheme::default()
            })
        };
        let name = if self.uses_discovery { "oidc" } else { "jwt" };
        vec![SchemeInfo {
            name: name.to_owned(),
            scheme,
            challenge: "Bearer realm=\"attache\"".to_owned(),
            has_scopes: true,
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn d18_an_identity_lives_as_long_as_its_token() {
        let jwt = Jwt::key_set("http://issuer", "agents", "http://issuer/keys").unwrap();
        for (exp, expected) in [
            (json!(1_000), Some(1_060_000)),
            (json!(1_000.25), Some(1_060_250)),
            (json!(1e300), None),
        ] {
            let claims = json!({"sub": "ann", "aud": "agents", "exp": exp});
            let claims = serde_json::from_value(claims).unwrap();
            let identity = jwt.identity_from_claims(&claims).unwrap();
            assert_eq!(identity.lifetime().expires_ms, expected, "{exp}");
        }
    }
}
