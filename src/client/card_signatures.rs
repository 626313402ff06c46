//! Cards that are taken only as they were signed.

use std::sync::Arc;

use async_trait::async_trait;

use super::builder::{CardCheck, ClientBuilder};
use crate::jws::{CardVerification, CardVerifier, SignaturePolicy};
use crate::model::{AgentCard, Result};

struct SignatureCheck {
    verifier: CardVerifier,
    policy: SignaturePolicy,
}

#[async_trait]
impl CardCheck for SignatureCheck {
    async fn check(&self, card: &AgentCard, received: &[u8]) -> Result<()> {
        let verdict = self.verifier.verify(card, Some(received)).await;
        match &verdict {
            CardVerification::Verified { kid } => {
                tracing::debug!(kid, "the signature of the card is good")
            }
            CardVerification::Unverifiable { reason } => {
                tracing::warn!(reason, "the signature of the card is not good")
            }
            CardVerification::Absent => tracing::warn!("the card is not signed"),
        }
        verdict.check(self.policy)
    }
}

impl ClientBuilder {
    /// Checks the signatures of every card that [`discover`](Self::discover) finds, before anything else is done with it: one
    /// that the policy does not take is an error. The log says what each was worth.
    #[must_use]
    pub fn signatures(mut self, verifier: CardVerifier, policy: SignaturePolicy) -> Self {
        self.check = Some(Arc::new(SignatureCheck { verifier, policy }));
        self
    }
}
