//! Resolution of an agent reference to its card: a host, a URL, a file or a catalog entry.

mod card_cache;
mod catalog;
mod credentials;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attache::model::{AgentCard, AgentInterface, Binding};
use attache::wire::card::{WELL_KNOWN, read_card};
use attache::{
    Client, ClientBuilder, ClientSettings, ConnectError, Error, ErrorKind, HttpClient, Timeouts,
};

use crate::error::{CliError, CliResult};
use crate::settings::Settings;
use crate::signature;
use crate::version::VersionPreference;
use crate::wire_log;
use card_cache::FileCardCache;
use catalog::{CardSource, CatalogReference};

/// Time limit of a card request.
const CARD_TIMEOUT: Duration = Duration::from_secs(30);

/// A parsed card with its document.
#[derive(Debug)]
pub(crate) struct ResolvedCard {
    pub(crate) card: AgentCard,
    pub(crate) received: CardDocument,
}

/// The document of a card, not parsed yet.
#[derive(Debug)]
pub(crate) struct CardDocument {
    /// The text as received.
    pub(crate) text: String,
    /// Its URL or path.
    location: String,
    /// Its host; `None` for a file.
    pub(crate) host: Option<String>,
    /// The host that the user gave, of the card or the catalog. `None` for a file: the user vouches for its content.
    trusted_host: Option<String>,
    /// Base of relative interface URLs; `None` for a file.
    origin: Option<String>,
}

/// Location of a card or a catalog.
#[derive(Debug, PartialEq, Eq)]
enum CardLocation {
    Url(String),
    File(PathBuf),
}

/// Fetches and parses the card, and verifies its signature if `--require-signature` is given.
pub(crate) async fn resolve(settings: &Settings) -> CliResult<ResolvedCard> {
    let found = fetch_document(settings).await?.parse()?;
    if settings.require_signature {
        signature::require_verified(&signature::check(&found, settings).await?)?;
    }
    Ok(found)
}

/// The URL of the card; `None` if it is a file or an entry of a catalog, or if `--endpoint` is given.
///
/// # Errors
/// No agent is given.
pub(crate) fn card_url(settings: &Settings) -> CliResult<Option<String>> {
    if settings.endpoint.is_some() {
        return Ok(None);
    }
    let reference = given_reference(settings)?;
    if catalog::parse_reference(reference, settings)?.is_some() {
        return Ok(None);
    }
    Ok(
        match locate(reference, WELL_KNOWN[0], &|path| path.is_file()) {
            CardLocation::Url(url) => Some(url),
            CardLocation::File(_) => None,
        },
    )
}

fn given_reference(settings: &Settings) -> CliResult<&str> {
    settings.agent.as_deref().ok_or_else(|| {
        CliError::usage("no agent is given")
            .hint("give one: -a <host, url or file>, or A2ACLI_AGENT_CARD")
    })
}

/// Fetches the document of the card.
pub(crate) async fn fetch_document(settings: &Settings) -> CliResult<CardDocument> {
    if let Some(url) = &settings.endpoint {
        return Ok(from_endpoint(settings, url));
    }
    let reference = given_reference(settings)?;
    if let Some(named) = catalog::parse_reference(reference, settings)? {
        return from_catalog(settings, &named).await;
    }
    match locate(reference, WELL_KNOWN[0], &|path| path.is_file()) {
        CardLocation::File(path) => from_file(&path),
        CardLocation::Url(url) => from_url(settings, &url).await,
    }
}

/// Fetches the card of a catalog entry. Credentials are only sent to the host of the catalog, which the user gave: its
/// entries may lead to other hosts.
async fn from_catalog(settings: &Settings, named: &CatalogReference) -> CliResult<CardDocument> {
    let listed = match locate(&named.catalog, catalog::WELL_KNOWN, &|path| path.is_file()) {
        CardLocation::File(path) => from_file(&path)?,
        CardLocation::Url(url) => {
            let text = fetch(settings, &url)
                .await
                .map_err(|error| card_error(&url, &error))?;
            received(url, text)
        }
    };
    match catalog::find(&listed.text, &listed.location, &named.name)? {
        CardSource::Data(card) => Ok(CardDocument {
            text: card.to_string(),
            ..listed
        }),
        CardSource::Url(url) => {
            let url = match &listed.origin {
                Some(origin) if url.starts_with('/') => format!("{origin}{url}"),
                _ => url,
            };
            let card = from_url(settings, &url).await?;
            Ok(CardDocument {
                trusted_host: listed.trusted_host.or_else(|| card.trusted_host.clone()),
                ..card
            })
        }
    }
}

