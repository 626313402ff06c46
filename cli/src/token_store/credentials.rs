//! The token of a login as credentials: renewed when it ends, by one process at a time.

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
use crate::wire_log;

/// The variable that has the secret of a client.
pub(crate) const CLIENT_SECRET: &str = "ATTACHE_CLIENT_SECRET";

pub(crate) struct StoredToken {
    logins: TokenStore,
    host: String,
    scheme: String,
    /// Where its tokens are renewed.
    endpoints: AuthorizationServer,
    redactor: Redactor,
    /// A token that the agent did not take.
    refused: Mutex<Option<Secret>>,
}

impl StoredToken {
    pub(crate) fn new(logins: TokenStore, login: &Login, settings: &Settings) -> CliResult<Self> {
        let endpoints =
            AuthorizationServer::new(&login.token_url).tls(&crate::tls::client_tls(settings)?);
        let endpoints = wire_log::watch_endpoints(endpoints, settings);
        let (host, scheme, redactor) = (
            login.host.clone(),
            login.scheme.clone(),
            settings.redactor.clone(),
        );
        Ok(Self {
            logins,
            host,
            scheme,
            endpoints,
            redactor,
            refused: Mutex::new(None),
        })
    }

    fn login(&self) -> Result<Login> {
        let found = self
            .logins
            .find(&self.host, &self.scheme)
            .map_err(|failure| unusable(failure.message))?;
        let login = found.ok_or_else(|| unusable("the login is gone"))?;
        self.hide(&login);
        Ok(login)
    }

    /// Whatever is renewed on the way must not show either.
    fn hide(&self, login: &Login) {
        self.redactor.add(&login.access_token);
        login
            .refresh_token
            .iter()
            .for_each(|token| self.redactor.add(token));
    }

    /// How its tokens are renewed: by what came with them, or by the client's own secret.
    fn oauth(&self, login: &Login) -> OAuth {
        let endpoints = self.endpoints.clone();
        match client_secret().filter(|_| login.refresh_token.is_none()) {
            Some(secret)
                if login.token().expires_in.is_some_and(|left| left < 30)
                    || self.is_refused(login) =>
            {
                OAuth::client_credentials(endpoints, &login.client_id, secret)
                    .scopes(login.scopes.clone())
            }
            _ => OAuth::with_token(endpoints, &login.client_id, login.token()),
        }
    }

    fn is_refused(&self, login: &Login) -> bool {
        let refused = self
            .refused
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        refused.as_ref() == Some(&login.access_token)
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
        let holds =
            login.token().expires_in.is_none_or(|left| left >= 30) && !self.is_refused(&login);
        if holds {
            return Ok(vec![AuthParam::authorization(
                "Bearer",
                &login.access_token,
            )]);
        }
        let logins = self.logins.clone();
        let lock = tokio::task::spawn_blocking(move || logins.lock())
            .await
            .map_err(Error::internal)?;
        let _lock = lock.map_err(|failure| unusable(failure.message))?;
        // Another process may have renewed it meanwhile.
        let mut login = self.login()?;
        let oauth = self.oauth(&login);
        if self.is_refused(&login) {
            oauth.on_rejected().await;
        }
        let shown = oauth.auth_params(scheme, &[]).await?;
        if let Some(token) = oauth
            .token()
            .await
            .filter(|token| token.access != login.access_token)
        {
            login.renew(&token);
            self.hide(&login);
            self.logins
                .save_locked(login)
                .map_err(|failure| unusable(failure.message))?;
        }
        Ok(shown)
    }

    async fn on_rejected(&self) -> bool {
        let Ok(login) = self.login() else {
            return false;
        };
        let renewable = login.refresh_token.is_some() || client_secret().is_some();
        *self
            .refused
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(login.access_token);
        renewable
    }
}

/// The secret of the client that asks for tokens, if it has one.
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
