//! One trace through many programs, as a collector sees it: what comes is real OTLP, decoded with the types of the protocol.

use std::collections::HashMap;
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
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{DEADLINE, Serving, attache, call, serve_by};
use crate::llm::{calls, file, model, says};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A request as it came: its path, its headers and its body.
struct Came {
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

/// Answers every request with 200; gives its address, and what came.
fn listener() -> (String, Receiver<Came>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, came) = sync_channel(1024);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let tell = tell.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while let Some(one) = read(&mut reader) {
                    let answered =
                        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                    if answered.is_err() || tell.send(one).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, came)
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Came> {
    let mut lines = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| {
            Some((line.split_once(':')?.0.to_ascii_lowercase(), line.split_once(':')?.1.trim().to_owned()))
        })
        .collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(Came { path, headers, body })
}

/// A span, and the program that it is of.
#[derive(Clone, Debug)]
struct Seen {
    program: String,
    span: Span,
}

impl Seen {
    fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    fn says(&self, key: &str) -> Option<String> {
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a collector is told.
struct Collector {
    url: String,
    came: Receiver<Came>,
    spans: Mutex<Vec<Seen>>,
    metrics: Mutex<Vec<String>>,
}

impl Collector {
    fn new() -> Self {
        let (url, came) = listener();
        Self { url, came, spans: Mutex::default(), metrics: Mutex::default() }
    }

    /// A command that tells this collector, under this name.
    fn told_by<'a>(&self, command: &'a mut Command, name: &str) -> &'a mut Command {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url)
            .env("OTEL_SERVICE_NAME", name)
            .env("OTEL_BSP_SCHEDULE_DELAY", "20")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "20")
    }

    /// Waits until all that was told is enough.
    fn until<T>(&self, enough: impl Fn(&[Seen], &[String]) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = enough(&self.spans.lock().unwrap(), &self.metrics.lock().unwrap()) {
                return found;
            }
            let left = DEADLINE.saturating_sub(begun.elapsed());
            let Ok(one) = self.came.recv_timeout(left) else { panic!("not told: {:#?}", self.spans) };
            self.take(&one);
        }
    }

    fn take(&self, one: &Came) {
        assert_eq!(one.headers["content-type"], "application/x-protobuf");
        match &*one.path {
            "/v1/traces" => {
                for resource in ExportTraceServiceRequest::decode(&*one.body).unwrap().resource_spans {
                    let attributes = resource.resource.unwrap().attributes;
                    let program =
                        attributes.iter().find(|pair| pair.key == "service.name").map(text).unwrap();
                    let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                    let seen = spans.map(|span| Seen { program: program.clone(), span });
                    self.spans.lock().unwrap().extend(seen);
                }
            }
            "/v1/metrics" => {
                let told = ExportMetricsServiceRequest::decode(&*one.body).unwrap();
                let scopes = told.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
                let names = scopes.flat_map(|scope| scope.metrics).map(|metric| metric.name);
                self.metrics.lock().unwrap().extend(names);
            }
            other => panic!("{other}"),
        }
    }
}

fn find(spans: &[Seen], program: &str, name: &str, kind: i32) -> Option<Seen> {
    let is_it = |seen: &&Seen| (&*seen.program, &*seen.span.name, seen.span.kind) == (program, name, kind);
    spans.iter().find(is_it).cloned()
}

/// Kinds of spans, as the protocol numbers them.
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn serve(collector: &Collector, name: &str, args: &[&str]) -> (Serving, String) {
    let server = serve_by(collector.told_by(&mut attache(args), name), TempDir::new().unwrap());
    let url = server.line("Listening on ");
    (server, url)
}

