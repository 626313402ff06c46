//! What makes a message the same message when it comes again.

use sha2::{Digest, Sha256};

use super::Service;
use crate::engine::{self, AcceptedMessage};
use crate::model::{Call, Error, Json, Message, PushConfigId, Result, SendMessageRequest};
use crate::store::{self, IdempotencyKey};

impl Service {
    /// What makes the message the same message when it is sent again: the key that came with it or, where that is
    /// wanted, its own id. 04 §3.4.
    pub(super) fn idempotency_key(
        &self,
        call: &Call,
        request: &SendMessageRequest,
    ) -> Result<Option<IdempotencyKey>> {
        match &call.idempotency_key {
            Some(text) => explicit_key(text, request).map(Some),
            None if self.engine.has_idempotent_message_ids() => message_key(request).map(Some),
            None => Ok(None),
        }
    }

    /// What the same message became when it was sent before.
    pub(super) async fn find_replay(
        &self,
        call: &Call,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<Box<AcceptedMessage>>> {
        let Some(key) = key else { return Ok(None) };
        let again = self.engine.find_replay(&call.scope, key).await;
        again.map_err(|error| key_reuse_error(error, call.idempotency_key.is_some()))
    }
}

/// A key that the caller chose: it stands for all that was sent, the name of the task included.
fn explicit_key(text: &str, request: &SendMessageRequest) -> Result<IdempotencyKey> {
    if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
        return Err(Error::invalid(
            "Idempotency-Key",
            "must be 1 to 256 bytes without control characters",
        ));
    }
    let body = match &request.alias {
        // In the first days messages had no ids; the one this has was made up as it came in.
        Some(alias) => {
            let message = Message {
                message_id: "".into(),
                ..request.message.clone()
            };
            let rest = Json::from_serialize(&SendMessageRequest {
                message,
                ..request.clone()
            })
            .map_err(Error::internal)?;
            format!("{alias}\n{}", rest.get())
        }
        None => Json::from_serialize(request)
            .map_err(Error::internal)?
            .get()
            .to_owned(),
    };
    Ok(IdempotencyKey {
        text: text.to_owned(),
        body: Sha256::digest(body).into(),
    })
}

/// The message's own id as its key. It begins as no key that a caller chooses can, so the two never meet.
fn message_key(request: &SendMessageRequest) -> Result<IdempotencyKey> {
    let body = Json::from_serialize(&request.message).map_err(Error::internal)?;
    let text = format!("\u{1}{}", request.message.message_id);
    Ok(IdempotencyKey {
        text,
        body: Sha256::digest(body.get()).into(),
    })
}

/// The id of a webhook that came with a message of this key: whoever sends that again names the same webhook, also where the two
/// race, or the first was lost on its way to the log.
pub(super) fn push_config_id_for_key(key: &IdempotencyKey) -> PushConfigId {
    let digest = Sha256::new()
        .chain_update(key.text.as_bytes())
        .chain_update(key.body)
        .finalize();
    let id = digest
        .iter()
        .take(16)
        .fold(String::new(), |id, byte| format!("{id}{byte:02x}"));
    PushConfigId::from(id)
}

/// What a caller is told; one who chose no key has used an id twice.
pub(super) fn key_reuse_error(error: engine::Error, named: bool) -> Error {
    match error {
        engine::Error::Store(store::Error::KeyReused) if !named => {
            Error::invalid("message.messageId", "was used before with another message")
        }
        error => error.into(),
    }
}
