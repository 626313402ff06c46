//! The other end of push notifications: takes what agents post, if it is from them and new.

mod dedup;
mod serve;
#[cfg(feature = "jws")]
mod signatures;

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::http::header::{ALLOW, AUTHORIZATION, HeaderValue, RETRY_AFTER};
use ::http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::Client;
use crate::model::{
    AuthenticationInfo, GetTaskRequest, Result, Secret, StreamResponse, Task, TaskId, Timestamp,
};
use crate::wire::{self, Dialect};
use dedup::DedupWindow;
#[cfg(feature = "jws")]
pub use signatures::PushSignatureVerifier;

/// The token comes under one of two names, or under both.
const TOKEN_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("x-a2a-notification-token"),
    HeaderName::from_static("a2a-notification-token"),
];
/// What a sender calls one event, however often it is sent.
const EVENT_ID: HeaderName = HeaderName::from_static("a2a-event-id");
/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a [`PushReceiver`] keeps to.
#[derive(Debug, Clone)]
pub struct PushReceiverSettings {
    /// The token of the registration: what comes without it is refused.
    pub token: Option<Secret>,
    /// The credentials of the registration: what comes without them is refused.
    pub authentication: Option<AuthenticationInfo>,
    /// The largest body that is read; by default 10 MiB.
    pub max_bytes: usize,
    /// How long a notification is remembered, to drop it when it comes again. One whose own time is further back is
    /// dropped too, for nobody could tell, unless its sender vouches for this very request ([`VerifiedClaims::request_id`]): a
    /// server that was away for days tells then what it could not before. By default a day.
    pub dedup_window: Duration,
    /// How many are remembered at most; by default 100 000.
    pub dedup_capacity: usize,
    /// How many may wait to be read; when they do, senders are asked to come again. By default 1000.
    pub queue_capacity: usize,
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
        }
    }
}

/// One thing that an agent told.
#[derive(Debug, Clone, PartialEq)]
pub struct PushNotification {
    /// What happened. Agents of 0.3 send the whole task.
    pub event: StreamResponse,
    /// What the sender calls it, if it does.
    pub id: Option<String>,
}

impl PushNotification {
    /// The task it is about; a plain message may be about none.
    #[must_use]
    pub fn task_id(&self) -> Option<&TaskId> {
        match &self.event {
            StreamResponse::Task(task) => Some(&task.id),
            StreamResponse::Message(message) => message.task_id.as_ref(),
            StreamResponse::StatusUpdate(update) => Some(&update.task_id),
            StreamResponse::ArtifactUpdate(update) => Some(&update.task_id),
        }
    }

    /// The task as its agent has it now: a notification may be old and, where nobody has signed it, anybody's. `None` for a
    /// plain message that is about no task.
    ///
    /// # Errors
    /// As [`Client::get_task`]; among them that this agent has no such task.
    pub async fn task(&self, client: &Client) -> Result<Option<Task>> {
        let Some(id) = self.task_id().cloned() else {
            return Ok(None);
        };
        client
            .get_task(GetTaskRequest {
                id,
                ..GetTaskRequest::default()
            })
            .await
            .map(Some)
    }

    /// When it happened, if it says so.
    fn time(&self) -> Option<Timestamp> {
        match &self.event {
            StreamResponse::Task(task) => task.status.timestamp,
            StreamResponse::StatusUpdate(update) => update.status.timestamp,
            StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => None,
        }
    }

    /// Whether the same body may well mean something new: two chunks of an artifact can be alike.
    fn may_repeat(&self) -> bool {
        matches!(&self.event, StreamResponse::ArtifactUpdate(update) if update.append)
    }
}

/// Takes push notifications of 1.0 and 0.3. What it takes comes out of [`PushNotifications`], in the order of arrival,
/// which may not be that of the events: their times tell.
///
/// A notification is the same as another if both have one id (`A2A-Event-Id`), or none and the same body; a chunk that
/// is appended to an artifact counts as new unless it has an id.
pub struct PushReceiver {
    settings: PushReceiverSettings,
    verifier: Option<Box<dyn PushVerifier>>,
    recent: Mutex<DedupWindow>,
    out: mpsc::Sender<PushNotification>,
}

/// Says whether a notification is from whom it should be, beyond the token and credentials of its registration:
/// `PushSignatureVerifier` (feature `jws`) is one, an agreed HMAC would be another.
#[async_trait]
pub trait PushVerifier: Send + Sync + 'static {
    /// Looks at a request. Its body is whole.
    ///
    /// # Errors
    /// Nobody vouches for it.
    async fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<VerifiedClaims, VerificationError>;
}

/// What the sender of a notification vouches for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifiedClaims {
    /// The name of this very request: whatever comes under it again is a copy, and dropped.
    pub request_id: Option<String>,
    /// The task that it is about.
    pub task_id: Option<TaskId>,
    /// What it is called, however often it is sent.
    pub event_id: Option<String>,
}

/// Why nobody vouches for a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationError {
    /// What it brings is not good.
    Invalid,
    /// It cannot be told now: the sender is asked to come again.
    Unavailable,
}

