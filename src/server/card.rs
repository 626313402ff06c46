//! Discovery: public cards, written once, for readers of every version.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

use super::base_url::BaseUrl;
use super::bindings::grpc;
use super::reply::{self, Reply};
use super::settings::ServerSettings;
use crate::model::{AgentCard, Binding, Error, Result, Version};
use crate::wire::card::{WELL_KNOWN, write_card};
use crate::wire::path::encode_segment;

/// Where all agents of a server are listed.
pub(super) const CATALOG_PATH: &str = "/.well-known/ai-catalog.json";

/// Where the keys are that cards are signed with.
pub(super) const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// The card of one agent, wherever it is seen from.
pub(super) struct PublishedCard {
    card: AgentCard,
    /// Under which it is found at the base_url, if it is not the one there.
    tenant: Option<String>,
    /// As it is seen from where the server knows itself to be.
    default_document: Document,
}

impl PublishedCard {
    /// The card of the agent at the base_url, or of another of this name; `seal` signs it as it is shown.
    pub(super) fn new(
        card: AgentCard,
        base_url: &BaseUrl,
        tenant: Option<String>,
        settings: &ServerSettings,
        sign: impl FnOnce(&mut AgentCard) -> Result<()>,
    ) -> Result<Self> {
        let mut default_document =
            with_default_interfaces(card.clone(), base_url, tenant.as_deref()).with_default_skill();
        sign(&mut default_document)?;
        let default_document = Document::card(default_document, settings)?;
        Ok(Self {
            card,
            tenant,
            default_document,
        })
    }

    /// The card, as a caller sees it who came by way of `root`.
    pub(super) fn reply(
        &self,
        headers: &HeaderMap,
        base_url: Option<&BaseUrl>,
        settings: &ServerSettings,
    ) -> Result<Reply> {
        let Some(base_url) = base_url else {
            return Ok(self.default_document.reply(headers));
        };
        let card = with_default_interfaces(self.card.clone(), base_url, self.tenant.as_deref());
        let mut reply = Document::card(card, settings)?.reply(headers);
        reply.headers_mut().insert(
            VARY,
            HeaderValue::from_static("X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix"),
        );
        Ok(reply)
    }

    /// Its line in the catalog.
    fn catalog_entry(&self, base_url: &BaseUrl) -> serde_json::Value {
        let url = base_url.join(&agent_path(self.tenant.as_deref())).url();
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
    cards: &[PublishedCard],
    headers: &HeaderMap,
    base_url: &BaseUrl,
    settings: &ServerSettings,
) -> Result<Reply> {
    let entries: Vec<_> = cards
        .iter()
        .map(|card| card.catalog_entry(base_url))
        .collect();
    let catalog = serde_json::json!({"specVersion": "1.0", "entries": entries});
    Ok(Document::new(catalog.to_string().into_bytes(), settings)?.reply(headers))
}

/// JSON that clients may keep.
pub(super) struct Document {
    body: Bytes,
    etag: HeaderValue,
    cache_control: HeaderValue,
}

impl Document {
    fn card(card: AgentCard, settings: &ServerSettings) -> Result<Self> {
        let mut body = Vec::new();
        write_card(&mut body, &card.with_default_skill(), settings.card_form)?;
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
            etag: HeaderValue::from_str(&format!("\"{tag}\"")).map_err(Error::internal)?,
            cache_control: HeaderValue::from_str(&cache).map_err(Error::internal)?,
        })
    }

    /// The document, or that the caller has it already.
    pub(super) fn reply(&self, headers: &HeaderMap) -> Reply {
        let is_cached = headers
            .get_all(IF_NONE_MATCH)
            .iter()
            .any(|tags| self.matches_etag(tags));
        let mut reply = match is_cached {
            true => reply::empty(StatusCode::NOT_MODIFIED),
            false => reply::json(StatusCode::OK, self.body.clone()),
        };
        reply.headers_mut().insert(ETAG, self.etag.clone());
        reply
            .headers_mut()
            .insert(CACHE_CONTROL, self.cache_control.clone());
        reply
    }

    fn matches_etag(&self, tags: &HeaderValue) -> bool {
        let Ok(tags) = tags.to_str() else {
            return false;
        };
        let mut tags = tags
            .split(',')
            .map(|tag| tag.trim().trim_start_matches("W/"));
        tags.any(|tag| tag == "*" || tag == self.etag)
    }
}

/// Where an agent is below the base_url.
fn agent_path(tenant: Option<&str>) -> String {
    tenant
        .map(|name| format!("agents/{}", encode_segment(name)))
        .unwrap_or_default()
}

/// A card that says nothing of where the agent is gets what is served at `root`, or below it under a name.
pub(super) fn with_default_interfaces(
    mut card: AgentCard,
    base_url: &BaseUrl,
    tenant: Option<&str>,
) -> AgentCard {
    if !card.supported_interfaces.is_empty() {
        return card;
    }
    let base = base_url.join(&agent_path(tenant));
    for version in Version::ALL {
        for binding in [Binding::JsonRpc, Binding::HttpJson] {
            card = card.interface(base.url(), binding, version);
        }
        // A gRPC service has no path: behind the first agent one is found by its name as the tenant, if the version
        // has tenants.
        if grpc::IS_ENABLED && (tenant.is_none() || version.has_tenants()) {
            card = card.interface(base_url.authority(), Binding::Grpc, version);
            if let Some(interface) = card.supported_interfaces.last_mut() {
                interface.tenant = tenant.map(str::to_owned);
            }
        }
    }
    card
}
