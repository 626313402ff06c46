//! Discovery: finds the card of an agent from a URL and returns a client of its best interface.
//!
//! Card requests go through an egress that follows the card ([`Egress::following_document`]), so a card cannot lead the
//! client into a more private network than its own.
//!
//! [`Egress::following_document`]: crate::egress::Egress::following_document

use std::sync::Arc;

use ::http::header::{HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION};
use ::http::uri::PathAndQuery;
use ::http::{StatusCode, Uri};
use tokio::time::timeout;

use super::Client;
use super::builder::ClientBuilder;
use super::card_cache::{CachedCard, now};
use super::endpoint::{Endpoint, Fallbacks, origin, select_endpoints};
use super::http::{ClientRequest, ClientResponse};
use super::interface_url::PLATFORM_CARD_PATH;
use super::retry::{deadline_exceeded, is_connection_lost};
use crate::model::{AgentCard, Binding, Error, ErrorKind, Result, Version};
use crate::wire;
use crate::wire::card::{WELL_KNOWN, read_card};
use crate::wire::errors::read_rest_error;

/// Maximum number of redirects to follow for a card, all within its origin.
const MAX_REDIRECTS: usize = 3;
/// Maximum number of skills of a card.
const MAX_SKILLS: usize = 10_000;

/// Card that discovery found.
struct FoundCard {
    url: Uri,
    /// The document as received; card signatures cover it.
    text: String,
    card: AgentCard,
}

impl Client {
    /// Finds the card of the agent at `url` and returns a client of its first supported interface. [`card`](Self::card)
    /// returns the card.
    ///
    /// `url` is the URL of the agent or of the card. Discovery tries both well-known paths below it and at the root of
    /// its server, then `/v1/card`. It follows redirects within the same origin only.
    ///
    /// If the card names another origin, the SSRF guard applies: a card from the internet leads to no private address,
    /// and a card over https never to http. [`ClientBuilder::trust`] exempts an origin.
    ///
    /// # Errors
    /// A connection error; no card, with a list of the URLs tried; a card without a supported interface.
    pub async fn discover(url: &str) -> Result<Self> {
        Self::builder().discover(url).await
    }
}

