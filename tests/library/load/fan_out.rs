//! Many subscribers, slow subscribers, long streams, heartbeats, and shutdown with open streams.

use std::time::{Duration, Instant};

use attache::{Agent, AgentCard, Failure, Outcome, Server, ServerSettings, Turn};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::harness::{
    ObservedEvent, WIRE_FORMATS, WireFormat, changing, message, request, start_with, task,
    with_deadline,
};
use crate::server::streaming::{Scene, next, rest};

fn settings(change: impl FnOnce(&mut ServerSettings)) -> ServerSettings {
    let mut settings = ServerSettings::default();
    change(&mut settings);
    settings
}

#[tokio::test]
async fn r05_a_hundred_readers_see_the_same_in_the_same_order() {
    let mut scene = Scene::new(WireFormat::Rpc1).await;
    let mut readers = Vec::new();
    for number in 0..100 {
        let form = WIRE_FORMATS[number % 4];
        let mut reader = scene.subscribe(form).await;
        assert_eq!(next(form, &mut reader).await.0, 5);
        readers.push((form, reader));
    }
    for number in 0..50 {
        scene.strings.write(&format!("{number}")).await;
        if number % 10 == 0 {
            scene.strings.say("still here").await;
        }
    }
    scene.strings.end(Outcome::Completed).await;
    let plain = |told: Vec<(u64, ObservedEvent)>| -> Vec<(u64, ObservedEvent)> {
        let plain = |seen| match seen {
            ObservedEvent::Status(state, text, _) => ObservedEvent::Status(state, text, None),
            other => other,
        };
        told.into_iter()
            .map(|(at, seen)| (at, plain(seen)))
            .collect()
    };
    let first = plain(rest(WireFormat::Rpc1, &mut scene.reader).await);
    assert_eq!(first.len(), 56);
    for (form, mut reader) in readers {
        assert_eq!(plain(rest(form, &mut reader).await), first, "{form:?}");
    }
}

/// `<chunks> <bytes>` writes that many chunks of that size; `hold` never ends.
struct Writes;

