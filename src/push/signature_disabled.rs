//! Stub of `signature.rs` for builds without the feature `jws`.

use super::notification::Notification;
use crate::model::{Result, Timestamp};
use crate::store::Webhook;

/// Uninhabited: without the feature no signer can be configured.
pub(crate) enum NotificationSigner {}

impl NotificationSigner {
    pub(super) fn sign(
        &self,
        _: &Webhook,
        _: &Notification,
        _: Timestamp,
        _: String,
    ) -> Result<String> {
        match *self {}
    }
}
