//! Credentials of a session: attached by the security schemes of the card, and only sent to trusted hosts.

use attache::model::{
    AgentCard, AgentInterface, ApiKeySecurityScheme, Binding, Secret, SecurityScheme,
};
use attache::{ApiKeyAuth, BearerAuth, Client, MutualTlsAuth};

use super::ResolvedCard;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::redactor::is_credential;
use crate::reference::{credentials_host, is_loopback, url_host};
use crate::settings::flags::{self, Flag};
use crate::settings::{SettingSource, Settings};
use crate::token_store::{Login, StoredToken, TokenStore};

/// Adds service parameters and credentials to a client. Returns whether there is a credential among them.
///
/// # Errors
/// The card requires a credential, and there is none to send.
pub(super) fn attach(
    mut client: Client,
    found: &ResolvedCard,
    interface: &AgentInterface,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<(Client, bool)> {
    let invalid = |error: attache::Error| CliError::usage(error.message().to_owned());
    let card = &found.card;
    let logins = stored_logins(found, settings)?;
    let has_any = settings.has_credential() || !logins.is_empty();
    if has_any {
        warn_of_exposure(interface, settings, out);
    }
    if settings.insecure && !logins.is_empty() && !settings.has_credential() {
        out.warn(
            "CERTIFICATES ARE NOT CHECKED (--insecure): an attacker on the network can read the stored token",
        );
    }
    let is_trusted = is_trusted(found, interface, settings, has_any, out);
    let mut has_credential = false;
    for (name, value) in &settings.service_params {
        if is_credential(name) && !is_trusted {
            continue;
        }
        client = client.with_header(name, value.expose()).map_err(invalid)?;
        has_credential |= is_credential(name);
    }
    // Plain HTTP is allowed here: `warn_of_exposure` has warned of it.
    client = client.with_card(card.clone()).with_plain_http_credentials();
    if settings.cert.is_some() {
        client = client.with_credentials(MutualTlsAuth);
        has_credential |= card
            .security_schemes
            .values()
            .any(|scheme| matches!(scheme, SecurityScheme::MutualTls(_)));
    }
    if let Some(token) = settings.bearer.as_ref().filter(|_| is_trusted) {
        client = client.with_credentials(BearerAuth::new(token.clone()));
        has_credential = true;
    }
    for (store, login) in logins.iter().filter(|_| is_trusted) {
        client = client.with_credentials(StoredToken::new(store.clone(), login, settings)?);
        has_credential = true;
    }
    if let Some(key) = settings.api_key.as_ref().filter(|_| is_trusted) {
        match api_key_scheme(card) {
            Some(scheme) => {
                client = with_api_key(client, scheme, key, interface, card).map_err(invalid)?;
                has_credential = true;
            }
            None => out.warn(
                "the API key was not sent: the card declares no API key scheme; use --svc-param",
            ),
        }
    }
    if !has_credential && requires_credentials(card) {
        return Err(missing_credentials(card, settings, is_trusted));
    }
    Ok((client, has_credential))
}

/// Stored logins for the schemes of this card. `--bearer` takes precedence over them.
fn stored_logins(found: &ResolvedCard, settings: &Settings) -> CliResult<Vec<(TokenStore, Login)>> {
    let Some(store) = TokenStore::from_settings(settings).filter(|_| settings.bearer.is_none())
    else {
        return Ok(Vec::new());
    };
    let host = credentials_host(found);
    let mut logins = store.read()?;
    logins.retain(|login| {
        login.host == host && found.card.security_schemes.contains_key(&login.scheme)
    });
    Ok(logins
        .into_iter()
        .map(|login| (store.clone(), login))
        .collect())
}

/// The first API key scheme of the card.
fn api_key_scheme(card: &AgentCard) -> Option<&ApiKeySecurityScheme> {
    card.security_schemes
        .values()
        .find_map(|scheme| match scheme {
            SecurityScheme::ApiKey(key) => Some(key),
            _ => None,
        })
}

/// Adds an API key. The client selects its location by the security requirements of the card; without requirements it goes
/// to the location of the scheme.
fn with_api_key(
    client: Client,
    scheme: &ApiKeySecurityScheme,
    key: &Secret,
    interface: &AgentInterface,
    card: &AgentCard,
) -> attache::Result<Client> {
    let name = scheme.name.as_str();
    let location = scheme.location.as_str();
    if interface.binding() == Some(Binding::Grpc) {
        // gRPC has no query, and a cookie is a metadata entry.
        return match location {
            "cookie" => client.with_header("cookie", &format!("{name}={}", key.expose())),
            _ => client.with_header(&name.to_ascii_lowercase(), key.expose()),
        };
    }
    let key = key.clone();
    Ok(
        client.with_credentials(if !card.security_requirements.is_empty() {
            ApiKeyAuth::new(key)
        } else {
            match location {
                "query" => ApiKeyAuth::query(name, key),
                "cookie" => ApiKeyAuth::cookie(name, key),
                "header" => ApiKeyAuth::header(name, key),
                _ => ApiKeyAuth::new(key),
            }
        }),
    )
}

/// Whether every alternative of the card requires a credential.
fn requires_credentials(card: &AgentCard) -> bool {
    let requirements = &card.security_requirements;
    !requirements.is_empty() && !requirements.iter().any(|one| one.schemes.is_empty())
}

fn missing_credentials(card: &AgentCard, settings: &Settings, is_trusted: bool) -> CliError {
    let names: Vec<_> = card.security_schemes.keys().map(String::as_str).collect();
    let error = CliError::credentials_missing(format!(
        "the agent requires credentials: {}",
        names.join(" or ")
    ));
    if settings.has_credential() && !is_trusted {
        return error.hint(
            "they were not sent, because the interface is on another host: allow it with --allow-host",
        );
    }
    let mut hints: Vec<_> = card.security_schemes.values().map(scheme_hint).collect();
    hints.sort_unstable();
    hints.dedup();
    if hints.is_empty() {
        error.hint("set A2ACLI_BEARER or A2ACLI_API_KEY")
    } else {
        let hints = hints.join(", or ");
        error.hint(format!("{hints}; attache card get shows the schemes"))
    }
}

/// The way to satisfy a scheme.
fn scheme_hint(scheme: &SecurityScheme) -> &'static str {
    match scheme {
        SecurityScheme::ApiKey(_) => "set A2ACLI_API_KEY",
        SecurityScheme::HttpAuth(http) if http.scheme.eq_ignore_ascii_case("bearer") => {
            "set A2ACLI_BEARER"
        }
        SecurityScheme::HttpAuth(_) => "give the header with --svc-param Authorization:<value>",
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
            "log in with attache auth login"
        }
        SecurityScheme::MutualTls(_) => "give a certificate with --cert and --key",
    }
}

