//! JWS signatures of agent cards and push notifications, and the key set that verifies them.

use serde_json::json;

use super::base_url::BaseUrl;
use super::builder::Server;
use super::card::KEY_SET_PATH;
use crate::jws::Signer;
use crate::model::{AgentCard, Error, Result};
use crate::push::NotificationSigner;

/// Keys of the server: signers of cards, the signer of notifications, and published keys.
pub(super) struct CardSigning {
    cards: Vec<Signer>,
    push: Option<Signer>,
    /// Keys that sign elsewhere and are only published here.
    published: Vec<Signer>,
}

impl CardSigning {
    /// Prepares the signers of cards.
    ///
    /// A signed card contains its URL, so the operator must have set it. A card with a URL taken
    /// from request headers is never signed (S33).
    ///
    /// # Errors
    /// Invalid `public_url`: cards are to be signed and it is not set.
    pub(super) fn new(
        signers: Vec<Signer>,
        push: Option<Signer>,
        published: Vec<Signer>,
        base_url: &BaseUrl,
        has_public_url: bool,
    ) -> Result<Self> {
        if !signers.is_empty() && !has_public_url {
            return Err(Error::invalid(
                "public_url",
                "must be set when cards are signed",
            ));
        }
        let url = format!("{}{KEY_SET_PATH}", base_url.url().trim_end_matches('/'));
        Ok(Self {
            cards: signers
                .into_iter()
                .map(|signer| signer.key_set_url(&url))
                .collect(),
            push,
            published,
        })
    }

    /// Signs a card with every key.
    ///
    /// # Errors
    /// Invalid: the card lacks a field that a signed card requires.
    pub(super) fn sign(&self, card: &mut AgentCard) -> Result<()> {
        // Existing signatures are invalid: this server has added interfaces and security schemes.
        if !self.cards.is_empty() {
            card.signatures.clear();
        }
        self.cards.iter().try_for_each(|signer| signer.sign(card))
    }

    /// Returns the JSON Web Key Set of all public keys, `None` if there are none.
    pub(super) fn key_set(&self) -> Option<String> {
        let signers = self.cards.iter().chain(&self.push).chain(&self.published);
        let mut keys = Vec::new();
        for key in signers.map(Signer::public_key) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        (!keys.is_empty()).then(|| json!({"keys": keys}).to_string())
    }
}

/// Returns the signer of notifications. The issuer of its tokens is the base URL.
pub(super) fn notification_signer(signer: Signer, base_url: &BaseUrl) -> NotificationSigner {
    let issuer = base_url.url().trim_end_matches('/').to_owned();
    NotificationSigner::new(issuer, Box::new(move |claims| signer.sign_token(claims)))
}

impl Server {
    /// Signs the public cards. Requires [`public_url`](Self::public_url). The key is published at
    /// `/.well-known/jwks.json`.
    ///
    /// Each call adds a signature, so the old and the new key can sign during a key rotation.
    #[must_use]
    pub fn sign_cards(mut self, signer: Signer) -> Self {
        self.signers.push(signer);
        self
    }

    /// Publishes another key at `/.well-known/jwks.json`. Agents sign
    /// [`Delegation`](crate::jws::Delegation) tokens with it.
    #[must_use]
    pub fn publish_key(mut self, signer: Signer) -> Self {
        self.published_keys.push(signer);
        self
    }

    /// Signs every push notification with a JSON Web Token. The key is published at
    /// `/.well-known/jwks.json`.
    ///
    /// The token is sent in `A2A-Notification-JWT`, and in `Authorization` if the webhook
    /// configures no authentication. Its claims are `iss` (base URL of the server), `aud` (URL of
    /// the webhook), `iat`, `exp` (five minutes later), `jti` and `request_body_sha256`.
    #[must_use]
    pub fn sign_notifications(mut self, signer: Signer) -> Self {
        self.push_signer = Some(signer);
        self
    }
}
