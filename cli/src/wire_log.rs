//! `--debug`: logs requests and responses to stderr. Credentials are redacted when a line is formatted.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use attache::{AuthorizationServer, Client, ClientBuilder, Traffic, TrafficHeader};

use crate::output::line;
use crate::redactor::{Redactor, is_credential};
use crate::settings::Settings;
use crate::sync;

/// Response headers that the log omits.
const OMITTED_HEADERS: &[&str] = &["date", "vary", "x-content-type-options"];

/// Adds the log to a client if `--debug` is given.
pub(crate) fn add_debug_log(client: Client, settings: &Settings) -> Client {
    if settings.debug {
        client.with_traffic_observer(log_observer(settings))
    } else {
        client
    }
}

/// Body of the last response.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseCapture(Arc<Mutex<Vec<u8>>>);

impl ResponseCapture {
    /// Returns the body, and leaves an empty one.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut sync::lock(&self.0))
    }

    fn observe(&self, traffic: &Traffic<'_>) {
        match traffic {
            Traffic::Request { .. } => drop(self.take()),
            Traffic::BodyChunk(bytes) => sync::lock(&self.0).extend_from_slice(bytes),
            Traffic::Response { .. } | Traffic::ConnectionError(_) => {}
        }
    }
}

/// Adds a capture of response bodies to a client, and the log if `--debug` is given.
pub(crate) fn with_response_capture(
    client: Client,
    settings: &Settings,
) -> (Client, ResponseCapture) {
    let capture = ResponseCapture::default();
    let log = settings.debug.then(|| log_observer(settings));
    let body = capture.clone();
    let client = client.with_traffic_observer(move |traffic| {
        if let Some(log) = &log {
            log(traffic);
        }
        body.observe(traffic);
    });
    (client, capture)
}

/// Head of a response.
#[derive(Debug, Clone)]
pub(crate) struct ResponseHead {
    headers: Vec<(String, String)>,
    /// Time of arrival, in Unix milliseconds.
    pub(crate) received_ms: i64,
}

impl ResponseHead {
    /// The first value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find_map(|(known, value)| (known == name).then_some(value.as_str()))
    }
}

/// Head of the last response.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadCapture(Arc<Mutex<Option<ResponseHead>>>);

impl HeadCapture {
    pub(crate) fn last(&self) -> Option<ResponseHead> {
        sync::lock(&self.0).clone()
    }

    fn observe(&self, traffic: &Traffic<'_>) {
        let Traffic::Response { headers, .. } = traffic else {
            return;
        };
        let text = |header: &TrafficHeader<'_>| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_owned(), value)
        };
        *sync::lock(&self.0) = Some(ResponseHead {
            headers: headers.iter().map(text).collect(),
            received_ms: crate::clock::now_ms(),
        });
    }
}

/// Adds a capture of response heads to a client builder, and the log if `--debug` is given.
pub(crate) fn capture_heads_of_builder(
    builder: ClientBuilder,
    settings: &Settings,
    heads: &HeadCapture,
) -> ClientBuilder {
    let log = settings.debug.then(|| log_observer(settings));
    let heads = heads.clone();
    builder.with_traffic_observer(move |traffic| {
        if let Some(log) = &log {
            log(traffic);
        }
        heads.observe(traffic);
    })
}

/// Adds captures of response heads and bodies to a client, and the log if `--debug` is given.
pub(crate) fn with_probe_capture(
    client: Client,
    settings: &Settings,
    heads: &HeadCapture,
) -> (Client, ResponseCapture) {
    let capture = ResponseCapture::default();
    let log = settings.debug.then(|| log_observer(settings));
    let body = capture.clone();
    let heads = heads.clone();
    let client = client.with_traffic_observer(move |traffic| {
        if let Some(log) = &log {
            log(traffic);
        }
        heads.observe(traffic);
        body.observe(traffic);
    });
    (client, capture)
}

/// Adds the log to a client builder if `--debug` is given.
pub(crate) fn add_debug_log_to_builder(
    builder: ClientBuilder,
    settings: &Settings,
) -> ClientBuilder {
    if settings.debug {
        builder.with_traffic_observer(log_observer(settings))
    } else {
        builder
    }
}

