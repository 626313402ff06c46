//! Settings of the HTTP server. Every limit has a default.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::body_decoder::DecoderLimits;
use crate::model::units::{
    ByteSize, ByteSizeOrHalf, CountOrHalf, HumanDuration, HumanDurationOrNever,
};
use crate::model::{Binding, Error, Result};
use crate::rt::{BudgetLimits, ConnectionLimits, OutgoingLimits};
use crate::service::{EnforcedModes, StreamLimits};
use crate::wire::V03RestForm;
use crate::wire::card::{CardForm, GrpcOnCard, WELL_KNOWN};

/// Settings of the HTTP server: limits, timeouts, streams, cards and CORS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ServerSettings {
    /// Maximum size of a request body, in bytes.
    #[serde(with = "ByteSize")]
    pub max_body_bytes: usize,
    /// Maximum memory of all request bodies that have not arrived completely or wait to be decoded, in bytes.
    #[serde(with = "ByteSize")]
    pub max_buffered_body_bytes: usize,
    /// Maximum memory of such bodies of one caller, in bytes. Anonymous callers are counted by
    /// address. `half`: half of `max_buffered_body_bytes`.
    #[serde(with = "ByteSizeOrHalf")]
    pub max_buffered_body_bytes_per_caller: Option<usize>,
    /// Maximum memory of large responses, replayed events and webhook bodies that are not sent yet, in bytes. Responses up
    /// to 4 KiB do not count.
    #[serde(with = "ByteSize")]
    pub max_outgoing_bytes: usize,
    /// Maximum memory of such data of one caller, in bytes. Anonymous callers are counted by address. `half`: half of
    /// `max_outgoing_bytes`. Each caller gets 256 KiB even if the memory is exhausted, up to a quarter more in total.
    #[serde(with = "ByteSizeOrHalf")]
    pub max_outgoing_bytes_per_caller: Option<usize>,
    /// How long a response waits for this memory. Then a read is refused as unavailable, a stream ends, a webhook is tried again
    /// later, and a send or cancel is answered with its task without artifacts, history and metadata.
    #[serde(with = "HumanDuration")]
    pub outgoing_timeout: Duration,
    /// Number of threads that decode request bodies above 256 KiB. One caller uses at most half of them.
    pub decoder_threads: usize,
    /// Maximum number of such bodies of one caller that wait for a thread.
    pub decoder_queue_per_caller: usize,
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
    /// Maximum number of concurrent connections. The limit on open files lowers it.
    pub max_connections: usize,
    /// Maximum number of concurrent connections from one address: an IPv4 address, or a /64 network
    /// of IPv6. `half`: half of `max_connections`. Trusted proxies are exempt, and so are loopback
    /// addresses unless `auth.limits.limit_loopback` is set.
    #[serde(with = "CountOrHalf")]
    pub max_connections_per_address: Option<usize>,
    /// Maximum number of concurrent connections of one authenticated caller. `half`: half of
    /// `max_connections`. Connections of trusted proxies are not counted.
    #[serde(with = "CountOrHalf")]
    pub max_connections_per_caller: Option<usize>,
    /// Number of further connections beyond these limits. They are answered if they are health probes,
    /// else refused with status 503. If there are more, the oldest one of the address with the most is closed.
    pub reserved_connections: usize,
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
    /// Form of 0.3 REST replies to requests whose body does not select one, such as
    /// `GET /v1/tasks/{id}`.
    pub v03_rest_form: V03RestForm,
    /// Whether gRPC server reflection is enabled.
    pub grpc_reflection: bool,
    /// Whether to refuse message parts whose media type is not among the card's input modes.
    pub enforce_input_modes: bool,
    /// Whether to refuse callers that accept none of the card's output modes.
    pub enforce_output_modes: bool,
    /// Protocol bindings that are served, in order of preference on the card.
    pub bindings: Vec<ServedBinding>,
    /// Clients whose list of interfaces on the card names gRPC. Some 1.0 clients refuse a card with
    /// an interface that has no http URL.
    pub grpc_on_card: GrpcOnCard,
    /// Whether gRPC URLs in the list for 0.3 clients have a scheme. Most gRPC clients need
    /// `host:port`.
    pub grpc_scheme_on_card: bool,
    /// Format of the card: readable by clients of every version, or of one version.
    pub card_form: CardForm,
    /// Format of the card at `/.well-known/agent.json`, which clients before 0.3 read. `None`:
    /// `card_form`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_json_form: Option<CardForm>,
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

/// Protocol binding in the settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ServedBinding {
    /// JSON-RPC.
    Jsonrpc,
    /// HTTP+JSON.
    Rest,
    /// gRPC, with health and reflection.
    Grpc,
}

impl ServedBinding {
    /// Returns the binding as cards name it.
    #[must_use]
    pub fn binding(self) -> Binding {
        match self {
            Self::Jsonrpc => Binding::JsonRpc,
            Self::Rest => Binding::HttpJson,
            Self::Grpc => Binding::Grpc,
        }
    }
}

