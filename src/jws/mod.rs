//! JSON Web Signatures (RFC 7515) of agent cards, tokens and webhooks.
//!
//! A card signature is detached: its payload is the card itself in canonical form (RFC 8785). A token carries its signed claims.

mod card_payload;
mod card_verification;
#[cfg(feature = "client")]
mod card_verifier;
mod delegation;
mod jose_header;
mod key_set;
mod pem;
mod public_key;
#[cfg(feature = "client")]
mod published_keys;
mod signer;
mod token;

pub use card_verification::{CardVerification, SignaturePolicy, verify_card};
#[cfg(feature = "client")]
pub use card_verifier::CardVerifier;
pub use delegation::Delegation;
pub use key_set::KeySet;
#[cfg(feature = "client")]
pub use published_keys::PublishedKeys;
pub use signer::Signer;
pub use token::TokenVerification;

#[cfg(test)]
mod tests;
