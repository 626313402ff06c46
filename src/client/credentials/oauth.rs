//! OAuth 2 credentials: obtains access tokens, refreshes them, and runs the device authorization flow (RFC 8628).

use std::fmt;
use std::time::Duration;

use ::http::Method;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::authorization_server::{AuthorizationServer, OAuthClient, OAuthError};
use super::fixed::accepts_bearer;
use super::{AuthParam, CredentialProvider, unauthenticated};
use crate::model::{Error, Result, Secret, SecurityScheme};

/// Time before expiry at which a token is refreshed, so that it is still valid when it arrives.
const REFRESH_MARGIN: Duration = Duration::from_secs(30);
/// Default poll interval of the device flow, and the increment for `slow_down` (RFC 8628 §3.5).
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum poll interval of the device flow.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum initial poll interval of the device flow.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3600);

/// Token response of an authorization server. It serializes with its secrets, so that it can be stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Access token, sent with requests.
    #[serde(rename = "access_token")]
    pub access: Secret,
    /// Refresh token, exchanged for the next access token.
    #[serde(
        rename = "refresh_token",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub refresh: Option<Secret>,
    /// Lifetime in seconds, from when it was issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
}

/// Access tokens of OAuth 2 or OpenID Connect as credentials: obtained at the first request, refreshed before they expire
/// and after a rejection.
pub struct OAuth {
    server: AuthorizationServer,
    client: OAuthClient,
    scopes: Vec<String>,
    /// Whether a new token can be requested with the client credentials grant.
    has_client_credentials: bool,
    cached: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    token: Token,
    refresh_at: Option<Instant>,
    scopes: Vec<String>,
    /// Whether a peer has rejected the token.
    is_revoked: bool,
}

impl OAuth {
    /// Uses the client credentials grant.
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

    /// Uses a token that was issued to this client id before. It is refreshed if it has a refresh token.
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

    /// Requests these scopes in addition to those of the card.
    #[must_use]
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the current token, for storage.
    pub async fn token(&self) -> Option<Token> {
        self.cached
            .lock()
            .await
            .as_ref()
            .map(|cached| cached.token.clone())
    }

    /// Returns a valid access token, and obtains one if necessary. Concurrent callers wait for a single request.
    async fn access_token(&self, required: &[String]) -> Result<Secret> {
        let mut cached = self.cached.lock().await;
        let scopes: Vec<String> = self.scopes.iter().chain(required).cloned().collect();
        if let Some(cached) = cached
            .as_ref()
            .filter(|cached| cached.is_valid_for(&scopes, self.has_client_credentials))
        {
            return Ok(cached.token.access.clone());
        }
        let refresh = cached
            .as_ref()
            .and_then(|cached| cached.token.refresh.clone());
        let token = self.obtain(refresh.as_ref(), &scopes).await?;
        let access = token.access.clone();
        *cached = Some(CachedToken::new(token, scopes));
        Ok(access)
    }

    /// Refreshes the token, or requests a new one with the client's credentials.
    async fn obtain(&self, refresh: Option<&Secret>, scopes: &[String]) -> Result<Token> {
        match refresh {
            Some(refresh) => match self.refresh(refresh).await {
                Err(_) if self.has_client_credentials => self.request_token(scopes).await,
                refreshed => refreshed,
            },
            None if self.has_client_credentials => self.request_token(scopes).await,
            None => Err(unauthenticated(
                "the token has expired and has no refresh token; log in again",
            )),
        }
    }

    async fn request_token(&self, scopes: &[String]) -> Result<Token> {
        let scopes = scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials")];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        self.exchange(&form).await
    }

    async fn refresh(&self, refresh: &Secret) -> Result<Token> {
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose()),
        ];
        if self.client.secret.is_none() {
            form.push(("client_id", &self.client.id));
        }
        let token = self.exchange(&form).await?;
        // A response without a refresh token keeps the old one valid (RFC 6749 §6).
        Ok(Token {
            refresh: token.refresh.or_else(|| Some(refresh.clone())),
            ..token
        })
    }

    async fn exchange(&self, form: &[(&str, &str)]) -> Result<Token> {
        let server = &self.server;
        let response = server
            .exchange::<Token>(Method::POST, &server.token, Some(&self.client), form)
            .await?;
        response.map_err(OAuthError::into_error)
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

    /// Whether the token has not expired and was not rejected. With `needs_scopes` it must also cover `scopes`.
    fn is_valid_for(&self, scopes: &[String], needs_scopes: bool) -> bool {
        let enough = !needs_scopes || scopes.iter().all(|scope| self.scopes.contains(scope));
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

/// Login that a person completes on another device (RFC 8628): show them [`url`](Self::url) and
/// [`user_code`](Self::user_code), then [`wait`](Self::wait).
pub struct DeviceLogin {
    server: AuthorizationServer,
    client: OAuthClient,
    code: DeviceAuthorization,
}

/// Device authorization response (RFC 8628 §3.2).
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
    /// Requests a user code for this client id.
    ///
    /// # Errors
    /// Invalid parameters if `server` has no device authorization endpoint; a connection error; a refusal of the server.
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
        let url = url.ok_or_else(|| {
            Error::invalid(
                "device",
                "must be the URL of the device authorization endpoint",
            )
        })?;
        let mut form = vec![("client_id", client.id.as_str())];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        let response = server.exchange(Method::POST, &url, None, &form).await?;
        let code = response.map_err(OAuthError::into_error)?;
        Ok(Self {
            server,
            client,
            code,
        })
    }

    /// Returns the code that the person enters.
    #[must_use]
    pub fn user_code(&self) -> &str {
        &self.code.user_code
    }

    /// Returns the URL that the person opens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.code.verification_uri
    }

    /// Returns a URL that already contains the code, if the server supports it.
    #[must_use]
    pub fn complete_url(&self) -> Option<&str> {
        self.code.verification_uri_complete.as_deref()
    }

    /// Polls until the person has logged in, at the interval that the server requests.
    ///
    /// # Errors
    /// The person refused, the code expired, or the connection failed.
    pub async fn wait(self) -> Result<Token> {
        let expired = || unauthenticated("the login was not completed before the code expired");
        let deadline = Instant::now()
            .checked_add(Duration::from_secs(self.code.expires_in))
            .ok_or_else(expired)?;
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
                return Err(expired());
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
                    "expired_token" => return Err(expired()),
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
