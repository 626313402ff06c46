//! Stream resumption: clients reconnect with their last position and miss no event.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attache::model::{Binding, Limits, Message, SendMessageRequest, Seq, SubscribeToTaskRequest};
use attache::{Agent, Client, Failure, Outcome, ServerSettings, Turn};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::everywhere::{self, MATRIX, open};
use crate::harness::{
    Answer, ObservedEvent, SteppedAgent, WIRE_FORMATS, WireFormat, start, start_with, task,
    with_deadline,
};
use crate::security::hostile_clients::{read_to_end, send};
use crate::server::streaming::{Scene, next, opening, rest};

#[tokio::test]
async fn r01_a_reader_that_was_cut_off_misses_nothing_and_hears_nothing_twice() {
    for form in WIRE_FORMATS {
        let Scene {
            server,
            strings,
            reader,
            id,
            ..
        } = Scene::new(form).await;
        drop(reader);
        strings.write("one").await;
        strings.write("two").await;
        // Resumes in another wire format: positions do not depend on it.
        for form in [form, form.other()] {
            let mut reader = server.read(&form.subscribe(&id).resuming(5)).await;
            assert_eq!(
                next(form, &mut reader).await,
                (6, ObservedEvent::Artifact("one".into(), false))
            );
            assert_eq!(
                next(form, &mut reader).await,
                (7, ObservedEvent::Artifact("two".into(), true))
            );
        }
        let mut last = server.read(&form.subscribe(&id).resuming(6)).await;
        strings.end(Outcome::Completed).await;
        let end = (8, form.status("completed", "", true));
        assert_eq!(
            rest(form, &mut last).await,
            [(7, ObservedEvent::Artifact("two".into(), true)), end]
        );
        // Disconnected readers did not stop the task.
        let task = server.ask(&form.ask("GetTask", json!({"id": id}))).await;
        assert!(
            task.body.to_ascii_lowercase().contains("completed"),
            "{task:?}"
        );
    }
}

#[tokio::test]
async fn a_snapshot_can_be_resumed_from_too() {
    for form in WIRE_FORMATS {
        let scene = Scene::new(form).await;
        let mut reader = scene.resume(form, 2).await;
        for told in &opening(form)[1..] {
            assert_eq!(next(form, &mut reader).await, *told);
        }
        let mut reader = scene.subscribe(form).await;
        let (at, snapshot) = next(form, &mut reader).await;
        assert_eq!((at, snapshot), (5, task("working", &["go"])));
        drop(reader);
        let mut reader = scene.resume(form, at).await;
        scene.strings.write("one").await;
        assert_eq!(
            next(form, &mut reader).await,
            (6, ObservedEvent::Artifact("one".into(), false))
        );
    }
}

#[tokio::test]
async fn what_is_no_position_of_ours_gets_the_task_as_it_stands() {
    for form in WIRE_FORMATS {
        let scene = Scene::new(form).await;
        let uuid = "0b1e7a52-8b7b-4a53-9e0e-3f1d9f6a7f10";
        for seen in [
            "",
            "x",
            "0",
            "-1",
            "5.0",
            "6",
            "99",
            "18446744073709551616",
            uuid,
        ] {
            let mut reader = scene.resume(form, seen).await;
            assert_eq!(
                next(form, &mut reader).await,
                (5, task("working", &["go"])),
                "{seen}"
            );
        }
        let mut two = scene
            .server
            .read(&form.subscribe(&scene.id).resuming(2).resuming(3))
            .await;
        assert_eq!(next(form, &mut two).await, (5, task("working", &["go"])));
    }
}

#[tokio::test]
async fn s68_what_is_too_long_ago_is_not_told_again() {
    for form in WIRE_FORMATS {
        let (agent, mut strings) = SteppedAgent::new();
        let limits = Limits {
            max_replayed_entries: 3,
            ..Limits::default()
        };
        let server = start_with(agent, |server| server.limits(limits)).await;
        let mut reader = server.read(&form.stream("go", json!({}))).await;
        let id = strings.next_task().await;
        for word in ["one", "two", "three", "four"] {
            strings.write(word).await;
        }
        for _ in 0..6 {
            reader.one().await;
        }
        let mut within = server.read(&form.subscribe(&id).resuming(5)).await;
        assert_eq!(
            next(form, &mut within).await,
            (6, ObservedEvent::Artifact("two".into(), true))
        );
        let mut beyond = server.read(&form.subscribe(&id).resuming(4)).await;
        assert_eq!(next(form, &mut beyond).await, (8, task("working", &["go"])));
    }
}

