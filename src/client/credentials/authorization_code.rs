//! OAuth 2 authorization code flow with PKCE and a redirect to this machine (RFC 6749 §4.1, RFC 7636, RFC 8252).

use std::fmt;

use ::http::{Method, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::authorization_server::{
    AuthorizationServer, OAuthClient, OAuthError, is_printable_code, parse_secure_url,
};
use super::oauth::Token;
use super::unauthenticated;
use crate::model::{Error, Result, Secret};

/// Login that a person completes in a browser. Open [`url`](Self::url), receive the redirect, and call
/// [`finish`](Self::finish) with its query.
///
/// PKCE makes an intercepted code useless, and the `state` parameter rejects redirects of other logins.
pub struct AuthorizationCodeLogin {
    server: AuthorizationServer,
    client: OAuthClient,
    redirect: String,
    verifier: Secret,
    state: Secret,
    url: String,
}

impl AuthorizationCodeLogin {
    /// Starts a login with a client id and an optional secret. The browser is redirected to `redirect`.
    ///
    /// # Errors
    /// Invalid parameters if `server` has no authorization endpoint, or one without TLS.
    pub fn start(
        server: AuthorizationServer,
        id: impl Into<String>,
        secret: Option<Secret>,
        scopes: &[String],
        redirect: impl Into<String>,
    ) -> Result<Self> {
        let client = OAuthClient {
            id: id.into(),
            secret,
        };
        let redirect = redirect.into();
        let login_url = server
            .authorization
            .as_deref()
            .ok_or_else(|| Error::invalid("authorization", "must be the URL where users log in"))?;
        let login_url = parse_secure_url(login_url)?;
        let verifier = random_secret();
        let state = random_secret();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose()));
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", &redirect)
            .append_pair("state", state.expose())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if !scopes.is_empty() {
            form.append_pair("scope", &scopes.join(" "));
        }
        let url = with_query(&login_url, &form.finish());
        Ok(Self {
            server,
            client,
            redirect,
            verifier,
            state,
            url,
        })
    }

    /// Returns the URL that the person opens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the query of a redirect belongs to this login. Any other query must be ignored.
    #[must_use]
    pub fn matches_state(&self, query: &str) -> bool {
        let state = parameter(query, "state").unwrap_or_default();
        state
            .as_bytes()
            .ct_eq(self.state.expose().as_bytes())
            .into()
    }

    /// Exchanges the code in the redirect's query for a token.
    ///
    /// # Errors
    /// The query belongs to another login, the person refused, the server refused, or the connection failed.
    pub async fn finish(self, query: &str) -> Result<Token> {
        if !self.matches_state(query) {
            return Err(unauthenticated("the redirect belongs to another login"));
        }
        // RFC 9207: rejects mix-up attacks, in which one issuer passes on the code of another.
        let issuer = parameter(query, "iss");
        if issuer.is_some() && self.server.issuer.is_some() && issuer != self.server.issuer {
            return Err(unauthenticated("the redirect names another issuer"));
        }
        if let Some(code) = parameter(query, "error") {
            let code = if is_printable_code(&code) {
                code
            } else {
                "unknown".to_owned()
            };
            return Err(OAuthError { code }.into_error());
        }
        let code = parameter(query, "code")
            .ok_or_else(|| unauthenticated("the redirect contains no code"))?;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("redirect_uri", &*self.redirect),
            ("code_verifier", self.verifier.expose()),
        ];
        if self.client.secret.is_none() {
            form.push(("client_id", &self.client.id));
        }
        let response = self
            .server
            .exchange(Method::POST, &self.server.token, Some(&self.client), &form)
            .await?;
        response.map_err(OAuthError::into_error)
    }
}

impl fmt::Debug for AuthorizationCodeLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizationCodeLogin")
            .field("redirect", &self.redirect)
            .finish_non_exhaustive()
    }
}

/// Returns 244 random bits as hexadecimal digits.
fn random_secret() -> Secret {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()).into()
}

fn with_query(url: &Uri, more: &str) -> String {
    let separator = if url.query().is_some() { '&' } else { '?' };
    format!("{url}{separator}{more}")
}

/// Returns the value of a query parameter; `None` if it is missing or occurs twice.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(one, _)| one == name);
    let value = found.next()?.1.into_owned();
    found.next().is_none().then_some(value)
}
