//! Signs the cards that the server shows, and shows the keys to check them with.

use serde_json::json;

use super::Server;
use super::card::KEY_SET;
use super::place::Place;
use crate::jws::Signer;
use crate::model::{AgentCard, Error, Result};

/// Those who sign.
pub(super) struct Seal(Vec<Signer>);

impl Seal {
    /// What is signed says where the agent is, so that has to be said by the operator: a card made of what a request says of
    /// itself is never signed (S33).
    ///
    /// # Errors
    /// Invalid: nobody has said where clients reach the server.
    pub(super) fn new(signers: Vec<Signer>, root: &Place, is_public: bool) -> Result<Self> {
        if !signers.is_empty() && !is_public {
            return Err(Error::invalid("public_url", "must be set where cards are signed"));
        }
        let url = format!("{}{KEY_SET}", root.url().trim_end_matches('/'));
        Ok(Self(signers.into_iter().map(|signer| signer.key_set_url(&url)).collect()))
    }

    /// Adds a signature of each to a card.
    ///
    /// # Errors
    /// Invalid: something that has to be in a signed card is not in this one.
    pub(super) fn sign(&self, card: &mut AgentCard) -> Result<()> {
        // Those that it came with are of another card: ours says where it is, and what is asked of callers.
        if !self.0.is_empty() {
            card.signatures.clear();
        }
        self.0.iter().try_for_each(|signer| signer.sign(card))
    }

    /// The public keys, if there are any.
    pub(super) fn key_set(&self) -> Option<String> {
        let keys: Vec<_> = self.0.iter().map(Signer::public_key).collect();
        (!keys.is_empty()).then(|| json!({"keys": keys}).to_string())
    }
}

impl Server {
    /// Signs the public cards, which needs [`public_url`](Self::public_url); the key is shown at `/.well-known/jwks.json`. Called
    /// again it adds a signature: during a change of keys that of the old one.
    #[must_use]
    pub fn sign_cards(mut self, signer: Signer) -> Self {
        self.signers.push(signer);
        self
    }
}
