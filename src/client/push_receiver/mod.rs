//! Receiver of push notifications: authenticates, verifies and deduplicates the webhook requests of agents.

mod dedup;
mod notification;
mod serve;
#[cfg(feature = "jws")]
mod signatures;

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use ::http::header::{ALLOW, AUTHORIZATION, HeaderValue, RETRY_AFTER};
use ::http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::model::{AuthenticationInfo, Secret, TaskId};
use crate::rt::lock;
use crate::wire::{self, Dialect};
use dedup::{DedupWindow, Fingerprint};
pub use notification::PushNotification;
#[cfg(feature = "jws")]
pub use signatures::PushSignatureVerifier;

/// Header names of the token. Senders use one of them or both.
const TOKEN_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("x-a2a-notification-token"),
    HeaderName::from_static("a2a-notification-token"),
];
/// Header with the sender's id of the event, equal in every attempt.
const EVENT_ID: HeaderName = HeaderName::from_static("a2a-event-id");
/// Maximum time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Settings of a [`PushReceiver`].
#[derive(Debug, Clone)]
pub struct PushReceiverSettings {
    /// Token of the registration. Requests without it are refused.
    pub token: Option<Secret>,
    /// Credentials of the registration. Requests without them are refused.
    pub authentication: Option<AuthenticationInfo>,
    /// Maximum size of a body in bytes. The default is 10 MiB.
    pub max_bytes: usize,
    /// Time for which notifications are remembered to drop duplicates. The default is one day.
    ///
    /// Older notifications are dropped too, because duplicates of them would not be recognized. The exception is a
    /// request with a verified id ([`VerifiedClaims::request_id`]), such as one from a server that was down for days.
    pub dedup_window: Duration,
    /// Maximum number of remembered notifications. The default is 100,000.
    pub dedup_capacity: usize,
    /// Maximum number of notifications that wait to be read. Beyond it senders get 503 with `Retry-After`. The default is
    /// 1000.
    pub queue_capacity: usize,
    /// Maximum number of concurrent connections of [`PushReceiver::serve`]; one address that is not a loopback address has
    /// at most half of them. Beyond it the oldest connection without valid credentials is closed. The default is 64.
    pub max_connections: usize,
    /// Timeout of [`PushReceiver::serve`] for the head of a request. An idle connection is closed after it too. The default
    /// is 10 seconds.
    pub header_timeout: Duration,
}

impl Default for PushReceiverSettings {
    fn default() -> Self {
        Self {
            token: None,
            authentication: None,
            max_bytes: 10 << 20,
            dedup_window: Duration::from_secs(24 * 60 * 60),
            dedup_capacity: 100_000,
            queue_capacity: 1000,
            max_connections: 64,
            header_timeout: Duration::from_secs(10),
        }
    }
}

/// Receiver of push notifications of A2A 1.0 and 0.3. Accepted notifications are read from [`PushNotifications`] in order
/// of arrival, which may differ from the order of the events; their timestamps tell.
///
/// Two notifications are duplicates if they have the same id (`A2A-Event-Id`), or no id and the same body. A chunk that
/// is appended to an artifact is never a duplicate without an id.
pub struct PushReceiver {
    settings: PushReceiverSettings,
    verifier: Option<Box<dyn PushVerifier>>,
    recent: Mutex<DedupWindow>,
    out: mpsc::Sender<PushNotification>,
}

/// Verification of a notification's sender, beyond the token and credentials of the registration.
/// `PushSignatureVerifier` (feature `jws`) is one implementation; an agreed HMAC could be another.
#[async_trait]
pub trait PushVerifier: Send + Sync + 'static {
    /// Verifies a request with its complete body.
    ///
    /// # Errors
    /// The request is not authentic, or that cannot be decided now.
    async fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> std::result::Result<VerifiedClaims, VerificationError>;
}