/// What was taken; see [`PushReceiver`].
#[derive(Debug)]
pub struct PushNotifications(mpsc::Receiver<PushNotification>);

impl PushNotifications {
    /// The next one; `None` when the receiver is gone.
    pub async fn next(&mut self) -> Option<PushNotification> {
        self.0.recv().await
    }
}

impl PushReceiver {
    /// A receiver, and what it takes.
    #[must_use]
    pub fn new(settings: PushReceiverSettings) -> (Self, PushNotifications) {
        let (out, taken) = mpsc::channel(settings.queue_capacity.clamp(1, 1 << 20));
        let recent = Mutex::new(DedupWindow::new(
            settings.dedup_window,
            settings.dedup_capacity,
        ));
        (
            Self {
                settings,
                verifier: None,
                recent,
                out,
            },
            PushNotifications(taken),
        )
    }

    /// Takes only what this one vouches for.
    #[must_use]
    pub fn with_verifier(self, verifier: impl PushVerifier) -> Self {
        Self {
            verifier: Some(Box::new(verifier)),
            ..self
        }
    }

    /// Answers one request; any path will do.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Error: std::error::Error + Send + Sync + 'static>,
    {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            let mut answer = text_response(StatusCode::METHOD_NOT_ALLOWED, "must be a POST");
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return answer;
        }
        // Who is nobody is not listened to.
        if !self.has_valid_credentials(&head.headers) {
            return text_response(
                StatusCode::UNAUTHORIZED,
                "must carry the token and credentials of the registration",
            );
        }
        match timeout(
            BODY_TIMEOUT,
            Limited::new(body, self.settings.max_bytes).collect(),
        )
        .await
        {
            Ok(Ok(body)) => {
                self.verify_and_accept(&head.headers, &body.to_bytes())
                    .await
            }
            Ok(Err(cause)) if cause.is::<http_body_util::LengthLimitError>() => {
                text_response(StatusCode::PAYLOAD_TOO_LARGE, "must be smaller")
            }
            Ok(Err(_)) => text_response(StatusCode::BAD_REQUEST, "must be whole"),
            Err(_) => text_response(StatusCode::REQUEST_TIMEOUT, "must come sooner"),
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
        let event = std::str::from_utf8(body)
            .ok()
            .and_then(|text| wire::read_event(text, &Dialect::V1).ok());
        let Some(event) = event else {
            return text_response(
                StatusCode::BAD_REQUEST,
                "must be a StreamResponse of 1.0 or a Task of 0.3",
            );
        };
        let said = headers
            .get(EVENT_ID)
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned);
        // Anybody may write a header; what is signed counts.
        let id = verified
            .as_ref()
            .map_or(said, |verified| verified.event_id.clone());
        let notification = PushNotification { event, id };
        let meant = verified
            .as_ref()
            .and_then(|verified| verified.task_id.as_ref());
        if meant.is_some_and(|task| notification.task_id() != Some(task)) {
            return text_response(
                StatusCode::UNAUTHORIZED,
                "must be about the task that it is signed for",
            );
        }
        let is_fresh = verified
            .as_ref()
            .is_some_and(|verified| verified.request_id.is_some());
        if !is_fresh && self.is_expired(&notification) {
            // Taken as far as its sender is concerned, who would tell no more if it were refused.
            return text_response(StatusCode::OK, "");
        }
        let name = match (&notification.id, notification.may_repeat()) {
            (Some(id), _) => Some(digest(&[b"id", id.as_bytes()])),
            (None, false) => Some(digest(&[b"body", body])),
            (None, true) => None,
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = verified
            .and_then(|verified| Some(digest(&[b"request", verified.request_id?.as_bytes()])));
        let names = [name, copy];
        if names
            .iter()
            .flatten()
            .any(|name| recent.contains(name, Instant::now()))
        {
            return text_response(StatusCode::OK, "");
        }
        if self.out.try_send(notification).is_err() {
            return retry_later_response();
        }
        for name in names.into_iter().flatten() {
            recent.insert(name, Instant::now());
        }
        text_response(StatusCode::OK, "")
    }

    /// Whether both the token and the credentials are those of the registration. Both are always looked at.
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
        let authorization = self.settings.authentication.as_ref().is_none_or(|wanted| {
            let given = headers
                .get(AUTHORIZATION)
                .map_or(&b""[..], HeaderValue::as_bytes);
            let (scheme, credentials) = given.split_at(given.len().min(wanted.scheme.len()));
            let secret = wanted.credentials.as_ref().map_or("", Secret::expose);
            scheme.eq_ignore_ascii_case(wanted.scheme.as_bytes())
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

impl fmt::Debug for PushReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushReceiver")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// In a time that tells nothing about either, not even how long it is.
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

fn retry_later_response() -> Response<Full<Bytes>> {
    let mut answer = text_response(StatusCode::SERVICE_UNAVAILABLE, "try again later");
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}

fn text_response(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    answer
}
