//! Signatures over cards: JSON Web Signatures whose payload is the card itself, in canonical form. And tokens, which carry
//! what is signed.

mod card;
#[cfg(feature = "client")]
mod card_verifier;
mod delegation;
mod key_set;
mod pem;
#[cfg(feature = "client")]
mod published_keys;
mod signer;
mod token;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::model::{AgentCard, AgentCardSignature, Error, ErrorKind, Result};
#[cfg(feature = "client")]
pub use card_verifier::CardVerifier;
pub use delegation::Delegation;
pub use key_set::KeySet;
#[cfg(feature = "client")]
pub use published_keys::PublishedKeys;
pub use signer::Signer;
pub use token::TokenVerification;

/// More signatures than a change of keys explains are not looked at.
const MAX_SIGNATURES: usize = 16;

/// What became of the signatures of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardVerification {
    /// One of them is good.
    Verified {
        /// The key it was made with.
        kid: String,
    },
    /// There are some, and none of them is good.
    Unverifiable {
        /// Why, for people.
        reason: String,
    },
    /// There are none.
    Absent,
}

/// What is asked of the signatures of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignaturePolicy {
    /// A card without any is taken, one with a bad one is not.
    #[default]
    IfPresent,
    /// Only a card with a good one is taken.
    Required,
}

impl CardVerification {
    /// Whether a card with this verdict may be used.
    ///
    /// # Errors
    /// Invalid agent response: what is wrong with its signatures.
    pub fn check(&self, policy: SignaturePolicy) -> Result<()> {
        let why = match (self, policy) {
            (Self::Verified { .. }, _) | (Self::Absent, SignaturePolicy::IfPresent) => {
                return Ok(());
            }
            (Self::Absent, SignaturePolicy::Required) => "the card is not signed",
            (Self::Unverifiable { reason }, _) => reason,
        };
        Err(Error::new(ErrorKind::InvalidAgentResponse)
            .with_message(format!("Invalid agent response: {why}")))
    }
}

/// The part of a signature that says how it was made.
#[derive(Serialize, Deserialize)]
struct JoseHeader {
    alg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    jku: Option<String>,
    #[serde(default)]
    kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    typ: Option<String>,
    /// What must be understood; we understand nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    crit: Option<serde_json::Value>,
}

impl JoseHeader {
    fn read(signature: &AgentCardSignature) -> Option<Self> {
        Self::decode(&signature.protected)
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        serde_json::from_slice(&bytes)
            .ok()
            .filter(|header: &Self| header.crit.is_none())
    }
}

/// Looks for one good signature of a card by one of these keys. `received` is the document that the card was read from,
/// where there is one: some sign it as it stands.
#[must_use]
pub fn verify_card(card: &AgentCard, received: Option<&[u8]>, keys: &KeySet) -> CardVerification {
    if card.signatures.is_empty() {
        return CardVerification::Absent;
    }
    let payloads = card::payloads(card, received);
    let mut reason = "the card is signed by keys that are not known".to_owned();
    for signature in card.signatures.iter().take(MAX_SIGNATURES) {
        let Some(header) = JoseHeader::read(signature) else {
            reason = "the header of the signature makes no sense".to_owned();
            continue;
        };
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(&signature.signature) else {
            continue;
        };
        let known: Vec<_> = keys.find(&header.kid).collect();
        if known.is_empty() {
            continue;
        }
        let input = |payload: &Vec<u8>| {
            format!(
                "{}.{}",
                signature.protected,
                URL_SAFE_NO_PAD.encode(payload)
            )
        };
        let inputs: Vec<_> = payloads.iter().map(input).collect();
        let mut pairs = known
            .iter()
            .flat_map(|key| inputs.iter().map(move |input| (key, input)));
        if pairs.any(|(key, input)| key.verifies(&header.alg, input.as_bytes(), &bytes)) {
            return CardVerification::Verified { kid: header.kid };
        }
        reason = format!(
            "the signature by the key {:?} is not good",
            truncate_name(&header.kid)
        );
    }
    CardVerification::Unverifiable { reason }
}

/// Names come from strangers: no more of them than a line shows.
fn truncate_name(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