/// Facts about a notification that its sender has proven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifiedClaims {
    /// Id of this request. A second request with the same id is a replay and is dropped.
    pub request_id: Option<String>,
    /// Task of the event.
    pub task_id: Option<TaskId>,
    /// Id of the event, equal in every attempt.
    pub event_id: Option<String>,
}

/// Reason why a notification was not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationError {
    /// The signature or its claims are invalid.
    Invalid,
    /// Verification is not possible now, for example because keys cannot be loaded. The sender is asked to retry.
    Unavailable,
}

/// Accepted notifications of a [`PushReceiver`].
#[derive(Debug)]
pub struct PushNotifications(mpsc::Receiver<PushNotification>);

impl PushNotifications {
    /// Returns the next notification; `None` when the receiver has been dropped.
    pub async fn next(&mut self) -> Option<PushNotification> {
        self.0.recv().await
    }
}

impl PushReceiver {
    /// Returns a receiver and its notifications.
    #[must_use]
    pub fn new(settings: PushReceiverSettings) -> (Self, PushNotifications) {
        let (out, accepted) = mpsc::channel(settings.queue_capacity.clamp(1, 1 << 20));
        let recent = DedupWindow::new(settings.dedup_window, settings.dedup_capacity);
        let receiver = Self {
            settings,
            verifier: None,
            recent: Mutex::new(recent),
            out,
        };
        (receiver, PushNotifications(accepted))
    }

    /// Accepts only notifications that this verifier accepts.
    #[must_use]
    pub fn with_verifier(self, verifier: impl PushVerifier) -> Self {
        Self {
            verifier: Some(Box::new(verifier)),
            ..self
        }
    }

    /// Handles one request, at any path.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Error: std::error::Error + Send + Sync + 'static>,
    {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "must be a POST");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        // Checked before the body is read, so that unauthenticated callers cost little.
        if !self.has_valid_credentials(&head.headers) {
            return text_response(
                StatusCode::UNAUTHORIZED,
                "must carry the token and credentials of the registration",
            );
        }
        let body = Limited::new(body, self.settings.max_bytes).collect();
        match timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => {
                self.verify_and_accept(&head.headers, &body.to_bytes())
                    .await
            }
            Ok(Err(cause)) if cause.is::<LengthLimitError>() => {
                text_response(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large")
            }
            Ok(Err(_)) => text_response(StatusCode::BAD_REQUEST, "the body is incomplete"),
            Err(_) => text_response(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
        }
    }

    async fn verify_and_accept(&self, headers: &HeaderMap, body: &[u8]) -> Response<Full<Bytes>> {
        let verified = match &self.verifier {
            Some(verifier) => verifier.verify(headers, body).await.map(Some),
            None => Ok(None),
        };
        match verified {
            Ok(verified) => self.accept(headers, body, verified),
            Err(VerificationError::Invalid) => {
                text_response(StatusCode::UNAUTHORIZED, "must be signed by its sender")
            }
            Err(VerificationError::Unavailable) => retry_later_response(),
        }
    }

    fn accept(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        verified: Option<VerifiedClaims>,
    ) -> Response<Full<Bytes>> {
        let Some(notification) = parse_notification(headers, body, verified.as_ref()) else {
            return text_response(
                StatusCode::BAD_REQUEST,
                "must be a StreamResponse of 1.0 or a Task of 0.3",
            );
        };
        let claims = verified.unwrap_or_default();
        if claims.task_id.is_some() && claims.task_id.as_ref() != notification.task_id() {
            return text_response(
                StatusCode::UNAUTHORIZED,
                "must be about the task that it is signed for",
            );
        }
        if claims.request_id.is_none() && self.is_expired(&notification) {
            // Dropped, but acknowledged: an error would make the sender give up the webhook.
            return text_response(StatusCode::OK, "");
        }
        self.enqueue(notification, body, claims.request_id.as_deref())
    }