#[tokio::test]
async fn r04_the_end_that_a_reader_missed_is_told_and_nothing_more() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        scene.strings.write("one").await;
        scene.strings.end(Outcome::Completed).await;
        scene.reader.rest().await;
        let end = (7, form.status("completed", "", true));
        let mut tail = scene.resume(form, 5).await;
        assert_eq!(
            rest(form, &mut tail).await,
            [
                (6, ObservedEvent::Artifact("one".into(), false)),
                end.clone()
            ]
        );
        assert_eq!(rest(form, &mut scene.resume(form, 6).await).await, [end]);
        // 7 is the final status; 8, the end of the turn, is not sent.
        for seen in ["7", "8", "9", "x"] {
            let answer = scene
                .server
                .ask(&form.subscribe(&scene.id).resuming(seen))
                .await;
            assert_eq!(form.refusal(&answer).0, -32004, "{seen}");
        }
        assert_eq!(
            form.refusal(&scene.server.ask(&form.subscribe(&scene.id)).await)
                .0,
            -32004
        );
    }
}

#[tokio::test]
async fn r14_the_same_key_twice_is_the_stream_of_the_same_task() {
    for form in WIRE_FORMATS {
        let (agent, mut strings) = SteppedAgent::new();
        let server = start(agent).await;
        let ask = form.stream("go", json!({})).with("Idempotency-Key", "k-1");
        let mut first = server.read(&ask).await;
        let id = strings.next_task().await;
        strings.say("on it").await;
        let told = opening(form);
        for told in &told {
            assert_eq!(next(form, &mut first).await, *told);
        }
        let mut second = server.read(&ask).await;
        for told in &told {
            assert_eq!(next(form, &mut second).await, *told);
        }
        strings.end(Outcome::Completed).await;
        let end = (6, form.status("completed", "", true));
        for reader in [&mut first, &mut second] {
            assert_eq!(rest(form, reader).await, std::slice::from_ref(&end));
        }
        // The same after the task has ended.
        let mut third = server.read(&ask).await;
        assert_eq!(rest(form, &mut third).await, [&told[..], &[end]].concat());
        let other = form
            .stream("something else", json!({}))
            .with("Idempotency-Key", "k-1");
        assert_eq!(form.refusal(&server.ask(&other).await).0, -32602);
        let list = server
            .ask(&WireFormat::Rpc1.ask("ListTasks", json!({})))
            .await
            .json();
        assert_eq!(
            (
                &list["result"]["totalSize"],
                &list["result"]["tasks"][0]["id"]
            ),
            (&json!(1), &json!(id))
        );
    }
}

#[tokio::test]
async fn r14_a_message_that_continues_a_task_is_taken_once() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        scene.strings.end(Outcome::ask("which?")).await;
        scene.reader.rest().await;
        let ask = form
            .stream("this", json!({"taskId": scene.id}))
            .with("Idempotency-Key", "k-2");
        let mut first = scene.server.read(&ask).await;
        scene.strings.next_task().await;
        scene.strings.auth("log in").await;
        assert_eq!(
            next(form, &mut first).await,
            (10, task("working", &["go", "on it", "which?", "this"]))
        );
        assert_eq!(
            next(form, &mut first).await,
            (11, form.status("auth-required", "log in", false))
        );
        // Repeated while the task is `auth-required`: turn and stream continue.
        let mut second = scene.server.read(&ask).await;
        assert_eq!(
            next(form, &mut second).await,
            (
                11,
                task("auth-required", &["go", "on it", "which?", "this"])
            )
        );
        scene.strings.end(Outcome::Completed).await;
        let end = (12, form.status("completed", "", true));
        for reader in [&mut first, &mut second] {
            assert_eq!(rest(form, reader).await, std::slice::from_ref(&end));
        }
        let mut third = scene.server.read(&ask).await;
        let texts = ["go", "on it", "which?", "this", "log in"];
        assert_eq!(
            rest(form, &mut third).await,
            [(13, task("completed", &texts))]
        );
    }
}

