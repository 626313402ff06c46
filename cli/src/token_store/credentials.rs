//! Stored tokens as credentials of the client. Expired tokens are renewed by one process at a time, under a file lock.

use std::sync::Mutex;

use async_trait::async_trait;
use attache::model::{Secret, SecurityScheme};
use attache::{
    AuthParam, AuthorizationServer, CredentialProvider, Error, ErrorKind, OAuth, Result,
};

use super::{Login, TokenStore};
use crate::error::CliResult;
use crate::redactor::Redactor;
use crate::settings::Settings;
use crate::sync;
use crate::wire_log;

/// Environment variable of the OAuth client secret.
pub(crate) const CLIENT_SECRET: &str = "ATTACHE_CLIENT_SECRET";

/// Lifetime below which a token is renewed before use, in seconds.
const RENEW_BELOW_SECONDS: u64 = 30;

/// Credentials of a stored login.
pub(crate) struct StoredToken {
    store: TokenStore,
    host: String,
    scheme: String,
    server: AuthorizationServer,
    redactor: Redactor,
    /// The last token that the agent rejected.
    rejected: Mutex<Option<Secret>>,
}

impl StoredToken {
    pub(crate) fn new(store: TokenStore, login: &Login, settings: &Settings) -> CliResult<Self> {
        let tls = crate::tls::client_tls(settings)?;
        let server = AuthorizationServer::new(&login.token_url).tls(&tls);
        Ok(Self {
            store,
            host: login.host.clone(),
            scheme: login.scheme.clone(),
            server: wire_log::add_debug_log_to_authorization_server(server, settings),
            redactor: settings.redactor.clone(),
            rejected: Mutex::new(None),
        })
    }

    /// Reads the login from the store, and redacts its tokens.
    fn login(&self) -> Result<Login> {
        let found = self
            .store
            .find(&self.host, &self.scheme)
            .map_err(|error| unusable(error.message))?;
        let login = found.ok_or_else(|| unusable("the stored login was removed"))?;
        self.redact(&login);
        Ok(login)
    }

    /// Redacts the tokens of a login.
    fn redact(&self, login: &Login) {
        self.redactor.add(&login.access_token);
        login
            .refresh_token
            .iter()
            .for_each(|token| self.redactor.add(token));
    }

    /// The way to renew the token: its refresh token, else client credentials.
    fn oauth(&self, login: &Login) -> OAuth {
        let server = self.server.clone();
        match client_secret().filter(|_| login.refresh_token.is_none()) {
            Some(secret) if !self.is_usable(login) => {
                OAuth::client_credentials(server, &login.client_id, secret)
                    .scopes(login.scopes.clone())
            }
            _ => OAuth::with_token(server, &login.client_id, login.token()),
        }
    }

    fn is_rejected(&self, login: &Login) -> bool {
        sync::lock(&self.rejected).as_ref() == Some(&login.access_token)
    }

    /// Whether the token is neither rejected nor about to expire.
    fn is_usable(&self, login: &Login) -> bool {
        let expires_in = login.token().expires_in;
        expires_in.is_none_or(|seconds| seconds >= RENEW_BELOW_SECONDS) && !self.is_rejected(login)
    }
}

#[async_trait]
impl CredentialProvider for StoredToken {
    fn name(&self) -> &str {
        "the token of attache auth login"
    }

    fn supports(&self, scheme: &SecurityScheme) -> bool {
        match scheme {
            SecurityScheme::HttpAuth(http) => http.scheme.eq_ignore_ascii_case("bearer"),
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => true,
            SecurityScheme::ApiKey(_) | SecurityScheme::MutualTls(_) => false,
        }
    }

    async fn auth_params(
        &self,
        scheme: Option<&SecurityScheme>,
        _: &[String],
    ) -> Result<Vec<AuthParam>> {
        let login = self.login()?;
        if self.is_usable(&login) {
            return Ok(vec![AuthParam::authorization(
                "Bearer",
                &login.access_token,
            )]);
        }
        let store = self.store.clone();
        let lock = tokio::task::spawn_blocking(move || store.lock())
            .await
            .map_err(Error::internal)?;
        let _lock = lock.map_err(|error| unusable(error.message))?;
        // Another process may have renewed it before we got the lock.
        let mut login = self.login()?;
        let oauth = self.oauth(&login);
        if self.is_rejected(&login) {
            oauth.on_rejected().await;
        }
        let params = oauth.auth_params(scheme, &[]).await?;
        if let Some(token) = oauth
            .token()
            .await
            .filter(|token| token.access != login.access_token)
        {
            login.renew(&token);
            self.redact(&login);
            self.store
                .save_locked(login)
                .map_err(|error| unusable(error.message))?;
        }
        Ok(params)
    }

    async fn on_rejected(&self) -> bool {
        let Ok(login) = self.login() else {
            return false;
        };
        let is_renewable = login.refresh_token.is_some() || client_secret().is_some();
        *sync::lock(&self.rejected) = Some(login.access_token);
        is_renewable
    }
}

/// The OAuth client secret of the environment.
pub(crate) fn client_secret() -> Option<Secret> {
    std::env::var(CLIENT_SECRET)
        .ok()
        .filter(|secret| !secret.is_empty())
        .map(Secret::from)
}

fn unusable(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unauthenticated)
        .with_message(format!("{what}; log in with attache auth login"))
}
