//! Idempotency keys: the same message sent twice becomes one message (04 §3.4).
//!
//! The key is the caller's `Idempotency-Key` or, if the engine deduplicates by message id, the message id. Each key is stored
//! with a SHA-256 of the request body; the same key with another body is refused. A key expires after `idempotency_max_age`.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::Service;
use crate::engine::{self, AcceptedMessage};
use crate::model::{
    Call, Error, Json, Message, PushConfigId, Result, SendMessageRequest, Timestamp,
};
use crate::store::{self, IdempotencyKey};

/// Longest `Idempotency-Key`, in bytes.
const MAX_KEY_BYTES: usize = 256;
/// Prefix of keys derived from message ids. A caller's key has no control characters, so the two kinds never collide.
const MESSAGE_ID_PREFIX: char = '\u{1}';

impl Service {
    /// Returns the idempotency key of a message; `None` if it has none.
    pub(super) fn idempotency_key(
        &self,
        call: &Call,
        request: &SendMessageRequest,
    ) -> Result<Option<IdempotencyKey>> {
        let oldest_valid = || self.engine.oldest_valid_key();
        match &call.idempotency_key {
            Some(text) => explicit_key(text, request, oldest_valid()).map(Some),
            None if self.engine.has_idempotent_message_ids() => {
                message_key(request, oldest_valid()).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Returns the result of an earlier message with the same key.
    pub(super) async fn find_replay(
        &self,
        call: &Call,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<Box<AcceptedMessage>>> {
        let Some(key) = key else { return Ok(None) };
        let replay = self.engine.find_replay(&call.scope, key).await;
        replay.map_err(|error| key_reuse_error(error, call.idempotency_key.is_some()))
    }
}

/// The caller's key. Its digest covers the whole request, the task alias included.
fn explicit_key(
    text: &str,
    request: &SendMessageRequest,
    oldest_valid: Timestamp,
) -> Result<IdempotencyKey> {
    if text.is_empty() || text.len() > MAX_KEY_BYTES || text.chars().any(char::is_control) {
        return Err(Error::invalid(
            "Idempotency-Key",
            "must be 1 to 256 bytes without control characters",
        ));
    }
    let body = match &request.alias {
        Some(alias) => aliased_body(alias.as_str(), request)?,
        None => Json::from_serialize(request)
            .map_err(Error::internal)?
            .get()
            .to_owned(),
    };
    Ok(IdempotencyKey {
        text: text.to_owned(),
        body: Sha256::digest(body).into(),
        oldest_valid,
    })
}

/// The body of a 0.1 request. Its messages have no ids; the generated id differs in each attempt and is left out.
fn aliased_body(alias: &str, request: &SendMessageRequest) -> Result<String> {
    let message = Message {
        message_id: "".into(),
        ..request.message.clone()
    };
    let without_id = Json::from_serialize(&SendMessageRequest {
        message,
        ..request.clone()
    })
    .map_err(Error::internal)?;
    Ok(format!("{alias}\n{}", without_id.get()))
}

/// The message id as a key.
fn message_key(request: &SendMessageRequest, oldest_valid: Timestamp) -> Result<IdempotencyKey> {
    let body = Json::from_serialize(&request.message).map_err(Error::internal)?;
    let text = format!("{MESSAGE_ID_PREFIX}{}", request.message.message_id);
    Ok(IdempotencyKey {
        text,
        body: Sha256::digest(body.get()).into(),
        oldest_valid,
    })
}

/// Derives the id of a webhook that came with a message from the message's key.
///
/// A retry therefore names the same webhook, also if both attempts race or the first was lost before it was logged.
pub(super) fn push_config_id_for_key(key: &IdempotencyKey) -> PushConfigId {
    let digest = Sha256::new()
        .chain_update(key.text.as_bytes())
        .chain_update(key.body)
        .finalize();
    let mut id = String::with_capacity(32);
    for byte in digest.iter().take(16) {
        let _ = write!(id, "{byte:02x}");
    }
    PushConfigId::from(id)
}

/// Converts an engine error. If the caller chose no key, a reused key is reported as a reused message id.
pub(super) fn key_reuse_error(error: engine::Error, is_explicit: bool) -> Error {
    match error {
        engine::Error::Store(store::Error::KeyReused) if !is_explicit => {
            Error::invalid("message.messageId", "was used before with another message")
        }
        error => error.into(),
    }
}
