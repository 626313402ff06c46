//! Signs the cards that the server shows and the notifications that it sends, and shows the keys to check them with.

use serde_json::json;

use super::Server;
use super::base_url::BaseUrl;
use super::card::KEY_SET_PATH;
use crate::jws::Signer;
use crate::model::{AgentCard, Error, Result};
use crate::push::NotificationSigner;

/// Those who sign.
pub(super) struct CardSigning {
    cards: Vec<Signer>,
    push: Option<Signer>,
    /// Those that sign elsewhere.
    published: Vec<Signer>,
}

impl CardSigning {
    /// What is signed says where the agent is, so that has to be said by the operator: a card made of what a request says of
    /// itself is never signed (S33).
    ///
    /// # Errors
    /// Invalid: nobody has said where clients reach the server.
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
                "must be set where cards are signed",
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

    /// Adds a signature of each to a card.
    ///
    /// # Errors
    /// Invalid: something that has to be in a signed card is not in this one.
    pub(super) fn sign(&self, card: &mut AgentCard) -> Result<()> {
        // Those that it came with are of another card: ours says where it is, and what is asked of callers.
        if !self.cards.is_empty() {
            card.signatures.clear();
        }
        self.cards.iter().try_for_each(|signer| signer.sign(card))
    }

    /// The public keys, if there are any.
    pub(super) fn key_set(&self) -> Option<String> {
        let mut keys: Vec<_> = Vec::new();
        for key in self
            .cards
            .iter()
            .chain(&self.push)
            .chain(&self.published)
            .map(Signer::public_key)
        {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        (!keys.is_empty()).then(|| json!({"keys": keys}).to_string())
    }
}

/// Who signs notifications; its name is where the server is.
pub(super) fn notification_signer(signer: Signer, base_url: &BaseUrl) -> NotificationSigner {
    let issuer = base_url.url().trim_end_matches('/').to_owned();
    NotificationSigner::new(issuer, Box::new(move |claims| signer.sign_token(claims)))
}

impl Server {
    /// Signs the public cards, which needs [`public_url`](Self::public_url); the key is published at `/.well-known/jwks.json`. Called
    /// again it adds a signature: during a change of keys that of the old one.
    #[must_use]
    pub fn sign_cards(mut self, signer: Signer) -> Self {
        self.signers.push(signer);
        self
    }

    /// Shows this key too at `/.well-known/jwks.json`: agents sign with it for whom they call
    /// ([`Delegation`](crate::jws::Delegation)).
    #[must_use]
    pub fn publish_key(mut self, signer: Signer) -> Self {
        self.published_keys.push(signer);
        self
    }

    /// Signs every notification: a JSON Web Token goes along with it, in `A2A-Notification-JWT`, and in `Authorization` where
    /// the registration says nothing of that. It has `iss` (where the server is), `aud` (the url of the webhook), `iat`, `exp`
    /// (five minutes later), `jti` and `request_body_sha256`; the key is published at `/.well-known/jwks.json`.
    #[must_use]
    pub fn sign_notifications(mut self, signer: Signer) -> Self {
        self.push_signer = Some(signer);
        self
    }
}
