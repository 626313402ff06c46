//! An OpenTelemetry collector that decodes OTLP.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::harness::DEADLINE;

/// A received request: path, headers and body.
pub(crate) struct ReceivedRequest {
    path: String,
    pub(crate) headers: HashMap<String, String>,
    body: Vec<u8>,
}

/// Answers every request with 200. Returns the address and the received requests.
pub(crate) fn listener() -> (String, Receiver<ReceivedRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, came) = sync_channel(1024);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let tell = tell.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while let Some(one) = read(&mut reader) {
                    // Recorded before the response, so a program that ends after it has exported everything.
                    let is_recorded = tell.send(one).is_ok();
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if !is_recorded || reader.get_mut().write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, came)
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let mut lines = reader
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty());
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| {
            Some((
                line.split_once(':')?.0.to_ascii_lowercase(),
                line.split_once(':')?.1.trim().to_owned(),
            ))
        })
        .collect();
    let mut body = vec![
        0;
        headers
            .get("content-length")
            .map_or(0, |length| length.parse().unwrap())
    ];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest {
        path,
        headers,
        body,
    })
}

/// A span with the service that exported it.
#[derive(Clone, Debug)]
pub(crate) struct SpanRecord {
    pub(crate) program: String,
    pub(crate) span: Span,
}

impl SpanRecord {
    pub(crate) fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub(crate) fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    pub(crate) fn attribute(&self, key: &str) -> Option<String> {
        let value = self.span.attributes.iter().find(|one| one.key == key)?;
        Some(text(value))
    }
}

fn text(pair: &KeyValue) -> String {
    match pair.value.as_ref().unwrap().value.as_ref().unwrap() {
        Any::StringValue(text) => text.clone(),
        Any::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Spans and metrics of a collector.
pub(crate) struct Collector {
    url: String,
    came: Receiver<ReceivedRequest>,
    spans: Mutex<Vec<SpanRecord>>,
    metrics: Mutex<Vec<String>>,
    decoded: Mutex<String>,
}

impl Collector {
    pub(crate) fn new() -> Self {
        let (url, came) = listener();
        Self {
            url,
            came,
            spans: Mutex::default(),
            metrics: Mutex::default(),
            decoded: Mutex::default(),
        }
    }

    /// Makes a command export to this collector under a service name.
    pub(crate) fn export_from<'a>(&self, command: &'a mut Command, name: &str) -> &'a mut Command {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url)
            .env("OTEL_SERVICE_NAME", name)
            .env("OTEL_BSP_SCHEDULE_DELAY", "20")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "20")
    }

    /// Waits until the received spans and metrics satisfy a condition.
    pub(crate) fn wait_until<T>(
        &self,
        enough: impl Fn(&[SpanRecord], &[String]) -> Option<T>,
    ) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = enough(&self.spans.lock().unwrap(), &self.metrics.lock().unwrap())
            {
                return found;
            }
            let left = DEADLINE.saturating_sub(begun.elapsed());
            let Ok(one) = self.came.recv_timeout(left) else {
                panic!("not told: {:#?}", self.spans)
            };
            self.take(&one);
        }
    }

    /// All spans and metrics so far, as text.
    pub(crate) fn everything(&self) -> String {
        self.came.try_iter().for_each(|one| self.take(&one));
        self.decoded.lock().unwrap().clone()
    }

    fn note(&self, decoded: &impl Debug) {
        write!(self.decoded.lock().unwrap(), "{decoded:?}").unwrap();
    }

    fn take(&self, one: &ReceivedRequest) {
        assert_eq!(one.headers["content-type"], "application/x-protobuf");
        match &*one.path {
            "/v1/traces" => {
                let decoded = ExportTraceServiceRequest::decode(&*one.body).unwrap();
                self.note(&decoded);
                for resource in decoded.resource_spans {
                    let attributes = resource.resource.unwrap().attributes;
                    let program = attributes
                        .iter()
                        .find(|pair| pair.key == "service.name")
                        .map(text)
                        .unwrap();
                    let spans = resource
                        .scope_spans
                        .into_iter()
                        .flat_map(|scope| scope.spans);
                    let seen = spans.map(|span| SpanRecord {
                        program: program.clone(),
                        span,
                    });
                    self.spans.lock().unwrap().extend(seen);
                }
            }
            "/v1/metrics" => {
                let decoded = ExportMetricsServiceRequest::decode(&*one.body).unwrap();
                self.note(&decoded);
                let scopes = decoded
                    .resource_metrics
                    .into_iter()
                    .flat_map(|resource| resource.scope_metrics);
                let names = scopes
                    .flat_map(|scope| scope.metrics)
                    .map(|metric| metric.name);
                self.metrics.lock().unwrap().extend(names);
            }
            other => panic!("{other}"),
        }
    }
}
