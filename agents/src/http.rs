//! Agent that posts every message to an HTTP backend and streams its response.
//!
//! This module sends the request, retries it and maps the status. [`ResponseReader`] turns the body into artifacts.

mod response;
mod settings;

use std::fmt;
use std::time::Duration;

use attache::{Agent, Failure, HttpClient, HttpResponse, Outcome, Turn};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::backend_context::{backend_context_id, backend_message};
use crate::backoff::{Backoff, retry_after};
use crate::caller_propagation;
use crate::circuit_breaker::CircuitBreaker;
use crate::connect_failure::{ConnectFailure, origin};
use crate::outgoing::{USER_AGENT, parse_headers, parse_url};
use response::ResponseReader;
pub use settings::{HttpSettings, RequestBody};

/// Delays between retries. `Retry-After` is honored up to the maximum.
const RETRY_BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(30),
};

/// Media types that [`ResponseReader`] understands, the preferred ones first.
const ACCEPT: &str =
    "text/event-stream, application/x-ndjson, application/json, text/plain;q=0.9, */*;q=0.5";

/// Agent that posts every message to an HTTP backend and streams its response.
///
/// The response may be text, server-sent events, JSON lines, JSON or a file. A request is retried only if that is safe:
/// if it cannot have reached the backend, or if the backend is [idempotent](HttpSettings::idempotent).
///
/// ```
/// use attache_agents::{HttpAgent, HttpSettings};
/// let agent = HttpAgent::new(HttpSettings { url: "http://127.0.0.1:9000/chat".to_owned(), ..HttpSettings::default() })?;
/// # Ok::<(), attache_agents::HttpSettingsError>(())
/// ```
#[derive(Debug)]
pub struct HttpAgent {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    settings: HttpSettings,
    http: HttpClient,
    breaker: CircuitBreaker,
}

/// Error for invalid settings of an [`HttpAgent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettingsError {
    /// Invalid key.
    pub key: &'static str,
    reason: String,
}

/// Result of one attempt to send the request.
enum Attempt {
    Finished(Box<HttpResponse>),
    /// Another attempt is allowed, after this delay if the backend requested one.
    Retry(Option<Duration>),
}

impl HttpAgent {
    /// Creates an agent. Does not connect.
    ///
    /// # Errors
    /// The URL has no host or a scheme other than `http` and `https`, or a header is invalid.
    pub fn new(settings: HttpSettings) -> Result<Self, HttpSettingsError> {
        let invalid = |key| move |reason| HttpSettingsError { key, reason };
        let url = parse_url(&settings.url).map_err(invalid("url"))?;
        let headers = parse_headers(&settings.headers).map_err(invalid("headers"))?;
        let breaker = CircuitBreaker::new(settings.breaker_failures, settings.breaker_pause);
        Ok(Self {
            url,
            headers,
            settings,
            http: HttpClient::new(),
            breaker,
        })
    }

    fn request(&self, turn: &Turn) -> Result<Request<Bytes>, Failure> {
        // Constant over all attempts of one turn, and unique to it.
        let idempotency_key = format!("{}:{}", turn.task_id(), turn.message().message_id);
        let request = Request::post(self.url.clone())
            .header("accept", ACCEPT)
            .header("user-agent", USER_AGENT)
            .header("idempotency-key", idempotency_key)
            .header("attache-task-id", turn.task_id().to_string())
            .header("attache-context-id", backend_context_id(turn).to_string());
        let mut request =
            caller_propagation::add_headers(request, turn, self.settings.forward_caller);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        Ok(match self.settings.body {
            RequestBody::Text => request
                .header(CONTENT_TYPE, "text/plain; charset=utf-8")
                .body(Bytes::from(turn.text()))?,
            RequestBody::Json => {
                let body = json!({
                    "text": turn.text(),
                    "message": backend_message(turn),
                    "taskId": turn.task_id(),
                    "contextId": backend_context_id(turn),
                });
                request
                    .header(CONTENT_TYPE, "application/json")
                    .body(Bytes::from(body.to_string()))?
            }
        })
    }

    /// Sends the request, with as many retries as are configured and safe.
    async fn send_with_retries(&self, turn: &Turn) -> Result<HttpResponse, Failure> {
        let mut retries = 0;
        loop {
            match self.attempt(turn, retries < self.settings.retries).await? {
                Attempt::Finished(response) => return Ok(*response),
                Attempt::Retry(requested) => {
                    sleep(RETRY_BACKOFF.delay_or(requested, retries)).await;
                    retries += 1;
                }
            }
        }
    }

    async fn attempt(&self, turn: &Turn, may_retry: bool) -> Result<Attempt, Failure> {
        match self.http.send(self.request(turn)?).await {
            Ok(response) if may_retry && self.is_retryable(response.status()) => {
                Ok(Attempt::Retry(retry_after(&response)))
            }
            Ok(response) => Ok(Attempt::Finished(Box::new(response))),
            Err(error) => {
                let is_safe = self.settings.idempotent || !HttpClient::may_have_been_sent(&error);
                if may_retry && is_safe {
                    return Ok(Attempt::Retry(None));
                }
                self.breaker.record_failure();
                Err(ConnectFailure::new(&self.url, error).into())
            }
        }
    }

    fn is_retryable(&self, status: StatusCode) -> bool {
        let is_temporary = matches!(status.as_u16(), 429 | 502..=504);
        self.settings.idempotent && is_temporary
    }

    /// Logs a failure with details that the caller does not see.
    fn log_failure(&self, turn: &Turn, status: &dyn fmt::Display) {
        let agent = &turn.call().scope.agent;
        let backend = origin(&self.url);
        tracing::warn!(task = %turn.task_id(), %agent, backend, %status, "backend failed");
    }

    async fn call_backend(&self, turn: &Turn) -> Result<Outcome, Failure> {
        let response = self.send_with_retries(turn).await?;
        let status = response.status();
        match status.as_u16() {
            502..=504 => self.breaker.record_failure(),
            _ => self.breaker.record_success(),
        }
        if !status.is_success() {
            self.log_failure(turn, &status);
        }
        Ok(match status.as_u16() {
            200..=299 => {
                ResponseReader::new(turn, &self.settings)
                    .read_body(response)
                    .await
            }
            400 | 404 | 413 | 415 | 422 => {
                Outcome::rejected(format!("the backend refuses: {status}"))
            }
            429 | 502..=504 => Outcome::failed(format!("the backend is not available: {status}")),
            _ => Outcome::failed(format!("the backend failed: {status}")),
        })
    }
}

impl Agent for HttpAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        if !self.breaker.try_acquire() {
            return Ok(Outcome::failed(
                "the backend is not available: too many consecutive failures, try again later",
            ));
        }
        let called = timeout(self.settings.timeout, self.call_backend(&turn)).await;
        called.unwrap_or_else(|_| {
            self.breaker.record_failure();
            self.log_failure(&turn, &"timeout");
            let timeout = self.settings.timeout;
            Ok(Outcome::failed(format!(
                "the backend took longer than {timeout:?}"
            )))
        })
    }

    /// Returns whether the backend must not be called twice for one turn.
    fn needs_durable_start(&self) -> bool {
        !self.settings.idempotent
    }
}

impl fmt::Display for HttpSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for HttpSettingsError {}
