//! Discovery: the public card, written once, for readers of every version.

use bytes::Bytes;

use crate::model::{AgentCard, Binding, Result, Version};
use crate::wire::card::{CardForm, write_card};

/// 0.3 and 1.0 look at the first, older clients at the second.
pub(super) const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The card as it goes out.
pub(super) struct Card(Bytes);

impl Card {
    /// A card that says nothing of where the agent is gets what is served at `url`.
    pub(super) fn new(card: AgentCard, url: &str) -> Result<Self> {
        let card = match card.supported_interfaces[..] {
            [] => card.interface(url, Binding::JsonRpc, Version::V1).interface(
                url,
                Binding::JsonRpc,
                Version::V03,
            ),
            _ => card,
        };
        let mut out = Vec::new();
        write_card(&mut out, &card.published(), CardForm::Union)?;
        Ok(Self(out.into()))
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}
