//! OAuth 2: tokens that are fetched, and fetched again.

use std::fmt;
use std::time::Duration;

use ::http::Method;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::authorization_server::{AuthorizationServer, OAuthClient};
use super::fixed::accepts_bearer;
use super::{AuthParam, CredentialProvider, unauthenticated};
use crate::model::{Error, Result, Secret, SecurityScheme};

/// A token is renewed this long before it ends: it has to get there.
const REFRESH_MARGIN: Duration = Duration::from_secs(30);
/// How often a device asks unless told otherwise, and by how much it slows down when asked to (RFC 8628).
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Nobody is asked faster, whatever they say.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Nobody who logs in is waited for as long as this, whatever the server says.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3600);

/// What an authorization server gave out. It serialises with its secrets, to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// What goes with requests.
    #[serde(rename = "access_token")]
    pub access: Secret,
    /// What gets the next one.
    #[serde(
        rename = "refresh_token",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub refresh: Option<Secret>,
    /// For how many seconds it holds, from when it was given out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
}

/// Tokens of OAuth 2 or OpenID Connect as credentials: fetched when the first is needed, renewed before they end and
/// when they are refused.
pub struct OAuth {
    server: AuthorizationServer,
    client: OAuthClient,
    scopes: Vec<String>,
    /// Whether a token can be had by the client's own credentials.
    has_client_credentials: bool,
    cached: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    token: Token,
    refresh_at: Option<Instant>,
    scopes: Vec<String>,
    /// It has ended, or was refused.
    is_revoked: bool,
}

impl OAuth {
    /// By the client's own credentials.
    pub fn client_credentials(
        server: AuthorizationServer,
        id: impl Into<String>,
        secret: impl Into<Secret>,
    ) -> Self {
        let client = OAuthClient {
            id: id.into(),
            secret: Some(secret.into()),
        };
        Self {
            server,
            client,
            scopes: Vec::new(),
            has_client_credentials: true,
            cached: Mutex::new(None),
        }
    }

    /// By a token that was given out before, to a client of this id; renewed if it came with the means.
    pub fn with_token(server: AuthorizationServer, id: impl Into<String>, token: Token) -> Self {
        let client = OAuthClient {
            id: id.into(),
            secret: None,
        };
        let cached = Mutex::new(Some(CachedToken::new(token, Vec::new())));
        Self {
            server,
            client,
            scopes: Vec::new(),
            has_client_credentials: false,
            cached,
        }
    }

    /// Asks for these scopes, too, besides those of the card.
    #[must_use]
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// The token held now, to be kept for later.
    pub async fn token(&self) -> Option<Token> {
        self.cached
            .lock()
            .await
            .as_ref()
            .map(|cached| cached.token.clone())
    }

    /// A token that holds, fetched if need be; one at a time fetches, and the others wait for it.
    async fn access_token(&self, wanted: &[String]) -> Result<Secret> {
        let mut cached = self.cached.lock().await;
        let scopes: Vec<String> = self.scopes.iter().chain(wanted).cloned().collect();
        if let Some(cached) = cached
            .as_ref()
            .filter(|cached| cached.is_valid_for(&scopes, self.has_client_credentials))
        {
            return Ok(cached.token.access.clone());
        }
        let refresh = cached
            .as_ref()
            .and_then(|cached| cached.token.refresh.clone());
        let token = match refresh {
            Some(refresh) => match (self.renew(&refresh).await, self.has_client_credentials) {
                (Err(_), true) => self.fetch(&scopes).await?,
                (refresh_rejected, _) => refresh_rejected?,
            },
            None if self.has_client_credentials => self.fetch(&scopes).await?,
            None => {
                return Err(unauthenticated(
                    "the token has ended and cannot be renewed; log in again",
                ));
            }
        };
        let access = token.access.clone();
        *cached = Some(CachedToken::new(token, scopes));
        Ok(access)
    }

    async fn fetch(&self, scopes: &[String]) -> Result<Token> {
        let scopes = scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials")];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        self.exchange(&form).await
    }

    async fn renew(&self, refresh: &Secret) -> Result<Token> {
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose()),
        ];
        if self.client.secret.is_none() {
            form.push(("client_id", &self.client.id));
        }
        let token = self.exchange(&form).await?;
        // Who gives no new one lets the old one stand.
        Ok(Token {
            refresh: token.refresh.or_else(|| Some(refresh.clone())),
            ..token
        })
    }

    async fn exchange(&self, form: &[(&str, &str)]) -> Result<Token> {
        let (server, client) = (&self.server, Some(&self.client));
        let response = server
            .exchange::<Token>(Method::POST, &server.token, client, form)
            .await?;
        response.map_err(super::authorization_server::OAuthError::into_error)
    }
}