/// Adds the log to the calls of an authorization server if `--debug` is given.
pub(crate) fn add_debug_log_to_authorization_server(
    server: AuthorizationServer,
    settings: &Settings,
) -> AuthorizationServer {
    if settings.debug {
        server.with_traffic_observer(log_observer(settings))
    } else {
        server
    }
}

/// Returns an observer that logs traffic, with the time since the start of the request.
fn log_observer(settings: &Settings) -> impl Fn(&Traffic<'_>) + Send + Sync + 'static {
    let redactor = settings.redactor.clone();
    let start = Mutex::new(Instant::now());
    move |traffic| {
        let mut start = sync::lock(&start);
        if matches!(traffic, Traffic::Request { .. }) {
            *start = Instant::now();
        }
        let millis = start.elapsed().as_millis();
        let text: String = format_traffic(traffic, &redactor)
            .iter()
            .map(|it| format!("debug: {millis}ms {it}\n"))
            .collect();
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

fn format_traffic(traffic: &Traffic<'_>, redactor: &Redactor) -> Vec<String> {
    match traffic {
        Traffic::Request {
            method,
            url,
            headers,
            body,
        } => {
            let mut lines = vec![format!("> {method} {}", redactor.redact_wire(&line(url)))];
            lines.extend(
                headers
                    .iter()
                    .filter_map(|it| format_header(it, redactor))
                    .map(|it| format!("> {it}")),
            );
            lines.extend(
                format_body(body, redactor)
                    .into_iter()
                    .map(|it| format!("> {it}")),
            );
            lines
        }
        Traffic::Response { status, headers } => {
            let mut lines = vec![format!("< {status}")];
            lines.extend(
                headers
                    .iter()
                    .filter_map(|it| format_header(it, redactor))
                    .map(|it| format!("< {it}")),
            );
            lines
        }
        Traffic::BodyChunk(body) => format_body(body, redactor)
            .into_iter()
            .map(|it| format!("< {it}"))
            .collect(),
        Traffic::ConnectionError(why) => vec![format!("! {}", redactor.redact_wire(&line(why)))],
    }
}

fn format_header(header: &TrafficHeader<'_>, redactor: &Redactor) -> Option<String> {
    let name = header.name;
    if OMITTED_HEADERS.contains(&name) {
        return None;
    }
    if is_credential(name) {
        return Some(format!("{name}: ***"));
    }
    Some(format!(
        "{name}: {}",
        redactor.redact_wire(&line(&String::from_utf8_lossy(header.value)))
    ))
}

/// Formats a body: text line by line, other content by its size.
fn format_body(body: &[u8], redactor: &Redactor) -> Vec<String> {
    match std::str::from_utf8(body) {
        Ok(text) if !text.contains('\0') => {
            let text = redactor.redact_wire(text);
            text.lines().filter(|it| !it.is_empty()).map(line).collect()
        }
        _ => vec![format!("({} bytes of binary data)", body.len())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::Secret;

    #[test]
    fn auth_004_the_wire_log_has_no_credential() {
        let redactor = Redactor::default();
        redactor.add(&Secret::from("hunter22"));
        let headers = || {
            let sensitive = true;
            vec![
                TrafficHeader {
                    name: "authorization",
                    value: b"Bearer other",
                    sensitive,
                },
                TrafficHeader {
                    name: "x-trace",
                    value: b"hunter22",
                    sensitive,
                },
                TrafficHeader {
                    name: "a2a-version",
                    value: b"1.0",
                    sensitive: false,
                },
            ]
        };
        let body = br#"{"token":"whk","text":"hunter22"}"#;
        let url = "http://x/?key=hunter22&access_token=unheard-of".to_owned();
        let shown = format_traffic(
            &Traffic::Request {
                method: "POST",
                url,
                headers: headers(),
                body,
            },
            &redactor,
        )
        .join("\n");
        assert!(
            !shown.contains("hunter22") && !shown.contains("other") && !shown.contains("whk"),
            "{shown}"
        );
        assert!(!shown.contains("unheard-of"), "{shown}");
        assert!(
            shown.contains("> a2a-version: 1.0") && shown.contains("> x-trace: ***"),
            "{shown}"
        );
    }
}
