//! From what a user calls an agent to its card.

mod catalog;
mod credentials;
mod kept;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attache::model::{AgentCard, AgentInterface, Binding};
use attache::wire::card::{WELL_KNOWN, read_card};
use attache::{Budgets, Client, ClientSettings, Error, ErrorKind};

use crate::failure::{Failure, NOT_THERE, Outcome};
use crate::settings::Settings;
use crate::signature;
use crate::version::Wanted;
use crate::wire_log;
use catalog::{Entry, Named};
use kept::KeptCards;

const CARD_TIMEOUT: Duration = Duration::from_secs(30);

/// A card, and how it came to us.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) card: AgentCard,
    pub(crate) received: Received,
}

/// A card that has not been read yet.
#[derive(Debug)]
pub(crate) struct Received {
    /// As it was received.
    pub(crate) text: String,
    /// Where it was.
    place: String,
    /// Its host; a file has none.
    pub(crate) host: Option<String>,
    /// The host that the user named, of the card or of the catalog; for what a file says the user vouches.
    vouched: Option<String>,
    /// What an address without a host in it is below.
    origin: Option<String>,
}

/// Where a card is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Url(String),
    File(PathBuf),
}

/// Finds and reads the card.
pub(crate) async fn find(settings: &Settings) -> Outcome<Found> {
    let found = receive(settings).await?.read()?;
    if settings.require_signature {
        signature::require(&signature::check(&found, settings).await?)?;
    }
    Ok(found)
}

/// Finds the card.
pub(crate) async fn receive(settings: &Settings) -> Outcome<Received> {
    if let Some(url) = &settings.endpoint {
        return Ok(at_endpoint(settings, url));
    }
    let reference = settings.agent.as_deref().ok_or_else(|| {
        Failure::usage("no agent is named")
            .hint("say which: -a <host, url or file>, or A2ACLI_AGENT_CARD")
    })?;
    if let Some(named) = catalog::named(reference, settings)? {
        return from_catalog(settings, &named).await;
    }
    match place(reference, WELL_KNOWN[0], &|path| path.is_file()) {
        Place::File(path) => from_file(&path),
        Place::Url(url) => from_url(settings, &url).await,
    }
}

/// Credentials go to whom the user named, which is the catalog: its entries may be anywhere.
async fn from_catalog(settings: &Settings, named: &Named) -> Outcome<Received> {
    let listed = match place(&named.catalog, catalog::WELL_KNOWN, &|path| path.is_file()) {
        Place::File(path) => from_file(&path)?,
        Place::Url(url) => {
            let text = fetch(settings, &url)
                .await
                .map_err(|error| no_card(&url, &error))?;
            received(url, text)
        }
    };
    match catalog::find(&listed.text, &listed.place, &named.name)? {
        Entry::Data(card) => Ok(Received {
            text: card.to_string(),
            ..listed
        }),
        Entry::Url(url) => {
            let url = match &listed.origin {
                Some(origin) if url.starts_with('/') => format!("{origin}{url}"),
                _ => url,
            };
            let card = from_url(settings, &url).await?;
            Ok(Received {
                vouched: listed.vouched.or_else(|| card.vouched.clone()),
                ..card
            })
        }
    }
}

fn from_file(path: &Path) -> Outcome<Received> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::card_not_found(format!("cannot read {}: {error}", path.display()))
    })?;
    Ok(Received {
        text,
        place: path.display().to_string(),
        host: None,
        vouched: None,
        origin: None,
    })
}

async fn from_url(settings: &Settings, url: &str) -> Outcome<Received> {
    let wanted = Wanted::of(settings)?;
    let (mut tried, mut odd) = (Vec::new(), None);
    for url in places(url, wanted.takes_old()) {
        let found = match fetch(settings, &url).await {
            Ok(text) if is_well_known(&url) || read_card(text.as_bytes()).is_ok() => {
                return Ok(received(url, text));
            }
            // What is there is no card; there may be one below.
            Ok(text) => Ok(received(url, text)),
            Err(error) if error.kind() == ErrorKind::TaskNotFound => {
                tried.push(url);
                continue;
            }
            Err(error) => match no_card(&url, &error) {
                failure if failure.is_no_card() => Err(failure),
                failure => return Err(failure),
            },
        };
        odd.get_or_insert(found);
    }
    odd.unwrap_or_else(|| Err(nowhere(&tried, wanted.takes_old())))
}