/// Whether credentials may be sent to the interface: it is on the host of the card, or on one of `--allow-host`. Warns if
/// credentials are held back.
fn is_trusted(
    found: &ResolvedCard,
    interface: &AgentInterface,
    settings: &Settings,
    has_any: bool,
    out: &mut Output,
) -> bool {
    let target = url_host(&interface.url);
    let card_host = found.trusted_host();
    let is_trusted =
        settings.allows_host(&target) || card_host.is_none_or(|trusted| trusted == target);
    if !is_trusted && has_any {
        out.warn(&format!(
            "credentials are not sent: the card of {} leads to {target}; allow it with --allow-host {target}",
            card_host.unwrap_or_default()
        ));
    }
    is_trusted
}

/// Warns if a credential is sent in plaintext, or to an agent that a discovered `.env` selects.
fn warn_of_exposure(interface: &AgentInterface, settings: &Settings, out: &mut Output) {
    let target = url_host(&interface.url);
    if interface.url.starts_with("http://") && !is_loopback(&target) {
        out.warn(&format!(
            "A CREDENTIAL IS SENT WITHOUT TLS to {target}: an attacker on the network can read it"
        ));
    }
    for flag in [&flags::AGENT_CARD, &flags::INSECURE] {
        warn_of_discovered_file(flag, settings, out);
    }
}

/// Warns if a discovered `.env` sets this flag, but not the credential: a hostile checkout could redirect the credential.
fn warn_of_discovered_file(flag: &Flag, settings: &Settings, out: &mut Output) {
    let SettingSource::File {
        path,
        is_discovered: true,
        ..
    } = settings.resolved.source(flag)
    else {
        return;
    };
    let has_own_credential = [&flags::BEARER, &flags::API_KEY, &flags::SVC_PARAM]
        .into_iter()
        .any(|credential| {
            matches!(settings.resolved.source(credential), SettingSource::File { path: from, .. } if from == path)
        });
    if !has_own_credential {
        out.warn(&format!(
            "{} comes from {}, the credential from elsewhere",
            flag.name,
            path.display()
        ));
    }
}
