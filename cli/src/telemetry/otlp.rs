//! Export of traces, and of metrics with `kaos` names, to a collector: OTLP over HTTP with our own HTTP client.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use attache::HttpClient;
use attache::model::TraceContext;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient as OtelHttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::kaos::{self, RenamingExporter};
use crate::config::{SpanNames, TelemetrySection};
use crate::server::environment;

/// Maximum size of a collector response, in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// Default time limit of an export; `OTEL_EXPORTER_OTLP_TIMEOUT` overrides it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connection to a collector.
pub(crate) struct Collector {
    traces: SdkTracerProvider,
    metrics: Option<SdkMeterProvider>,
}

impl Collector {
    /// The collector of the configuration or the environment; `None` if there is none, or if OpenTelemetry is disabled.
    ///
    /// # Errors
    /// Its URL is invalid.
    pub(super) fn new(section: &TelemetrySection) -> anyhow::Result<Option<Self>> {
        let is = |name: &str, value: &str| {
            environment(name).is_some_and(|set| set.eq_ignore_ascii_case(value))
        };
        let own = environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").filter(|url| !url.is_empty());
        if is("OTEL_SDK_DISABLED", "true")
            || is("OTEL_TRACES_EXPORTER", "none")
            || (section.otlp_endpoint.is_none() && own.is_none())
        {
            return Ok(None);
        }
        let url = |own: Option<String>, path: &str| {
            let base = section.otlp_endpoint.as_deref().unwrap_or_default();
            own.unwrap_or_else(|| format!("{}{path}", base.trim_end_matches('/')))
        };
        let traces = url(own, "/v1/traces");
        let parsed = traces
            .parse()
            .ok()
            .filter(|url| HttpClient::check(url).is_ok());
        parsed.with_context(|| format!("traces cannot be sent to {traces}: telemetry.otlp_endpoint must begin with http:// or https:// and name a host"))?;
        let spans = SpanExporter::builder()
            .with_http()
            .with_http_client(HttpExporter::new())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(traces)
            .build()?;
        let builder = SdkTracerProvider::builder().with_resource(resource());
        let (traces, metrics) = match section.names {
            SpanNames::A2a => (builder.with_batch_exporter(spans).build(), None),
            SpanNames::Kaos => {
                let own = environment("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
                    .filter(|url| !url.is_empty());
                let metrics = meters(url(own, "/v1/metrics"))?;
                (
                    builder.with_batch_exporter(RenamingExporter(spans)).build(),
                    Some(metrics),
                )
            }
        };
        if section.content {
            attache::telemetry::trace::enable_content_recording();
        }
        Ok(Some(Self { traces, metrics }))
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        self.traces.tracer("attache")
    }

    /// Exports the remaining traces and metrics, within the time limit.
    pub(super) fn shutdown(&self, limit: Duration) {
        // The process ends; a failure cannot be reported.
        let _ = self.traces.shutdown_with_timeout(limit);
        let _ = self.metrics.as_ref().map(SdkMeterProvider::shutdown);
    }
}

/// Makes a span a child of the trace of the environment, if there is one.
pub(super) fn continue_trace(span: &tracing::Span) {
    let Some(trace) = parent_trace() else { return };
    let headers: HashMap<_, _> = trace
        .headers()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let parent = TraceContextPropagator::new().extract(&headers);
    // Fails only without a collector.
    let _ = span.set_parent(parent);
}

/// The trace of the environment: `TRACEPARENT` and `TRACESTATE`.
pub(crate) fn parent_trace() -> Option<TraceContext> {
    TraceContext::parse(
        &environment("TRACEPARENT")?,
        environment("TRACESTATE").as_deref(),
    )
}

fn meters(url: String) -> anyhow::Result<SdkMeterProvider> {
    let exporter = MetricExporter::builder()
        .with_http()
        .with_http_client(HttpExporter::new())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .build()?;
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(exporter)
        .with_resource(resource())
        .build();
    attache::telemetry::metrics::set_observer(kaos::Meters::new(&provider));
    Ok(provider)
}

/// The resource of the environment, else with the service name `attache`.
fn resource() -> Resource {
    let named = environment("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
        || environment("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.contains("service.name="));
    let builder = Resource::builder();
    if named {
        builder.build()
    } else {
        builder.with_service_name("attache").build()
    }
}

/// HTTP client of the exporters. Exporters run on their own threads; connections run on our runtime.
#[derive(Debug)]
struct HttpExporter {
    http: HttpClient,
    runtime: Handle,
    limit: Duration,
}

impl HttpExporter {
    fn new() -> Self {
        let millis = environment("OTEL_EXPORTER_OTLP_TIMEOUT").and_then(|text| text.parse().ok());
        let limit = millis.map_or(TIMEOUT, Duration::from_millis);
        Self {
            http: HttpClient::new(),
            runtime: Handle::current(),
            limit,
        }
    }
}

#[async_trait]
impl OtelHttpClient for HttpExporter {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let http = self.http.clone();
        let limit = self.limit;
        let sent = self.runtime.spawn(async move {
            let exchange = async {
                let answer = http.send(request).await?;
                let status = answer.status();
                let headers = answer.headers().clone();
                Ok::<_, attache::Error>((status, headers, answer.read(MAX_ANSWER).await?))
            };
            tokio::time::timeout(limit, exchange).await
        });
        let (status, headers, body) = sent.await???;
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}