impl Agent for Writes {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let text = turn.text();
        if text == "hold" {
            std::future::pending::<()>().await;
        }
        let (pieces, bytes) = text.split_once(' ').ok_or("two numbers")?;
        let piece = "x".repeat(bytes.parse()?);
        let mut writer = turn.writer("result");
        for number in 0..pieces.parse::<usize>()? {
            writer.write(format!("{number} {piece}")).await;
        }
        Ok(Outcome::Completed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r07_three_thousand_events_arrive_in_order_however_they_are_read() {
    let server = start_with(Writes, |server| server).await;
    for form in WIRE_FORMATS {
        let mut reader = server.read(&form.stream("3000 10", json!({}))).await;
        let (at, first) = next(form, &mut reader).await;
        assert_eq!((at, first), (2, task("submitted", &["3000 10"])));
        assert_eq!(
            next(form, &mut reader).await,
            (4, form.status("working", "", false))
        );
        let events = rest(form, &mut reader).await;
        assert_eq!(events.len(), 3001);
        for (number, (at, event)) in events.iter().enumerate() {
            assert_eq!(*at, 5 + number as u64);
            match event {
                ObservedEvent::Artifact(text, append) => {
                    assert!(text.starts_with(&format!("{number} ")) && *append == (number > 0));
                }
                other => assert_eq!((number, other), (3000, &form.status("completed", "", true))),
            }
        }
    }
}

/// Number of chunks of 256 KiB: 20 MiB, five times the largest send buffer of Linux by default.
const R06_CHUNKS: usize = 80;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r06_s64_a_reader_that_never_reads_delays_nobody_and_is_let_go() {
    let write_timeout = |timeout| {
        settings(|settings| {
            settings.write_timeout = timeout;
            settings.max_streams = 2;
            settings.max_streams_per_caller = Some(2);
        })
    };
    let hosted = |timeout| {
        let card = AgentCard::new("Writes", "Writes chunks").input_modes(["*/*"]);
        Server::new(card, Writes).server_settings(write_timeout(timeout))
    };
    let (server, handle) = changing(hosted(Duration::from_secs(1))).await;
    let form = WireFormat::Rest1;
    // More bytes than the socket buffers of both sides hold. The idempotency key makes both calls one task.
    let ask = form
        .stream(&format!("{R06_CHUNKS} 262144"), json!({}))
        .with("Idempotency-Key", "k");
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut silent = with_deadline(socket.connect(server.address)).await.unwrap();
    let length = ask.body.len();
    let head = format!(
        "{}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{}",
        ask.head, ask.body
    );
    silent.write_all(head.as_bytes()).await.unwrap();
    with_deadline(silent.readable()).await.unwrap();
    // Connections from here on have a timeout that a reading client does not reach, however busy the machine is.
    handle.replace(hosted(Duration::from_secs(600))).unwrap();
    let mut reader = server.begin(&ask.head, ask.body.as_bytes()).await;
    let mut read = Vec::new();
    // The deadline is for each read: the time for all of them depends on the load of the machine.
    while with_deadline(reader.read_buf(&mut read)).await.unwrap() > 0 {}
    assert!(read.ends_with(b"\n\n\r\n0\r\n\r\n"), "{} bytes", read.len());
    assert_eq!(
        String::from_utf8(read)
            .unwrap()
            .matches("artifactUpdate")
            .count(),
        R06_CHUNKS
    );
    // The limit is two streams: this permit is released at once, the other when the stalled reader is disconnected.
    let _first = with_deadline(async { hold(&server, form).await }).await;
    let _second = with_deadline(async { hold(&server, form).await }).await;
    // The stalled stream ends in the middle.
    let mut left = Vec::new();
    let ended = with_deadline(silent.read_to_end(&mut left)).await;
    assert!(
        ended.is_err() || !left.ends_with(b"0\r\n\r\n"),
        "{} bytes",
        left.len()
    );
}

/// Opens a stream as soon as the stream limit permits.
async fn hold(server: &crate::harness::Running, form: WireFormat) -> crate::harness::SseReader {
    loop {
        let mut reader = server.read(&form.stream("hold", json!({}))).await;
        if reader.status == 200 {
            reader.one().await;
            return reader;
        }
        assert_eq!(
            (reader.status, reader.header("retry-after")),
            (503, Some("1"))
        );
    }
}

#[tokio::test]
async fn r08_a_silent_stream_is_kept_open_by_comments() {
    for form in WIRE_FORMATS {
        let beat = settings(|settings| settings.heartbeat = Some(Duration::from_millis(5)));
        let mut scene = Scene::with(form, beat).await;
        let before = scene.reader.comments();
        scene.reader.until_comments(before + 3).await;
        scene.strings.end(Outcome::Completed).await;
        assert_eq!(
            rest(form, &mut scene.reader).await,
            [(6, form.status("completed", "", true))]
        );
        // A comment is a frame of its own without a position.
        let text = scene.reader.text.replace(": keep-alive\n\n", "");
        assert!(
            text.split_terminator("\n\n")
                .all(|frame| frame.starts_with("id: ")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn r08_a_busy_stream_needs_no_comments() {
    let every = Duration::from_millis(50);
    let beat = settings(|settings| settings.heartbeat = Some(every));
    let mut scene = Scene::with(WireFormat::Rest1, beat).await;
    let begin = Instant::now();
    let mut before = Instant::now();
    let mut silent = 0;
    while begin.elapsed() < every * 6 {
        let asked = Instant::now();
        scene.strings.write("x").await;
        scene.next().await;
        // Upper bound of the silence: the previous event was sent after it was requested.
        silent += before.elapsed().as_millis() / every.as_millis();
        before = asked;
    }
    assert!(
        scene.reader.comments() as u128 <= silent,
        "{} of {silent}",
        scene.reader.comments()
    );
}

#[tokio::test]
async fn a_subscription_to_a_task_that_waits_ends_after_a_while_and_one_that_works_does_not() {
    for form in WIRE_FORMATS {
        let patience = settings(|settings| {
            settings.waiting_stream_timeout = Some(Duration::from_millis(10));
            settings.heartbeat = Some(Duration::from_millis(10));
        });
        let mut scene = Scene::with(form, patience).await;
        let mut subscriber = scene.subscribe(form).await;
        assert_eq!(next(form, &mut subscriber).await.0, 5);
        let before = subscriber.comments();
        subscriber.until_comments(before + 5).await;
        scene.strings.end(Outcome::ask("which?")).await;
        scene.reader.rest().await;
        assert_eq!(
            rest(form, &mut subscriber).await,
            [(6, form.status("input-required", "which?", false))]
        );
        for mut late in [scene.subscribe(form).await, scene.resume(form, 5).await] {
            assert_eq!(rest(form, &mut late).await.len(), 1);
        }
    }
}

#[tokio::test]
async fn s64_streams_beyond_the_limits_are_refused_with_a_hint_and_nothing_is_sent() {
    for form in WIRE_FORMATS {
        for (limits, name) in [
            (
                settings(|settings| {
                    settings.max_streams = 2;
                    settings.max_streams_per_caller = Some(3);
                }),
                "max_streams",
            ),
            (
                settings(|settings| settings.max_streams = 4),
                "max_streams_per_caller",
            ),
            (
                settings(|settings| settings.max_streams_per_task = 2),
                "max_streams_per_task",
            ),
        ] {
            let mut scene = Scene::with(form, limits).await;
            let mut second = scene.subscribe(form).await;
            second.one().await;
            let more = form.stream("more", json!({"taskId": scene.id}));
            for ask in [form.subscribe(&scene.id), more] {
                let refused = scene.server.ask(&ask).await;
                let (code, words) = form.refusal(&refused);
                assert_eq!((code, refused.status), (-32000, 503), "{refused:?}");
                assert_eq!(refused.header("retry-after"), Some("1"));
                assert!(words.contains(&format!("{name} = ")), "{words}");
            }
            drop(second);
            // The server releases its permit when it notices the disconnect.
            let mut third = with_deadline(async {
                loop {
                    let reader = scene.subscribe(form).await;
                    if reader.status == 200 && !reader.head.contains("content-length") {
                        return reader;
                    }
                }
            })
            .await;
            assert_eq!(next(form, &mut third).await, (5, task("working", &["go"])));
            scene.strings.end(Outcome::Completed).await;
            scene.reader.rest().await;
        }
    }
}

#[tokio::test]
async fn r11_a_server_that_stops_ends_its_streams_and_answers_its_calls() {
    for form in WIRE_FORMATS {
        let scene = Scene::new(form).await;
        let mut subscriber = scene.subscribe(form).await;
        subscriber.one().await;
        let body = request(
            "SendMessage",
            &json!({"message": message("more", json!({"taskId": scene.id}))}),
        );
        let head = "POST / HTTP/1.1\r\nContent-Type: application/json";
        let call = scene.server.begin(head, body.as_bytes()).await;
        // The call has arrived: its message precedes the next event of the agent.
        let mut watcher = scene.subscribe(form).await;
        watcher.one().await;
        // An idle new connection does not delay shutdown.
        let _idle = tokio::net::TcpStream::connect(scene.server.address)
            .await
            .unwrap();
        scene.server.get("/healthz").await;
        let Scene {
            mut server,
            mut strings,
            mut reader,
            ..
        } = scene;
        let readers = async {
            for reader in [&mut reader, &mut subscriber, &mut watcher] {
                // Complete HTTP body without a final event: the task is not over.
                assert!(reader.rest().await.is_empty());
            }
            strings.end(Outcome::ask("which?")).await;
            strings.next_task().await;
            strings.end(Outcome::Completed).await;
            let mut text = String::new();
            let mut call = call;
            with_deadline(call.read_to_string(&mut text)).await.unwrap();
            assert!(text.contains("TASK_STATE_COMPLETED"), "{text}");
        };
        let begin = Instant::now();
        tokio::join!(server.stop(), readers);
        assert!(
            begin.elapsed() < Duration::from_secs(8),
            "{:?}",
            begin.elapsed()
        );
    }
}