impl CachedToken {
    fn new(token: Token, scopes: Vec<String>) -> Self {
        let lifetime = token.expires_in.map(Duration::from_secs);
        let refresh_at = lifetime.and_then(|lifetime| {
            Instant::now().checked_add(lifetime.saturating_sub(REFRESH_MARGIN))
        });
        Self {
            token,
            refresh_at,
            scopes,
            is_revoked: false,
        }
    }

    fn is_valid_for(&self, scopes: &[String], widens: bool) -> bool {
        let enough = !widens || scopes.iter().all(|scope| self.scopes.contains(scope));
        !self.is_revoked
            && enough
            && self
                .refresh_at
                .is_none_or(|refresh_at| refresh_at > Instant::now())
    }
}

#[async_trait]
impl CredentialProvider for OAuth {
    fn name(&self) -> &str {
        "OAuth 2"
    }

    fn supports(&self, scheme: &SecurityScheme) -> bool {
        accepts_bearer(scheme)
    }

    async fn auth_params(
        &self,
        _: Option<&SecurityScheme>,
        scopes: &[String],
    ) -> Result<Vec<AuthParam>> {
        Ok(vec![AuthParam::authorization(
            "Bearer",
            &self.access_token(scopes).await?,
        )])
    }

    async fn on_rejected(&self) -> bool {
        let mut cached = self.cached.lock().await;
        let Some(cached) = cached.as_mut() else {
            return false;
        };
        cached.is_revoked = true;
        self.has_client_credentials || cached.token.refresh.is_some()
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth")
            .field("client", &self.client.id)
            .finish_non_exhaustive()
    }
}

/// A login that a person finishes on another device (RFC 8628): show them where to go and what to type, then wait.
pub struct DeviceLogin {
    server: AuthorizationServer,
    client: OAuthClient,
    code: DeviceAuthorization,
}

#[derive(Deserialize)]
struct DeviceAuthorization {
    device_code: Secret,
    user_code: String,
    #[serde(alias = "verification_url")]
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl DeviceLogin {
    /// Asks for a code, as a client of this id.
    ///
    /// # Errors
    /// Invalid parameters: nobody said where codes are given out. Of the connection; the server refuses.
    pub async fn start(
        server: AuthorizationServer,
        id: impl Into<String>,
        scopes: &[String],
    ) -> Result<Self> {
        let client = OAuthClient {
            id: id.into(),
            secret: None,
        };
        let scopes = scopes.join(" ");
        let url = server.device.clone();
        let url = url
            .ok_or_else(|| Error::invalid("device", "must be the url where codes are given out"))?;
        let mut form = vec![("client_id", client.id.as_str())];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        let response = server.exchange(Method::POST, &url, None, &form).await?;
        let code = response.map_err(super::authorization_server::OAuthError::into_error)?;
        Ok(Self {
            server,
            client,
            code,
        })
    }

    /// What the person types.
    #[must_use]
    pub fn user_code(&self) -> &str {
        &self.code.user_code
    }

    /// Where the person goes.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.code.verification_uri
    }

    /// Where the person goes and has nothing to type, if there is such a place.
    #[must_use]
    pub fn complete_url(&self) -> Option<&str> {
        self.code.verification_uri_complete.as_deref()
    }

    /// Waits until the person has logged in, at the pace that the server wants.
    ///
    /// # Errors
    /// The person said no, or took too long; of the connection.
    pub async fn wait(self) -> Result<Token> {
        let late = || unauthenticated("nobody logged in in time");
        let deadline = Instant::now()
            .checked_add(Duration::from_secs(self.code.expires_in))
            .ok_or_else(late)?;
        let mut interval = self
            .code
            .interval
            .map_or(DEFAULT_POLL_INTERVAL, Duration::from_secs)
            .clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", self.code.device_code.expose()),
            ("client_id", &self.client.id),
        ];
        loop {
            if Instant::now() + interval > deadline {
                return Err(late());
            }
            sleep(interval).await;
            match self
                .server
                .exchange(Method::POST, &self.server.token, None, &form)
                .await?
            {
                Ok(token) => return Ok(token),
                Err(refused) => match refused.code.as_str() {
                    "authorization_pending" => {}
                    "slow_down" => interval += DEFAULT_POLL_INTERVAL,
                    "expired_token" => return Err(late()),
                    _ => return Err(refused.into_error()),
                },
            }
        }
    }
}

impl fmt::Debug for DeviceLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLogin")
            .field("url", &self.code.verification_uri)
            .finish_non_exhaustive()
    }
}
