//! One trace across several programs, as a collector receives it.

use std::net::TcpListener;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::collector::{Collector, SpanRecord, hex, listener};
use crate::harness::{DEADLINE, ServerProcess, attache, call, serve_command};
use crate::llm::{file, model, text_events, tool_call_events};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn find(spans: &[SpanRecord], program: &str, name: &str, kind: i32) -> Option<SpanRecord> {
    let is_it = |seen: &&SpanRecord| {
        (&*seen.program, &*seen.span.name, seen.span.kind) == (program, name, kind)
    };
    spans.iter().find(is_it).cloned()
}

/// Span kinds of OTLP.
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn serve(collector: &Collector, name: &str, args: &[&str]) -> (ServerProcess, String) {
    let server = serve_command(
        collector.export_from(&mut attache(args), name),
        TempDir::new().unwrap(),
    );
    let url = server.line("Listening on ");
    (server, url)
}

#[test]
fn one_trace_goes_from_the_client_through_two_agents_to_the_webhook() {
    let collector = Collector::new();
    let (_behind, behind) = serve(&collector, "behind", &["serve", "--echo"]);
    let errand = tool_call_events(&[("a", "facts", json!({"message": "canary: how many?"}))]);
    let (url, asked) = model(vec![errand, text_events("canary: many")]);
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let task = runtime.block_on(async {
        let trace = attache::model::TraceContext::parse(PARENT, Some("vendor=value")).unwrap();
        let client = attache::Client::discover(&front)
            .await
            .unwrap()
            .with_trace(trace);
        let config = attache::model::PushConfig {
            url: hook,
            ..Default::default()
        };
        let mut request =
            attache::model::SendMessageRequest::new(attache::model::Message::user("canary"));
        request
            .configuration
            .get_or_insert_default()
            .task_push_notification_config = Some(config);
        tokio::time::timeout(DEADLINE, client.send(request))
            .await
            .unwrap()
            .unwrap()
    });
    assert_eq!(task.text(), "canary: many");
    drop(folder);
    let spans = collector.wait_until(|spans, _| {
        let turns = spans
            .iter()
            .filter(|seen| seen.span.name == "a2a.turn")
            .count();
        let pushes = spans.iter().any(|seen| seen.span.name == "a2a.push");
        (turns == 2 && pushes).then(|| spans.to_vec())
    });
    for seen in &spans {
        let spans_text = format!("{seen:?}");
        assert!(
            !spans_text.contains("canary"),
            "S38: no span contains message content: {spans_text}"
        );
    }
    let ours: Vec<_> = spans
        .into_iter()
        .filter(|seen| hex(&seen.span.trace_id) == PARENT[3..35])
        .collect();
    let one = |program, name, kind| {
        find(&ours, program, name, kind)
            .unwrap_or_else(|| panic!("no {name} of {program}: {ours:#?}"))
    };
    let called = one("front", "a2a.SendStreamingMessage", SERVER);
    let turn = one("front", "a2a.turn", INTERNAL);
    let thought = one("front", "chat small", CLIENT);
    let tool = one("front", "execute_tool facts", INTERNAL);
    let asks = one("front", "a2a.SendStreamingMessage", CLIENT);
    let reached = one("behind", "a2a.SendStreamingMessage", SERVER);
    let works = one("behind", "a2a.turn", INTERNAL);
    let pushed = one("front", "a2a.push", CLIENT);
    // Each span is a child of the span that caused it, across programs.
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
        assert_eq!(
            below.parent(),
            above.id(),
            "{} below {}",
            below.span.name,
            above.span.name
        );
    }
    assert_eq!(called.span.trace_state, "vendor=value");
    assert_eq!(
        turn.attribute("a2a.task.state").as_deref(),
        Some("TASK_STATE_COMPLETED")
    );
    assert_eq!(
        turn.attribute("gen_ai.agent.name").as_deref(),
        Some("front")
    );
    assert_eq!(
        thought.attribute("gen_ai.request.model").as_deref(),
        Some("small")
    );
    assert_eq!(
        thought.attribute("gen_ai.operation.name").as_deref(),
        Some("chat")
    );
    assert_eq!(tool.attribute("gen_ai.tool.name").as_deref(), Some("facts"));
    // The webhook receives the trace of its delivery.
    let came = hooked.recv_timeout(DEADLINE).unwrap();
    let spans_text =
        attache::model::TraceContext::parse(&came.headers["traceparent"], None).unwrap();
    assert_eq!(spans_text.trace_id(), &PARENT[3..35]);
    assert_eq!(came.headers["tracestate"], "vendor=value");
    drop(asked);
}

#[test]
fn kaos_names_and_content_are_exported_on_request() {
    let collector = Collector::new();
    let (url, _asked) = model(vec![text_events("canary: many")]);
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
    let spans = collector.wait_until(|spans, metrics| {
        let has = |name: &str| spans.iter().any(|seen| seen.span.name == name);
        let spans_text = ["kaos.task.submit", "kaos.task.execute", "kaos.task.cancel"]
            .into_iter()
            .all(has);
        let counted = ["kaos.tasks", "kaos.task.duration"]
            .iter()
            .all(|name| metrics.iter().any(|one| one == name));
        (spans_text && counted).then(|| spans.to_vec())
    });
    let turn = find(&spans, "front", "kaos.task.execute", INTERNAL).unwrap();
    assert_eq!(
        task["metadata"]["traceId"],
        hex(&turn.span.trace_id),
        "{task}"
    );
    assert_eq!(task["metadata"]["spanId"], turn.id(), "{task}");
    let thought = find(&spans, "front", "chat small", CLIENT).unwrap();
    assert!(
        thought
            .attribute("gen_ai.input.messages")
            .unwrap()
            .contains("canary")
    );
    assert!(
        thought
            .attribute("gen_ai.output.messages")
            .unwrap()
            .contains("canary: many")
    );
}

#[test]
fn client_verbs_export_spans_in_the_trace_of_the_environment() {
    let collector = Collector::new();
    let (_server, url) = serve(&collector, "server", &["serve", "--echo"]);
    let mut client = attache(&["send", "hello", "-a", &url]);
    let output = collector
        .export_from(&mut client, "client")
        .env("TRACEPARENT", PARENT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (verb, turn) = collector.wait_until(|spans, _| {
        let verb = spans
            .iter()
            .find(|seen| seen.span.name == "attache send")?
            .clone();
        Some((verb, find(spans, "server", "a2a.turn", INTERNAL)?))
    });
    assert_eq!(verb.parent(), PARENT[36..52]);
    assert_eq!(hex(&turn.span.trace_id), PARENT[3..35]);
}

#[test]
fn an_invalid_collector_url_is_refused_and_an_unreachable_one_does_not_delay() {
    let refused = |command: &mut Command| {
        let output = command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let serve = [
        "serve",
        "--echo",
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory",
    ];
    let spans_text = refused(&mut attache(&serve));
    assert!(
        spans_text.contains("collector:4318") && spans_text.contains("http://"),
        "{spans_text}"
    );
    let unreachable = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = attache(&["serve", "--echo"]);
    command
        .env(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("http://{unreachable}"),
        )
        .env("OTEL_BSP_SCHEDULE_DELAY", "1");
    let server = serve_command(&mut command, TempDir::new().unwrap());
    let url = server.line("Listening on ");
    for _ in 0..3 {
        assert_eq!(
            crate::harness::send_text(&url, "hello")["status"]["state"],
            "TASK_STATE_COMPLETED"
        );
    }
}
