//! Discovery: the public card, written once, for readers of every version.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

use super::grpc;
use super::place::Place;
use super::reply::{self, Reply};
use super::settings::ServerSettings;
use crate::model::{AgentCard, Binding, Error, Result, Version};
use crate::wire::card::write_card;

/// 0.3 and 1.0 look at the first, older clients at the second.
pub(super) const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The card as it goes out.
pub(super) struct Card {
    body: Bytes,
    tag: HeaderValue,
    cache: HeaderValue,
}

impl Card {
    /// What is said of an agent that is reached at `place`.
    pub(super) fn new(card: &AgentCard, settings: &ServerSettings) -> Result<Self> {
        let mut body = Vec::new();
        write_card(&mut body, &card.clone().published(), settings.card_form)?;
        let digest = Sha256::digest(&body);
        let tag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let cache = format!("public, max-age={}", settings.card_max_age.as_secs());
        Ok(Self {
            body: body.into(),
            tag: HeaderValue::from_str(&format!("\"{tag}\"")).map_err(Error::internal)?,
            cache: HeaderValue::from_str(&cache).map_err(Error::internal)?,
        })
    }

    /// The card, or that the caller has it already.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Reply {
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

/// A card that says nothing of where the agent is gets what is served at `place`, and what the server can do.
pub(super) fn complete(mut card: AgentCard, place: &Place) -> AgentCard {
    card.capabilities.streaming.get_or_insert(true);
    if !card.supported_interfaces.is_empty() {
        return card;
    }
    for version in [Version::V1, Version::V03] {
        for binding in [Binding::JsonRpc, Binding::HttpJson] {
            card = card.interface(place.url(), binding, version);
        }
        if grpc::SERVED {
            card = card.interface(place.authority(), Binding::Grpc, version);
        }
    }
    card
}
