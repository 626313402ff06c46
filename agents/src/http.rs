//! An HTTP backend as an agent: what was asked is posted to it, what it answers comes back.

mod answer;
mod settings;

use std::fmt;
use std::time::Duration;

use attache::{Agent, Failure, Http as Door, HttpResponse, Outcome, Turn};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::breaker::Breaker;
use crate::onward;
use crate::unreached::{Unreached, origin};
use answer::Answer;
pub use settings::{Body, HttpSettings};

/// How long is waited before a request is sent again, for the first time; then twice as long each time.
const PAUSE: Duration = Duration::from_millis(200);
/// What a backend may ask to be waited for at most.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Posts every message to an HTTP backend, and streams its answer back: text, server-sent events, lines of JSON, or JSON.
///
/// What the backend says is only as good as its settings: see [`HttpSettings`]. A request is sent again only where
/// that is safe: when it cannot have arrived, or when the backend is said to know a request that comes twice.
///
/// ```
/// use attache_agents::{Http, HttpSettings};
/// let agent = Http::new(HttpSettings { url: "http://127.0.0.1:9000/chat".to_owned(), ..HttpSettings::default() })?;
/// # Ok::<(), attache_agents::BadHttp>(())
/// ```
#[derive(Debug)]
pub struct Http {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    settings: HttpSettings,
    door: Door,
    breaker: Breaker,
}

/// Settings that no backend can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadHttp {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl Http {
    /// An agent before a backend.
    ///
    /// # Errors
    /// The url is not one of HTTP, or a header cannot be sent.
    pub fn new(settings: HttpSettings) -> Result<Self, BadHttp> {
        let bad = |key, why: &str| BadHttp {
            key,
            why: why.to_owned(),
        };
        let wrong = |_| bad("url", "must begin with http:// or https:// and name a host");
        let url: Uri = settings.url.parse().map_err(wrong)?;
        Door::check(&url).map_err(|error| bad("url", error.message()))?;
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
        let breaker = Breaker::new(settings.breaker_failures, settings.breaker_pause);
        Ok(Self {
            url,
            headers,
            settings,
            door: Door::new(),
            breaker,
        })
    }

    fn request(&self, turn: &Turn) -> Result<Request<Bytes>, Failure> {
        let (kind, body) = match self.settings.body {
            Body::Text => ("text/plain; charset=utf-8", turn.text()),
            Body::Json => {
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
        let mut request = onward::request(request, turn, self.settings.forward_caller);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        Ok(request.body(Bytes::from(body))?)
    }

    /// Sends the request until it is answered, as often as is allowed and safe.
    async fn ask(&self, turn: &Turn) -> Result<HttpResponse, Failure> {
        let mut tries = 0;
        loop {
            let pause = match self.door.send(self.request(turn)?).await {
                Ok(answer) if tries < self.settings.retries && self.may_repeat(answer.status()) => {
                    told(&answer)
                }
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let safe = self.settings.idempotent || !Door::may_have_arrived(&error);
                    if tries >= self.settings.retries || !safe {
                        self.breaker.failed();
                        return Err(Unreached::new(&self.url, error).into());
                    }
                    None
                }
            };
            sleep(
                pause
                    .unwrap_or(PAUSE * 2_u32.saturating_pow(tries))
                    .min(MAX_PAUSE),
            )
            .await;
            tries += 1;
        }
    }

    fn may_repeat(&self, status: StatusCode) -> bool {
        let busy = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        self.settings.idempotent && busy.contains(&status)
    }

    /// Tells the log what became of a turn that the caller is told less about.
    fn warn(&self, turn: &Turn, what: &dyn fmt::Display) {
        let (agent, backend) = (&turn.call().scope.agent, origin(&self.url));
        tracing::warn!(task = %turn.task_id(), %agent, backend, status = %what, "backend failed");
    }

    async fn work(&self, turn: &Turn) -> Result<Outcome, Failure> {
        let answer = self.ask(turn).await?;
        let status = answer.status();
        match status.as_u16() {
            502..=504 => self.breaker.failed(),
            _ => self.breaker.answered(),
        }
        if !status.is_success() {
            self.warn(turn, &status);
        }
        match status.as_u16() {
            200..=299 => Answer::new(turn, &self.settings).take(answer).await,
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
pub(crate) fn told(answer: &HttpResponse) -> Option<Duration> {
    let seconds = answer
        .headers()
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

impl Agent for Http {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        if !self.breaker.allows() {
            return Ok(Outcome::failed(
                "the backend is not available, and is left alone for a while",
            ));
        }
        match timeout(self.settings.timeout, self.work(&turn)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.breaker.failed();
                self.warn(&turn, &"no answer in time");
                Ok(Outcome::failed(format!(
                    "the backend took longer than {:?}",
                    self.settings.timeout
                )))
            }
        }
    }

    /// What a backend does to the world cannot be done twice.
    fn durable_start(&self) -> bool {
        !self.settings.idempotent
    }
}

impl fmt::Display for BadHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadHttp {}
