//! Client for OpenAI-compatible chat completion endpoints, tolerant of their dialects.
//!
//! [`ChatModel`] sends requests and retries them. [`CompletionStream`] reads the response; [`Completion`] accumulates it.

mod completion;
mod completion_stream;
mod settings;
mod spans;

use std::fmt;
use std::time::Duration;

use attache::model::TraceContext;
use attache::{HttpClient, HttpResponse};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Request, Uri};
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};
use tracing::Span;

use crate::backoff::{Backoff, retry_after};
use crate::connect_failure::ConnectFailure;
use crate::outgoing::{URL_RULE, USER_AGENT, parse_header, parse_headers, parse_url};
pub(crate) use completion::{Completion, TokenUsage, ToolCall};
pub(crate) use completion_stream::{CompletionEvent, CompletionStream};
pub use settings::ModelSettings;
pub(crate) use spans::{record_completion, record_error};

/// Delays between retries. `Retry-After` is honored up to the maximum.
const RETRY_BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(60),
};
/// Maximum size of an error body that is logged.
const MAX_ERROR_BODY: usize = 4 << 10;

/// Language model behind an endpoint.
#[derive(Debug)]
pub(crate) struct ChatModel {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    settings: ModelSettings,
    http: HttpClient,
}

/// Reason why model settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelSettingsError(pub(crate) String);

/// Failure of a model call.
#[derive(Debug)]
pub(crate) struct ModelError {
    /// Message for the caller. It contains nothing that the endpoint sent.
    pub(crate) message: String,
    /// Cause, for the log.
    pub(crate) cause: String,
}

/// Failed attempt to send a request.
struct FailedAttempt {
    error: ModelError,
    is_retryable: bool,
    /// Delay that the endpoint requested.
    retry_after: Option<Duration>,
}

impl ChatModel {
    pub(crate) fn new(settings: ModelSettings) -> Result<Self, ModelSettingsError> {
        if settings.name.is_empty() {
            let reason = "name must be the name of a model";
            return Err(ModelSettingsError(reason.to_owned()));
        }
        let base = settings.url.trim_end_matches('/');
        let url = if base.ends_with("/chat/completions") {
            base.to_owned()
        } else {
            format!("{base}/chat/completions")
        };
        let url = parse_url(&url).map_err(|_| {
            ModelSettingsError(format!("url {URL_RULE}, such as http://127.0.0.1:8000/v1"))
        })?;
        let mut headers = Vec::new();
        if let Some(key) = &settings.api_key {
            let bearer = format!("Bearer {}", key.expose());
            let header = parse_header(AUTHORIZATION.as_str(), &bearer);
            headers.push(header.map_err(ModelSettingsError)?);
        }
        let configured: Vec<_> = parse_headers(&settings.headers).map_err(ModelSettingsError)?;
        headers.extend(configured);
        Ok(Self {
            url,
            headers,
            settings,
            http: HttpClient::new(),
        })
    }

    /// Creates the trace span of a call with these messages.
    pub(crate) fn span(&self, messages: &[Value]) -> Span {
        spans::chat_span(&self.settings, messages)
    }

    /// Requests a completion, and returns it as soon as the response begins.
    ///
    /// A completion has no side effects, so every temporary failure is retried.
    pub(crate) async fn request_completion(
        &self,
        messages: &[Value],
        tools: &[Value],
        trace: Option<&TraceContext>,
    ) -> Result<CompletionStream, ModelError> {
        let body = Bytes::from(self.body(messages, tools).to_string());
        let mut retries = 0;
        loop {
            let failed = match self.attempt(body.clone(), trace).await {
                Ok(stream) => return Ok(stream),
                Err(failed) => failed,
            };
            if !failed.is_retryable || retries >= self.settings.retries {
                return Err(failed.error);
            }
            sleep(RETRY_BACKOFF.delay_or(failed.retry_after, retries)).await;
            retries += 1;
        }
    }

    async fn attempt(
        &self,
        body: Bytes,
        trace: Option<&TraceContext>,
    ) -> Result<CompletionStream, FailedAttempt> {
        let response = self
            .send(body, trace)
            .await
            .map_err(|error| FailedAttempt {
                error,
                is_retryable: true,
                retry_after: None,
            })?;
        let status = response.status();
        if status.is_success() {
            return Ok(CompletionStream::new(response, &self.settings));
        }
        Err(FailedAttempt {
            is_retryable: matches!(status.as_u16(), 408 | 429 | 500 | 502..=504),
            retry_after: retry_after(&response),
            error: status_error(response).await,
        })
    }

    async fn send(
        &self,
        body: Bytes,
        trace: Option<&TraceContext>,
    ) -> Result<HttpResponse, ModelError> {
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json;q=0.9")
            .header("user-agent", USER_AGENT);
        for (name, value) in trace.into_iter().flat_map(TraceContext::headers) {
            request = request.header(name, value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(body)
            .map_err(|error| ModelError::new("cannot be called", error))?;
        match timeout(self.settings.timeout, self.http.send(request)).await {
            Ok(response) => response.map_err(|error| {
                let failure = ConnectFailure::new(&self.url, error);
                ModelError::new("cannot be reached", failure)
            }),
            Err(_) => Err(ModelError::timed_out(self.settings.timeout)),
        }
    }

    fn body(&self, messages: &[Value], tools: &[Value]) -> Value {
        let settings = &self.settings;
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(settings.name));
        body.insert("messages".to_owned(), json!(messages));
        body.insert("stream".to_owned(), json!(true));
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        if !tools.is_empty() {
            body.insert("tools".to_owned(), json!(tools));
        }
        let numbers = [
            ("temperature", settings.temperature),
            ("top_p", settings.top_p),
        ];
        body.extend(
            numbers
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))),
        );
        if let Some(max_tokens) = settings.max_tokens {
            body.insert("max_tokens".to_owned(), json!(max_tokens));
        }
        body.extend(settings.more.clone());
        Value::Object(body)
    }
}

impl ModelError {
    fn new(what: &str, cause: impl fmt::Display) -> Self {
        Self {
            message: format!("the model {what}"),
            cause: cause.to_string(),
        }
    }

    fn timed_out(timeout: Duration) -> Self {
        Self::new(&format!("sent nothing for {timeout:?}"), "timeout")
    }
}

/// Returns the error for a status. The body of the response is for the log only.
async fn status_error(response: HttpResponse) -> ModelError {
    let status = response.status();
    let what = match status.as_u16() {
        401 | 403 => "does not accept our credentials".to_owned(),
        404 => "does not exist: 404 Not Found".to_owned(),
        408 | 429 | 502..=504 => format!("is not available: {status}"),
        400 | 413 | 422 => format!("refuses the request: {status}"),
        _ => format!("failed: {status}"),
    };
    let body = response.read(MAX_ERROR_BODY).await.unwrap_or_default();
    ModelError::new(&what, String::from_utf8_lossy(&body))
}
