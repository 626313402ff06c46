//! What the program says of itself: the log, and the counts.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, TelemetrySection};

/// The log of a verb that talks to an agent: what is odd. It goes to stderr: stdout is for results.
pub(crate) fn talking() {
    fmt().with_env_filter(filter("warn,rmcp=off")).with_writer(io::stderr).with_ansi(false).init();
}

/// The log and the counts of a server: a line for every start, stop and turn.
pub(crate) fn serving(section: &TelemetrySection) {
    if section.metrics {
        attache::metrics::enable();
    }
    let for_people = match section.log {
        LogFormat::Auto => io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
    let filter = filter("warn,rmcp=off,attache=info,attache_agents=info");
    let registry = tracing_subscriber::registry().with(filter);
    match for_people {
        true => registry.with(lines).init(),
        false => registry.with(lines.json().flatten_event(true)).init(),
    }
}

/// `RUST_LOG` says how much is logged.
fn filter(otherwise: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(otherwise))
}
