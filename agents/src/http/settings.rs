//! How a backend is called, as a configuration file has it.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::redact;

/// How a backend is called for every turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpSettings {
    /// Where every message is posted to.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub url: String,
    /// What is posted.
    pub body: RequestBody,
    /// Headers that go along, credentials among them.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Where the text is in an answer of JSON, and in every event or line of one: a JSON pointer, such as `/answer`.
    /// If left out, an answer that is a text is that text, and any other is data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_at: Option<String>,
    /// Tells the backend who calls, as authentication knows them, in `Attache-Caller` and `Attache-Tenant`.
    pub forward_caller: bool,
    /// How long the whole answer may take.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// How much of an answer is read; one that is larger fails the task.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
    /// How often a request is sent again. One that may have arrived is not, unless the backend is `idempotent`.
    pub retries: u32,
    /// Whether the backend knows a request that comes twice by its `Idempotency-Key`, or does not mind.
    pub idempotent: bool,
    /// After so many failures in a row the backend is left alone for `breaker_pause`; never with 0.
    pub breaker_failures: u32,
    /// How long a backend that fails is left alone.
    #[serde(with = "HumanDuration")]
    pub breaker_pause: Duration,
}

/// What is posted to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RequestBody {
    /// `text`, the whole `message`, `taskId` and `contextId`.
    #[default]
    Json,
    /// The text alone.
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
