//! Traces and, where they are asked for, metrics on their way to a collector: OTLP over HTTP, by our own door.

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

/// How much of what a collector answers is read.
const MAX_ANSWER: usize = 1 << 20;
/// How long an export may take, unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where traces go.
pub(crate) struct Collector {
    traces: SdkTracerProvider,
    metrics: Option<SdkMeterProvider>,
}

impl Collector {
    /// The collector that the configuration or the environment names; `None` if neither does, or if OpenTelemetry is
    /// not wanted.
    ///
    /// # Errors
    /// No request can be sent there.
    pub(super) fn new(section: &TelemetrySection) -> anyhow::Result<Option<Self>> {
        let is = |name: &str, value: &str| {
            environment(name).is_some_and(|said| said.eq_ignore_ascii_case(value))
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

    /// Sends what has not been sent; not for longer than this.
    pub(super) fn shutdown(&self, limit: Duration) {
        // There is nobody left to tell.
        let _ = self.traces.shutdown_with_timeout(limit);
        let _ = self.metrics.as_ref().map(SdkMeterProvider::shutdown);
    }
}

/// Makes a span part of the trace that our environment names, if it does.
pub(super) fn continue_trace(span: &tracing::Span) {
    let Some(trace) = parent_trace() else { return };
    let headers: HashMap<_, _> = trace
        .headers()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let place = TraceContextPropagator::new().extract(&headers);
    // Without a collector there is nobody to tell.
    let _ = span.set_parent(place);
}

/// The trace that this program was started in.
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

/// Who we are: what the environment says, else our name.
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

/// The way out: exporters run on threads of their own, connections on our runtime.
#[derive(Debug)]
struct HttpExporter {
    http: HttpClient,
    runtime: Handle,
    limit: Duration,
}

impl HttpExporter {
    fn new() -> Self {
        let said = environment("OTEL_EXPORTER_OTLP_TIMEOUT").and_then(|said| said.parse().ok());
        let limit = said.map_or(TIMEOUT, Duration::from_millis);
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
        let (http, limit) = (self.http.clone(), self.limit);
        let sent = self.runtime.spawn(async move {
            let exchange = async {
                let answer = http.send(request).await?;
                let (status, headers) = (answer.status(), answer.headers().clone());
                Ok::<_, attache::Error>((status, headers, answer.read(MAX_ANSWER).await?))
            };
            tokio::time::timeout(limit, exchange).await
        });
        let (status, headers, body) = sent.await???;
        let mut response = Response::new(Bytes::from(body));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        Ok(response)
    }
}
