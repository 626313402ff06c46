//! What can be typed to measure an agent.

use clap::{Args, ValueEnum};

use super::CommonFlags;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure; several are measured one after the other [default: send]
    #[arg(value_enum, value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<Scenario>,

    /// How many work at once, each over a connection of its own; the readers of fan-out, the streams of idle
    #[arg(short = 'c', long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) connections: u32,

    /// How long each scenario is measured: 10s, 1m
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    pub(crate) time: String,

    /// How long it runs before anything counts
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(crate) warm_up: String,

    /// At most so many in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) count: u64,

    /// The text to send [default: what the practice agent understands: hello, stream 100, slow]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) message: Option<String>,

    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// Messages, each waiting for its answer
    Send,
    /// One task, looked at again and again
    Get,
    /// Messages, each with a stream of its events to the end
    Stream,
    /// One task, its events read by all at once
    FanOut,
    /// Streams that are held open
    Idle,
}

impl Scenario {
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