    /// Queues a notification unless it is a duplicate. It is remembered only if the queue had room.
    fn enqueue(
        &self,
        notification: PushNotification,
        body: &[u8],
        request_id: Option<&str>,
    ) -> Response<Full<Bytes>> {
        let fingerprints = [
            event_fingerprint(&notification, body),
            request_id.map(|id| digest(&[b"request", id.as_bytes()])),
        ];
        let mut recent = lock(&self.recent);
        let is_duplicate = fingerprints
            .iter()
            .flatten()
            .any(|fingerprint| recent.contains(fingerprint, Instant::now()));
        if is_duplicate {
            return text_response(StatusCode::OK, "");
        }
        if self.out.try_send(notification).is_err() {
            return retry_later_response();
        }
        for fingerprint in fingerprints.into_iter().flatten() {
            recent.insert(fingerprint, Instant::now());
        }
        text_response(StatusCode::OK, "")
    }

    /// Whether the request has valid credentials, and requests need some.
    fn is_authenticated(&self, headers: &HeaderMap) -> bool {
        let settings = &self.settings;
        let is_protected = settings.token.is_some() || settings.authentication.is_some();
        is_protected && self.has_valid_credentials(headers)
    }

    /// Whether the token and the credentials are those of the registration. Both are always compared, in constant time.
    fn has_valid_credentials(&self, headers: &HeaderMap) -> bool {
        let token = self.settings.token.as_ref().is_none_or(|token| {
            let given: Vec<_> = TOKEN_HEADERS
                .iter()
                .flat_map(|name| headers.get_all(name))
                .collect();
            !given.is_empty()
                & given
                    .iter()
                    .all(|given| constant_time_eq(given.as_bytes(), token.expose().as_bytes()))
        });
        let authorization = self
            .settings
            .authentication
            .as_ref()
            .is_none_or(|expected| {
                let given = headers
                    .get(AUTHORIZATION)
                    .map_or(&b""[..], HeaderValue::as_bytes);
                let (scheme, credentials) = given.split_at(given.len().min(expected.scheme.len()));
                let secret = expected.credentials.as_ref().map_or("", Secret::expose);
                scheme.eq_ignore_ascii_case(expected.scheme.as_bytes())
                    & constant_time_eq(credentials.trim_ascii_start(), secret.as_bytes())
            });
        token & authorization
    }

    fn is_expired(&self, notification: &PushNotification) -> bool {
        let window = i64::try_from(self.settings.dedup_window.as_millis()).unwrap_or(i64::MAX);
        let begin = jiff::Timestamp::now()
            .as_millisecond()
            .saturating_sub(window);
        notification
            .time()
            .is_some_and(|time| time.as_millis() < begin)
    }
}

/// Parses a body. A verified event id takes precedence: the header could be forged.
fn parse_notification(
    headers: &HeaderMap,
    body: &[u8],
    verified: Option<&VerifiedClaims>,
) -> Option<PushNotification> {
    let text = std::str::from_utf8(body).ok()?;
    let event = wire::read_event(text, &Dialect::V1).ok()?;
    let id = match verified {
        Some(claims) => claims.event_id.clone(),
        None => headers
            .get(EVENT_ID)
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned),
    };
    Some(PushNotification { event, id })
}

/// Returns the fingerprint by which duplicates of an event are recognized; `None` if equal bodies may be different
/// events.
fn event_fingerprint(notification: &PushNotification, body: &[u8]) -> Option<Fingerprint> {
    match &notification.id {
        Some(id) => Some(digest(&[b"id", id.as_bytes()])),
        None if notification.may_repeat() => None,
        None => Some(digest(&[b"body", body])),
    }
}

impl fmt::Debug for PushReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushReceiver")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Compares two secrets by their digests, in constant time: neither content nor length leaks.
fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    digest(&[one]).ct_eq(&digest(&[other])).into()
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().into()
}

/// Returns 503 with `Retry-After`.
fn retry_later_response() -> Response<Full<Bytes>> {
    let mut response = text_response(StatusCode::SERVICE_UNAVAILABLE, "try again later");
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

fn text_response(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}
