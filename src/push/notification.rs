//! The HTTP request of one push notification.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request};
use sha2::{Digest, Sha256};

use crate::model::{PushConfig, Secret, Seq, TaskId, TraceContext};
use crate::store::Webhook;
use crate::wire::header;

/// Encoded notification of one log entry, for one attempt. Every attempt sends the same body and event id.
pub(super) struct Notification {
    pub(super) event_id: EventId,
    seq: Seq,
    pub(super) body: Bytes,
}

impl Notification {
    /// Returns the notification of a log position.
    pub(super) fn new(event_id: EventId, seq: Seq, body: Bytes) -> Self {
        Self {
            event_id,
            seq,
            body,
        }
    }

    /// Builds the request. `token` is the signature token.
    ///
    /// `None` if the URL or a credential of the registration is not valid in an HTTP request.
    pub(super) fn request(
        &self,
        webhook: &Webhook,
        token: Option<&str>,
        trace: Option<&TraceContext>,
    ) -> Option<Request<Bytes>> {
        let config = &webhook.registration.config;
        let version = webhook.registration.version;
        let mut request = Request::post(config.url.as_str())
            .header(CONTENT_TYPE, header::rest_media_type(version))
            .header(USER_AGENT, concat!("attache/", env!("CARGO_PKG_VERSION")))
            .header(header::VERSION, version.as_str())
            .header(header::EVENT_ID, self.event_id.to_string())
            .header(header::EVENT_SEQUENCE, self.seq.0);
        for (name, value) in trace.into_iter().flat_map(TraceContext::headers) {
            request = request.header(name, value);
        }
        if let Some(token) = &config.token {
            for name in header::NOTIFICATION_TOKENS {
                request = request.header(*name, sensitive_value(token.expose())?);
            }
        }
        for (name, value) in config.sendable_headers() {
            request = request.header(name, sensitive_value(value.expose())?);
        }
        if let Some(token) = token {
            request = request.header(header::NOTIFICATION_JWT, sensitive_value(token)?);
        }
        // Without registered credentials, many receivers expect the token in `Authorization`.
        let authorization =
            authorization(config).or_else(|| token.map(|token| format!("Bearer {token}")));
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, sensitive_value(&authorization)?);
        }
        request.body(self.body.clone()).ok()
    }
}

/// `Authorization` of the registration; `None` for a scheme without credentials (05 §5).
fn authorization(config: &PushConfig) -> Option<String> {
    let info = config.authentication.as_ref()?;
    Some(format!(
        "{} {}",
        info.scheme,
        info.credentials.as_ref().map(Secret::expose)?
    ))
}

fn sensitive_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Id of a notification, derived from task, webhook and log position. Receivers deduplicate by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventId(uuid::Uuid);

impl EventId {
    pub(super) fn for_entry(webhook: &Webhook, seq: Seq) -> Self {
        Self::new(
            &webhook.task.id,
            webhook
                .registration
                .config
                .id
                .as_ref()
                .map_or("", |id| id.as_str()),
            seq,
        )
    }

    fn new(task: &TaskId, config: &str, seq: Seq) -> Self {
        let digest = Sha256::new()
            .chain_update(task.as_str())
            .chain_update([0])
            .chain_update(config);
        let digest = digest
            .chain_update([0])
            .chain_update(seq.0.to_be_bytes())
            .finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Deterministic jitter in `0.0..1.0` for a retry, derived from event id and attempt number.
    pub(super) fn jitter(self, attempts: u32) -> f64 {
        let digest = Sha256::new()
            .chain_update(self.0.as_bytes())
            .chain_update(attempts.to_be_bytes())
            .finalize();
        f64::from(u32::from_be_bytes([
            digest[0], digest[1], digest[2], digest[3],
        ])) / 2f64.powi(32)
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r30_event_ids_are_stable_and_unique() {
        let id = EventId::new(&"t".into(), "c", Seq(7));
        assert_eq!(id, EventId::new(&"t".into(), "c", Seq(7)));
        for other in [
            ("t", "c", 8),
            ("t", "d", 7),
            ("u", "c", 7),
            ("tc", "", 7),
            ("", "tc", 7),
        ] {
            assert_ne!(id, EventId::new(&other.0.into(), other.1, Seq(other.2)));
        }
        assert_eq!(id.to_string().len(), 36);
        let jitters: Vec<_> = (0..100).map(|attempts| id.jitter(attempts)).collect();
        assert!(
            jitters.iter().all(|jitter| (0.0..1.0).contains(jitter)) && jitters[0] != jitters[1]
        );
    }
}
