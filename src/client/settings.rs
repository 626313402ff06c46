//! What a client keeps to: how it chooses, how long it waits, how much it reads, what it tries again.

use std::time::Duration;

use crate::model::{Binding, Version};

/// Everything that can be set, each with its default.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientSettings {
    /// Which of the interfaces that a card names is taken.
    pub interface: InterfacePreference,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// What is tried again, and when.
    pub retries: RetryPolicy,
    /// How a task is looked after where the peer does not stream.
    pub polling: PollingPolicy,
    /// How much of one answer, or of one event of a stream, is read; by default 10 MiB.
    pub max_bytes: usize,
    /// How much of a card is read; by default 1 MiB.
    pub max_card_bytes: usize,
    /// The model to ask for where a peer has no A2A and completes chats, at `/v1/chat/completions` below its url; by
    /// default such a peer is no agent.
    pub chat_completions: Option<String>,
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
        }
    }
}

/// Which interface of a card is taken: the first that we speak, in the order of the card unless said otherwise, and of
/// its binding the newest version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfacePreference {
    /// Bindings to prefer, the best first; those not named come behind, in the order of the card.
    pub bindings: Vec<Binding>,
    /// Whether no other than these bindings will do.
    pub only_listed: bool,
    /// No other version will do.
    pub version: Option<Version>,
    /// Stays with the interface it has, even if the peer there turns out not to know the version, or is not there.
    pub no_fallback: bool,
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// A connection, to be made; by default 10 s.
    pub connect: Duration,
    /// The first byte of an answer, by default 30 s. Not of a message that waits for its task to end: its answer comes
    /// when the work is done.
    pub first_byte: Duration,
    /// Silence in an answer or a stream that has begun, by default 5 min; then it counts as cut.
    pub idle: Duration,
    /// A whole call that waits for nobody's work, and finding a card; by default 1 min.
    pub total: Duration,
    /// All the waiting of [`send`](super::Client::send) and [`stream`](super::Client::stream), with everything that is
    /// tried again; by default as long as it takes.
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

/// What is tried again: only what surely did not arrive, what is safe to ask twice, and messages whose key the peer
/// honours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often in a row, by default 4; 0 tries nothing again.
    pub max_retries: u32,
    /// The first pause, by default 500 ms; each is twice as long as the one before, less up to a half by chance.
    pub initial_delay: Duration,
    /// The longest pause, by default 30 s. A peer that asks for a longer one is given up.
    pub max_delay: Duration,
    /// Whether the peer is known to honour `Idempotency-Key`, as Attache does: then also a message whose connection was
    /// lost is sent again. By default not, and it is not.
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

/// How often a task is looked at where the peer does not stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollingPolicy {
    /// The first pause, by default 1 s; each is half as long again as the one before.
    pub initial_interval: Duration,
    /// The longest pause, by default 10 s.
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