impl ServerSettings {
    /// Whether a binding is served.
    pub(super) fn serves(&self, binding: ServedBinding) -> bool {
        self.bindings.contains(&binding)
    }

    /// Returns the format of the card at a path.
    pub(super) fn form_at(&self, path: &str) -> CardForm {
        match self.agent_json_form {
            Some(form) if path == WELL_KNOWN[1] => form,
            Some(_) | None => self.card_form,
        }
    }

    /// Checks the list of served bindings.
    ///
    /// # Errors
    /// Invalid `bindings`.
    pub(super) fn validate_bindings(&self) -> Result<()> {
        if self.bindings.is_empty() {
            let reason = "must name at least one of jsonrpc, rest and grpc";
            return Err(Error::invalid("bindings", reason));
        }
        let is_repeated = |(index, binding)| self.bindings[..index].contains(binding);
        if self.bindings.iter().enumerate().any(is_repeated) {
            return Err(Error::invalid("bindings", "must name each binding once"));
        }
        Ok(())
    }

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

    /// Returns the limits on concurrent connections.
    pub(super) fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits::new(self.max_connections)
            .per_address(self.max_connections_per_address)
            .reserve(self.reserved_connections)
    }

    /// Checks the limits on concurrent connections.
    ///
    /// # Errors
    /// Invalid, with the name of the setting.
    pub(super) fn validate_connections(&self) -> Result<()> {
        let total = self.max_connections;
        for (name, value) in [
            ("max_connections", total),
            ("reserved_connections", self.reserved_connections),
        ] {
            if value == 0 {
                return Err(Error::invalid(name, "must be at least 1"));
            }
        }
        for (name, share) in [
            (
                "max_connections_per_address",
                self.max_connections_per_address,
            ),
            (
                "max_connections_per_caller",
                self.max_connections_per_caller,
            ),
        ] {
            if let Some(share) = share.filter(|share| *share == 0 || *share > total) {
                let reason = format!("is {share}; it must be 1 to max_connections = {total}");
                return Err(Error::invalid(name, reason));
            }
        }
        Ok(())
    }

    /// Checks the limits on the memory of request bodies and outgoing data.
    ///
    /// # Errors
    /// Invalid, with the name of the setting.
    pub(super) fn validate_memory(&self) -> Result<()> {
        for (name, total, share) in [
            (
                "max_buffered_body_bytes",
                self.max_buffered_body_bytes,
                self.max_buffered_body_bytes_per_caller,
            ),
            (
                "max_outgoing_bytes",
                self.max_outgoing_bytes,
                self.max_outgoing_bytes_per_caller,
            ),
        ] {
            if total == 0 {
                return Err(Error::invalid(name, "must be at least 1"));
            }
            if let Some(share) = share.filter(|share| *share == 0 || *share > total) {
                let reason = format!("is {share}; it must be 1 to {name} = {total}");
                return Err(Error::invalid(format!("{name}_per_caller"), reason));
            }
        }
        Ok(())
    }

    /// Returns the limits on the memory of request bodies.
    pub(super) fn body_limits(&self) -> BudgetLimits {
        let total = self.max_buffered_body_bytes;
        BudgetLimits {
            total,
            per_key: self
                .max_buffered_body_bytes_per_caller
                .unwrap_or(half(total)),
            floor: 0,
        }
    }

    /// Returns the limits on the memory of outgoing data.
    pub(super) fn outgoing_limits(&self) -> OutgoingLimits {
        let total = self.max_outgoing_bytes;
        OutgoingLimits {
            total,
            per_caller: self.max_outgoing_bytes_per_caller.unwrap_or(half(total)),
            timeout: self.outgoing_timeout,
        }
    }

    /// Returns the limits on the decoding of large bodies.
    pub(super) fn decoder_limits(&self) -> DecoderLimits {
        DecoderLimits {
            threads: self.decoder_threads,
            queue_per_caller: self.decoder_queue_per_caller,
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
            max_outgoing_bytes: 128 << 20,
            max_outgoing_bytes_per_caller: None,
            outgoing_timeout: Duration::from_secs(30),
            decoder_threads: 2,
            decoder_queue_per_caller: 64,
            max_header_bytes: 64 << 10,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            max_connections: 50_000,
            max_connections_per_address: None,
            max_connections_per_caller: None,
            reserved_connections: 64,
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
            v03_rest_form: V03RestForm::ProtoJson,
            grpc_reflection: false,
            enforce_input_modes: true,
            enforce_output_modes: false,
            bindings: vec![
                ServedBinding::Jsonrpc,
                ServedBinding::Rest,
                ServedBinding::Grpc,
            ],
            grpc_on_card: GrpcOnCard::V03,
            grpc_scheme_on_card: false,
            card_form: CardForm::Union,
            agent_json_form: None,
            card_max_age: Duration::from_secs(300),
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
        }
    }
}
