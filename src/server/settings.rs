//! How a server serves. Every bound has a default.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::units::{ByteSize, HumanDuration, HumanDurationOrNever};
use crate::service::{EnforcedModes, StreamLimits};
use crate::wire::card::CardForm;

/// How a server serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ServerSettings {
    /// The largest body that is read, in bytes.
    #[serde(with = "ByteSize")]
    pub max_body_bytes: usize,
    /// How much room all bodies together may take that wait for the rest of them, in bytes.
    #[serde(with = "ByteSize")]
    pub max_buffered_body_bytes: usize,
    /// The largest head of a request, in bytes.
    #[serde(with = "ByteSize")]
    pub max_header_bytes: usize,
    /// How long a caller may take to send the head of a request; an idle connection is closed after this too.
    #[serde(with = "HumanDuration")]
    pub header_timeout: Duration,
    /// How long a connection of HTTP/2 may be without a call, even if its peer answers pings.
    #[serde(with = "HumanDuration")]
    pub idle_timeout: Duration,
    /// How long a caller may take to send the body.
    #[serde(with = "HumanDuration")]
    pub body_timeout: Duration,
    /// How long a caller may leave what we send unread.
    #[serde(with = "HumanDuration")]
    pub write_timeout: Duration,
    /// Connections at the same time; more wait to be accepted. Kept below the number of files that the process may
    /// have open.
    pub max_connections: usize,
    /// Calls at the same time on one HTTP/2 connection.
    pub max_concurrent_calls: u32,
    /// Streams at the same time.
    pub max_streams: usize,
    /// Streams at the same time of one task.
    pub max_streams_per_task: usize,
    /// Streams at the same time of one caller, if we know who that is.
    pub max_streams_per_caller: usize,
    /// How long a stream may be silent before a comment keeps it open; `None`: for ever.
    #[serde(with = "HumanDurationOrNever")]
    pub heartbeat: Option<Duration>,
    /// How long a subscription stays with a task that waits for somebody outside; `None`: until it ends.
    #[serde(with = "HumanDurationOrNever")]
    pub waiting_stream_timeout: Option<Duration>,
    /// How long a call waits for the end of a turn before it gets the task as it is; `None`: until the end.
    #[serde(with = "HumanDurationOrNever")]
    pub max_blocking_wait: Option<Duration>,
    /// How long a server that is to stop still takes calls, while `/readyz` says that others should have them.
    #[serde(with = "HumanDuration")]
    pub shutdown_delay: Duration,
    /// How long calls and turns may take to end when the server is to stop.
    #[serde(with = "HumanDuration")]
    pub shutdown_grace: Duration,
    /// Whether callers of 1.0 must say so in `A2A-Version`.
    pub strict_version: bool,
    /// Whether gRPC tells everybody its protobuf files.
    pub grpc_reflection: bool,
    /// Whether parts of a message whose media type is none of the card's input modes are refused.
    pub enforce_input_modes: bool,
    /// Whether callers who accept none of the card's output modes are refused.
    pub enforce_output_modes: bool,
    /// How the card is written: for readers of every version, or of one.
    pub card_form: CardForm,
    /// How long clients may keep the card.
    #[serde(with = "HumanDuration")]
    pub card_max_age: Duration,
    /// Proxies that are believed when they say where clients reach us (`X-Forwarded-Host`, `-Proto`, `-Prefix`).
    pub trusted_proxies: Vec<IpAddr>,
    /// Pages of other origins that may call, such as `https://app.example.com`; `*` for all. None by default.
    pub cors_origins: Vec<String>,
}

impl ServerSettings {
    pub(super) fn stream_limits(&self) -> StreamLimits {
        StreamLimits {
            total: self.max_streams,
            per_task: self.max_streams_per_task,
            per_caller: self.max_streams_per_caller,
        }
    }
}

impl ServerSettings {
    pub(super) fn enforced_modes(&self) -> EnforcedModes {
        EnforcedModes {
            input: self.enforce_input_modes,
            output: self.enforce_output_modes,
        }
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            max_body_bytes: 8 << 20,
            max_buffered_body_bytes: 256 << 20,
            max_header_bytes: 64 << 10,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            max_connections: 50_000,
            max_concurrent_calls: 1000,
            max_streams: 50_000,
            max_streams_per_task: 1024,
            max_streams_per_caller: 10_000,
            heartbeat: Some(Duration::from_secs(15)),
            waiting_stream_timeout: Some(Duration::from_secs(300)),
            max_blocking_wait: None,
            shutdown_delay: Duration::ZERO,
            shutdown_grace: Duration::from_secs(10),
            strict_version: false,
            grpc_reflection: false,
            enforce_input_modes: true,
            enforce_output_modes: false,
            card_form: CardForm::Union,
            card_max_age: Duration::from_secs(300),
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
        }
    }
}
