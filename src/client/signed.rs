//! Cards that are taken only as they were signed.

use std::sync::Arc;

use async_trait::async_trait;

use super::builder::{CardCheck, ClientBuilder};
use crate::jws::{CardVerifier, SignaturePolicy, Verdict};
use crate::model::{AgentCard, Result};

struct Signed {
    verifier: CardVerifier,
    policy: SignaturePolicy,
}

#[async_trait]
impl CardCheck for Signed {
    async fn check(&self, card: &AgentCard, received: &[u8]) -> Result<()> {
        let verdict = self.verifier.verify(card, Some(received)).await;
        match &verdict {
            Verdict::Verified { kid } => tracing::debug!(kid, "the signature of the card is good"),
            Verdict::Unverifiable { reason } => {
                tracing::warn!(reason, "the signature of the card is not good")
            }
            Verdict::Absent => tracing::warn!("the card is not signed"),
        }
        verdict.check(self.policy)
    }
}

impl ClientBuilder {
    /// Checks the signatures of every card that [`discover`](Self::discover) finds, before anything else is done with it: one
    /// that the policy does not take is an error. The log says what each was worth.
    #[must_use]
    pub fn signatures(mut self, verifier: CardVerifier, policy: SignaturePolicy) -> Self {
        self.check = Some(Arc::new(Signed { verifier, policy }));
        self
    }
}
