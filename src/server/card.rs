//! Discovery: public cards, written once, for readers of every version.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

use super::grpc;
use super::place::Place;
use super::reply::{self, Reply};
use super::settings::ServerSettings;
use crate::model::{AgentCard, Binding, Error, Result, Version};
use crate::wire::card::{WELL_KNOWN, write_card};
use crate::wire::path::segment;

/// Where all agents of a server are listed.
pub(super) const CATALOG: &str = "/.well-known/ai-catalog.json";

/// Where the keys are that cards are signed with.
pub(super) const KEY_SET: &str = "/.well-known/jwks.json";

/// The card of one agent, wherever it is seen from.
pub(super) struct Card {
    card: AgentCard,
    /// Under which it is found at the root, if it is not the one there.
    tenant: Option<String>,
    /// As it is seen from where the server knows itself to be.
    known: Document,
}

impl Card {
    /// The card of the agent at the root, or of another of this name; `seal` signs it as it is shown.
    pub(super) fn new(
        card: AgentCard,
        root: &Place,
        tenant: Option<String>,
        settings: &ServerSettings,
        seal: impl FnOnce(&mut AgentCard) -> Result<()>,
    ) -> Result<Self> {
        let mut known = complete(card.clone(), root, tenant.as_deref()).published();
        seal(&mut known)?;
        let known = Document::card(known, settings)?;
        Ok(Self {
            card,
            tenant,
            known,
        })
    }

    /// The card, as a caller sees it who came by way of `root`.
    pub(super) fn answer(
        &self,
        headers: &HeaderMap,
        root: Option<&Place>,
        settings: &ServerSettings,
    ) -> Result<Reply> {
        let Some(root) = root else {
            return Ok(self.known.answer(headers));
        };
        let card = complete(self.card.clone(), root, self.tenant.as_deref());
        let mut reply = Document::card(card, settings)?.answer(headers);
        reply.headers_mut().insert(
            VARY,
            HeaderValue::from_static("X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix"),
        );
        Ok(reply)
    }

    /// Its line in the catalog.
    fn entry(&self, root: &Place) -> serde_json::Value {
        let url = root.below(&path(self.tenant.as_deref())).url();
        serde_json::json!({
            "identifier": url,
            "displayName": self.card.name,
            "type": "application/a2a-agent-card+json",
            "url": format!("{}{}", url.trim_end_matches('/'), WELL_KNOWN[0]),
        })
    }
}

/// All agents of a server.
pub(super) fn catalog(
    cards: &[Card],
    headers: &HeaderMap,
    root: &Place,
    settings: &ServerSettings,
) -> Result<Reply> {
    let entries: Vec<_> = cards.iter().map(|card| card.entry(root)).collect();
    let catalog = serde_json::json!({"specVersion": "1.0", "entries": entries});
    Ok(Document::new(catalog.to_string().into_bytes(), settings)?.answer(headers))
}

/// JSON that clients may keep.
pub(super) struct Document {
    body: Bytes,
    tag: HeaderValue,
    cache: HeaderValue,
}

impl Document {
    fn card(card: AgentCard, settings: &ServerSettings) -> Result<Self> {
        let mut body = Vec::new();
        write_card(&mut body, &card.published(), settings.card_form)?;
        Self::new(body, settings)
    }

    pub(super) fn new(body: Vec<u8>, settings: &ServerSettings) -> Result<Self> {
        let digest = Sha256::digest(&body);
        let tag: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let cache = format!("public, max-age={}", settings.card_max_age.as_secs());
        Ok(Self {
            body: body.into(),
            tag: HeaderValue::from_str(&format!("\"{tag}\"")).map_err(Error::internal)?,
            cache: HeaderValue::from_str(&cache).map_err(Error::internal)?,
        })
    }

    /// The document, or that the caller has it already.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Reply {
        let known = headers
            .get_all(IF_NONE_MATCH)
            .iter()
            .any(|tags| self.is_among(tags));
        let mut reply = match known {
            true => reply::empty(StatusCode::NOT_MODIFIED),
            false => reply::json(StatusCode::OK, self.body.clone()),
        };
        reply.headers_mut().insert(ETAG, self.tag.clone());
        reply
            .headers_mut()
            .insert(CACHE_CONTROL, self.cache.clone());
        reply
    }

    fn is_among(&self, tags: &HeaderValue) -> bool {
        let Ok(tags) = tags.to_str() else {
            return false;
        };
        let mut tags = tags
            .split(',')
            .map(|tag| tag.trim().trim_start_matches("W/"));
        tags.any(|tag| tag == "*" || tag == self.tag)
    }
}

/// Where an agent is below the root.
fn path(tenant: Option<&str>) -> String {
    tenant
        .map(|name| format!("agents/{}", segment(name)))
        .unwrap_or_default()
}

/// A card that says nothing of where the agent is gets what is served at `root`, or below it under a name.
pub(super) fn complete(mut card: AgentCard, root: &Place, tenant: Option<&str>) -> AgentCard {
    if !card.supported_interfaces.is_empty() {
        return card;
    }
    let place = root.below(&path(tenant));
    for version in Version::ALL {
        for binding in [Binding::JsonRpc, Binding::HttpJson] {
            card = card.interface(place.url(), binding, version);
        }
        // A gRPC service has no path: behind the first agent one is found by its name as the tenant, if the version
        // has tenants.
        if grpc::SERVED && (tenant.is_none() || version.has_tenants()) {
            card = card.interface(root.authority(), Binding::Grpc, version);
            if let Some(interface) = card.supported_interfaces.last_mut() {
                interface.tenant = tenant.map(str::to_owned);
            }
        }
    }
    card
}
