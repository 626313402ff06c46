//! How a model is asked, as a configuration file has it.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::redact;

/// A model behind an endpoint of chat completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelSettings {
    /// The base of the endpoint, such as `https://api.openai.com/v1` or `http://127.0.0.1:11434/v1`.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub url: String,
    /// The name of the model.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub name: String,
    /// Sent as a bearer token.
    #[serde(
        serialize_with = "redact::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_key: Option<Secret>,
    /// Headers that go along, credentials among them.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// How freely it chooses its words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From how much of what is likely it chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// How much it may say at a time, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Whatever else the endpoint should be told, as members of the request.
    pub more: Map<String, Value>,
    /// How long it may be silent, before and within an answer.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// How much of an answer is read; one that is larger fails the task.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
    /// How often it is asked again when it is busy or not there; `Retry-After` is honoured up to a minute.
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
