//! Verification of card signatures.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::jose_header::JoseHeader;
use super::{KeySet, card_payload};
use crate::model::{AgentCard, AgentCardSignature, Error, ErrorKind, Result};

/// Maximum number of signatures that are checked; others are ignored.
pub(super) const MAX_SIGNATURES: usize = 16;
/// Longest key id in a message, in characters. Key ids of a card are untrusted.
const MAX_SHOWN_KID_CHARS: usize = 64;

/// Result of verifying the signatures of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardVerification {
    /// One signature is valid.
    Verified {
        /// Id of the key that made it.
        kid: String,
    },
    /// The card has signatures, and none is valid.
    Unverifiable {
        /// Reason, for people.
        reason: String,
    },
    /// The card has no signature.
    Absent,
}

/// Requirement on the signatures of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignaturePolicy {
    /// Accepts an unsigned card, but not an invalid signature.
    #[default]
    IfPresent,
    /// Requires a valid signature.
    Required,
}

impl CardVerification {
    /// Checks the result against a policy.
    ///
    /// # Errors
    /// Invalid agent response: the policy refuses the card.
    pub fn check(&self, policy: SignaturePolicy) -> Result<()> {
        let reason = match (self, policy) {
            (Self::Verified { .. }, _) | (Self::Absent, SignaturePolicy::IfPresent) => {
                return Ok(());
            }
            (Self::Absent, SignaturePolicy::Required) => "the card is not signed",
            (Self::Unverifiable { reason }, _) => reason,
        };
        Err(Error::new(ErrorKind::InvalidAgentResponse)
            .with_message(format!("Invalid agent response: {reason}")))
    }
}

/// Verifies the signatures of a card; one valid signature suffices.
///
/// `received` is the document that the card was decoded from: some implementations sign it byte for byte.
#[must_use]
pub fn verify_card(card: &AgentCard, received: Option<&[u8]>, keys: &KeySet) -> CardVerification {
    if card.signatures.is_empty() {
        return CardVerification::Absent;
    }
    let payloads = card_payload::payloads(card, received);
    let mut reason = "the card is signed with unknown keys".to_owned();
    for signature in card.signatures.iter().take(MAX_SIGNATURES) {
        match verify_signature(signature, &payloads, keys) {
            SignatureCheck::Valid { kid } => return CardVerification::Verified { kid },
            SignatureCheck::InvalidHeader => {
                reason = "the signature has an invalid header".to_owned();
            }
            SignatureCheck::Invalid { kid } => {
                let kid: String = kid.chars().take(MAX_SHOWN_KID_CHARS).collect();
                reason = format!("the signature by the key {kid:?} is invalid");
            }
            SignatureCheck::Skipped => {}
        }
    }
    CardVerification::Unverifiable { reason }
}

enum SignatureCheck {
    Valid {
        kid: String,
    },
    Invalid {
        kid: String,
    },
    InvalidHeader,
    /// The key is unknown, or the signature is not base64url.
    Skipped,
}

/// Checks a signature against every payload and every key with its id.
fn verify_signature(
    signature: &AgentCardSignature,
    payloads: &[Vec<u8>],
    keys: &KeySet,
) -> SignatureCheck {
    let Some(header) = JoseHeader::decode(&signature.protected) else {
        return SignatureCheck::InvalidHeader;
    };
    // `crit` must be protected (RFC 7515 §4.1.11).
    let unprotected = signature.header.as_ref();
    if unprotected.is_some_and(|header| header.get("crit").is_some()) {
        return SignatureCheck::InvalidHeader;
    }
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(&signature.signature) else {
        return SignatureCheck::Skipped;
    };
    let candidates: Vec<_> = keys.find(&header.kid).collect();
    if candidates.is_empty() {
        return SignatureCheck::Skipped;
    }
    for payload in payloads {
        let payload = URL_SAFE_NO_PAD.encode(payload);
        let input = format!("{}.{payload}", signature.protected);
        let is_valid = candidates
            .iter()
            .any(|key| key.verifies(&header.alg, input.as_bytes(), &bytes));
        if is_valid {
            return SignatureCheck::Valid { kid: header.kid };
        }
    }
    SignatureCheck::Invalid { kid: header.kid }
}
