//! Settings of the HTTP server. Every limit has a default.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::units::{
    ByteSize, ByteSizeOrHalf, CountOrHalf, HumanDuration, HumanDurationOrNever,
};
use crate::rt::BudgetLimits;
use crate::service::{EnforcedModes, StreamLimits};
use crate::wire::card::CardForm;

/// Settings of the HTTP server: limits, timeouts, streams, cards and CORS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ServerSettings {
    /// Maximum size of a request body, in bytes.
    #[serde(with = "ByteSize")]
    pub max_body_bytes: usize,
    /// Maximum memory of all request bodies that have not arrived completely, in bytes.
    #[serde(with = "ByteSize")]
    pub max_buffered_body_bytes: usize,
    /// Maximum memory of such bodies of one caller, in bytes. Anonymous callers are counted by
    /// address. `half`: half of `max_buffered_body_bytes`.
    #[serde(with = "ByteSizeOrHalf")]
    pub max_buffered_body_bytes_per_caller: Option<usize>,
    /// Number of threads that decode request bodies above 256 KiB. One caller uses at most half of them.
    pub decoder_threads: usize,
    /// Maximum size of a request head, in bytes.
    #[serde(with = "ByteSize")]
    pub max_header_bytes: usize,
    /// Timeout for the head of a request. An idle HTTP/1 connection is closed after it too.
    #[serde(with = "HumanDuration")]
    pub header_timeout: Duration,
    /// Time after which an HTTP/2 connection without calls is closed, even if its peer answers
    /// pings.
    #[serde(with = "HumanDuration")]
    pub idle_timeout: Duration,
    /// Timeout for the body of a request.
    #[serde(with = "HumanDuration")]
    pub body_timeout: Duration,
    /// Timeout of a write that makes no progress because the peer does not read.
    #[serde(with = "HumanDuration")]
    pub write_timeout: Duration,
    /// Maximum number of concurrent connections. Further connections wait to be accepted. The limit
    /// on open files lowers it.
    pub max_connections: usize,
    /// Maximum number of concurrent calls on one HTTP/2 connection.
    pub max_concurrent_calls: u32,
    /// Maximum number of concurrent streams.
    pub max_streams: usize,
    /// Maximum number of concurrent streams of one task.
    pub max_streams_per_task: usize,
    /// Maximum number of concurrent streams of one caller. Anonymous callers are counted by address.
    /// `half`: half of `max_streams`.
    #[serde(with = "CountOrHalf")]
    pub max_streams_per_caller: Option<usize>,
    /// Interval of the comments that keep a silent stream open. `None`: no comments.
    #[serde(with = "HumanDurationOrNever")]
    pub heartbeat: Option<Duration>,
    /// How long a subscription to a task in `input-required` or `auth-required` stays open. `None`:
    /// until the task ends.
    #[serde(with = "HumanDurationOrNever")]
    pub waiting_stream_timeout: Option<Duration>,
    /// How long a blocking call waits for the end of a turn. It then returns the unfinished task.
    /// `None`: until the end.
    #[serde(with = "HumanDurationOrNever")]
    pub max_blocking_wait: Option<Duration>,
    /// How long the server accepts calls after a shutdown signal, while `/readyz` reports that it
    /// is not ready.
    #[serde(with = "HumanDuration")]
    pub shutdown_delay: Duration,
    /// Grace period for running calls and turns on shutdown.
    #[serde(with = "HumanDuration")]
    pub shutdown_grace: Duration,
    /// Whether callers of version 1.0 must send `A2A-Version`.
    pub strict_version: bool,
    /// Whether gRPC server reflection is enabled.
    pub grpc_reflection: bool,
    /// Whether to refuse message parts whose media type is not among the card's input modes.
    pub enforce_input_modes: bool,
    /// Whether to refuse callers that accept none of the card's output modes.
    pub enforce_output_modes: bool,
    /// Format of the card: readable by clients of every version, or of one version.
    pub card_form: CardForm,
    /// How long clients may cache the card.
    #[serde(with = "HumanDuration")]
    pub card_max_age: Duration,
    /// Addresses of proxies whose `X-Forwarded-For`, `-Host`, `-Proto` and `-Prefix` headers are
    /// trusted.
    pub trusted_proxies: Vec<IpAddr>,
    /// Origins whose pages may call, such as `https://app.example.com`. `*` allows all. Empty by
    /// default.
    pub cors_origins: Vec<String>,
}

impl ServerSettings {
    /// Returns the limits on concurrent streams.
    pub(super) fn stream_limits(&self) -> StreamLimits {
        StreamLimits {
            total: self.max_streams,
            per_task: self.max_streams_per_task,
            per_caller: self
                .max_streams_per_caller
                .unwrap_or(half(self.max_streams)),
        }
    }

    /// Returns the limits on the memory of request bodies.
    pub(super) fn body_limits(&self) -> BudgetLimits {
        let total = self.max_buffered_body_bytes;
        BudgetLimits {
            total,
            per_key: self
                .max_buffered_body_bytes_per_caller
                .unwrap_or(half(total)),
        }
    }

    /// Returns which declared modes are enforced.
    pub(super) fn enforced_modes(&self) -> EnforcedModes {
        EnforcedModes {
            input: self.enforce_input_modes,
            output: self.enforce_output_modes,
        }
    }

    /// Whether requests from this address come through a trusted proxy.
    pub(super) fn is_trusted_proxy(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.contains(&peer.to_canonical())
    }
}

/// Returns half of a limit, rounded up: a limit of 1 still allows 1.
fn half(limit: usize) -> usize {
    limit.div_ceil(2)
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            max_body_bytes: 8 << 20,
            max_buffered_body_bytes: 256 << 20,
            max_buffered_body_bytes_per_caller: None,
            decoder_threads: 2,
            max_header_bytes: 64 << 10,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            max_connections: 50_000,
            max_concurrent_calls: 1000,
            max_streams: 50_000,
            max_streams_per_task: 1024,
            max_streams_per_caller: None,
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