/// Writes twenty chunks without pausing, then waits for a permit.
#[derive(Clone)]
struct Hasty(Arc<Semaphore>);

impl Agent for Hasty {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let mut writer = turn.writer("result");
        for piece in 0..20 {
            writer.write(format!("{piece} ")).await;
            tokio::task::yield_now().await;
        }
        self.0.acquire().await?.forget();
        Ok(Outcome::Completed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r03_no_hand_over_loses_or_repeats_an_event() {
    let gate = Arc::new(Semaphore::new(0));
    let server = start(Hasty(gate.clone())).await;
    let whole: String = (0..20).map(|piece| format!("{piece} ")).collect();
    for round in 0..400 {
        let form = WIRE_FORMATS[round % 4];
        let mut first = server.read(&form.stream("go", json!({}))).await;
        let event = first.one().await;
        let payload = form.payload(&event.data);
        let id = if form == WireFormat::Rpc03 {
            &payload["id"]
        } else {
            &payload["task"]["id"]
        };
        let id = id.as_str().unwrap();
        for _ in 0..round % 7 {
            first.one().await;
        }
        let mut snapshot = server.read(&form.subscribe(id)).await;
        let mut resumed = server.read(&form.subscribe(id).resuming(2)).await;
        let begun = snapshot.one().await;
        gate.add_permits(1);
        let at: u64 = begun.id.unwrap().parse().unwrap();
        let text = artifact_text(form, &form.payload(&begun.data));
        assert_eq!(
            told(text, at, &rest(form, &mut snapshot).await),
            whole,
            "round {round}"
        );
        assert_eq!(
            told(String::new(), 2, &rest(form, &mut resumed).await),
            whole,
            "round {round}"
        );
    }
}

fn artifact_text(form: WireFormat, payload: &Value) -> String {
    let task = if form == WireFormat::Rpc03 {
        payload
    } else {
        &payload["task"]
    };
    match task.get("artifacts") {
        Some(artifacts) => artifacts[0]["parts"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned(),
        None => String::new(),
    }
}

/// Returns the final text of a reader that starts with a text at a position.
fn told(mut text: String, mut at: u64, events: &[(u64, ObservedEvent)]) -> String {
    for (position, event) in events {
        assert!(*position > at, "{position} after {at}");
        at = *position;
        if let ObservedEvent::Artifact(piece, _) = event {
            text.push_str(piece);
        }
    }
    assert!(matches!(
        events.last(),
        Some((_, ObservedEvent::Status(..)))
    ));
    text
}

#[tokio::test]
async fn a_server_that_is_to_stop_sends_calls_elsewhere_before_it_takes_no_more() {
    let mut settings = attache::ServerSettings::default();
    settings.shutdown_delay = Duration::from_secs(3600);
    let mut server = start_with(crate::harness::Echo, |server| {
        server.server_settings(settings)
    })
    .await;
    assert_eq!(server.get("/readyz").await.status, 200);
    server.ask_to_stop();
    let refusal = with_deadline(async {
        loop {
            let answer = server.get("/readyz").await;
            if answer.status != 200 {
                break answer;
            }
        }
    })
    .await;
    assert_eq!(
        (refusal.status, &*refusal.body),
        (503, "not ready: the server is about to stop\n")
    );
    assert_eq!(server.get("/healthz").await.status, 200);
    let task = server.say("still here?", json!({})).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn r11_a_reader_whose_server_stops_goes_on_at_the_next_one() {
    use attache::store::Sqlite;
    use attache::store::sqlite::Options;

    for form in WIRE_FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let store = || Sqlite::open(folder.path().join("tasks.db"), Options::default()).unwrap();
        let mut settings = attache::ServerSettings::default();
        settings.shutdown_grace = Duration::from_millis(50);
        let (agent, mut strings) = SteppedAgent::new();
        let mut server = start_with(agent, |server| {
            server.server_settings(settings).store(store())
        })
        .await;
        let mut reader = server.read(&form.stream("go", json!({}))).await;
        let id = strings.next_task().await;
        strings.write("one").await;
        for told in &opening(form)[..2] {
            assert_eq!(next(form, &mut reader).await, *told);
        }
        assert_eq!(
            next(form, &mut reader).await,
            (5, ObservedEvent::Artifact("one".into(), false))
        );
        let (rest_of_it, ()) = tokio::join!(reader.rest(), server.stop());
        assert!(rest_of_it.is_empty());
        drop(server);
        // The turn was interrupted, and the status states it.
        let (agent, _strings) = SteppedAgent::new();
        let server = start_with(agent, |server| server.store(store())).await;
        let mut reader = server.read(&form.subscribe(&id).resuming(5)).await;
        let failed = form.status("failed", "Agent execution failed (interrupted)", true);
        assert_eq!(
            rest(form, &mut reader).await.pop().map(|(_, seen)| seen),
            Some(failed)
        );
    }
}

/// A proxy that ends the response body cleanly after it has forwarded `on it`.
async fn pass(listener: TcpListener, server: SocketAddr) {
    let (client, _) = listener.accept().await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
    let told = async {
        let mut bytes = Vec::new();
        while !(String::from_utf8_lossy(&bytes).contains("on it") && bytes.ends_with(b"\n\n\r\n")) {
            assert_ne!(from_server.read_buf(&mut bytes).await.unwrap(), 0);
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        to_client.write_all(&bytes).await.unwrap();
    };
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        () = told => {}
    }
}

#[tokio::test]
async fn r02_a_stream_that_a_proxy_ends_in_good_order_is_taken_up_where_it_was() {
    for &(binding, version) in MATRIX
        .iter()
        .filter(|(binding, _)| *binding != Binding::Grpc)
    {
        let (agent, mut strings) = SteppedAgent::new();
        let server = start(agent).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://{}/", listener.local_addr().unwrap());
        let mut proxies = JoinSet::new();
        proxies.spawn(pass(listener, server.address));
        let client = Client::new(&proxy, binding, version).unwrap();
        let work = async {
            let id = strings.next_task().await;
            strings.say("on it").await;
            id
        };
        let opening = client.send_streaming_message(SendMessageRequest::new(Message::user("go")));
        let (stream, id) = with_deadline(async { tokio::join!(opening, work) }).await;
        let mut stream = stream.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = with_deadline(stream.next()).await {
            let (at, event) = event.unwrap();
            seen.push((at.unwrap(), everywhere::event_text(&event)));
        }
        // The body ended cleanly, but without a final event.
        let all = [
            (Seq(2), "task active"),
            (Seq(4), "status active"),
            (Seq(5), "status working: on it"),
        ];
        assert_eq!(seen, all.map(|(at, text)| (at, text.to_owned())));
        strings.write("more").await;
        strings.end(Outcome::Completed).await;
        let client = Client::new(&format!("http://{}/", server.address), binding, version).unwrap();
        let request = SubscribeToTaskRequest {
            id: id.as_str().into(),
            ..Default::default()
        };
        let rest = with_deadline(open(client.subscribe_to_task(request, Some(Seq(5)))))
            .await
            .unwrap();
        assert_eq!(
            with_deadline(rest.event_texts()).await,
            ["artifact more", "status completed"]
        );
    }
}

#[tokio::test]
async fn a_call_that_is_cut_by_the_end_of_the_server_names_its_task() {
    for form in WIRE_FORMATS {
        let mut settings = ServerSettings::default();
        settings.shutdown_grace = Duration::from_millis(50);
        let (agent, mut strings) = SteppedAgent::new();
        let mut server = start_with(agent, |server| server.server_settings(settings)).await;
        let ask = send(form, "go");
        let call = server.begin(&ask.head, ask.body.as_bytes()).await;
        let id = strings.next_task().await;
        server.stop().await;
        let answer = Answer::read(&read_to_end(call).await);
        let (code, words) = form.refusal(&answer);
        assert_eq!((code, answer.status), (-32000, 503), "{answer:?}");
        assert!(words.contains(&id), "{words}");
        assert!(
            answer.body.contains(&format!(r#""taskId":"{id}""#)),
            "{answer:?}"
        );
    }
}
