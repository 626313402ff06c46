//! Discovery: the public card, written once.

use bytes::Bytes;

use crate::model::{AgentCard, Binding, Version};
use crate::wire;

/// 0.3 and 1.0 look at the first, older clients at the second.
pub(super) const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The card as it goes out.
pub(super) struct Card(Bytes);

impl Card {
    /// A card that says nothing of where the agent is gets what is served at `url`.
    pub(super) fn new(card: AgentCard, url: &str) -> Self {
        let card = match card.supported_interfaces[..] {
            [] => card.interface(url, Binding::JsonRpc, Version::V1),
            _ => card,
        };
        let mut out = Vec::new();
        wire::write(&mut out, &card.published());
        Self(out.into())
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}
