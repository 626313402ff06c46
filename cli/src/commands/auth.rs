//! `attache auth login`, `status` and `logout`.

mod browser;
mod scheme;

use attache::model::{Secret, SecurityScheme, Timestamp};
use attache::{AuthorizationServer, CredentialProvider, DeviceLogin, Error, OAuth, Token};
use serde::Serialize;

use crate::args::{AuthLoginArgs, AuthLogoutArgs};
use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::reference::{self, credentials_host};
use crate::settings::Settings;
use crate::token_store::{Login, TokenStore, client_secret};
use scheme::{SchemeEndpoints, check_secret_target, select_scheme};

/// How a token is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LoginFlow {
    /// A person logs in elsewhere, with a code
    Device,
    /// A program logs in with its own secret
    Client,
    /// A person logs in in a browser on this machine
    Code,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoginView<'a> {
    scheme: &'a str,
    host: &'a str,
    scopes: &'a [String],
    expires_at: Option<Timestamp>,
}

impl<'a> LoginView<'a> {
    fn new(login: &'a Login) -> Self {
        Self {
            scheme: &login.scheme,
            host: &login.host,
            scopes: &login.scopes,
            expires_at: login.expires_at,
        }
    }

    fn fields(&self, page: &mut TextPage) {
        page.add_field("Scheme", self.scheme);
        page.add_field("Host", self.host);
        page.add_field("Scopes", &self.scopes.join(" "));
        page.add_field(
            "Expires",
            &self
                .expires_at
                .map_or("when it is revoked".to_owned(), |at| at.to_string()),
        );
    }
}

/// Gets a token as the card says, and keeps it for the host of the card.
pub(crate) async fn login(args: AuthLoginArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let logins = store(settings)?;
    let found = reference::resolve(settings).await?;
    let (name, scheme) = select_scheme(&found, args.scheme.as_deref())?;
    let secret = secret(&args)?;
    secret.iter().for_each(|secret| out.redact(secret));
    let endpoints = SchemeEndpoints::from_scheme(scheme, settings).await?;
    let flow = args
        .flow
        .unwrap_or_else(|| endpoints.flow(secret.is_some()));
    let client_id = args
        .client_id
        .or_else(|| std::env::var("ATTACHE_CLIENT_ID").ok())
        .ok_or_else(|| {
            CliError::usage("no client is named")
                .hint("say as which client: --client-id, or ATTACHE_CLIENT_ID")
        })?;
    let scopes = match (args.scope.is_empty(), scheme, flow) {
        (false, ..) => args.scope,
        // Without it a login of OpenID Connect is none.
        (true, SecurityScheme::OpenIdConnect(_), LoginFlow::Device | LoginFlow::Code) => {
            vec!["openid".to_owned()]
        }
        (true, ..) => endpoints.scopes,
    };
    let token_url = endpoints.endpoints.token_url().to_owned();
    if secret.is_some() && flow != LoginFlow::Device {
        check_secret_target(&found, &token_url, settings)?;
    }
    let token = match (flow, secret) {
        (LoginFlow::Device, _) => {
            login_by_device_code(endpoints.endpoints, &client_id, &scopes, out).await?
        }
        (LoginFlow::Code, secret) => {
            browser::login(endpoints.endpoints, &client_id, secret, &scopes, out).await?
        }
        (LoginFlow::Client, Some(secret)) => {
            login_with_secret(endpoints.endpoints, &client_id, secret, &scopes).await?
        }
        (LoginFlow::Client, None) => {
            return Err(CliError::usage("the client has no secret")
                .hint("set ATTACHE_CLIENT_SECRET, or name a file: --client-secret-file"));
        }
    };
    out.redact(&token.access);
    token.refresh.iter().for_each(|refresh| out.redact(refresh));
    let mut login = Login {
        host: credentials_host(&found),
        scheme: name.to_owned(),
        scopes,
        client_id,
        token_url,
        access_token: token.access.clone(),
        refresh_token: None,
        expires_at: None,
    };
    login.renew(&token);
    logins.save(login.clone())?;
    out.note(&format!("kept in {}", logins.path().display()));
    let shown = LoginView::new(&login);
    if out.is_json() {
        return out.print_json(&shown);
    }
    let mut page = TextPage::new(false);
    shown.fields(&mut page);
    out.print_page(&page)
}

