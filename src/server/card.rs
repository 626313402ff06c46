//! Discovery documents: agent cards, the catalog of agents, and the key set.
//!
//! The documents are encoded when routes are built. Only a card behind a trusted proxy is encoded
//! per request.

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

/// Path of the catalog of all agents.
pub(super) const CATALOG_PATH: &str = "/.well-known/ai-catalog.json";

/// Path of the public keys that verify cards and notifications.
pub(super) const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// Public card of one agent.
pub(super) struct PublishedCard {
    card: AgentCard,
    /// Name of the agent below the root, `None` for the root agent.
    tenant: Option<String>,
    /// Encoded card with the server's own base URL.
    default_document: Document,
}

impl PublishedCard {
    /// Encodes the card for the server's own base URL. `sign` signs the complete card.
    ///
    /// # Errors
    /// Signing or encoding failed.
    pub(super) fn new(
        card: AgentCard,
        base_url: &BaseUrl,
        tenant: Option<String>,
        settings: &ServerSettings,
        sign: impl FnOnce(&mut AgentCard) -> Result<()>,
    ) -> Result<Self> {
        let mut complete =
            with_default_interfaces(card.clone(), base_url, tenant.as_deref()).with_default_skill();
        sign(&mut complete)?;
        Ok(Self {
            card,
            tenant,
            default_document: Document::from_card(complete, settings)?,
        })
    }

    /// Returns the card. `forwarded` is the base URL that a trusted proxy reports, if any.
    ///
    /// # Errors
    /// Encoding failed.
    pub(super) fn reply(
        &self,
        headers: &HeaderMap,
        forwarded: Option<&BaseUrl>,
        settings: &ServerSettings,
    ) -> Result<Reply> {
        let Some(base_url) = forwarded else {
            return Ok(self.default_document.reply(headers));
        };
        let card = with_default_interfaces(self.card.clone(), base_url, self.tenant.as_deref());
        let mut reply = Document::from_card(card, settings)?.reply(headers);
        reply.headers_mut().insert(
            VARY,
            HeaderValue::from_static("X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix"),
        );
        Ok(reply)
    }

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

/// Returns the catalog of all agents.
///
/// # Errors
/// Encoding failed.
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

/// JSON document that clients may cache: body, `ETag` and `Cache-Control`.
pub(super) struct Document {
    body: Bytes,
    etag: HeaderValue,
    cache_control: HeaderValue,
}

impl Document {
    fn from_card(card: AgentCard, settings: &ServerSettings) -> Result<Self> {
        let mut body = Vec::new();
        write_card(&mut body, &card.with_default_skill(), settings.card_form)?;
        Self::new(body, settings)
    }

    /// Creates a document. Its `ETag` is a hash of the body.
    ///
    /// # Errors
    /// Internal: a header value is invalid, which ASCII values never are.
    pub(super) fn new(body: Vec<u8>, settings: &ServerSettings) -> Result<Self> {
        let digest = Sha256::digest(&body);
        let hash: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let cache_control = format!("public, max-age={}", settings.card_max_age.as_secs());
        Ok(Self {
            body: body.into(),
            etag: HeaderValue::from_str(&format!("\"{hash}\"")).map_err(Error::internal)?,
            cache_control: HeaderValue::from_str(&cache_control).map_err(Error::internal)?,
        })
    }

    /// Returns the document, or status 304 if `If-None-Match` has its `ETag`.
    pub(super) fn reply(&self, headers: &HeaderMap) -> Reply {
        let is_cached = headers
            .get_all(IF_NONE_MATCH)
            .iter()
            .any(|etags| self.matches_etag(etags));
        let mut reply = if is_cached {
            reply::empty(StatusCode::NOT_MODIFIED)
        } else {
            reply::json(StatusCode::OK, self.body.clone())
        };
        let headers = reply.headers_mut();
        headers.insert(ETAG, self.etag.clone());
        headers.insert(CACHE_CONTROL, self.cache_control.clone());
        reply
    }

    fn matches_etag(&self, etags: &HeaderValue) -> bool {
        let Ok(etags) = etags.to_str() else {
            return false;
        };
        let mut etags = etags
            .split(',')
            .map(|etag| etag.trim().trim_start_matches("W/"));
        etags.any(|etag| etag == "*" || etag == self.etag)
    }
}

/// Returns the path of an agent below the base URL, without slashes around it.
fn agent_path(tenant: Option<&str>) -> String {
    tenant
        .map(|name| format!("agents/{}", encode_segment(name)))
        .unwrap_or_default()
}

/// Adds the interfaces that this server provides to a card that declares none.
pub(super) fn with_default_interfaces(
    mut card: AgentCard,
    base_url: &BaseUrl,
    tenant: Option<&str>,
) -> AgentCard {
    if !card.supported_interfaces.is_empty() {
        return card;
    }
    let agent_url = base_url.join(&agent_path(tenant)).url();
    for version in Version::ALL {
        for binding in [Binding::JsonRpc, Binding::HttpJson] {
            card = card.interface(agent_url.clone(), binding, version);
        }
        // gRPC has no base path. Agents below the root are addressed by tenant, in versions that
        // have tenants.
        if grpc::IS_ENABLED && (tenant.is_none() || version.has_tenants()) {
            card = card.interface(base_url.authority(), Binding::Grpc, version);
            if let Some(interface) = card.supported_interfaces.last_mut() {
                interface.tenant = tenant.map(str::to_owned);
            }
        }
    }
    card
}
