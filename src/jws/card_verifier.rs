//! Verification of card signatures with known keys and with keys published at trusted URLs.

use super::card_verification::MAX_SIGNATURES;
use super::jose_header::JoseHeader;
use super::{CardVerification, KeySet, verify_card};
use crate::model::AgentCard;

/// Verifies card signatures with known keys, and with keys published at trusted URLs.
#[derive(Debug, Clone, Default)]
pub struct CardVerifier {
    keys: KeySet,
    trusted_urls: Vec<String>,
}

impl CardVerifier {
    /// Creates a verifier with known keys.
    #[must_use]
    pub fn new(keys: KeySet) -> Self {
        Self {
            keys,
            trusted_urls: Vec::new(),
        }
    }

    /// Trusts the key set at this URL. It is fetched if a signature names it in `jku`; other `jku` URLs are never fetched.
    #[must_use]
    pub fn trust(mut self, url: impl Into<String>) -> Self {
        self.trusted_urls.push(url.into());
        self
    }

    /// Verifies a card, first with the known keys, then with the trusted key sets that its signatures name. `received` as for
    /// [`verify_card`].
    pub async fn verify(&self, card: &AgentCard, received: Option<&[u8]>) -> CardVerification {
        let verification = verify_card(card, received, &self.keys);
        if !matches!(verification, CardVerification::Unverifiable { .. }) {
            return verification;
        }
        let mut failure = None;
        for url in self.named_key_sets(card) {
            match KeySet::fetch(url).await {
                Ok(keys) => match verify_card(card, received, &keys) {
                    CardVerification::Unverifiable { reason } => failure = Some(reason),
                    verification => return verification,
                },
                Err(error) => {
                    let cause = error.message();
                    failure = Some(format!("cannot fetch the keys at {url}: {cause}"));
                }
            }
        }
        match failure {
            Some(reason) => CardVerification::Unverifiable { reason },
            None => verification,
        }
    }

    /// Trusted URLs that a signature of the card names in `jku`.
    fn named_key_sets(&self, card: &AgentCard) -> Vec<&str> {
        let headers: Vec<_> = card
            .signatures
            .iter()
            .take(MAX_SIGNATURES)
            .filter_map(|signature| JoseHeader::decode(&signature.protected))
            .collect();
        let is_named = |url: &&String| {
            headers
                .iter()
                .any(|header| header.jku.as_ref() == Some(url))
        };
        self.trusted_urls
            .iter()
            .filter(is_named)
            .map(String::as_str)
            .collect()
    }
}