fn from_file(path: &Path) -> CliResult<CardDocument> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::card_not_found(format!("cannot read {}: {error}", path.display()))
    })?;
    Ok(CardDocument {
        text,
        location: path.display().to_string(),
        host: None,
        trusted_host: None,
        origin: None,
    })
}

async fn from_url(settings: &Settings, url: &str) -> CliResult<CardDocument> {
    let wanted = VersionPreference::from_settings(settings)?;
    let mut tried = Vec::new();
    let mut not_a_card = None;
    for url in candidate_urls(url, wanted.allows_legacy()) {
        let result = match fetch(settings, &url).await {
            Ok(text) if is_well_known(&url) || read_card(text.as_bytes()).is_ok() => {
                return Ok(received(url, text));
            }
            // Not a card; the next candidate may be one.
            Ok(text) => Ok(received(url, text)),
            Err(error) if error.kind() == ErrorKind::TaskNotFound => {
                tried.push(url);
                continue;
            }
            Err(error) => match card_error(&url, &error) {
                error if error.is_card_not_found() => Err(error),
                error => return Err(error),
            },
        };
        not_a_card.get_or_insert(result);
    }
    not_a_card.unwrap_or_else(|| Err(not_found(&tried, wanted.allows_legacy())))
}

/// The URLs to try: the given one, then the well-known paths below it. Never those of the server's root, where another
/// agent may be.
pub(crate) fn candidate_urls(url: &str, allows_legacy: bool) -> Vec<String> {
    let mut candidates = vec![url.to_owned()];
    let base = match url.strip_suffix(WELL_KNOWN[0]) {
        Some(base) => base,
        None if url.ends_with(".json") || url.contains(['?', '#']) => return candidates,
        None => {
            let base = url.trim_end_matches('/');
            candidates.push(format!("{base}{}", WELL_KNOWN[0]));
            base
        }
    };
    candidates.extend(allows_legacy.then(|| format!("{base}{}", WELL_KNOWN[1])));
    candidates
}

fn is_well_known(url: &str) -> bool {
    WELL_KNOWN.iter().any(|name| url.ends_with(name))
}

/// Fetches a document, from the card cache if it is fresh. Sends credentials only with `--card-auth`.
async fn fetch(settings: &Settings, url: &str) -> Result<String, Error> {
    let mut builder = card_client_with_credentials(settings, url)?;
    let cache = settings.cache_dir.as_ref();
    if let Some(folder) = cache.filter(|_| !settings.no_cache && !settings.card_auth) {
        let version = card_version(settings)?;
        builder = builder.card_cache(Arc::new(FileCardCache::new(folder, &version)));
    }
    wire_log::add_debug_log_to_builder(builder, settings)
        .card_text(url)
        .await
}

/// A client for card requests, without credentials.
pub(crate) fn card_client(settings: &Settings) -> Result<ClientBuilder, Error> {
    let builder = Client::builder().settings(ClientSettings {
        timeouts: card_timeouts(),
        ..ClientSettings::default()
    });
    builder
        .tls(crate::tls::client_tls(settings).map_err(into_local_error)?)
        .header("a2a-version", &card_version(settings)?)
}

/// A client for requests of this card, with credentials if `--card-auth` is given.
pub(crate) fn card_client_with_credentials(
    settings: &Settings,
    url: &str,
) -> Result<ClientBuilder, Error> {
    let builder = card_client(settings)?;
    if settings.card_auth {
        credentials::attach(builder, url, settings)
    } else {
        Ok(builder)
    }
}

/// Time limits of a card request.
pub(crate) fn card_timeouts() -> Timeouts {
    Timeouts {
        first_byte: CARD_TIMEOUT,
        total: CARD_TIMEOUT,
        ..Timeouts::default()
    }
}

/// The version header of a card request.
fn card_version(settings: &Settings) -> Result<String, Error> {
    let preference = VersionPreference::from_settings(settings).map_err(into_local_error)?;
    Ok(preference.card_version().to_owned())
}

fn into_local_error(error: CliError) -> Error {
    Error::new(ErrorKind::InvalidParams).with_message(error.message)
}

/// The document of a URL.
pub(crate) fn received(url: String, text: String) -> CardDocument {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority_host(authority);
    let origin = format!("{scheme}://{authority}");
    CardDocument {
        text,
        location: url,
        trusted_host: Some(host.clone()),
        host: Some(host),
        origin: Some(origin),
    }
}

