//! Telemetry of the process: the log, metrics and traces.

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

/// Time for a server to export its last traces at exit.
const SERVER_FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a client verb to export its last traces at exit.
const CLIENT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Telemetry to shut down at exit.
pub(crate) struct Telemetry {
    collector: Option<Collector>,
    flush_timeout: Duration,
}

impl Telemetry {
    /// Exports the remaining traces.
    pub(crate) async fn shutdown(self) {
        let Some(collector) = self.collector else {
            return;
        };
        // A failed export is logged by the exporter.
        let _ = tokio::task::spawn_blocking(move || collector.shutdown(self.flush_timeout)).await;
    }
}

/// Starts the log of a client verb, warnings only, to stderr; and traces if the environment has a collector.
pub(crate) fn init_client() -> Telemetry {
    let otlp_endpoint = environment("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|url| !url.is_empty());
    let section = TelemetrySection {
        otlp_endpoint,
        log: LogFormat::Human,
        ..TelemetrySection::default()
    };
    // An invalid collector does not stop the verb.
    let collector = Collector::new(&section).unwrap_or_else(|error| {
        eprintln!("warning: {error}");
        None
    });
    init_subscriber(&section, collector.as_ref(), "warn");
    Telemetry {
        collector,
        flush_timeout: CLIENT_FLUSH_TIMEOUT,
    }
}

/// The span of a verb, as a child of the trace of the environment.
pub(crate) fn command_span(words: &[std::ffi::OsString]) -> Span {
    // Only the verb: other words may be content of the user.
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

/// Starts the log of a server, with a line per start, stop and turn; and metrics and traces.
///
/// # Errors
/// The URL of the collector is invalid.
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
        flush_timeout: SERVER_FLUSH_TIMEOUT,
    })
}

fn init_subscriber(
    section: &TelemetrySection,
    collector: Option<&Collector>,
    default_filter: &str,
) {
    let filter = log_filter(default_filter);
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

/// The log layer: text for people, or a JSON object per line.
fn log_layer<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_text = match format {
        LogFormat::Auto => io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
    if is_text {
        lines.boxed()
    } else {
        lines.json().flatten_event(true).boxed()
    }
}

/// The log filter: `RUST_LOG`, else the default. Trace spans and the log of the MCP crate are never logged: they may
/// contain message content.
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
