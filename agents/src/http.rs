//! An HTTP backend as an agent: what was asked is posted to it, what it answers comes back.

mod response;
mod settings;

use std::fmt;
use std::time::Duration;

use attache::{Agent, Failure, HttpClient, HttpResponse, Outcome, Turn};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::caller_propagation;
use crate::circuit_breaker::CircuitBreaker;
use crate::connect_failure::{ConnectFailure, origin};
use response::ResponseReader;
pub use settings::{HttpSettings, RequestBody};

/// How long is waited before a request is sent again, for the first time; then twice as long each time.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(200);
/// What a backend may ask to be waited for at most.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Posts every message to an HTTP backend, and streams its answer back: text, server-sent events, lines of JSON, or JSON.
///
/// What the backend says is only as good as its settings: see [`HttpSettings`]. A request is sent again only where
/// that is safe: when it cannot have arrived, or when the backend is said to know a request that comes twice.
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

/// Settings that no backend can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettingsError {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl HttpAgent {
    /// An agent before a backend.
    ///
    /// # Errors
    /// The url is not one of HTTP, or a header cannot be sent.
    pub fn new(settings: HttpSettings) -> Result<Self, HttpSettingsError> {
        let bad = |key, why: &str| HttpSettingsError {
            key,
            why: why.to_owned(),
        };
        let wrong = |_| bad("url", "must begin with http:// or https:// and name a host");
        let url: Uri = settings.url.parse().map_err(wrong)?;
        HttpClient::check(&url).map_err(|error| bad("url", error.message()))?;
        let mut headers = Vec::new();
        for (name, value) in &settings.headers {
            let sent = HeaderName::try_from(name.as_str())
                .ok()
                .zip(HeaderValue::try_from(value.expose()).ok());
            let (name, mut value) = sent
                .ok_or_else(|| bad("headers", &format!("`{name}` cannot be sent as a header")))?;
            value.set_sensitive(true);
            headers.push((name, value));
        }
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
        let (kind, body) = match self.settings.body {
            RequestBody::Text => ("text/plain; charset=utf-8", turn.text()),
            RequestBody::Json => {
                let (task, context) = (turn.task_id(), turn.context_id());
                let all = json!({"text": turn.text(), "message": turn.message(), "taskId": task, "contextId": context});
                ("application/json", all.to_string())
            }
        };
        let request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, kind)
            .header(
                "accept",
                "text/event-stream, application/x-ndjson, application/json, text/plain;q=0.9, */*;q=0.5",
            )
            .header("user-agent", concat!("attache/", env!("CARGO_PKG_VERSION")))
            // The same for every try of the same turn, and for no other.
            .header("idempotency-key", format!("{}:{}", turn.task_id(), turn.message().message_id))
            .header("attache-task-id", turn.task_id().to_string())
            .header("attache-context-id", turn.context_id().to_string());
        let mut request =
            caller_propagation::add_headers(request, turn, self.settings.forward_caller);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        Ok(request.body(Bytes::from(body))?)
    }

    /// Sends the request until it is answered, as often as is allowed and safe.
    async fn send_with_retries(&self, turn: &Turn) -> Result<HttpResponse, Failure> {
        let mut attempt = 0;
        loop {
            let pause = match self.http.send(self.request(turn)?).await {
                Ok(response)
                    if attempt < self.settings.retries && self.is_retryable(response.status()) =>
                {
                    retry_after(&response)
                }
                Ok(response) => return Ok(response),
                Err(error) => {
                    let safe = self.settings.idempotent || !HttpClient::may_have_been_sent(&error);
                    if attempt >= self.settings.retries || !safe {
                        self.breaker.record_failure();
                        return Err(ConnectFailure::new(&self.url, error).into());
                    }
                    None
                }
            };
            sleep(
                pause
                    .unwrap_or(INITIAL_RETRY_DELAY * 2_u32.saturating_pow(attempt))
                    .min(MAX_RETRY_DELAY),
            )
            .await;
            attempt += 1;
        }
    }

    fn is_retryable(&self, status: StatusCode) -> bool {
        let busy = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        self.settings.idempotent && busy.contains(&status)
    }

    /// Tells the log what became of a turn that the caller is told less about.
    fn log_failure(&self, turn: &Turn, what: &dyn fmt::Display) {
        let (agent, backend) = (&turn.call().scope.agent, origin(&self.url));
        tracing::warn!(task = %turn.task_id(), %agent, backend, status = %what, "backend failed");
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
        match status.as_u16() {
            200..=299 => {
                ResponseReader::new(turn, &self.settings)
                    .read_body(response)
                    .await
            }
            400 | 404 | 413 | 415 | 422 => {
                Ok(Outcome::rejected(format!("the backend refuses: {status}")))
            }
            429 | 502..=504 => Ok(Outcome::failed(format!(
                "the backend is not available: {status}"
            ))),
            _ => Ok(Outcome::failed(format!("the backend failed: {status}"))),
        }
    }
}

/// How long the one who answers wants to be left alone.
pub(crate) fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let seconds = response
        .headers()
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

impl Agent for HttpAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        if !self.breaker.try_acquire() {
            return Ok(Outcome::failed(
                "the backend is not available, and is left alone for a while",
            ));
        }
        match timeout(self.settings.timeout, self.call_backend(&turn)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.breaker.record_failure();
                self.log_failure(&turn, &"no answer in time");
                Ok(Outcome::failed(format!(
                    "the backend took longer than {:?}",
                    self.settings.timeout
                )))
            }
        }
    }

    /// What a backend does to the world cannot be done twice.
    fn needs_durable_start(&self) -> bool {
        !self.settings.idempotent
    }
}

impl fmt::Display for HttpSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for HttpSettingsError {}
