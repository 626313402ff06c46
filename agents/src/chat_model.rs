//! A client of any endpoint that speaks chat completions as OpenAI does, and of those that nearly do.

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

use crate::connect_failure::ConnectFailure;
use crate::http::retry_after;
pub(crate) use completion::{Completion, TokenUsage, ToolCall};
pub(crate) use completion_stream::{CompletionEvent, CompletionStream};
pub use settings::ModelSettings;
pub(crate) use spans::{record_completion, record_error};

/// How long is waited before a model is asked again, for the first time; then twice as long each time.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(500);
/// What a model may ask to be waited for at most.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// How much is read of what a model says about its own failure.
const MAX_ERROR_BODY: usize = 4 << 10;

/// A model behind an endpoint.
#[derive(Debug)]
pub(crate) struct ChatModel {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    settings: ModelSettings,
    http: HttpClient,
}

/// Settings that no model can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelSettingsError(pub(crate) String);

/// Why a model did not answer: in words for the caller, which hold nothing that the endpoint said, and for the log.
#[derive(Debug)]
pub(crate) struct ModelError {
    pub(crate) message: String,
    pub(crate) cause: String,
}

impl ChatModel {
    pub(crate) fn new(settings: ModelSettings) -> Result<Self, ModelSettingsError> {
        let bad = |why: &str| ModelSettingsError(why.to_owned());
        if settings.name.is_empty() {
            return Err(bad("name must say which model is asked"));
        }
        let base = settings.url.trim_end_matches('/');
        let url = if base.ends_with("/chat/completions") {
            base.to_owned()
        } else {
            format!("{base}/chat/completions")
        };
        let wrong = "url must begin with http:// or https:// and name a host, as http://127.0.0.1:8000/v1 does";
        let url: Uri = url.parse().map_err(|_| bad(wrong))?;
        HttpClient::check(&url).map_err(|_| bad(wrong))?;
        let key = settings
            .api_key
            .as_ref()
            .map(|key| format!("Bearer {}", key.expose()));
        let key = key.map(|key| (AUTHORIZATION.as_str().to_owned(), key));
        let others = settings
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let mut headers = Vec::new();
        for (name, value) in key.into_iter().chain(others) {
            let sent = HeaderName::try_from(&name)
                .ok()
                .zip(HeaderValue::try_from(value).ok());
            let (name, mut value) = sent.ok_or_else(|| {
                ModelSettingsError(format!("`{name}` cannot be sent as a header"))
            })?;
            value.set_sensitive(true);
            headers.push((name, value));
        }
        Ok(Self {
            url,
            headers,
            settings,
            http: HttpClient::new(),
        })
    }

    /// What a trace is told of asking it this.
    pub(crate) fn span(&self, messages: &[Value]) -> Span {
        spans::chat_span(&self.settings, messages)
    }

    /// Asks; gives the answer as soon as it begins. Asking twice does no harm, so a model that is busy or not there is
    /// asked again.
    pub(crate) async fn request_completion(
        &self,
        messages: &[Value],
        tools: &[Value],
        trace: Option<&TraceContext>,
    ) -> Result<CompletionStream, ModelError> {
        let body = Bytes::from(self.body(messages, tools).to_string());
        let mut attempt = 0;
        loop {
            let (error, pause) = match self.send(body.clone(), trace).await {
                Ok(answer) if answer.status().is_success() => {
                    return Ok(CompletionStream::new(answer, &self.settings));
                }
                Ok(answer) => {
                    let again = matches!(answer.status().as_u16(), 408 | 429 | 500 | 502..=504);
                    let pause = retry_after(&answer);
                    let error = status_error(answer).await;
                    if !again {
                        return Err(error);
                    }
                    (error, pause)
                }
                Err(error) => (error, None),
            };
            if attempt >= self.settings.retries {
                return Err(error);
            }
            sleep(
                pause
                    .unwrap_or(INITIAL_RETRY_DELAY * 2_u32.saturating_pow(attempt))
                    .min(MAX_RETRY_DELAY),
            )
            .await;
            attempt += 1;
        }
    }

    async fn send(
        &self,
        body: Bytes,
        trace: Option<&TraceContext>,
    ) -> Result<HttpResponse, ModelError> {
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json;q=0.9")
            .header("user-agent", concat!("attache/", env!("CARGO_PKG_VERSION")));
        for (name, value) in trace.into_iter().flat_map(TraceContext::headers) {
            request = request.header(name, value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(body)
            .map_err(|error| ModelError::new("cannot be asked", error))?;
        match timeout(self.settings.timeout, self.http.send(request)).await {
            Ok(answer) => answer.map_err(|error| {
                ModelError::new("cannot be reached", ConnectFailure::new(&self.url, error))
            }),
            Err(_) => Err(self.timed_out()),
        }
    }

    fn timed_out(&self) -> ModelError {
        ModelError::timed_out(self.settings.timeout)
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
        if let Some(most) = settings.max_tokens {
            body.insert("max_tokens".to_owned(), json!(most));
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

    fn timed_out(limit: Duration) -> Self {
        Self::new(&format!("said nothing for {limit:?}"), "timeout")
    }
}

/// What a status means; what the endpoint says about it is for the log alone.
async fn status_error(answer: HttpResponse) -> ModelError {
    let status = answer.status();
    let what = match status.as_u16() {
        401 | 403 => "does not accept our credentials".to_owned(),
        404 => "is not there: 404 Not Found".to_owned(),
        408 | 429 | 502..=504 => format!("is not available: {status}"),
        400 | 413 | 422 => format!("refuses what it is asked: {status}"),
        _ => format!("failed: {status}"),
    };
    let said = answer.read(MAX_ERROR_BODY).await.unwrap_or_default();
    ModelError::new(&what, String::from_utf8_lossy(&said))
}
