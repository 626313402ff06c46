//! Credentials go where the card says, and only to whom they belong.

use attache::model::{
    AgentCard, AgentInterface, ApiKeySecurityScheme, Binding, Secret, SecurityScheme,
};
use attache::{ApiKeyAuth, BearerAuth, Client, MutualTlsAuth};

use super::ResolvedCard;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::redactor::is_credential;
use crate::reference::{credentials_host, is_loopback, url_host};
use crate::settings::{SettingSource, Settings};
use crate::token_store::{Login, StoredToken, TokenStore};

/// The client with what goes along with every request, and whether there is a credential among it.
pub(super) fn attach(
    mut client: Client,
    found: &ResolvedCard,
    interface: &AgentInterface,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<(Client, bool)> {
    let refused = |error: attache::Error| CliError::usage(error.message().to_owned());
    let logins = logins(found, settings)?;
    let credential = settings.has_credential() || !logins.is_empty();
    warn_of_exposure(interface, settings, credential, out);
    if settings.insecure && !logins.is_empty() && !settings.has_credential() {
        out.warn(
            "CERTIFICATES ARE NOT CHECKED (--insecure): anybody on the way can take the token of the login",
        );
    }
    let trusted = is_trusted(found, interface, settings, credential, out);
    for (name, value) in settings
        .service_params
        .iter()
        .filter(|(name, _)| trusted || !is_credential(name))
    {
        client = client.with_header(name, value.expose()).map_err(refused)?;
    }
    let mut supplied = trusted
        && settings
            .service_params
            .iter()
            .any(|(name, _)| is_credential(name));
    // Whether a credential may go over plain http was decided above, aloud.
    client = client
        .with_card(found.card.clone())
        .with_plain_http_credentials();
    if settings.cert.is_some() {
        client = client.with_credentials(MutualTlsAuth);
        supplied |= found
            .card
            .security_schemes
            .values()
            .any(|it| matches!(it, SecurityScheme::MutualTls(_)));
    }
    if let Some(token) = settings.bearer.as_ref().filter(|_| trusted) {
        client = client.with_credentials(BearerAuth::new(token.clone()));
        supplied = true;
    }
    for (store, login) in logins.iter().filter(|_| trusted) {
        client = client.with_credentials(StoredToken::new(store.clone(), login, settings)?);
        supplied = true;
    }
    if let Some(key) = settings.api_key.as_ref().filter(|_| trusted) {
        match api_key_scheme(&found.card) {
            Some(place) => {
                client =
                    with_api_key(client, place, key, interface, &found.card).map_err(refused)?;
                supplied = true;
            }
            None => out.warn(
                "the API key was not sent: the card says nowhere where it goes; use --svc-param",
            ),
        }
    }
    if !supplied && requires_credentials(&found.card) {
        return Err(missing(&found.card, settings, trusted));
    }
    Ok((client, supplied))
}

/// Tokens of logins to schemes of this card; a token that is named goes before them.
fn logins(found: &ResolvedCard, settings: &Settings) -> CliResult<Vec<(TokenStore, Login)>> {
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

/// Where the card wants the key.
fn api_key_scheme(card: &AgentCard) -> Option<&ApiKeySecurityScheme> {
    card.security_schemes
        .values()
        .find_map(|scheme| match scheme {
            SecurityScheme::ApiKey(key) => Some(key),
            _ => None,
        })
}

/// The key goes where the requirement says that is chosen, or to where it could go if none is required.
fn with_api_key(
    client: Client,
    place: &ApiKeySecurityScheme,
    key: &Secret,
    interface: &AgentInterface,
    card: &AgentCard,
) -> attache::Result<Client> {
    let (name, value) = (place.name.as_str(), key.clone());
    if interface.binding() == Some(Binding::Grpc) {
        // There is no query, and a cookie is metadata like any other.
        return match place.location.as_str() {
            "cookie" => client.with_header("cookie", &format!("{name}={}", key.expose())),
            _ => client.with_header(&name.to_ascii_lowercase(), key.expose()),
        };
    }
    Ok(client.with_credentials(
        match (
            place.location.as_str(),
            card.security_requirements.is_empty(),
        ) {
            ("query", true) => ApiKeyAuth::query(name, value),
            ("cookie", true) => ApiKeyAuth::cookie(name, value),
            ("header", true) => ApiKeyAuth::header(name, value),
            _ => ApiKeyAuth::new(value),
        },
    ))
}

/// Whether the card asks for credentials in every case.
fn requires_credentials(card: &AgentCard) -> bool {
    let requirements = &card.security_requirements;
    !requirements.is_empty() && !requirements.iter().any(|one| one.schemes.is_empty())
}

fn missing(card: &AgentCard, settings: &Settings, trusted: bool) -> CliError {
    let names: Vec<_> = card.security_schemes.keys().map(String::as_str).collect();
    let failure = CliError::credentials_missing(format!(
        "the agent wants credentials: {}",
        names.join(" or ")
    ));
    if settings.has_credential() && !trusted {
        return failure.hint(
            "they were kept back, as the interface is on another host: allow it with --allow-host",
        );
    }
    let mut ways: Vec<_> = card.security_schemes.values().map(scheme_hint).collect();
    ways.sort_unstable();
    ways.dedup();
    match ways.is_empty() {
        true => failure.hint("set A2ACLI_BEARER or A2ACLI_API_KEY"),
        false => failure.hint(format!(
            "{}; attache card get says what it takes",
            ways.join(", or ")
        )),
    }
}

/// How a user satisfies a scheme.
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
        SecurityScheme::MutualTls(_) => "show a certificate with --cert and --key",
    }
}

/// A card may point anywhere; credentials go to its own host, and to hosts that the user allows.
fn is_trusted(
    found: &ResolvedCard,
    interface: &AgentInterface,
    settings: &Settings,
    credential: bool,
    out: &mut Output,
) -> bool {
    let to = target_host(interface);
    let allowed = settings.allows_host(&to);
    let own = found.trusted_host().is_none_or(|named| named == to);
    if !own && !allowed && credential {
        out.warn(&format!(
            "credentials are kept back: {} points to {to}; allow it with --allow-host {to}",
            found.trusted_host().unwrap_or_default()
        ));
    }
    own || allowed
}

fn target_host(interface: &AgentInterface) -> String {
    url_host(&interface.url)
}

/// Says aloud what weakens the protection of a credential.
fn warn_of_exposure(
    interface: &AgentInterface,
    settings: &Settings,
    credential: bool,
    out: &mut Output,
) {
    let to = target_host(interface);
    if credential && interface.url.starts_with("http://") && !is_loopback(&to) {
        out.warn(&format!(
            "A CREDENTIAL IS SENT WITHOUT TLS to {to}: anybody on the way can take it"
        ));
    }
    for name in ["agent-card", "insecure"] {
        if let (
            true,
            Some(SettingSource::File {
                path, found: true, ..
            }),
        ) = (credential, settings.source(name))
        {
            let own = ["bearer", "api-key", "svc-param"].iter().any(|credential| {
                matches!(settings.source(credential), Some(SettingSource::File { path: from, .. }) if from == path)
            });
            if !own {
                out.warn(&format!(
                    "{name} comes from {}, the credential from elsewhere",
                    path.display()
                ));
            }
        }
    }
}
