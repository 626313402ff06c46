//! `attache auth login`, `status` and `logout`: OAuth tokens, stored by card host and security scheme.

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

/// OAuth flow of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LoginFlow {
    /// Device code: a person logs in on another device
    Device,
    /// Client credentials: a program authenticates with its secret
    Client,
    /// Authorization code: a person logs in with a browser on this machine
    Code,
}

/// A stored login without its tokens.
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

    fn add_to(&self, page: &mut TextPage) {
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

/// Gets a token by a security scheme of the card, and stores it for the host of the card.
pub(crate) async fn login(args: AuthLoginArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let store = token_store(settings)?;
    let found = reference::resolve(settings).await?;
    let (name, scheme) = select_scheme(&found, args.scheme.as_deref())?;
    let secret = client_secret_of(&args)?;
    secret.iter().for_each(|secret| out.redact(secret));
    let endpoints = SchemeEndpoints::from_scheme(scheme, settings).await?;
    let flow = args
        .flow
        .unwrap_or_else(|| endpoints.flow(secret.is_some()));
    let client_id = args
        .client_id
        .or_else(|| std::env::var("ATTACHE_CLIENT_ID").ok())
        .ok_or_else(|| {
            CliError::usage("no client id is given").hint("set --client-id or ATTACHE_CLIENT_ID")
        })?;
    let scopes = if !args.scope.is_empty() {
        args.scope
    } else if matches!(scheme, SecurityScheme::OpenIdConnect(_)) && flow != LoginFlow::Client {
        // OpenID Connect requires this scope.
        vec!["openid".to_owned()]
    } else {
        endpoints.scopes
    };
    let token_url = endpoints.server.token_url().to_owned();
    if secret.is_some() && flow != LoginFlow::Device {
        check_secret_target(&found, &token_url, settings)?;
    }
    let request = LoginRequest {
        server: endpoints.server,
        client_id: &client_id,
        scopes: &scopes,
    };
    let token = get_token(flow, request, secret, out).await?;
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
    store.save(login.clone())?;
    out.note(&format!("stored in {}", store.path().display()));
    let shown = LoginView::new(&login);
    if out.is_json() {
        return out.print_json(&shown);
    }
    let mut page = TextPage::new(false);
    shown.add_to(&mut page);
    out.print_page(&page)
}

/// The client secret: from the file of the flag, else from the environment.
fn client_secret_of(args: &AuthLoginArgs) -> CliResult<Option<Secret>> {
    let Some(file) = &args.client_secret_file else {
        return Ok(client_secret());
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        CliError::usage(format!("--client-secret-file {}: {error}", file.display()))
    })?;
    Ok(Some(Secret::from(text.trim())))
}

/// Parameters of a token request.
struct LoginRequest<'a> {
    server: AuthorizationServer,
    client_id: &'a str,
    scopes: &'a [String],
}

/// Gets a token by an OAuth flow.
async fn get_token(
    flow: LoginFlow,
    request: LoginRequest<'_>,
    secret: Option<Secret>,
    out: &mut Output,
) -> CliResult<Token> {
    match flow {
        LoginFlow::Device => login_by_device_code(request, out).await,
        LoginFlow::Code => browser::login(request, secret, out).await,
        LoginFlow::Client => {
            let secret = secret.ok_or_else(|| {
                CliError::usage("the client credentials flow needs a client secret")
                    .hint("set ATTACHE_CLIENT_SECRET, or give a file: --client-secret-file")
            })?;
            login_with_secret(request, secret).await
        }
    }
}

async fn login_by_device_code(request: LoginRequest<'_>, out: &mut Output) -> CliResult<Token> {
    let login = DeviceLogin::start(request.server, request.client_id, request.scopes)
        .await
        .map_err(|error| login_error(&error))?;
    out.note(&format!(
        "open {} and enter {}",
        login.url(),
        login.user_code()
    ));
    if let Some(url) = login.complete_url() {
        out.note(&format!("or open {url}"));
    }
    login.wait().await.map_err(|error| login_error(&error))
}

async fn login_with_secret(request: LoginRequest<'_>, secret: Secret) -> CliResult<Token> {
    let oauth = OAuth::client_credentials(request.server, request.client_id, secret)
        .scopes(request.scopes.to_vec());
    oauth
        .auth_params(None, &[])
        .await
        .map_err(|error| login_error(&error))?;
    oauth
        .token()
        .await
        .ok_or_else(|| CliError::auth_failed("the authorization server issued no token"))
}

/// Converts an error of an authorization server.
fn login_error(error: &Error) -> CliError {
    CliError::from_error(error, attache::model::Binding::HttpJson, true)
}

/// Prints the stored logins, of one host if an agent is given.
pub(crate) async fn status(settings: &Settings, out: &mut Output) -> CliResult {
    let host = reference::agent_host(settings).await?;
    let logins = token_store(settings)?.read()?;
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
    shown.iter().for_each(|one| one.add_to(&mut page));
    if shown.is_empty() {
        page.add_field("Logins", "none");
    }
    out.print_page(&page)
}

/// Deletes the stored logins of an agent, or all of them.
pub(crate) async fn logout(
    args: &AuthLogoutArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let host = reference::agent_host(settings).await?.filter(|_| !args.all);
    if host.is_none() && !args.all {
        return Err(
            CliError::usage("no agent is given").hint("give one: -a <host, url or file>, or --all")
        );
    }
    let removed = token_store(settings)?.remove(|login| {
        host.as_ref().is_none_or(|host| *host == login.host)
            && args
                .scheme
                .as_ref()
                .is_none_or(|scheme| *scheme == login.scheme)
    })?;
    let shown: Vec<_> = removed.iter().map(LoginView::new).collect();
    if out.is_json() {
        return out.print_json(
            &serde_json::json!({"schema": "attache.auth-logout/1", "forgotten": shown}),
        );
    }
    let mut page = TextPage::new(false);
    page.add_field("Forgotten", &shown.len().to_string());
    out.print_page(&page)
}

fn token_store(settings: &Settings) -> CliResult<TokenStore> {
    TokenStore::from_settings(settings).ok_or_else(|| {
        CliError::usage("no directory for tokens: neither HOME nor XDG_CONFIG_HOME is set")
    })
}
