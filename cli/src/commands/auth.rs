//! `attache auth login`, `status` and `logout`.

use attache::model::{OAuthFlows, Secret, SecurityScheme, Timestamp};
use attache::{ClientTls, Credentials, DeviceLogin, Endpoints, Error, OAuth, Token};
use serde::Serialize;

use crate::args::{AuthLogin, AuthLogout};
use crate::failure::{Failure, Outcome};
use crate::logins::{Login, Logins, client_secret};
use crate::output::{Output, Page};
use crate::reference::{self, Found};
use crate::session::credentials_host;
use crate::settings::Settings;

/// How a token is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Flow {
    /// A person logs in elsewhere, with a code
    Device,
    /// A program logs in with its own secret
    Client,
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
        Self { scheme: &login.scheme, host: &login.host, scopes: &login.scopes, expires_at: login.expires_at }
    }

    fn fields(&self, page: &mut Page) {
        page.field("Scheme", self.scheme);
        page.field("Host", self.host);
        page.field("Scopes", &self.scopes.join(" "));
        page.field("Expires", &self.expires_at.map_or("when it is revoked".to_owned(), |at| at.to_string()));
    }
}

/// Gets a token as the card says, and keeps it for the host of the card.
pub(crate) async fn login(args: AuthLogin, settings: &Settings, out: &mut Output) -> Outcome {
    let logins = store(settings)?;
    let found = reference::find(settings).await?;
    let (name, scheme) = scheme_of(&found, args.scheme.as_deref())?;
    let secret = secret(&args)?;
    secret.iter().for_each(|secret| out.mask(secret));
    let tls = crate::tls::of(settings)?;
    let ways = ways(scheme, &tls).await?;
    let flow = args.flow.unwrap_or(match (ways.flow, &secret) {
        (Some(flow), _) => flow,
        (None, Some(_)) => Flow::Client,
        (None, None) => Flow::Device,
    });
    let client_id = args.client_id.or_else(|| std::env::var("ATTACHE_CLIENT_ID").ok()).ok_or_else(|| {
        Failure::usage("no client is named").hint("say as which client: --client-id, or ATTACHE_CLIENT_ID")
    })?;
    let scopes = match (args.scope.is_empty(), scheme, flow) {
        (false, ..) => args.scope,
        // Without it a login of OpenID Connect is none.
        (true, SecurityScheme::OpenIdConnect(_), Flow::Device) => vec!["openid".to_owned()],
        (true, ..) => ways.scopes,
    };
    let token = match flow {
        Flow::Device => by_device(ways.endpoints, &client_id, &scopes, out).await?,
        Flow::Client => {
            let secret = secret.ok_or_else(|| {
                Failure::usage("the client has no secret")
                    .hint("set ATTACHE_CLIENT_SECRET, or name a file: --client-secret-file")
            })?;
            trusted(&found, &ways.token_url, settings)?;
            by_secret(ways.endpoints, &client_id, secret, &scopes).await?
        }
    };
    out.mask(&token.access);
    let mut login = Login {
        host: credentials_host(&found),
        scheme: name.to_owned(),
        scopes,
        client_id,
        token_url: ways.token_url,
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

/// Where tokens come from, as a scheme says.
struct Ways {
    endpoints: Endpoints,
    token_url: String,
    /// The only flow it names.
    flow: Option<Flow>,
    scopes: Vec<String>,
}

async fn ways(scheme: &SecurityScheme, tls: &ClientTls) -> Outcome<Ways> {
    let described = match scheme {
        SecurityScheme::OpenIdConnect(oidc) => Some(&oidc.open_id_connect_url),
        SecurityScheme::OAuth2(oauth) => {
            let named = match &oauth.flows {
                Some(OAuthFlows::DeviceCode(flow)) => Some((
                    Endpoints::new(&flow.token_url).device(&flow.device_authorization_url),
                    &flow.token_url,
                    Flow::Device,
                    &flow.scopes,
                )),
                Some(OAuthFlows::ClientCredentials(flow)) => {
                    Some((Endpoints::new(&flow.token_url), &flow.token_url, Flow::Client, &flow.scopes))
                }
                _ => None,
            };
            if let Some((endpoints, token_url, flow, scopes)) = named {
                let (token_url, scopes) = (token_url.clone(), scopes.keys().cloned().collect());
                return Ok(Ways { endpoints: endpoints.tls(tls), token_url, flow: Some(flow), scopes });
            }
            oauth.oauth2_metadata_url.as_ref()
        }
        _ => None,
    };
    let url = described.ok_or_else(|| {
        Failure::usage("the scheme names no flow that works without a browser of ours")
            .hint("get a token by other means, and set A2ACLI_BEARER")
    })?;
    let endpoints = Endpoints::new("").tls(tls).discovered(url).await.map_err(|error| refused(&error))?;
    let token_url = endpoints.token_url().to_owned();
    Ok(Ways { endpoints, token_url, flow: None, scopes: Vec::new() })
}

/// The scheme to log in to: the one that is named, or the first that is logged in to at all.
fn scheme_of<'a>(found: &'a Found, named: Option<&str>) -> Outcome<(&'a str, &'a SecurityScheme)> {
    let all = &found.card.security_schemes;
    let takes = |scheme: &SecurityScheme| {
        matches!(scheme, SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_))
    };
    let chosen = match named {
        Some(name) => all.iter().find(|(one, _)| *one == name),
        None => all.iter().find(|(_, scheme)| takes(scheme)),
    };
    let names = || all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    match chosen {
        Some((name, scheme)) if takes(scheme) => Ok((name, scheme)),
        Some((name, _)) => Err(Failure::usage(format!("{name} is no scheme to log in to"))
            .hint("only OAuth 2 and OpenID Connect are; for others set A2ACLI_BEARER or A2ACLI_API_KEY")),
        None => Err(Failure::usage(match all.is_empty() {
            true => "the card declares no security schemes".to_owned(),
            false => format!("the card declares no such scheme to log in to, only {}", names()),
        })),
    }
}

