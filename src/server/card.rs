//! Discovery: public cards, written once, for readers of every version.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use super::grpc;
use super::place::Place;
use super::reply::{self, Reply};
use super::settings::ServerSettings;
use crate::model::{AgentCard, AgentInterface, Binding, Error, Result, Version};
use crate::wire::card::write_card;

/// 0.3 and 1.0 look at the first, older clients at the second.
pub(super) const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
/// Below this are the agents that are not at the root, by their names.
pub(super) const AGENTS: &str = "agents/";
/// Where all agents of a server are listed.
pub(super) const CATALOG: &str = "/.well-known/ai-catalog.json";

/// The card of one agent, wherever it is seen from.
pub(super) struct Card {
    card: AgentCard,
    /// Below the root of the server.
    path: String,
    /// As it is seen from where the server knows itself to be.
    known: Document,
}

impl Card {
    /// The card of an agent that is served at a path below `root`; empty at the root itself.
    pub(super) fn new(
        card: AgentCard,
        root: &Place,
        path: String,
        settings: &ServerSettings,
    ) -> Result<Self> {
        let known = Document::card(&card, root, &path, settings)?;
        Ok(Self { card, path, known })
    }

    /// The card, as a caller sees it who came by way of `root`.
    pub(super) fn answer(
        &self,
        headers: &HeaderMap,
        root: Option<&Place>,
        settings: &ServerSettings,
    ) -> Result<Reply> {
        let Some(root) = root else { return Ok(self.known.answer(headers)) };
        let mut reply = Document::card(&self.card, root, &self.path, settings)?.answer(headers);
        reply.headers_mut().insert(VARY, HeaderValue::from_static("X-Forwarded-Host, X-Forwarded-Proto"));
        Ok(reply)
    }

    /// Its line in the catalog.
    fn entry(&self, root: &Place) -> serde_json::Value {
        let url = root.below(&self.path).url();
        serde_json::json!({
            "identifier": url,
            "displayName": self.card.name,
            "type": "application/a2a-agent-card+json",
            "url": format!("{}{}", url.trim_end_matches('/'), PATHS[0]),
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
struct Document {
    body: Bytes,
    tag: HeaderValue,
    cache: HeaderValue,
}

impl Document {
    fn card(card: &AgentCard, root: &Place, path: &str, settings: &ServerSettings) -> Result<Self> {
        let mut body = Vec::new();
        write_card(&mut body, &complete(card.clone(), root, path).published(), settings.card_form)?;
        Self::new(body, settings)
    }

    fn new(body: Vec<u8>, settings: &ServerSettings) -> Result<Self> {
        let digest = Sha256::digest(&body);
        let tag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let cache = format!("public, max-age={}", settings.card_max_age.as_secs());
        Ok(Self {
            body: body.into(),
            tag: HeaderValue::from_str(&format!("\"{tag}\"")).map_err(Error::internal)?,
            cache: HeaderValue::from_str(&cache).map_err(Error::internal)?,
        })
    }

    /// The document, or that the caller has it already.
    fn answer(&self, headers: &HeaderMap) -> Reply {
        let known = headers.get_all(IF_NONE_MATCH).iter().any(|tags| self.is_among(tags));
        let mut reply = match known {
            true => reply::empty(StatusCode::NOT_MODIFIED),
            false => reply::json(StatusCode::OK, self.body.clone()),
        };
        reply.headers_mut().insert(ETAG, self.tag.clone());
        reply.headers_mut().insert(CACHE_CONTROL, self.cache.clone());
        reply
    }

    fn is_among(&self, tags: &HeaderValue) -> bool {
        let Ok(tags) = tags.to_str() else { return false };
        let mut tags = tags.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.any(|tag| tag == "*" || tag == self.tag)
    }
}

/// A card that says nothing of where the agent is gets what is served below `root`.
pub(super) fn complete(mut card: AgentCard, root: &Place, path: &str) -> AgentCard {
    if card.supported_interfaces.is_empty() {
        let url = root.below(path).url();
        for version in [Version::V1, Version::V03] {
            for binding in [Binding::JsonRpc, Binding::HttpJson] {
                card = card.interface(&url, binding, version);
            }
            card.supported_interfaces.extend(over_grpc(root, path, version));
        }
    }
    card
}

/// gRPC has no paths: an agent that is not at the root is reached there by its name, which 0.3 cannot say.
fn over_grpc(root: &Place, path: &str, version: Version) -> Option<AgentInterface> {
    let interface = AgentInterface::new(root.authority(), Binding::Grpc, version);
    let name =
        path.strip_prefix(AGENTS).map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned());
    (grpc::SERVED && (name.is_none() || version == Version::V1))
        .then_some(AgentInterface { tenant: name, ..interface })
}