fn secret(args: &AuthLoginArgs) -> CliResult<Option<Secret>> {
    let Some(file) = &args.client_secret_file else {
        return Ok(client_secret());
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        CliError::usage(format!("--client-secret-file {}: {error}", file.display()))
    })?;
    Ok(Some(Secret::from(text.trim())))
}

async fn login_by_device_code(
    endpoints: AuthorizationServer,
    client_id: &str,
    scopes: &[String],
    out: &mut Output,
) -> CliResult<Token> {
    let login = DeviceLogin::start(endpoints, client_id, scopes)
        .await
        .map_err(|error| refused(&error))?;
    out.note(&format!(
        "open {} and enter {}",
        login.url(),
        login.user_code()
    ));
    if let Some(url) = login.complete_url() {
        out.note(&format!("or open {url}"));
    }
    login.wait().await.map_err(|error| refused(&error))
}

async fn login_with_secret(
    endpoints: AuthorizationServer,
    client_id: &str,
    secret: Secret,
    scopes: &[String],
) -> CliResult<Token> {
    let oauth = OAuth::client_credentials(endpoints, client_id, secret).scopes(scopes.to_vec());
    oauth
        .auth_params(None, &[])
        .await
        .map_err(|error| refused(&error))?;
    oauth
        .token()
        .await
        .ok_or_else(|| CliError::auth_failed("no token was given out"))
}

fn refused(error: &Error) -> CliError {
    CliError::from_error(error, attache::model::Binding::HttpJson, true)
}

/// What there is, without the tokens.
pub(crate) async fn status(settings: &Settings, out: &mut Output) -> CliResult {
    let host = reference::agent_host(settings).await?;
    let logins = store(settings)?.read()?;
    let shown: Vec<_> = logins
        .iter()
        .filter(|login| host.as_ref().is_none_or(|host| *host == login.host))
        .map(LoginView::new)
        .collect();
    if out.is_json() {
        return out
            .print_json(&serde_json::json!({"schema": "attache.auth-status/1", "logins": shown}));
    }
    let mut page = TextPage::new(false);
    shown.iter().for_each(|one| one.fields(&mut page));
    if shown.is_empty() {
        page.add_field("Logins", "none");
    }
    out.print_page(&page)
}

/// Forgets the tokens for an agent, or all of them.
pub(crate) async fn logout(
    args: &AuthLogoutArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let host = reference::agent_host(settings).await?.filter(|_| !args.all);
    if host.is_none() && !args.all {
        return Err(CliError::usage("no agent is named")
            .hint("say which: -a <host, url or file>, or --all"));
    }
    let gone = store(settings)?.remove(|login| {
        host.as_ref().is_none_or(|host| *host == login.host)
            && args
                .scheme
                .as_ref()
                .is_none_or(|scheme| *scheme == login.scheme)
    })?;
    let shown: Vec<_> = gone.iter().map(LoginView::new).collect();
    if out.is_json() {
        return out.print_json(
            &serde_json::json!({"schema": "attache.auth-logout/1", "forgotten": shown}),
        );
    }
    let mut page = TextPage::new(false);
    page.add_field("Forgotten", &shown.len().to_string());
    out.print_page(&page)
}

fn store(settings: &Settings) -> CliResult<TokenStore> {
    TokenStore::from_settings(settings).ok_or_else(|| {
        CliError::usage("there is no place to keep logins: neither HOME nor XDG_CONFIG_HOME is set")
    })
}