#[test]
fn one_trace_goes_from_the_client_through_two_agents_to_the_webhook() {
    let collector = Collector::new();
    let (_behind, behind) = serve(&collector, "behind", &["serve", "--echo"]);
    let errand = calls(&[("a", "facts", json!({"message": "canary: how many?"}))]);
    let (url, asked) = model(vec![errand, says("canary: many")]);
    let (folder, file) = file(&format!(
        r#"
        [agents.front]
        type = "llm"
        model = {{ url = "{url}", name = "small" }}
        [agents.front.tools.facts]
        description = "Knows"
        agent = "{behind}"
        "#
    ));
    let (_front, front) = serve(&collector, "front", &["serve", &file, "--local-webhooks"]);
    let (hook, hooked) = listener();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let task = runtime.block_on(async {
        let trace = attache::model::Trace::read(PARENT, Some("vendor=value")).unwrap();
        let client = attache::Client::discover(&front).await.unwrap().with_trace(trace);
        let config = attache::model::PushConfig { url: hook, ..Default::default() };
        let mut request = attache::model::SendMessageRequest::new(attache::model::Message::user("canary"));
        request.configuration.get_or_insert_default().task_push_notification_config = Some(config);
        tokio::time::timeout(DEADLINE, client.send(request)).await.unwrap().unwrap()
    });
    assert_eq!(task.text(), "canary: many");
    drop(folder);
    let spans = collector.until(|spans, _| {
        let turns = spans.iter().filter(|seen| seen.span.name == "a2a.turn").count();
        let pushes = spans.iter().any(|seen| seen.span.name == "a2a.push");
        (turns == 2 && pushes).then(|| spans.to_vec())
    });
    for seen in &spans {
        let told = format!("{seen:?}");
        assert!(!told.contains("canary"), "S38: what is said is in no span: {told}");
    }
    let ours: Vec<_> = spans.into_iter().filter(|seen| hex(&seen.span.trace_id) == PARENT[3..35]).collect();
    let one = |program, name, kind| {
        find(&ours, program, name, kind).unwrap_or_else(|| panic!("no {name} of {program}: {ours:#?}"))
    };
    let called = one("front", "a2a.SendStreamingMessage", SERVER);
    let turn = one("front", "a2a.turn", INTERNAL);
    let thought = one("front", "chat small", CLIENT);
    let tool = one("front", "execute_tool facts", INTERNAL);
    let asks = one("front", "a2a.SendStreamingMessage", CLIENT);
    let reached = one("behind", "a2a.SendStreamingMessage", SERVER);
    let works = one("behind", "a2a.turn", INTERNAL);
    let pushed = one("front", "a2a.push", CLIENT);
    // Every one is below the one that caused it, whatever program that was in.
    assert_eq!(called.parent(), PARENT[36..52]);
    for (below, above) in [
        (&turn, &called),
        (&thought, &turn),
        (&tool, &turn),
        (&asks, &tool),
        (&reached, &asks),
        (&works, &reached),
        (&pushed, &called),
    ] {
        assert_eq!(below.parent(), above.id(), "{} below {}", below.span.name, above.span.name);
    }
    assert_eq!(called.span.trace_state, "vendor=value");
    assert_eq!(turn.says("a2a.task.state").as_deref(), Some("TASK_STATE_COMPLETED"));
    assert_eq!(turn.says("gen_ai.agent.name").as_deref(), Some("front"));
    assert_eq!(thought.says("gen_ai.request.model").as_deref(), Some("small"));
    assert_eq!(thought.says("gen_ai.operation.name").as_deref(), Some("chat"));
    assert_eq!(tool.says("gen_ai.tool.name").as_deref(), Some("facts"));
    // And whoever is told next is told where that is.
    let came = hooked.recv_timeout(DEADLINE).unwrap();
    let told = attache::model::Trace::read(&came.headers["traceparent"], None).unwrap();
    assert_eq!(told.trace_id(), &PARENT[3..35]);
    assert_eq!(came.headers["tracestate"], "vendor=value");
    drop(asked);
}

#[test]
fn other_names_and_what_is_said_are_told_where_that_is_wanted() {
    let collector = Collector::new();
    let (url, _asked) = model(vec![says("canary: many")]);
    let (_folder, file) = file(&format!(
        r#"
        [telemetry]
        names = "kaos"
        content = true
        trace_metadata = true
        [agents.front]
        type = "llm"
        model = {{ url = "{url}", name = "small" }}
        "#
    ));
    let (_front, front) = serve(&collector, "front", &["serve", &file]);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "canary"}]});
    let task = call(&front, "SendMessage", &json!({"message": message}))["result"]["task"].clone();
    let id = &task["id"];
    call(&front, "CancelTask", &json!({"id": id}));
    let spans = collector.until(|spans, metrics| {
        let has = |name: &str| spans.iter().any(|seen| seen.span.name == name);
        let told = ["kaos.task.submit", "kaos.task.execute", "kaos.task.cancel"].into_iter().all(has);
        let counted =
            ["kaos.tasks", "kaos.task.duration"].iter().all(|name| metrics.iter().any(|one| one == name));
        (told && counted).then(|| spans.to_vec())
    });
    let turn = find(&spans, "front", "kaos.task.execute", INTERNAL).unwrap();
    assert_eq!(task["metadata"]["traceId"], hex(&turn.span.trace_id), "{task}");
    assert_eq!(task["metadata"]["spanId"], turn.id(), "{task}");
    let thought = find(&spans, "front", "chat small", CLIENT).unwrap();
    assert!(thought.says("gen_ai.input.messages").unwrap().contains("canary"));
    assert!(thought.says("gen_ai.output.messages").unwrap().contains("canary: many"));
}

#[test]
fn the_program_tells_what_it_calls_in_the_trace_that_it_was_started_in() {
    let collector = Collector::new();
    let (_server, url) = serve(&collector, "server", &["serve", "--echo"]);
    let mut client = attache(&["send", "hello", "-a", &url]);
    let output = collector.told_by(&mut client, "client").env("TRACEPARENT", PARENT).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (verb, turn) = collector.until(|spans, _| {
        let verb = spans.iter().find(|seen| seen.span.name == "attache send")?.clone();
        Some((verb, find(spans, "server", "a2a.turn", INTERNAL)?))
    });
    assert_eq!(verb.parent(), PARENT[36..52]);
    assert_eq!(hex(&turn.span.trace_id), PARENT[3..35]);
}

#[test]
fn a_collector_that_is_nowhere_is_named_at_the_start_and_one_that_is_down_holds_nobody_up() {
    let refused = |command: &mut Command| {
        let output = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318").output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let serve = ["serve", "--echo", "--listen", "127.0.0.1:0", "--store", "memory"];
    let told = refused(&mut attache(&serve));
    assert!(told.contains("collector:4318") && told.contains("http://"), "{told}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = attache(&["serve", "--echo"]);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{nobody}"))
        .env("OTEL_BSP_SCHEDULE_DELAY", "1");
    let server = serve_by(&mut command, TempDir::new().unwrap());
    let url = server.line("Listening on ");
    for _ in 0..3 {
        assert_eq!(crate::harness::say(&url, "hello")["status"]["state"], "TASK_STATE_COMPLETED");
    }
}
