//! `attache auth login`, `status` and `logout`.

mod browser;
mod ways;

use attache::model::{Secret, SecurityScheme, Timestamp};
use attache::{Credentials, DeviceLogin, Endpoints, Error, OAuth, Token};
use serde::Serialize;

use crate::args::{AuthLogin, AuthLogout};
use crate::failure::{Failure, Outcome};
use crate::logins::{Login, Logins, client_secret};
use crate::output::{Output, Page};
use crate::reference::{self, credentials_host};
use crate::settings::Settings;
use ways::{Ways, scheme_of, trusted};

/// How a token is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Flow {
    /// A person logs in elsewhere, with a code
    Device,
    /// A program logs in with its own secret
    Client,
    /// A person logs in in a browser on this machine
    Code,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    scheme: &'a str,
    host: &'a str,
    scopes: &'a [String],
    expires_at: Option<Timestamp>,
}

impl<'a> Shown<'a> {
    fn of(login: &'a Login) -> Self {
        Self {
            scheme: &login.scheme,
            host: &login.host,
            scopes: &login.scopes,
            expires_at: login.expires_at,
        }
    }

    fn fields(&self, page: &mut Page) {
        page.field("Scheme", self.scheme);
        page.field("Host", self.host);
        page.field("Scopes", &self.scopes.join(" "));
        page.field(
            "Expires",
            &self
                .expires_at
                .map_or("when it is revoked".to_owned(), |at| at.to_string()),
        );
    }
}

/// Gets a token as the card says, and keeps it for the host of the card.
pub(crate) async fn login(args: AuthLogin, settings: &Settings, out: &mut Output) -> Outcome {
    let logins = store(settings)?;
    let found = reference::find(settings).await?;
    let (name, scheme) = scheme_of(&found, args.scheme.as_deref())?;
    let secret = secret(&args)?;
    secret.iter().for_each(|secret| out.mask(secret));
    let ways = Ways::of(scheme, settings).await?;
    let flow = args.flow.unwrap_or_else(|| ways.flow(secret.is_some()));
    let client_id = args
        .client_id
        .or_else(|| std::env::var("ATTACHE_CLIENT_ID").ok())
        .ok_or_else(|| {
            Failure::usage("no client is named")
                .hint("say as which client: --client-id, or ATTACHE_CLIENT_ID")
        })?;
    let scopes = match (args.scope.is_empty(), scheme, flow) {
        (false, ..) => args.scope,
        // Without it a login of OpenID Connect is none.
        (true, SecurityScheme::OpenIdConnect(_), Flow::Device | Flow::Code) => {
            vec!["openid".to_owned()]
        }
        (true, ..) => ways.scopes,
    };
    let token_url = ways.endpoints.token_url().to_owned();
    if secret.is_some() && flow != Flow::Device {
        trusted(&found, &token_url, settings)?;
    }
    let token = match (flow, secret) {
        (Flow::Device, _) => by_device(ways.endpoints, &client_id, &scopes, out).await?,
        (Flow::Code, secret) => {
            browser::login(ways.endpoints, &client_id, secret, &scopes, out).await?
        }
        (Flow::Client, Some(secret)) => {
            by_secret(ways.endpoints, &client_id, secret, &scopes).await?
        }
        (Flow::Client, None) => {
            return Err(Failure::usage("the client has no secret")
                .hint("set ATTACHE_CLIENT_SECRET, or name a file: --client-secret-file"));
        }
    };
    out.mask(&token.access);
    token.refresh.iter().for_each(|refresh| out.mask(refresh));
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
    logins.keep(login.clone())?;
    out.note(&format!("kept in {}", logins.path().display()));
    let shown = Shown::of(&login);
    if out.is_json() {
        return out.json(&shown);
    }
    let mut page = Page::new(false);
    shown.fields(&mut page);
    out.page(&page)
}

fn secret(args: &AuthLogin) -> Outcome<Option<Secret>> {
    let Some(file) = &args.client_secret_file else {
        return Ok(client_secret());
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("--client-secret-file {}: {error}", file.display()))
    })?;
    Ok(Some(Secret::from(text.trim())))
}

async fn by_device(
    endpoints: Endpoints,
    client_id: &str,
    scopes: &[String],
    out: &mut Output,
) -> Outcome<Token> {
    let login = DeviceLogin::begin(endpoints, client_id, scopes)
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

async fn by_secret(
    endpoints: Endpoints,
    client_id: &str,
    secret: Secret,
    scopes: &[String],
) -> Outcome<Token> {
    let oauth = OAuth::client_credentials(endpoints, client_id, secret).scopes(scopes.to_vec());
    oauth
        .show(None, &[])
        .await
        .map_err(|error| refused(&error))?;
    oauth
        .token()
        .await
        .ok_or_else(|| Failure::auth_failed("no token was given out"))
}

fn refused(error: &Error) -> Failure {
    Failure::of(error, attache::model::Binding::HttpJson, true)
}

/// What there is, without the tokens.
pub(crate) async fn status(settings: &Settings, out: &mut Output) -> Outcome {
    let host = reference::host_of(settings).await?;
    let logins = store(settings)?.read()?;
    let shown: Vec<_> = logins
        .iter()
        .filter(|login| host.as_ref().is_none_or(|host| *host == login.host))
        .map(Shown::of)
        .collect();
    if out.is_json() {
        return out.json(&serde_json::json!({"schema": "attache.auth-status/1", "logins": shown}));
    }
    let mut page = Page::new(false);
    shown.iter().for_each(|one| one.fields(&mut page));
    if shown.is_empty() {
        page.field("Logins", "none");
    }
    out.page(&page)
}

/// Forgets the tokens for an agent, or all of them.
pub(crate) async fn logout(args: &AuthLogout, settings: &Settings, out: &mut Output) -> Outcome {
    let host = reference::host_of(settings).await?.filter(|_| !args.all);
    if host.is_none() && !args.all {
        return Err(
            Failure::usage("no agent is named").hint("say which: -a <host, url or file>, or --all")
        );
    }
    let gone = store(settings)?.forget(|login| {
        host.as_ref().is_none_or(|host| *host == login.host)
            && args
                .scheme
                .as_ref()
                .is_none_or(|scheme| *scheme == login.scheme)
    })?;
    let shown: Vec<_> = gone.iter().map(Shown::of).collect();
    if out.is_json() {
        return out
            .json(&serde_json::json!({"schema": "attache.auth-logout/1", "forgotten": shown}));
    }
    let mut page = Page::new(false);
    page.field("Forgotten", &shown.len().to_string());
    out.page(&page)
}

fn store(settings: &Settings) -> Outcome<Logins> {
    Logins::of(settings).ok_or_else(|| {
        Failure::usage("there is no place to keep logins: neither HOME nor XDG_CONFIG_HOME is set")
    })
}
