//! What the program says of itself: the log, the counts, and traces.

mod kaos;
mod otlp;

use std::io::{self, IsTerminal};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::config::{LogFormat, TelemetrySection};
use crate::server::environment;
use otlp::Collector;
pub(crate) use otlp::parent_trace;

/// How long a collector may hold up the end of a server, and of a verb that talks to one.
const LONGEST_END: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(2)];

/// What has to be ended with the program.
pub(crate) struct Telemetry {
    collector: Option<Collector>,
    limit: Duration,
}

impl Telemetry {
    /// Sends the last traces.
    pub(crate) async fn shutdown(self) {
        let Some(collector) = self.collector else {
            return;
        };
        // Whether it got through is told in the log.
        let _ = tokio::task::spawn_blocking(move || collector.shutdown(self.limit)).await;
    }
}

/// The log of a verb that talks to an agent: what is odd. It goes to stderr: stdout is for results.
pub(crate) fn init_client() -> Telemetry {
    let otlp_endpoint = environment("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|url| !url.is_empty());
    let section = TelemetrySection {
        otlp_endpoint,
        log: LogFormat::Human,
        ..TelemetrySection::default()
    };
    // What the user asked for matters more than who watches it.
    let collector = Collector::new(&section).unwrap_or_else(|error| {
        eprintln!("warning: {error}");
        None
    });
    init_subscriber(&section, collector.as_ref(), "warn");
    Telemetry {
        collector,
        limit: LONGEST_END[1],
    }
}

/// The span of a verb, below what our environment names.
pub(crate) fn command_span(words: &[std::ffi::OsString]) -> Span {
    // Its first words alone: anything else may be what is said.
    let name: Vec<_> = words
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy())
        .collect();
    let name = name
        .iter()
        .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    let name = name
        .take(1)
        .fold("attache".to_owned(), |all, word| format!("{all} {word}"));
    let span =
        tracing::info_span!(target: attache::telemetry::trace::TARGET, "attache", otel.name = name);
    otlp::continue_trace(&span);
    span
}

/// The log, the counts and the traces of a server: a line for every start, stop and turn.
///
/// # Errors
/// No traces can be sent to where they should go.
pub(crate) fn init_server(section: &TelemetrySection) -> anyhow::Result<Telemetry> {
    if section.metrics {
        attache::telemetry::metrics::enable();
    }
    let collector = Collector::new(section)?;
    init_subscriber(
        section,
        collector.as_ref(),
        "warn,attache=info,attache_agents=info",
    );
    Ok(Telemetry {
        collector,
        limit: LONGEST_END[0],
    })
}

fn init_subscriber(section: &TelemetrySection, collector: Option<&Collector>, otherwise: &str) {
    let filter = log_filter(otherwise);
    let Some(collector) = collector else {
        return tracing_subscriber::registry()
            .with(filter)
            .with(log_layer(section.log))
            .init();
    };
    let matches_state = |metadata: &Metadata<'_>| {
        metadata.is_span() && metadata.target() == attache::telemetry::trace::TARGET
    };
    let traces = tracing_opentelemetry::layer()
        .with_tracer(collector.tracer())
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(matches_state).with_max_level_hint(LevelFilter::INFO));
    tracing_subscriber::registry()
        .with(log_layer(section.log).with_filter(filter))
        .with(traces)
        .init();
}

/// The log: for people, or a JSON object to a line.
fn log_layer<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let for_people = match format {
        LogFormat::Auto => io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
    if for_people {
        lines.boxed()
    } else {
        lines.json().flatten_event(true).boxed()
    }
}

/// `RUST_LOG` says how much is logged. Spans for traces are never in the log, nor is what the MCP crate tells of itself: what
/// is said may be in them.
fn log_filter(otherwise: &str) -> EnvFilter {
    let said = |words: &str| {
        EnvFilter::try_new(format!(
            "{words},rmcp=off,{}=off",
            attache::telemetry::trace::TARGET
        ))
    };
    let asked = environment("RUST_LOG").and_then(|words| said(&words).ok());
    asked.or_else(|| said(otherwise).ok()).unwrap_or_default()
}
