//! OAuth 2: tokens that are fetched, and fetched again.

use std::fmt;
use std::time::Duration;

use ::http::Method;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::endpoints::{Asker, Endpoints};
use super::plain::takes_bearer;
use super::{Credentials, Shown, unauthenticated};
use crate::model::{Error, Result, Secret, SecurityScheme};

/// A token is renewed this long before it ends: it has to get there.
const EARLY: Duration = Duration::from_secs(30);
/// How often a device asks unless told otherwise, and by how much it slows down when asked to (RFC 8628).
const PACE: Duration = Duration::from_secs(5);
/// Nobody is asked faster, whatever they say.
const MIN_PACE: Duration = Duration::from_millis(200);
/// Nobody who logs in is waited for as long as this, whatever the server says.
const MAX_PACE: Duration = Duration::from_secs(3600);

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
    endpoints: Endpoints,
    asker: Asker,
    scopes: Vec<String>,
    /// Whether a token can be had by the client's own credentials.
    by_itself: bool,
    held: Mutex<Option<Held>>,
}

struct Held {
    token: Token,
    until: Option<Instant>,
    scopes: Vec<String>,
    /// It has ended, or was refused.
    over: bool,
}

impl OAuth {
    /// By the client's own credentials.
    pub fn client_credentials(
        endpoints: Endpoints,
        id: impl Into<String>,
        secret: impl Into<Secret>,
    ) -> Self {
        let asker = Asker {
            id: id.into(),
            secret: Some(secret.into()),
        };
        Self {
            endpoints,
            asker,
            scopes: Vec::new(),
            by_itself: true,
            held: Mutex::new(None),
        }
    }

    /// By a token that was given out before, to a client of this id; renewed if it came with the means.
    pub fn with_token(endpoints: Endpoints, id: impl Into<String>, token: Token) -> Self {
        let asker = Asker {
            id: id.into(),
            secret: None,
        };
        let held = Mutex::new(Some(Held::new(token, Vec::new())));
        Self {
            endpoints,
            asker,
            scopes: Vec::new(),
            by_itself: false,
            held,
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
        self.held
            .lock()
            .await
            .as_ref()
            .map(|held| held.token.clone())
    }

    /// A token that holds, fetched if need be; one at a time fetches, and the others wait for it.
    async fn fresh(&self, wanted: &[String]) -> Result<Secret> {
        let mut held = self.held.lock().await;
        let scopes: Vec<String> = self.scopes.iter().chain(wanted).cloned().collect();
        if let Some(held) = held
            .as_ref()
            .filter(|held| held.holds(&scopes, self.by_itself))
        {
            return Ok(held.token.access.clone());
        }
        let refresh = held.as_ref().and_then(|held| held.token.refresh.clone());
        let token = match refresh {
            Some(refresh) => match (self.renew(&refresh).await, self.by_itself) {
                (Err(_), true) => self.fetch(&scopes).await?,
                (renewed, _) => renewed?,
            },
            None if self.by_itself => self.fetch(&scopes).await?,
            None => {
                return Err(unauthenticated(
                    "the token has ended and cannot be renewed; log in again",
                ));
            }
        };
        let access = token.access.clone();
        *held = Some(Held::new(token, scopes));
        Ok(access)
    }

    async fn fetch(&self, scopes: &[String]) -> Result<Token> {
        let scopes = scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials")];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        self.ask(&form).await
    }

    async fn renew(&self, refresh: &Secret) -> Result<Token> {
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose()),
        ];
        if self.asker.secret.is_none() {
            form.push(("client_id", &self.asker.id));
        }
        let token = self.ask(&form).await?;
        // Who gives no new one lets the old one stand.
        Ok(Token {
            refresh: token.refresh.or_else(|| Some(refresh.clone())),
            ..token
        })
    }

    async fn ask(&self, form: &[(&str, &str)]) -> Result<Token> {
        let (endpoints, asker) = (&self.endpoints, Some(&self.asker));
        let asked = endpoints
            .ask::<Token>(Method::POST, &endpoints.token, asker, form)
            .await?;
        asked.map_err(super::endpoints::Refused::error)
    }
}

impl Held {
    fn new(token: Token, scopes: Vec<String>) -> Self {
        let lasts = token.expires_in.map(Duration::from_secs);
        let until = lasts.and_then(|lasts| Instant::now().checked_add(lasts.saturating_sub(EARLY)));
        Self {
            token,
            until,
            scopes,
            over: false,
        }
    }

    fn holds(&self, scopes: &[String], widens: bool) -> bool {
        let enough = !widens || scopes.iter().all(|scope| self.scopes.contains(scope));
        !self.over && enough && self.until.is_none_or(|until| until > Instant::now())
    }
}

#[async_trait]
impl Credentials for OAuth {
    fn name(&self) -> &str {
        "OAuth 2"
    }

    fn fit(&self, scheme: &SecurityScheme) -> bool {
        takes_bearer(scheme)
    }

    async fn show(&self, _: Option<&SecurityScheme>, scopes: &[String]) -> Result<Vec<Shown>> {
        Ok(vec![Shown::authorization(
            "Bearer",
            &self.fresh(scopes).await?,
        )])
    }

    async fn refused(&self) -> bool {
        let mut held = self.held.lock().await;
        let Some(held) = held.as_mut() else {
            return false;
        };
        held.over = true;
        self.by_itself || held.token.refresh.is_some()
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth")
            .field("client", &self.asker.id)
            .finish_non_exhaustive()
    }
}

/// A login that a person finishes on another device (RFC 8628): show them where to go and what to type, then wait.
pub struct DeviceLogin {
    endpoints: Endpoints,
    asker: Asker,
    code: Code,
}

#[derive(Deserialize)]
struct Code {
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
    pub async fn begin(
        endpoints: Endpoints,
        id: impl Into<String>,
        scopes: &[String],
    ) -> Result<Self> {
        let asker = Asker {
            id: id.into(),
            secret: None,
        };
        let scopes = scopes.join(" ");
        let url = endpoints.device.clone();
        let url = url
            .ok_or_else(|| Error::invalid("device", "must be the url where codes are given out"))?;
        let mut form = vec![("client_id", asker.id.as_str())];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        let asked = endpoints.ask(Method::POST, &url, None, &form).await?;
        let code = asked.map_err(super::endpoints::Refused::error)?;
        Ok(Self {
            endpoints,
            asker,
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
        let mut pace = self
            .code
            .interval
            .map_or(PACE, Duration::from_secs)
            .clamp(MIN_PACE, MAX_PACE);
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", self.code.device_code.expose()),
            ("client_id", &self.asker.id),
        ];
        loop {
            if Instant::now() + pace > deadline {
                return Err(late());
            }
            sleep(pace).await;
            match self
                .endpoints
                .ask(Method::POST, &self.endpoints.token, None, &form)
                .await?
            {
                Ok(token) => return Ok(token),
                Err(refused) => match refused.code.as_str() {
                    "authorization_pending" => {}
                    "slow_down" => pace += PACE,
                    "expired_token" => return Err(late()),
                    _ => return Err(refused.error()),
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