fn secret(args: &AuthLogin) -> Outcome<Option<Secret>> {
    let Some(file) = &args.client_secret_file else { return Ok(client_secret()) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("--client-secret-file {}: {error}", file.display())))?;
    Ok(Some(Secret::from(text.trim())))
}

/// A card may name any place; a secret goes to the host of the card, and to hosts that the user allows.
fn trusted(found: &Found, token_url: &str, settings: &Settings) -> Outcome {
    let to = reference::host_of_url(token_url);
    let allowed = settings.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&to));
    match allowed || found.host().is_none_or(|host| host == to) {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "the card wants the secret of the client to go to {to}, which is another host than its own"
        ))
        .hint(crate::resume::again(&format!("--allow-host {to}")))),
    }
}

async fn by_device(
    endpoints: Endpoints,
    client_id: &str,
    scopes: &[String],
    out: &mut Output,
) -> Outcome<Token> {
    let login = DeviceLogin::begin(endpoints, client_id, scopes).await.map_err(|error| refused(&error))?;
    out.note(&format!("open {} and enter {}", login.url(), login.user_code()));
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
    oauth.show(None, &[]).await.map_err(|error| refused(&error))?;
    oauth.token().await.ok_or_else(|| Failure::auth_failed("no token was given out"))
}

fn refused(error: &Error) -> Failure {
    Failure::of(error, attache::model::Binding::HttpJson, true)
}

/// What there is, without the tokens.
pub(crate) fn status(settings: &Settings, out: &mut Output) -> Outcome {
    let host = reference::host_of(settings);
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
pub(crate) fn logout(args: &AuthLogout, settings: &Settings, out: &mut Output) -> Outcome {
    let host = reference::host_of(settings).filter(|_| !args.all);
    if host.is_none() && !args.all {
        return Err(Failure::usage("no agent is named").hint("say which: -a <host, url or file>, or --all"));
    }
    let gone = store(settings)?.forget(|login| {
        host.as_ref().is_none_or(|host| *host == login.host)
            && args.scheme.as_ref().is_none_or(|scheme| *scheme == login.scheme)
    })?;
    let shown: Vec<_> = gone.iter().map(Shown::of).collect();
    if out.is_json() {
        return out.json(&serde_json::json!({"schema": "attache.auth-logout/1", "forgotten": shown}));
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
