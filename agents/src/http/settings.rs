//! Settings of the HTTP agent.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::redact;

/// Settings of the HTTP agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpSettings {
    /// URL that messages are posted to.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub url: String,
    /// Body of the request.
    pub body: RequestBody,
    /// Additional request headers, for example credentials.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// JSON pointer to the text of a JSON response, event or line, such as `/answer`. Default: a JSON string is text, any
    /// other value is a data part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_at: Option<String>,
    /// Whether requests name the authenticated caller and its tenant in `Attache-Caller` and `Attache-Tenant`.
    pub forward_caller: bool,
    /// Timeout of the whole response.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// Maximum size of a response. A larger one fails the task.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
    /// Maximum number of retries. A request that may have reached the backend is retried only if it is `idempotent`.
    pub retries: u32,
    /// Whether a repeated request has no further effect, for example because of its `Idempotency-Key`.
    pub idempotent: bool,
    /// Number of consecutive failures after which the circuit breaker opens for `breaker_pause`; 0 disables it.
    pub breaker_failures: u32,
    /// Time during which an open circuit breaker refuses calls.
    #[serde(with = "HumanDuration")]
    pub breaker_pause: Duration,
}

/// Body of a request to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RequestBody {
    /// JSON object with `text`, the whole `message`, `taskId` and `contextId`. The context id is derived from agent, tenant,
    /// caller and the id in the message.
    #[default]
    Json,
    /// Text of the message.
    Text,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            body: RequestBody::Json,
            headers: BTreeMap::new(),
            text_at: None,
            forward_caller: false,
            timeout: Duration::from_secs(120),
            max_output: 10 << 20,
            retries: 2,
            idempotent: false,
            breaker_failures: 5,
            breaker_pause: Duration::from_secs(30),
        }
    }
}
