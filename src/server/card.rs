//! Discovery documents: agent cards, the catalog of agents, and the key set.
//!
//! The documents are encoded when routes are built. Only a card behind a trusted proxy is encoded
//! per request.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderValue, VARY};
use serde::{Deserialize, Serialize};

use super::base_url::BaseUrl;
use super::bindings::grpc;
use super::document::Document;
use super::reply::Reply;
use super::settings::ServerSettings;
use crate::model::{AgentCard, Binding, Error, Result};
use crate::wire::card::{CardForm, ServerInterfaces, WELL_KNOWN, write_card};
use crate::wire::path::encode_segment;

/// Path of the catalog of all agents.
pub(super) const CATALOG_PATH: &str = "/.well-known/ai-catalog.json";

/// Path of the public keys that verify cards and notifications.
pub(super) const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// Callers that may read the public card of an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CardAccess {
    /// All callers.
    #[default]
    Public,
    /// Authenticated callers. The catalog does not list the agent.
    Authenticated,
}

/// Settings of the card of one agent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CardOptions {
    pub(super) access: CardAccess,
    /// Format at all paths. `None`: that of the server.
    pub(super) form: Option<CardForm>,
}

/// Public card of one agent.
pub(super) struct PublishedCard {
    /// Card without the interfaces of this server.
    card: AgentCard,
    /// Card with the server's own base URL.
    #[cfg(feature = "grpc")]
    complete: AgentCard,
    /// Name of the agent below the root, `None` for the root agent.
    tenant: Option<String>,
    options: CardOptions,
    /// Encoded card with the server's own base URL, for each path of [`WELL_KNOWN`].
    default_documents: [Document; 2],
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
        options: CardOptions,
        settings: &ServerSettings,
        sign: impl FnOnce(&mut AgentCard) -> Result<()>,
    ) -> Result<Self> {
        let complete = with_default_interfaces(card.clone(), base_url, tenant.as_deref(), settings);
        let mut complete = complete.with_default_skill();
        sign(&mut complete)?;
        let document = |path| encode(&complete, path, options, settings);
        let default_documents = [document(WELL_KNOWN[0])?, document(WELL_KNOWN[1])?];
        Ok(Self {
            card,
            #[cfg(feature = "grpc")]
            complete,
            tenant,
            options,
            default_documents,
        })
    }

    /// Keeps `Last-Modified` of the documents that a reload does not change.
    pub(super) fn keep_modification_times(&mut self, previous: &Self) {
        let documents = self.default_documents.iter_mut();
        for (document, previous) in documents.zip(&previous.default_documents) {
            document.keep_modification_time(previous);
        }
    }

    /// Returns the card with the server's own base URL.
    #[cfg(feature = "grpc")]
    pub(super) fn complete_card(&self) -> &AgentCard {
        &self.complete
    }

    /// Whether only authenticated callers may read the card.
    pub(super) fn needs_authentication(&self) -> bool {
        match self.options.access {
            CardAccess::Public => false,
            CardAccess::Authenticated => true,
        }
    }

    /// Returns the card in the form of its path. `forwarded` is the base URL that a trusted proxy
    /// reports, if any.
    ///
    /// # Errors
    /// Encoding failed.
    pub(super) fn reply(
        &self,
        path: &str,
        headers: &HeaderMap,
        forwarded: Option<&BaseUrl>,
        settings: &ServerSettings,
    ) -> Result<Reply> {
        let [newer, older] = &self.default_documents;
        let document = if path == WELL_KNOWN[0] { newer } else { older };
        let mut reply = match forwarded {
            None => document.reply(headers),
            Some(base_url) => {
                let card = self.card.clone();
                let card =
                    with_default_interfaces(card, base_url, self.tenant.as_deref(), settings);
                let forwarded = encode(&card.with_default_skill(), path, self.options, settings)?;
                forwarded.modified_with(document).reply(headers)
            }
        };
        if forwarded.is_some() {
            reply.headers_mut().insert(
                VARY,
                HeaderValue::from_static("X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix"),
            );
        }
        if self.needs_authentication() {
            let max_age = settings.card_max_age.as_secs();
            let value = format!("private, max-age={max_age}");
            let value = HeaderValue::try_from(value).map_err(Error::internal)?;
            reply.headers_mut().insert(CACHE_CONTROL, value);
        }
        Ok(reply)
    }

    fn catalog_entry(&self, base_url: &BaseUrl) -> serde_json::Value {
        let agent_url = base_url.join(&agent_path(self.tenant.as_deref()));
        serde_json::json!({
            "identifier": agent_url.url(),
            "displayName": self.card.name,
            "type": "application/a2a-agent-card+json",
            "url": format!("{}{}", agent_url.card_url(), WELL_KNOWN[0]),
        })
    }
}

/// Encodes a card in the form of a path.
fn encode(
    card: &AgentCard,
    path: &str,
    options: CardOptions,
    settings: &ServerSettings,
) -> Result<Document> {
    let form = options.form.unwrap_or_else(|| settings.form_at(path));
    let mut body = Vec::new();
    write_card(&mut body, card, form)?;
    Document::new(body, settings).map(Document::modified_now)
}

/// Returns the catalog of all agents whose cards are public.
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
        .filter(|card| !card.needs_authentication())
        .map(|card| card.catalog_entry(base_url))
        .collect();
    let catalog = serde_json::json!({"specVersion": "1.0", "entries": entries});
    Ok(Document::new(catalog.to_string().into_bytes(), settings)?.reply(headers))
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
    settings: &ServerSettings,
) -> AgentCard {
    let bindings: Vec<Binding> = settings
        .bindings
        .iter()
        .map(|served| served.binding())
        .filter(|binding| grpc::IS_ENABLED || *binding != Binding::Grpc)
        .collect();
    let authority = base_url.authority();
    let grpc_url = base_url.grpc_url();
    let interfaces = ServerInterfaces {
        bindings: &bindings,
        url: &base_url.join(&agent_path(tenant)).card_url(),
        grpc_authority: &authority,
        grpc_v03_url: if settings.grpc_scheme_on_card {
            &grpc_url
        } else {
            &authority
        },
        grpc_on_card: settings.grpc_on_card,
        tenant,
    };
    interfaces.add_to(&mut card);
    card
}
