//! From an address to a client: finds the card, and takes the best of the ways it offers.

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
use super::retry::{deadline_exceeded, is_connection_lost};
use crate::model::{AgentCard, Binding, Error, ErrorKind, Result, Version};
use crate::wire;
use crate::wire::card::{WELL_KNOWN, read_card};
use crate::wire::errors::read_rest_error;

/// The name that one kind of platform has for its cards.
const PLATFORM_CARD_PATH: &str = "/v1/card";
/// How often a card may say that it is elsewhere on its server.
const MAX_REDIRECTS: usize = 3;
/// An agent that says it can do more than that says nothing.
const MAX_SKILLS: usize = 10_000;

impl Client {
    /// Finds the card of the agent at this url, and makes a client of the first of its interfaces that we speak.
    /// [`card`](Self::card) gives the card.
    ///
    /// The url is that of the agent or of the card itself. Tried are both well-known names below it and at the root
    /// of its server, and `/v1/card`. A redirect is followed on the same server only. Where the card names another server,
    /// it leads no further inside than it came from itself: one from the internet leads to no private address, and none
    /// from https to http ([`ClientBuilder::trust`] says otherwise).
    ///
    /// # Errors
    /// Of the connection; no card anywhere, with all that was tried; a card without an interface that we speak.
    pub async fn discover(url: &str) -> Result<Self> {
        Self::builder().discover(url).await
    }
}

impl ClientBuilder {
    /// Finds the card of the agent at this url, and makes a client of it; see [`Client::discover`].
    ///
    /// # Errors
    /// As [`Client::discover`].
    pub async fn discover(&self, url: &str) -> Result<Client> {
        let endpoint = Endpoint::new(url, Binding::HttpJson, Version::V1)?;
        let reader = self.build(self.following_document(&endpoint.url), endpoint);
        let limit = self.settings.timeouts.total;
        let found = timeout(limit, self.find_card(&reader)).await;
        let offered = found
            .unwrap_or_else(|_| Err(deadline_exceeded(limit)))
            .and_then(|(from, text, card)| {
                let endpoints = select_endpoints(&card, &from, &self.settings.interface)?;
                Ok((from, text, card, endpoints))
            });
        let (from, text, card, endpoints) = match offered {
            Ok(offered) => offered,
            // Somebody answers there, but has nothing that is ours.
            Err(error)
                if error.kind() == ErrorKind::InvalidAgentResponse
                    && self.settings.chat_completions.is_some() =>
            {
                return Ok(Client {
                    is_chat_peer: true,
                    ..reader
                });
            }
            Err(error) => return Err(error),
        };
        if let Some(check) = &self.check {
            check.check(&card, text.as_bytes()).await?;
        }
        let mut endpoints = endpoints.into_iter();
        let endpoint = endpoints.next().ok_or(ErrorKind::InvalidAgentResponse)?;
        let (fallbacks, card, card_url) = (
            Arc::new(Fallbacks::new(endpoints.collect())),
            Some(Arc::new(card)),
            Some(from),
        );
        Ok(Client {
            endpoint,
            fallbacks,
            card,
            card_url,
            ..reader
        })
    }

    /// Where a card is, as it was received, and what it says.
    async fn find_card(&self, reader: &Client) -> Result<(Uri, String, AgentCard)> {
        let (mut tried, mut worst) = (Vec::new(), None);
        for url in candidate_urls(&reader.endpoint.url) {
            let error = match self.fetch_card(reader, &url).await {
                Ok((text, card)) => return Ok((url, text, card)),
                Err(error) if tried.is_empty() && is_connection_lost(&error) => return Err(error),
                Err(error) => error,
            };
            // Nobody is there, or they do not speak: it is no use to look further.
            let is_last = is_connection_lost(&error);
            tried.push(format!("{url} ({})", error.message()));
            worst = worst
                .filter(|worst| error_rank(worst) >= error_rank(&error))
                .or(Some(error));
            if is_last {
                break;
            }
        }
        let kind = worst.map_or(ErrorKind::InvalidAgentResponse, |worst| {
            match worst.kind() {
                kind @ (ErrorKind::Unauthenticated | ErrorKind::PermissionDenied) => kind,
                _ => ErrorKind::InvalidAgentResponse,
            }
        });
        let message = format!("{}: no card found at {}", kind.message(), tried.join(", "));
        Err(Error::new(kind).with_message(message))
    }

    /// The card at this very url as it was received, which is what is signed: from where cards are kept, or from
    /// there. A redirect is followed on the same server only. [`read_card`] reads it.
    ///
    /// # Errors
    /// Of the connection; [`ErrorKind::TaskNotFound`] when there is nothing at that url.
    pub async fn card_text(&self, url: &str) -> Result<String> {
        let endpoint = Endpoint::new(url, Binding::HttpJson, Version::V1)?;
        let (reader, limit) = (
            self.build(self.egress(), endpoint.clone()),
            self.settings.timeouts.total,
        );
        timeout(limit, self.fetch_card_text(&reader, &endpoint.url))
            .await
            .unwrap_or_else(|_| Err(deadline_exceeded(limit)))
    }