impl CardDocument {
    pub(crate) fn parse(self) -> CliResult<ResolvedCard> {
        let card = read_card(self.text.as_bytes()).map_err(|error| {
            CliError::card_invalid(format!(
                "{} is not a card: {}",
                self.location,
                error.message()
            ))
            .hint("is this the URL of an agent? see all errors with attache card get --validate")
        })?;
        Ok(ResolvedCard {
            card,
            received: self,
        })
    }
}

pub(crate) fn card_error(url: &str, error: &Error) -> CliError {
    if error.kind() == ErrorKind::InvalidParams && std::error::Error::source(error).is_none() {
        // A local error: no request was sent.
        return CliError::usage(format!("cannot use {url}: {}", error.message()));
    }
    let converted = CliError::from_error(error, Binding::HttpJson, false);
    let message = &converted.message;
    let is_not_running = is_loopback(&url_host(url))
        && HttpClient::connect_error(error) == Some(ConnectError::Other);
    match converted.exit {
        1 => CliError::card_not_found(format!("no card at {url}: {message}")),
        4 => CliError {
            message: format!("the card at {url} requires credentials: {message}"),
            ..converted
        }
        .hint(format!(
            "to send credentials with the card request: {}",
            crate::resume::rerun_with("--card-auth")
        )),
        _ => {
            let error = CliError {
                message: format!("{message}, at {url}"),
                ..converted
            };
            if is_not_running {
                error.hint("is it running? attache demo starts a demo agent")
            } else {
                error
            }
        }
    }
}

fn not_found(tried: &[String], allows_legacy: bool) -> CliError {
    let error = CliError::card_not_found(format!("no card at {}", tried.join(" or ")));
    if !allows_legacy && tried.iter().any(|url| is_well_known(url)) {
        error.hint("an agent older than 1.0 has its card elsewhere: --a2a-version 0.3")
    } else {
        error
    }
}

/// A synthetic card for `--endpoint`: the user gives the interface, and vouches for it.
fn from_endpoint(settings: &Settings, url: &str) -> CardDocument {
    let binding = settings
        .transports
        .first()
        .map_or(Binding::JsonRpc.as_str(), String::as_str);
    let interface = AgentInterface {
        url: url.to_owned(),
        protocol_binding: binding.to_owned(),
        tenant: None,
        protocol_version: settings
            .version
            .clone()
            .filter(|it| it != "auto")
            .unwrap_or_else(|| "1.0".to_owned()),
    };
    let card = AgentCard {
        supported_interfaces: vec![interface],
        ..AgentCard::default()
    };
    let text = serde_json::to_string(&card).unwrap_or_default();
    CardDocument {
        text,
        location: url.to_owned(),
        host: None,
        trusted_host: None,
        origin: None,
    }
}

impl ResolvedCard {
    /// The host of the card.
    pub(crate) fn host(&self) -> Option<&str> {
        self.received.host.as_deref()
    }

    /// The origin of the card.
    pub(crate) fn origin(&self) -> Option<&str> {
        self.received.origin.as_deref()
    }

    /// The URL that the well-known paths are relative to; `None` for a file.
    pub(crate) fn base(&self) -> Option<String> {
        let origin = self.origin()?;
        let base = WELL_KNOWN
            .iter()
            .find_map(|path| self.received.location.strip_suffix(path));
        Some(base.unwrap_or(origin).to_owned())
    }

    /// The only host that receives credentials without `--allow-host`; `None` if the user vouches for all.
    pub(crate) fn trusted_host(&self) -> Option<&str> {
        self.received.trusted_host.as_deref()
    }

    /// The URL of the card; `None` for a file.
    pub(crate) fn url(&self) -> Option<&str> {
        self.origin().map(|_| self.received.location.as_str())
    }

    /// The interface with an absolute URL. Some cards have a part of the URL only, or none; those of KAOS and selectools
    /// are at the address of the card.
    ///
    /// # Errors
    /// The card is a file, and has no absolute URL.
    pub(crate) fn resolve_interface(
        &self,
        interface: &AgentInterface,
    ) -> CliResult<AgentInterface> {
        match self.url() {
            Some(url) => Client::resolve_interface(url, interface)
                .map_err(|error| CliError::internal(error.message().to_owned())),
            None if interface.url.is_empty() => Err(CliError::card_invalid(
                "the card has no URL, and it is a file without an address",
            )
            .hint("give the agent by its URL: -a <url>")),
            None => Ok(interface.clone()),
        }
    }
}

