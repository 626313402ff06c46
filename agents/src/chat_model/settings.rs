//! Settings of a chat model.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::redact;

/// Settings of a chat model behind an OpenAI-compatible endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelSettings {
    /// Base URL of the endpoint, such as `https://api.openai.com/v1` or `http://127.0.0.1:11434/v1`.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub url: String,
    /// Name of the model.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub name: String,
    /// API key, sent as a bearer token.
    #[serde(
        serialize_with = "redact::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_key: Option<Secret>,
    /// Additional request headers, for example credentials.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: cumulative probability of the candidate tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Maximum number of tokens in one completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Additional members of the request body.
    pub more: Map<String, Value>,
    /// Idle timeout, before and within a response.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// Maximum size of a response. A larger one fails the task.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
    /// Maximum number of retries if the endpoint is overloaded or unreachable. `Retry-After` is honored up to 60 seconds.
    pub retries: u32,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            name: String::new(),
            api_key: None,
            headers: BTreeMap::new(),
            temperature: None,
            top_p: None,
            max_tokens: None,
            more: Map::new(),
            timeout: Duration::from_secs(120),
            max_output: 10 << 20,
            retries: 3,
        }
    }
}
