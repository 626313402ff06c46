//! Arguments of `attache bench`.

use clap::{Args, ValueEnum};

use super::CommonFlags;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Scenarios to measure, one after the other [default: send]
    #[arg(value_enum, value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<Scenario>,

    /// Concurrent workers, each with its own connection; for fan-out the readers, for idle the streams
    #[arg(short = 'c', long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) connections: u32,

    /// Measurement time of each scenario: 10s, 1m
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    pub(crate) time: String,

    /// Warm-up time before the measurement
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(crate) warm_up: String,

    /// Maximum number of requests in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) count: u64,

    /// Text to send [default: a command of the demo agent: hello, stream 100, slow]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) message: Option<String>,

    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// SendMessage, waiting for each answer
    Send,
    /// GetTask, always of the same task
    Get,
    /// SendStreamingMessage, reading each stream to its end
    Stream,
    /// One task whose events all connections read
    FanOut,
    /// Streams that stay open
    Idle,
}

impl Scenario {
    /// The name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Get => "get",
            Self::Stream => "stream",
            Self::FanOut => "fan-out",
            Self::Idle => "idle",
        }
    }
}
