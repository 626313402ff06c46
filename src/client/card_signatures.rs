//! Signature check of discovered cards.

use std::sync::Arc;

use async_trait::async_trait;

use super::builder::{CardCheck, ClientBuilder};
use crate::jws::{CardVerification, CardVerifier, SignaturePolicy};
use crate::model::{AgentCard, Result};

/// Card check that verifies the signatures of a card and applies a policy to the result.
struct CardSignatureCheck {
    verifier: CardVerifier,
    policy: SignaturePolicy,
}

#[async_trait]
impl CardCheck for CardSignatureCheck {
    async fn check(&self, card: &AgentCard, received: &[u8]) -> Result<()> {
        let verdict = self.verifier.verify(card, Some(received)).await;
        match &verdict {
            CardVerification::Verified { kid } => {
                tracing::debug!(kid, "card signature verified")
            }
            CardVerification::Unverifiable { reason } => {
                tracing::warn!(reason, "card signature cannot be verified")
            }
            CardVerification::Absent => tracing::warn!("card is not signed"),
        }
        verdict.check(self.policy)
    }
}

impl ClientBuilder {
    /// Verifies the signatures of every card that [`discover`](Self::discover) finds, before the card is used. A card that
    /// `policy` rejects is an error. Each result is logged.
    #[must_use]
    pub fn signatures(mut self, verifier: CardVerifier, policy: SignaturePolicy) -> Self {
        self.check = Some(Arc::new(CardSignatureCheck { verifier, policy }));
        self
    }
}