/// The host of the given agent. Fetches the card only for a file or a catalog entry.
pub(crate) async fn agent_host(settings: &Settings) -> CliResult<Option<String>> {
    let Some(reference) = settings.agent.as_deref() else {
        return Ok(None);
    };
    let is_named = catalog::parse_reference(reference, settings)?.is_some();
    match locate(reference, WELL_KNOWN[0], &|path| path.is_file()) {
        CardLocation::Url(url) if !is_named => Ok(Some(url_host(&url))),
        _ => Ok(fetch_document(settings)
            .await?
            .parse()
            .ok()
            .map(|found| credentials_host(&found))),
    }
}

/// The host that stored credentials belong to: that of the card, for a file that of its first interface.
pub(crate) fn credentials_host(found: &ResolvedCard) -> String {
    let interface_host = || {
        found
            .card
            .supported_interfaces
            .first()
            .map(|one| url_host(&one.url))
    };
    found
        .host()
        .map(str::to_owned)
        .or_else(interface_host)
        .unwrap_or_default()
}

/// The host of a URL, without its port.
pub(crate) fn url_host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority_host(rest.split(['/', '?']).next().unwrap_or_default())
}

/// The host of an authority, without its port.
pub(crate) fn authority_host(authority: &str) -> String {
    let authority = authority.rsplit('@').next().unwrap_or_default();
    match authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((address, _)) => address.to_ascii_lowercase(),
        None => authority
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase(),
    }
}

/// Whether the host is a loopback address or `localhost`.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Locates a card or a catalog by its reference; `name` is its well-known path.
fn locate(reference: &str, name: &str, is_file: &dyn Fn(&Path) -> bool) -> CardLocation {
    if let Some(path) = reference.strip_prefix("file://") {
        return CardLocation::File(path.into());
    }
    if reference.contains("://") {
        return CardLocation::Url(at_well_known(reference, name));
    }
    let path = Path::new(reference);
    let looks_like_path = ["./", "../", "/"]
        .iter()
        .any(|start| reference.starts_with(start))
        || reference.ends_with(".json");
    if looks_like_path || is_file(path) {
        return CardLocation::File(path.to_owned());
    }
    let authority = reference.split('/').next().unwrap_or_default();
    let scheme = if is_loopback(&authority_host(authority)) {
        "http"
    } else {
        "https"
    };
    CardLocation::Url(at_well_known(&format!("{scheme}://{reference}"), name))
}

/// Appends the well-known path to an origin. A URL with a path is used unchanged.
fn at_well_known(url: &str, name: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    match rest.split_once(['/', '?']) {
        None => format!("{url}{name}"),
        Some((_, "")) => format!("{}{name}", url.trim_end_matches('/')),
        Some(_) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_get_001_an_agent_that_is_named_by_its_url_has_its_card_below() {
        let new = "https://a.example/x/.well-known/agent-card.json";
        let old = "https://a.example/x/.well-known/agent.json";
        assert_eq!(
            candidate_urls("https://a.example/x/", false),
            ["https://a.example/x/", new]
        );
        assert_eq!(
            candidate_urls("https://a.example/x", true),
            ["https://a.example/x", new, old]
        );
        assert_eq!(candidate_urls(new, true), [new, old]);
        for card in [
            "https://a.example/x?card",
            "https://a.example/card.json",
            old,
        ] {
            assert_eq!(candidate_urls(card, true), [card]);
        }
    }

    #[test]
    fn card_get_001_hosts_urls_and_files_are_told_apart() {
        let there = |path: &Path| path == Path::new("saved");
        let url = |reference| match locate(reference, WELL_KNOWN[0], &there) {
            CardLocation::Url(url) => url,
            CardLocation::File(path) => format!("file {}", path.display()),
        };
        for (reference, expected) in [
            (
                "agent.example",
                "https://agent.example/.well-known/agent-card.json",
            ),
            (
                "localhost:41241",
                "http://localhost:41241/.well-known/agent-card.json",
            ),
            ("[::1]:80", "http://[::1]:80/.well-known/agent-card.json"),
            (
                "http://127.0.0.1:1/",
                "http://127.0.0.1:1/.well-known/agent-card.json",
            ),
            (
                "https://a.example",
                "https://a.example/.well-known/agent-card.json",
            ),
            ("https://a.example/x/card", "https://a.example/x/card"),
            ("a.example/x", "https://a.example/x"),
            ("file:///tmp/c", "file /tmp/c"),
            ("./c", "file ./c"),
            ("card.json", "file card.json"),
            ("saved", "file saved"),
        ] {
            assert_eq!(url(reference), expected);
        }
    }
}