/// Where the card of what is named may be: there, or, where an agent is named, below it. Never at the root of its server: another
/// agent lives there.
fn places(url: &str, old: bool) -> Vec<String> {
    let mut places = vec![url.to_owned()];
    let base = match url.strip_suffix(WELL_KNOWN[0]) {
        Some(base) => base,
        None if url.ends_with(".json") || url.contains(['?', '#']) => return places,
        None => {
            let base = url.trim_end_matches('/');
            places.push(format!("{base}{}", WELL_KNOWN[0]));
            base
        }
    };
    places.extend(old.then(|| format!("{base}{}", WELL_KNOWN[1])));
    places
}

fn is_well_known(url: &str) -> bool {
    WELL_KNOWN.iter().any(|name| url.ends_with(name))
}

/// The document at this url, from what is kept or from there; without a credential unless one was asked for.
async fn fetch(settings: &Settings, url: &str) -> Result<String, Error> {
    let failed =
        |failure: Failure| Error::new(ErrorKind::InvalidParams).with_message(failure.message);
    let version = Wanted::of(settings).map_err(failed)?.of_card().to_owned();
    let budgets = Budgets {
        first_byte: CARD_TIMEOUT,
        total: CARD_TIMEOUT,
        ..Budgets::default()
    };
    let builder = Client::builder().settings(ClientSettings {
        budgets,
        ..ClientSettings::default()
    });
    let mut builder = builder
        .tls(crate::tls::of(settings).map_err(failed)?)
        .header("a2a-version", &version)?;
    if settings.card_auth {
        builder = credentials::with(builder, url, settings)?;
    } else if let Some(folder) = settings.cache.as_ref().filter(|_| !settings.no_cache) {
        builder = builder.cards(Arc::new(KeptCards::new(folder, &version)));
    }
    wire_log::watch_builder(builder, settings)
        .card_text(url)
        .await
}

fn received(url: String, text: String) -> Received {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let (host, origin) = (host(authority), format!("{scheme}://{authority}"));
    Received {
        text,
        place: url,
        vouched: Some(host.clone()),
        host: Some(host),
        origin: Some(origin),
    }
}

impl Received {
    pub(crate) fn read(self) -> Outcome<Found> {
        let card = read_card(self.text.as_bytes()).map_err(|error| {
            Failure::card_invalid(format!("{} is no card: {}", self.place, error.message()))
                .hint("is this the address of an agent? see what is wrong with: attache card get --validate")
        })?;
        Ok(Found {
            card,
            received: self,
        })
    }
}

fn no_card(url: &str, error: &Error) -> Failure {
    if error.kind() == ErrorKind::InvalidParams && std::error::Error::source(error).is_none() {
        // Of our own: nothing was sent.
        return Failure::usage(format!("cannot use {url}: {}", error.message()));
    }
    let failure = Failure::of(error, Binding::HttpJson, false);
    match failure.exit {
        1 => Failure::card_not_found(format!("no card at {url}: {}", failure.message)),
        4 => Failure {
            message: format!("the card at {url} needs credentials: {}", failure.message),
            ..failure
        }
        .hint(format!(
            "to send them there as well: {}",
            crate::resume::again("--card-auth")
        )),
        3 if is_loopback(&host_of_url(url)) && failure.hint.as_deref() == Some(NOT_THERE) => {
            let message = format!("{}, at {url}", failure.message);
            Failure { message, ..failure }
                .hint("is it running? attache demo starts an agent to practise with")
        }
        _ => Failure {
            message: format!("{}, at {url}", failure.message),
            ..failure
        },
    }
}

fn nowhere(tried: &[String], old: bool) -> Failure {
    let failure = Failure::card_not_found(format!("no card at {}", tried.join(" or ")));
    match !old && tried.iter().any(|url| is_well_known(url)) {
        true => failure
            .hint("is it an agent of before 1.0? look for its card as well: --a2a-version 0.3"),
        false => failure,
    }
}

/// No card: the user says where and how, and vouches for it.
fn at_endpoint(settings: &Settings, url: &str) -> Received {
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
    Received {
        text,
        place: url.to_owned(),
        host: None,
        vouched: None,
        origin: None,
    }
}