impl ClientBuilder {
    /// Finds the card of the agent at `url` and returns a client of it; see [`Client::discover`].
    ///
    /// # Errors
    /// As [`Client::discover`].
    pub async fn discover(&self, url: &str) -> Result<Client> {
        let endpoint = Endpoint::new(url, Binding::HttpJson, Version::V1)?;
        let reader = self.build(self.following_document(&endpoint.url), endpoint);
        match self.find_endpoints(&reader).await {
            Ok((found, endpoints)) => self.client_of_card(reader, found, endpoints).await,
            // A server responds, but has no A2A: it may offer chat completions.
            Err(error)
                if error.kind() == ErrorKind::InvalidAgentResponse
                    && self.settings.chat_completions.is_some() =>
            {
                Ok(Client {
                    is_chat_peer: true,
                    ..reader
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Finds the card and the endpoints that may be used, best first.
    async fn find_endpoints(&self, reader: &Client) -> Result<(FoundCard, Vec<Endpoint>)> {
        let limit = self.settings.timeouts.total;
        let found = timeout(limit, self.find_card(reader))
            .await
            .unwrap_or_else(|_| Err(deadline_exceeded(limit)))?;
        let endpoints = select_endpoints(&found.card, &found.url, &self.settings.interface)?;
        Ok((found, endpoints))
    }

    /// Verifies the card and returns a client of the first endpoint, with the others as fallbacks.
    async fn client_of_card(
        &self,
        reader: Client,
        found: FoundCard,
        endpoints: Vec<Endpoint>,
    ) -> Result<Client> {
        if let Some(check) = &self.check {
            check.check(&found.card, found.text.as_bytes()).await?;
        }
        let mut endpoints = endpoints.into_iter();
        let endpoint = endpoints.next().ok_or(ErrorKind::InvalidAgentResponse)?;
        let fallbacks = Fallbacks::new(&endpoint, endpoints.collect(), &found.url);
        Ok(Client {
            endpoint,
            fallbacks: Arc::new(fallbacks),
            card: Some(Arc::new(found.card)),
            card_url: Some(found.url),
            ..reader
        })
    }

    /// Reads the candidate URLs in order until one returns a card.
    async fn find_card(&self, reader: &Client) -> Result<FoundCard> {
        let mut tried = Vec::new();
        let mut worst: Option<Error> = None;
        for url in candidate_urls(&reader.endpoint.url) {
            let error = match self.fetch_card(reader, &url).await {
                Ok((text, card)) => return Ok(FoundCard { url, text, card }),
                Err(error) if tried.is_empty() && is_connection_lost(&error) => return Err(error),
                Err(error) => error,
            };
            // The server does not respond any more: the other paths on it would fail too.
            let is_last = is_connection_lost(&error);
            tried.push(format!("{url} ({})", error.message()));
            worst = worst
                .filter(|worst| error_rank(worst) >= error_rank(&error))
                .or(Some(error));
            if is_last {
                break;
            }
        }
        Err(no_card_found(worst, &tried))
    }

    /// Returns the card at exactly this URL as received, from the cache or from the server. [`read_card`] parses it.
    ///
    /// Signatures cover the document as received. Redirects are followed within the same origin only.
    ///
    /// # Errors
    /// A connection error; [`ErrorKind::TaskNotFound`] if there is no document at this URL.
    pub async fn card_text(&self, url: &str) -> Result<String> {
        let endpoint = Endpoint::new(url, Binding::HttpJson, Version::V1)?;
        let reader = self.build(self.egress(), endpoint.clone());
        let limit = self.settings.timeouts.total;
        timeout(limit, self.fetch_card_text(&reader, &endpoint.url))
            .await
            .unwrap_or_else(|_| Err(deadline_exceeded(limit)))
    }

    async fn fetch_card(&self, reader: &Client, url: &Uri) -> Result<(String, AgentCard)> {
        let text = self.fetch_card_text(reader, url).await?;
        let card = parse_card(text.as_bytes())?;
        Ok((text, card))
    }

    /// Returns a fresh card from the cache, or requests it, conditionally if a stale one is cached. Only documents that
    /// parse as a card are cached.
    async fn fetch_card_text(&self, reader: &Client, url: &Uri) -> Result<String> {
        let key = url.to_string();
        let cached = self.card_cache.get(&key);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.fresh_until > now()) {
            return Ok(cached.body.clone());
        }
        let response = self
            .get_following_redirects(reader, url.clone(), cached.as_ref())
            .await?;
        let headers = response.headers().clone();
        if let (StatusCode::NOT_MODIFIED, Some(cached)) = (response.status(), cached) {
            let body = cached.body.clone();
            self.card_cache
                .put(&key, cached.revalidate(&headers, now()));
            return Ok(body);
        }
        let body = response
            .with_limit(self.settings.max_card_bytes)
            .read(card_error)
            .await?;
        let body = String::from_utf8(body)
            .map_err(|_| wire::into_invalid_agent_response(ErrorKind::Parse.into()))?;
        if let Some(cached) =
            CachedCard::new(&body, &headers, now()).filter(|_| parse_card(body.as_bytes()).is_ok())
        {
            self.card_cache.put(&key, cached);
        }
        Ok(body)
    }

    /// Requests a document and follows up to [`MAX_REDIRECTS`] redirects within its origin.
    async fn get_following_redirects(
        &self,
        reader: &Client,
        mut url: Uri,
        cached: Option<&CachedCard>,
    ) -> Result<ClientResponse> {
        for _ in 0..MAX_REDIRECTS {
            let mut request = ClientRequest::get(url.clone(), "application/json");
            request.extra_headers = cached.map(conditional_headers).unwrap_or_default();
            let response = reader.exchange(request).await?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            url = resolve_redirect(&url, response.headers())?;
        }
        Err(super::invalid_response("too many redirects"))
    }
}

fn card_error(status: u16, body: &[u8]) -> Error {
    match status {
        404 | 410 => Error::new(ErrorKind::TaskNotFound).with_message("there is no card"),
        status => read_rest_error(status, &String::from_utf8_lossy(body)),
    }
}

/// Returns the error for a failed discovery. Its kind is `Unauthenticated` or `PermissionDenied` if a server refused
/// access, else `InvalidAgentResponse`.
fn no_card_found(worst: Option<Error>, tried: &[String]) -> Error {
    let kind = match worst.map(|error| error.kind()) {
        Some(kind @ (ErrorKind::Unauthenticated | ErrorKind::PermissionDenied)) => kind,
        _ => ErrorKind::InvalidAgentResponse,
    };
    let message = format!("{}: no card found at {}", kind.message(), tried.join(", "));
    Error::new(kind).with_message(message)
}

/// Returns the target of a redirect if it has the same origin. Another origin is not followed: it may belong to another
/// party, and the request carries the caller's headers.
fn resolve_redirect(url: &Uri, headers: &HeaderMap) -> Result<Uri> {
    let location = headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .unwrap_or_default();
    let is_path = location.starts_with('/') && !location.starts_with("//");
    let next = if is_path {
        format!("{}{location}", origin(url)).parse()
    } else {
        location.parse::<Uri>()
    };
    let next = next.map_err(|_| super::invalid_response("a redirect without a valid location"))?;
    if origin(&next) == origin(url) {
        return Ok(next);
    }
    let message = format!("a redirect to {}, which is not followed", origin(&next));
    Err(super::invalid_response(&message))
}

/// Returns `If-None-Match` and `If-Modified-Since` for a cached card.
fn conditional_headers(cached: &CachedCard) -> HeaderMap {
    let value = |text: &Option<String>| HeaderValue::from_str(text.as_deref()?).ok();
    let etag = value(&cached.etag).map(|etag| (IF_NONE_MATCH, etag));
    let time = value(&cached.last_modified).map(|time| (IF_MODIFIED_SINCE, time));
    etag.into_iter().chain(time).collect()
}

fn parse_card(body: &[u8]) -> Result<AgentCard> {
    let card = read_card(body).map_err(wire::into_invalid_agent_response)?;
    if card.name.is_empty() && card.supported_interfaces.is_empty() {
        return Err(super::invalid_response("no card"));
    }
    if card.skills.len() > MAX_SKILLS {
        let message = format!("more than {MAX_SKILLS} skills");
        return Err(super::invalid_response(&message));
    }
    Ok(card)
}

/// Ranks the errors of several URLs: the most specific reason decides the kind of the final error.
fn error_rank(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => 2,
        ErrorKind::InvalidAgentResponse => 1,
        _ => 0,
    }
}

/// Returns the URLs where the card may be, most likely first.
fn candidate_urls(url: &Uri) -> Vec<Uri> {
    let base = url.path().trim_end_matches('/');
    let itself = [url.path().to_owned()];
    let below = WELL_KNOWN.iter().map(|name| format!("{base}{name}"));
    let root = WELL_KNOWN.iter().map(|name| (*name).to_owned());
    let known = below
        .chain(root)
        .chain([format!("{base}{PLATFORM_CARD_PATH}")]);
    let is_card = base.ends_with(".json") || base.ends_with("/card");
    let paths: Vec<_> = if is_card {
        itself.into_iter().chain(known).collect()
    } else {
        known.chain(itself).collect()
    };
    let query = url
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut urls: Vec<Uri> = Vec::new();
    for path in paths {
        let mut parts = url.clone().into_parts();
        parts.path_and_query = format!("{path}{query}").parse::<PathAndQuery>().ok();
        let candidate = Uri::from_parts(parts).ok();
        urls.extend(candidate.filter(|candidate| !urls.contains(candidate)));
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(url: &str) -> Vec<String> {
        candidate_urls(&url.parse().expect("valid URL"))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn cards_are_searched_below_the_url_then_at_the_root() {
        assert_eq!(
            candidates("http://a/x/?q=1"),
            [
                "http://a/x/.well-known/agent-card.json?q=1",
                "http://a/x/.well-known/agent.json?q=1",
                "http://a/.well-known/agent-card.json?q=1",
                "http://a/.well-known/agent.json?q=1",
                "http://a/x/v1/card?q=1",
                "http://a/x/?q=1",
            ]
        );
        assert_eq!(candidates("http://a").len(), 4);
        assert_eq!(
            candidates("http://a/cards/tides.json")[0],
            "http://a/cards/tides.json"
        );
    }
}
