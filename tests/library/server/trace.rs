//! Trace context propagation, with and without the OpenTelemetry layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache::model::{Binding, Message, SendMessageResponse, TraceContext, Version};
use attache::telemetry::trace::TARGET;
use attache::{Agent, AgentCard, Client, Failure, Outcome, Server, Turn};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tokio::time::timeout;
use tracing::subscriber::with_default;
use tracing::{Id, Level, Metadata, Subscriber, span};
use tracing_subscriber::layer::SubscriberExt;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const BINDINGS: [Binding; 3] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

/// Replies with its trace context.
struct Tells;

impl Agent for Tells {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        tokio::task::yield_now().await;
        let trace = turn
            .trace()
            .map(|trace| format!("{} {:?}", trace.parent(), trace.state()));
        Ok(Outcome::CompletedWith(Message::agent(
            trace.unwrap_or_else(|| "none".to_owned()),
        )))
    }
}

/// Calls the agent over a binding with a trace context and returns its reply.
fn told(binding: Binding, trace: Option<TraceContext>) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let called = async {
        let server = Server::new(AgentCard::new("Tells", "Says where it is"), Tells)
            .serve_in_process()
            .await
            .unwrap();
        let client = server.client(binding, Version::V1).unwrap();
        let client = trace.into_iter().fold(client, Client::with_trace);
        match client
            .send_message(Message::user("where?").into())
            .await
            .unwrap()
        {
            SendMessageResponse::Task(task) => task.status.message.unwrap().text(),
            SendMessageResponse::Message(message) => message.text(),
        }
    };
    runtime.block_on(async {
        timeout(Duration::from_secs(10), called)
            .await
            .expect("within the deadline")
    })
}

#[test]
fn without_opentelemetry_what_came_is_passed_on() {
    for binding in BINDINGS {
        let told = told(binding, TraceContext::parse(PARENT, Some("vendor=value")));
        assert_eq!(
            told,
            format!("{PARENT} Some(\"vendor=value\")"),
            "{binding:?}"
        );
    }
}

/// Calls the agent under an OpenTelemetry subscriber; returns the reply and all spans.
fn traced(binding: Binding, trace: Option<TraceContext>) -> (String, Vec<SpanData>) {
    let spans = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(spans.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let told = with_default(tracing_subscriber::registry().with(layer), || {
        told(binding, trace)
    });
    let mut spans = spans.get_finished_spans().unwrap();
    spans.retain(|span| span.name.starts_with("a2a."));
    (told, spans)
}

#[test]
fn a_turn_is_below_the_call_that_caused_it_over_every_binding() {
    for binding in BINDINGS {
        let (told, spans) = traced(binding, TraceContext::parse(PARENT, Some("vendor=value")));
        let find = |name: &str, kind: &str| {
            let is_it =
                |span: &&SpanData| span.name == name && format!("{:?}", span.span_kind) == kind;
            spans
                .iter()
                .find(is_it)
                .unwrap_or_else(|| panic!("no {name} {kind} in {spans:#?}"))
        };
        let [client, server, turn] = [
            find("a2a.SendMessage", "Client"),
            find("a2a.SendMessage", "Server"),
            find("a2a.turn", "Internal"),
        ];
        assert_eq!(
            client.parent_span_id.to_string(),
            PARENT[36..52],
            "{binding:?}"
        );
        assert_eq!(
            server.parent_span_id,
            client.span_context.span_id(),
            "{binding:?}"
        );
        assert_eq!(
            turn.parent_span_id,
            server.span_context.span_id(),
            "{binding:?}"
        );
        assert!(
            spans
                .iter()
                .all(|span| span.span_context.trace_id().to_string() == PARENT[3..35])
        );
        let place = format!(
            "00-{}-{}-01 Some(\"vendor=value\")",
            &PARENT[3..35],
            turn.span_context.span_id()
        );
        assert_eq!(
            told, place,
            "{binding:?}: the agent passes its own place on"
        );
    }
}

#[test]
fn seed_2_51_spans_have_an_event_per_log_entry() {
    let (_, spans) = traced(Binding::JsonRpc, TraceContext::parse(PARENT, None));
    let turn = spans.iter().find(|span| span.name == "a2a.turn").unwrap();
    let events = &turn.events.events;
    let names: Vec<_> = events.iter().map(|event| &*event.name).collect();
    let expected = [
        "a2a.created",
        "a2a.message",
        "a2a.trace_context",
        "a2a.turn_started",
        "a2a.status",
        "a2a.status",
        "a2a.turn_ended",
    ];
    assert_eq!(names, expected);
    let states = events
        .iter()
        .flat_map(|event| &event.attributes)
        .filter(|attribute| attribute.key.as_str() == "a2a.task.state");
    let states: Vec<_> = states.map(|state| state.value.to_string()).collect();
    assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
}

#[test]
fn a_trace_that_is_not_sampled_stays_so() {
    let (told, spans) = traced(
        Binding::JsonRpc,
        TraceContext::parse(&PARENT.replace("-01", "-00"), None),
    );
    assert!(
        told.starts_with(&PARENT[..36]) && told.contains("-00 "),
        "{told}"
    );
    assert!(spans.is_empty(), "{spans:?}");
}

/// A log subscriber that counts the spans created for traces.
#[derive(Clone, Default)]
struct Log(Arc<AtomicUsize>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("attache") && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> Id {
        self.0.fetch_add(
            usize::from(span.metadata().target() == TARGET),
            Ordering::Relaxed,
        );
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn nothing_is_made_for_traces_that_nobody_wants() {
    let log = Log::default();
    let told = with_default(log.clone(), || told(Binding::JsonRpc, None));
    assert_eq!(told, "none", "no trace is made up");
    assert_eq!(log.0.load(Ordering::Relaxed), 0);
}
