//! A login in a browser: a code that comes back to this machine (RFC 6749 §4.1, RFC 7636, RFC 8252).

use std::fmt;

use ::http::{Method, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::authorization_server::{AuthorizationServer, OAuthClient, parse_secure_url};
use super::oauth::Token;
use super::unauthenticated;
use crate::model::{Error, Result, Secret};

/// A login that a person finishes in a browser, which is then sent back to a url of ours: show them where to go, take
/// what the browser brings, and [`finish`](Self::finish).
///
/// The code is of use to nobody else (PKCE), and only what was begun here is taken.
pub struct AuthorizationCodeLogin {
    server: AuthorizationServer,
    client: OAuthClient,
    redirect: String,
    verifier: Secret,
    state: Secret,
    url: String,
}

impl AuthorizationCodeLogin {
    /// Begins a login as a client of this id, which has a secret or none; the browser comes back to `redirect`.
    ///
    /// # Errors
    /// Invalid parameters: nobody said where people log in, or not over TLS.
    pub fn start(
        server: AuthorizationServer,
        id: impl Into<String>,
        secret: Option<Secret>,
        scopes: &[String],
        redirect: impl Into<String>,
    ) -> Result<Self> {
        let (client, redirect) = (
            OAuthClient {
                id: id.into(),
                secret,
            },
            redirect.into(),
        );
        let location = server.authorization.as_deref();
        let location = location.ok_or_else(|| {
            Error::invalid("authorization", "must be the url where people log in")
        })?;
        let location = parse_secure_url(location)?;
        let (verifier, state) = (random_secret(), random_secret());
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
        let url = with_query(&location, &form.finish());
        Ok(Self {
            server,
            client,
            redirect,
            verifier,
            state,
            url,
        })
    }

    /// Where the person goes.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether a browser that brings this query comes from the login that was begun here; anything else may come from
    /// anywhere, and says nothing.
    #[must_use]
    pub fn matches_state(&self, query: &str) -> bool {
        let state = parameter(query, "state").unwrap_or_default();
        state
            .as_bytes()
            .ct_eq(self.state.expose().as_bytes())
            .into()
    }

    /// Takes what the browser brought, and gets the token for it.
    ///
    /// # Errors
    /// The query is of another login; the person said no; the server refuses; of the connection.
    pub async fn finish(self, query: &str) -> Result<Token> {
        if !self.matches_state(query) {
            return Err(unauthenticated("the browser comes from another login"));
        }
        // RFC 9207: of several issuers one could send the codes of another.
        let issuer = parameter(query, "iss");
        if issuer.is_some() && self.server.issuer.is_some() && issuer != self.server.issuer {
            return Err(unauthenticated("the answer is that of another issuer"));
        }
        if let Some(code) = parameter(query, "error") {
            let plain = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_graphic());
            let code = if plain { code } else { "no".to_owned() };
            return Err(unauthenticated(format_args!(
                "the authorization server says {code}"
            )));
        }
        let code = parameter(query, "code")
            .ok_or_else(|| unauthenticated("the browser brought no code"))?;
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
        response.map_err(super::authorization_server::OAuthError::into_error)
    }
}

impl fmt::Debug for AuthorizationCodeLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizationCodeLogin")
            .field("redirect", &self.redirect)
            .finish_non_exhaustive()
    }
}

/// What nobody can guess.
fn random_secret() -> Secret {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()).into()
}

fn with_query(url: &Uri, more: &str) -> String {
    let separator = if url.query().is_some() { '&' } else { '?' };
    format!("{url}{separator}{more}")
}

/// The one value of a parameter; what is given twice is not given.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(one, _)| one == name);
    let value = found.next()?.1.into_owned();
    found.next().is_none().then_some(value)
}
