//! Settings of a client: interface preference, timeouts, retries, polling and size limits.

use std::time::Duration;

use crate::model::{Binding, Version};

/// Settings of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientSettings {
    /// Preference among the interfaces of a card.
    pub interface: InterfacePreference,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Retries and their delays.
    pub retries: RetryPolicy,
    /// Intervals at which a task is polled if the peer does not stream.
    pub polling: PollingPolicy,
    /// Maximum size of one response, or of one event of a stream, in bytes. The default is 10 MiB.
    pub max_bytes: usize,
    /// Maximum size of a card in bytes. The default is 1 MiB.
    pub max_card_bytes: usize,
    /// Model name for peers without A2A: if discovery finds no card, or a first message fails with status 404, 405 or
    /// 5xx, or with -32601 or -32603, the message is posted to `/v1/chat/completions` below the URL. An agent that failed
    /// late then works twice. The default is `None`: such a peer is an error.
    pub chat_completions: Option<String>,
    /// Content of files over gRPC and HTTP+JSON of 0.3.
    pub v03_files: FileEncoding,
}

/// Content of files over the protobuf forms of 0.3, gRPC and HTTP+JSON. The Python SDKs put base64 text into the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileEncoding {
    /// Base64 text if the peer is written in Python, by the head of its responses; else bytes. Received content that is
    /// not valid base64 is never changed.
    #[default]
    Auto,
    /// Bytes.
    Raw,
    /// Base64 text. Received content that is not valid base64 is not changed.
    Base64,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            interface: InterfacePreference::default(),
            timeouts: Timeouts::default(),
            retries: RetryPolicy::default(),
            polling: PollingPolicy::default(),
            max_bytes: 10 << 20,
            max_card_bytes: 1 << 20,
            chat_completions: None,
            v03_files: FileEncoding::Auto,
        }
    }
}

/// Preference among the interfaces of a card. By default the first supported one in the order of the card, in the
/// newest version of its binding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfacePreference {
    /// Preferred bindings, best first. Other bindings follow in the order of the card.
    pub bindings: Vec<Binding>,
    /// Whether bindings that are not in `bindings` are excluded.
    pub only_listed: bool,
    /// Required version.
    pub version: Option<Version>,
    /// Disables the fallback to another interface if the peer is unreachable or does not know the version.
    pub no_fallback: bool,
}

/// Timeouts of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Establishing a connection. The default is 10 s.
    pub connect: Duration,
    /// Waiting for the head of a response. The default is 30 s. Does not apply to `SendMessage`, which returns when the
    /// agent has finished.
    pub first_byte: Duration,
    /// Silence within a response or stream; then the connection counts as lost. The default is 5 min.
    pub idle: Duration,
    /// A whole call other than `SendMessage`, and discovery of a card. The default is 1 min.
    pub total: Duration,
    /// A whole [`send`](super::Client::send) or [`stream`](super::Client::stream), including retries. The default is no
    /// limit.
    pub wait: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(300),
            total: Duration::from_secs(60),
            wait: None,
        }
    }
}

/// Retries with exponential backoff. A request is repeated if it was certainly not executed, if it only reads, or if
/// it is a message and the peer supports idempotency keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of consecutive retries. The default is 4; 0 disables retries.
    pub max_retries: u32,
    /// Delay before the first retry. The default is 500 ms. Each delay doubles the one before, minus a jitter of up to half.
    pub initial_delay: Duration,
    /// Maximum delay. The default is 30 s. A peer whose `Retry-After` is longer is not retried.
    pub max_delay: Duration,
    /// Whether the peer supports `Idempotency-Key`, as Attache does. Then a message is also sent again if its connection
    /// was lost. The default is `false`.
    pub idempotency_keys_supported: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 4,
            initial_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(30),
            idempotency_keys_supported: false,
        }
    }
}

/// Intervals between polls of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollingPolicy {
    /// First interval. The default is 1 s. Each interval is 1.5 times the one before.
    pub initial_interval: Duration,
    /// Maximum interval. The default is 10 s.
    pub max_interval: Duration,
}

impl Default for PollingPolicy {
    fn default() -> Self {
        Self {
            initial_interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(10),
        }
    }
}