impl Found {
    /// The host that the card came from.
    pub(crate) fn host(&self) -> Option<&str> {
        self.received.host.as_deref()
    }

    /// The origin that the card came from.
    pub(crate) fn origin(&self) -> Option<&str> {
        self.received.origin.as_deref()
    }

    /// What the well-known places are below; a file has none.
    pub(crate) fn base(&self) -> Option<String> {
        let origin = self.origin()?;
        let below = WELL_KNOWN
            .iter()
            .find_map(|path| self.received.place.strip_suffix(path));
        Some(below.unwrap_or(origin).to_owned())
    }

    /// The only host that credentials go to unasked; `None` if the user vouches for all.
    pub(crate) fn vouched(&self) -> Option<&str> {
        self.received.vouched.as_deref()
    }

    /// The url of an interface; some cards leave out the host, and those of gRPC the scheme: it is that of the card.
    pub(crate) fn address(&self, interface: &AgentInterface) -> String {
        match &self.received.origin {
            Some(origin) if interface.url.starts_with('/') => format!("{origin}{}", interface.url),
            Some(origin) if origin.starts_with("https://") && !interface.url.contains("://") => {
                format!("https://{}", interface.url)
            }
            _ => interface.url.clone(),
        }
    }
}

/// The host of the agent that is named, without a look at its card unless that is a file or in a catalog.
pub(crate) async fn host_of(settings: &Settings) -> Outcome<Option<String>> {
    let Some(reference) = settings.agent.as_deref() else {
        return Ok(None);
    };
    let is_named = catalog::named(reference, settings)?.is_some();
    match place(reference, WELL_KNOWN[0], &|path| path.is_file()) {
        Place::Url(url) if !is_named => Ok(Some(host_of_url(&url))),
        _ => Ok(receive(settings)
            .await?
            .read()
            .ok()
            .map(|found| credentials_host(&found))),
    }
}

/// Whose credentials they are: those of the host of the card, or of the agent that a file speaks of.
pub(crate) fn credentials_host(found: &Found) -> String {
    let of_file = || {
        found
            .card
            .supported_interfaces
            .first()
            .map(|one| host_of_url(&one.url))
    };
    found
        .host()
        .map(str::to_owned)
        .or_else(of_file)
        .unwrap_or_default()
}

/// The host of a url, without its port.
pub(crate) fn host_of_url(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    host(rest.split(['/', '?']).next().unwrap_or_default())
}

/// The host of an authority, without its port.
pub(crate) fn host(authority: &str) -> String {
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

/// Whether only this machine is meant.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Where a card, or a catalog, is; `name` is what servers call it.
fn place(reference: &str, name: &str, is_file: &dyn Fn(&Path) -> bool) -> Place {
    if let Some(path) = reference.strip_prefix("file://") {
        return Place::File(path.into());
    }
    if reference.contains("://") {
        return Place::Url(at_well_known(reference, name));
    }
    let path = Path::new(reference);
    let looks = ["./", "../", "/"]
        .iter()
        .any(|start| reference.starts_with(start))
        || reference.ends_with(".json");
    if looks || is_file(path) {
        return Place::File(path.to_owned());
    }
    let authority = reference.split('/').next().unwrap_or_default();
    let scheme = if is_loopback(&host(authority)) {
        "http"
    } else {
        "https"
    };
    Place::Url(at_well_known(&format!("{scheme}://{reference}"), name))
}

/// A host or an origin has its card at the well-known place; a url with a path is that of the card itself.
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
            places("https://a.example/x/", false),
            ["https://a.example/x/", new]
        );
        assert_eq!(
            places("https://a.example/x", true),
            ["https://a.example/x", new, old]
        );
        assert_eq!(places(new, true), [new, old]);
        for card in [
            "https://a.example/x?card",
            "https://a.example/card.json",
            old,
        ] {
            assert_eq!(places(card, true), [card]);
        }
    }

    #[test]
    fn card_get_001_hosts_urls_and_files_are_told_apart() {
        let there = |path: &Path| path == Path::new("saved");
        let url = |reference| match place(reference, WELL_KNOWN[0], &there) {
            Place::Url(url) => url,
            Place::File(path) => format!("file {}", path.display()),
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