    /// The card at this very place, from memory or from there.
    async fn fetch_card(&self, reader: &Client, url: &Uri) -> Result<(String, AgentCard)> {
        let text = self.fetch_card_text(reader, url).await?;
        let card = parse_card(text.as_bytes())?;
        Ok((text, card))
    }

    /// The same as text; what is no card is not kept.
    async fn fetch_card_text(&self, reader: &Client, url: &Uri) -> Result<String> {
        let name = url.to_string();
        let cached = self.card_cache.get(&name);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.fresh_until > now()) {
            return Ok(cached.body.clone());
        }
        let answer = self
            .get_following_redirects(reader, url.clone(), cached.as_ref())
            .await?;
        let headers = answer.headers().clone();
        if let (StatusCode::NOT_MODIFIED, Some(cached)) = (answer.status(), cached) {
            let body = cached.body.clone();
            self.card_cache
                .put(&name, cached.revalidated(&headers, now()));
            return Ok(body);
        }
        let failure = |status, body: &[u8]| match status {
            404 | 410 => Error::new(ErrorKind::TaskNotFound).with_message("there is no card"),
            status => read_rest_error(status, &String::from_utf8_lossy(body)),
        };
        let body = answer
            .with_limit(self.settings.max_card_bytes)
            .read(failure)
            .await?;
        let body = String::from_utf8(body)
            .map_err(|_| wire::into_invalid_agent_response(ErrorKind::Parse.into()))?;
        if let Some(cached) =
            CachedCard::new(&body, &headers, now()).filter(|_| parse_card(body.as_bytes()).is_ok())
        {
            self.card_cache.put(&name, cached);
        }
        Ok(body)
    }

    /// Asks for a document, wherever on its own server it is now.
    async fn get_following_redirects(
        &self,
        reader: &Client,
        mut url: Uri,
        cached: Option<&CachedCard>,
    ) -> Result<ClientResponse> {
        for _ in 0..MAX_REDIRECTS {
            let mut get_following_redirects = ClientRequest::get(url.clone(), "application/json");
            get_following_redirects.extra_headers =
                cached.map(conditional_headers).unwrap_or_default();
            let answer = reader.exchange(get_following_redirects).await?;
            if !answer.status().is_redirection() || answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(answer);
            }
            url = resolve_redirect(&url, answer.headers())?;
        }
        Err(super::invalid_response("one redirect after another"))
    }
}

/// Another server may be anybody's: whoever trusts it names it.
fn resolve_redirect(url: &Uri, headers: &HeaderMap) -> Result<Uri> {
    let location = headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .unwrap_or_default();
    let next = match location.starts_with('/') && !location.starts_with("//") {
        true => format!("{}{location}", origin(url)).parse(),
        false => location.parse::<Uri>(),
    };
    let next = next.map_err(|_| super::invalid_response("a redirect to nowhere"))?;
    match origin(&next) == origin(url) {
        true => Ok(next),
        false => Err(super::invalid_response(&format!(
            "a redirect to {}, which is not followed",
            origin(&next)
        ))),
    }
}

fn conditional_headers(cached: &CachedCard) -> HeaderMap {
    let value = |text: &Option<String>| HeaderValue::from_str(text.as_deref()?).ok();
    let etag = value(&cached.etag).map(|etag| (IF_NONE_MATCH, etag));
    let time = value(&cached.last_modified).map(|time| (IF_MODIFIED_SINCE, time));
    etag.into_iter().chain(time).collect()
}

fn parse_card(body: &[u8]) -> Result<AgentCard> {
    let card = read_card(body).map_err(wire::into_invalid_agent_response)?;
    match (
        card.name.is_empty() && card.supported_interfaces.is_empty(),
        card.skills.len() > MAX_SKILLS,
    ) {
        (false, false) => Ok(card),
        (true, _) => Err(super::invalid_response("no card")),
        (_, true) => Err(super::invalid_response(&format!(
            "more than {MAX_SKILLS} skills"
        ))),
    }
}

/// What says most about why there is no card.
fn error_rank(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => 2,
        ErrorKind::InvalidAgentResponse => 1,
        _ => 0,
    }
}

/// Where a card may be, the likeliest first.
fn candidate_urls(url: &Uri) -> Vec<Uri> {
    let base = url.path().trim_end_matches('/');
    let itself = [url.path().to_owned()];
    let below = WELL_KNOWN.iter().map(|name| format!("{base}{name}"));
    let root = WELL_KNOWN.iter().map(|name| (*name).to_owned());
    let known = below
        .chain(root)
        .chain([format!("{base}{PLATFORM_CARD_PATH}")]);
    let is_card = base.ends_with(".json") || base.ends_with("/card");
    let paths: Vec<_> = match is_card {
        true => itself.into_iter().chain(known).collect(),
        false => known.chain(itself).collect(),
    };
    let mut candidate_urls: Vec<Uri> = Vec::new();
    for path in paths {
        let query = url
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        let mut parts = url.clone().into_parts();
        parts.path_and_query = format!("{path}{query}").parse::<PathAndQuery>().ok();
        candidate_urls.extend(
            Uri::from_parts(parts)
                .ok()
                .filter(|place| !candidate_urls.contains(place)),
        );
    }
    candidate_urls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(url: &str) -> Vec<String> {
        candidate_urls(&url.parse().expect("a url"))
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
