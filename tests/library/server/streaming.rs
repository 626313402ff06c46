//! Content and end of SSE streams, byte by byte, over both JSON bindings and versions.

use attache::{AgentCard, Outcome, ServerSettings};
use serde_json::{Value, json};

use crate::harness::{
    ObservedEvent, Running, SseReader, StepController, SteppedAgent, WIRE_FORMATS, WireFormat,
    start, start_as, start_with, task,
};

/// A task started by a stream whose opening events were read.
pub(crate) struct Scene {
    pub(crate) form: WireFormat,
    pub(crate) server: Running,
    pub(crate) strings: StepController,
    pub(crate) reader: SseReader,
    pub(crate) id: String,
}

impl Scene {
    pub(crate) async fn new(form: WireFormat) -> Self {
        Self::with(form, ServerSettings::default()).await
    }

    pub(crate) async fn with(form: WireFormat, settings: ServerSettings) -> Self {
        let (agent, mut strings) = SteppedAgent::new();
        let server = start_with(agent, |server| server.server_settings(settings)).await;
        let mut reader = server.read(&form.stream("go", json!({}))).await;
        let id = strings.next_task().await;
        strings.say("on it").await;
        for told in opening(form) {
            assert_eq!(next(form, &mut reader).await, told);
        }
        Self {
            form,
            server,
            strings,
            reader,
            id,
        }
    }

    /// Returns the next event of the stream that started the task.
    pub(crate) async fn next(&mut self) -> (u64, ObservedEvent) {
        next(self.form, &mut self.reader).await
    }

    pub(crate) async fn subscribe(&self, form: WireFormat) -> SseReader {
        self.server.read(&form.subscribe(&self.id)).await
    }

    pub(crate) async fn resume(&self, form: WireFormat, seen: impl std::fmt::Display) -> SseReader {
        self.server
            .read(&form.subscribe(&self.id).resuming(seen))
            .await
    }
}

/// Opening events of a stream for the message `go`. The agent waits before it sends `on it`, so the engine has already
/// set `working`.
pub(crate) fn opening(form: WireFormat) -> [(u64, ObservedEvent); 3] {
    [
        (2, task("submitted", &["go"])),
        (4, form.status("working", "", false)),
        (5, form.status("working", "on it", false)),
    ]
}

/// Returns position and content of the next event.
pub(crate) async fn next(form: WireFormat, reader: &mut SseReader) -> (u64, ObservedEvent) {
    let event = reader.one().await;
    (
        event.id.expect("a position").parse().unwrap(),
        form.decode_event(&event.data),
    )
}

/// Returns all remaining events.
pub(crate) async fn rest(form: WireFormat, reader: &mut SseReader) -> Vec<(u64, ObservedEvent)> {
    let events = reader.rest().await;
    events
        .iter()
        .map(|event| {
            (
                event.id.as_ref().unwrap().parse().unwrap(),
                form.decode_event(&event.data),
            )
        })
        .collect()
}

fn working() -> ObservedEvent {
    task("working", &["go"])
}

#[tokio::test]
async fn r09_the_head_of_a_stream_keeps_proxies_from_holding_it_back() {
    for form in WIRE_FORMATS {
        let scene = Scene::new(form).await;
        for reader in [&scene.reader, &scene.subscribe(form).await] {
            assert_eq!(reader.status, 200);
            assert_eq!(reader.header("content-type"), Some("text/event-stream"));
            assert_eq!(reader.header("cache-control"), Some("no-cache"));
            assert_eq!(reader.header("x-accel-buffering"), Some("no"));
            assert_eq!(reader.header("a2a-version"), Some(form.version()));
            assert_eq!(reader.header("content-length"), None);
        }
    }
}

#[tokio::test]
async fn every_frame_is_exact() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        scene.strings.write("one ").await;
        scene.strings.write("two").await;
        scene.strings.end(Outcome::Completed).await;
        let events = scene.reader.rest().await;
        assert_eq!(events.len(), 3);
        let text = &scene.reader.text;
        let data: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        // The entries for creation, message, turn start and turn end are not stream events.
        let positions = [2, 4, 5, 6, 7, 8];
        let frames: String = positions
            .iter()
            .zip(&data)
            .map(|(at, data)| format!("id: {at}\ndata: {data}\n\n"))
            .collect();
        assert_eq!(*text, frames);
        let payloads: Vec<Value> = data.iter().map(|data| form.payload(data)).collect();
        assert_eq!(payloads, expected(form, &scene.id, &payloads), "{form:?}");
    }
}

/// Builds the expected frames; generated ids and times are taken from the actual ones.
fn expected(form: WireFormat, id: &str, found: &[Value]) -> Vec<Value> {
    let inner = |at: usize, name: &str| {
        if form == WireFormat::Rpc03 {
            found[at].clone()
        } else {
            found[at][name].clone()
        }
    };
    let context = inner(0, "task")["contextId"].clone();
    let time = |at: usize, name: &str| inner(at, name)["status"]["timestamp"].clone();
    let said = inner(2, "statusUpdate")["status"]["message"]["messageId"].clone();
    let artifact = inner(3, "artifactUpdate")["artifact"]["artifactId"].clone();
    let times = [
        time(0, "task"),
        time(1, "statusUpdate"),
        time(2, "statusUpdate"),
        time(5, "statusUpdate"),
    ];
    for known in [&context, &said, &artifact].into_iter().chain(&times) {
        assert!(
            known.as_str().is_some_and(|text| !text.is_empty()),
            "{found:?}"
        );
    }
    let ids = json!({"taskId": id, "contextId": context});
    let with = |mut value: Value, more: &Value| {
        value
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        value
    };
    let (role, state) = match form {
        WireFormat::Rpc03 => ("agent", ["submitted", "working", "completed"]),
        _ => (
            "ROLE_AGENT",
            [
                "TASK_STATE_SUBMITTED",
                "TASK_STATE_WORKING",
                "TASK_STATE_COMPLETED",
            ],
        ),
    };
    let agent = with(
        form.message("on it", json!({"messageId": said, "role": role})),
        &ids,
    );
    let part = |text: &str| match form {
        WireFormat::Rpc03 => json!([{"kind": "text", "text": text}]),
        _ => json!([{"text": text}]),
    };
    let events = [
        (
            "task",
            "task",
            json!({
                "id": id, "contextId": context, "history": [form.message("go", ids.clone())],
                "status": {"state": state[0], "timestamp": times[0]},
            }),
        ),
        (
            "statusUpdate",
            "status-update",
            with(
                json!({"status": {"state": state[1], "timestamp": times[1]}}),
                &ids,
            ),
        ),
        (
            "statusUpdate",
            "status-update",
            with(
                json!({"status": {"state": state[1], "message": agent, "timestamp": times[2]}}),
                &ids,
            ),
        ),
        (
            "artifactUpdate",
            "artifact-update",
            with(
                json!({
                    "artifact": {"artifactId": artifact, "name": "result", "parts": part("one ")},
                }),
                &ids,
            ),
        ),
        (
            "artifactUpdate",
            "artifact-update",
            with(
                json!({
                    "artifact": {"artifactId": artifact, "parts": part("two")}, "append": true,
                }),
                &ids,
            ),
        ),
        (
            "statusUpdate",
            "status-update",
            with(
                json!({"status": {"state": state[2], "timestamp": times[3]}}),
                &ids,
            ),
        ),
    ];
    let last = events.len() - 1;
    let dress = |(at, (name, kind, mut event)): (usize, (&str, &str, Value))| {
        let map = event.as_object_mut().unwrap();
        match (form, name) {
            (WireFormat::Rpc03, "statusUpdate") => {
                drop(map.insert("final".into(), json!(at == last)))
            }
            (WireFormat::Rest03, "statusUpdate") if at == last => {
                drop(map.insert("final".into(), json!(true)))
            }
            (WireFormat::Rpc03, "artifactUpdate") => {
                map.entry("append").or_insert(json!(false));
                map.entry("lastChunk").or_insert(json!(false));
            }
            _ => {}
        }
        if form == WireFormat::Rpc03 {
            map.insert("kind".into(), json!(kind));
            return event;
        }
        json!({name: event})
    };
    events.into_iter().enumerate().map(dress).collect()
}

#[tokio::test]
async fn a_stream_closes_with_the_end_of_its_task_and_says_so_in_0_3() {
    for form in WIRE_FORMATS {
        for (outcome, state, text) in [
            (Outcome::Completed, "completed", ""),
            (
                Outcome::failed("the tide is out"),
                "failed",
                "the tide is out",
            ),
            (Outcome::rejected("not today"), "rejected", "not today"),
        ] {
            let mut scene = Scene::new(form).await;
            let mut subscriber = scene.subscribe(form).await;
            assert_eq!(next(form, &mut subscriber).await, (5, working()));
            scene.strings.end(outcome).await;
            let end = vec![(6, form.status(state, text, true))];
            assert_eq!(rest(form, &mut scene.reader).await, end);
            assert_eq!(rest(form, &mut subscriber).await, end);
        }
        let mut scene = Scene::new(form).await;
        let canceled = scene
            .server
            .ask(&form.ask("CancelTask", json!({"id": scene.id})))
            .await;
        assert_eq!(canceled.status, 200, "{canceled:?}");
        // The cancel request is a log entry that is not sent.
        assert_eq!(
            rest(form, &mut scene.reader).await,
            [(7, form.status("canceled", "", true))]
        );
    }
}

#[tokio::test]
async fn a_question_closes_the_stream_of_its_message_and_no_subscription() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        let mut subscriber = scene.subscribe(form).await;
        assert_eq!(next(form, &mut subscriber).await, (5, working()));
        scene.strings.end(Outcome::ask("which?")).await;
        assert_eq!(
            rest(form, &mut scene.reader).await,
            [(6, form.status("input-required", "which?", true))]
        );
        assert_eq!(
            next(form, &mut subscriber).await,
            (6, form.status("input-required", "which?", false))
        );
        // 8: the message; 9: the turn; 10: working again. The stream begins with the task that has the message.
        let more = json!({"taskId": scene.id});
        let mut second = scene.server.read(&form.stream("this one", more)).await;
        assert_eq!(scene.strings.next_task().await, scene.id);
        let (at, first) = next(form, &mut second).await;
        assert_eq!(
            (at, first),
            (10, task("working", &["go", "on it", "which?", "this one"]))
        );
        scene.strings.end(Outcome::Completed).await;
        assert_eq!(
            rest(form, &mut second).await,
            [(11, form.status("completed", "", true))]
        );
        let rest = rest(form, &mut subscriber).await;
        assert_eq!(
            rest,
            [
                (10, form.status("working", "", false)),
                (11, form.status("completed", "", true))
            ]
        );
    }
}

#[tokio::test]
async fn asking_for_credentials_closes_a_stream_only_when_the_agent_yields() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        scene.strings.auth("log in").await;
        assert_eq!(
            scene.next().await,
            (6, form.status("auth-required", "log in", false))
        );
        let mut subscriber = scene.subscribe(form).await;
        assert_eq!(
            next(form, &mut subscriber).await,
            (6, task("auth-required", &["go", "on it"]))
        );
        scene.strings.say("thank you").await;
        assert_eq!(
            scene.next().await,
            (7, form.status("working", "thank you", false))
        );
        scene.strings.end(Outcome::auth_required("again")).await;
        assert_eq!(
            rest(form, &mut scene.reader).await,
            [(8, form.status("auth-required", "again", true))]
        );
        assert_eq!(
            next(form, &mut subscriber).await,
            (7, form.status("working", "thank you", false))
        );
        assert_eq!(
            next(form, &mut subscriber).await,
            (8, form.status("auth-required", "again", false))
        );
    }
}

#[tokio::test]
async fn a_message_that_waits_for_its_turn_has_a_stream_of_its_own() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        let mut second = scene
            .server
            .read(&form.stream("and then", json!({"taskId": scene.id})))
            .await;
        assert_eq!(
            next(form, &mut second).await,
            (6, task("working", &["go", "on it", "and then"]))
        );
        scene.strings.end(Outcome::ask("which?")).await;
        assert_eq!(
            rest(form, &mut scene.reader).await,
            [(7, form.status("input-required", "which?", true))]
        );
        assert_eq!(scene.strings.next_task().await, scene.id);
        scene.strings.end(Outcome::ask("really?")).await;
        // The end of the previous turn does not end this stream.
        let told = rest(form, &mut second).await;
        assert_eq!(
            told.first(),
            Some(&(7, form.status("input-required", "which?", false)))
        );
        assert_eq!(
            told.last().unwrap().1,
            form.status("input-required", "really?", true)
        );
    }
}

#[tokio::test]
async fn a_plain_reply_is_one_event_without_a_position() {
    for form in WIRE_FORMATS {
        let (agent, _strings) = SteppedAgent::new();
        let server = start(agent).await;
        let mut reader = server.read(&form.stream("ping", json!({}))).await;
        let events = reader.rest().await;
        assert_eq!(events.len(), 1);
        assert_eq!(
            (&events[0].id, form.decode_event(&events[0].data)),
            (&None, ObservedEvent::Message("pong".into()))
        );
    }
}

#[tokio::test]
async fn the_first_event_has_as_much_history_as_was_asked_for() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        scene.strings.end(Outcome::ask("which?")).await;
        scene.reader.rest().await;
        // In 0.3, history length 0 means unlimited.
        let none: &[&str] = if form.is_v1() {
            &[]
        } else {
            &["go", "on it", "which?", "x"]
        };
        for (length, texts) in [(0, none), (2, &["which?", "y"])] {
            let text = if length == 0 { "x" } else { "y" };
            let message = form.message(text, json!({"taskId": scene.id}));
            let params = json!({"message": message, "configuration": {"historyLength": length}});
            let mut reader = scene
                .server
                .read(&form.ask("SendStreamingMessage", params))
                .await;
            scene.strings.next_task().await;
            assert_eq!(
                next(form, &mut reader).await.1,
                task("working", texts),
                "{form:?} {length}"
            );
            scene.strings.end(Outcome::ask("which?")).await;
            reader.rest().await;
        }
    }
}

#[tokio::test]
async fn what_cannot_be_streamed_is_refused_in_the_way_of_the_version() {
    for form in WIRE_FORMATS {
        let mut scene = Scene::new(form).await;
        let server = &scene.server;
        let id = scene.id.clone();
        scene.strings.end(Outcome::Completed).await;
        scene.reader.rest().await;
        let foreign = form.message("hi", json!({"taskId": "gone"}));
        let ended = form.message("hi", json!({"taskId": id}));
        let stream = |message: Value| form.ask("SendStreamingMessage", json!({"message": message}));
        let status = |v1: u16, v03: u16| {
            if form.is_rpc() {
                200
            } else if form.is_v1() {
                v1
            } else {
                v03
            }
        };
        for (ask, code, status) in [
            (form.subscribe("gone"), -32001, status(404, 404)),
            (form.subscribe(&id), -32004, status(400, 501)),
            (stream(foreign), -32001, status(404, 404)),
            (stream(ended), -32004, status(400, 501)),
            (stream(json!({})), -32602, status(400, 422)),
        ] {
            let answer = server.ask(&ask).await;
            assert_eq!(
                (form.refusal(&answer).0, answer.status),
                (code, status),
                "{form:?} {ask:?} {answer:?}"
            );
            assert_eq!(
                answer.header("a2a-version"),
                Some(form.version()),
                "{answer:?}"
            );
            let media_type = if form == WireFormat::Rpc03 {
                "text/event-stream"
            } else {
                "application/json"
            };
            assert_eq!(answer.header("content-type"), Some(media_type));
            if form == WireFormat::Rpc03 {
                let event = answer
                    .body
                    .strip_prefix("data: ")
                    .unwrap()
                    .strip_suffix("\n\n")
                    .unwrap();
                assert!(
                    !event.contains('\n') && event.contains(r#""id":"call-1""#),
                    "{event}"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_agent_that_does_not_stream_says_so() {
    for form in WIRE_FORMATS {
        let mut card = AgentCard::new("Quiet", "Answers once");
        card.capabilities.streaming = Some(false);
        let (agent, _strings) = SteppedAgent::new();
        let server = start_as(card, agent, |server| server).await;
        // Checked before the task lookup.
        for ask in [form.stream("hi", json!({})), form.subscribe("gone")] {
            assert_eq!(form.refusal(&server.ask(&ask).await).0, -32004, "{form:?}");
        }
        let list = server
            .ask(&WireFormat::Rpc1.ask("ListTasks", json!({})))
            .await;
        assert_eq!(list.json()["result"]["totalSize"], 0);
    }
}

#[tokio::test]
async fn streams_of_all_versions_and_bindings_on_one_task_agree() {
    let mut scene = Scene::new(WireFormat::Rpc1).await;
    let mut readers = Vec::new();
    for form in WIRE_FORMATS {
        let mut reader = scene.subscribe(form).await;
        assert_eq!(next(form, &mut reader).await, (5, working()));
        readers.push((form, reader));
    }
    scene.strings.write("one").await;
    scene.strings.write("two").await;
    scene.strings.end(Outcome::failed("enough")).await;
    let told = |form: WireFormat| {
        let artifact = |text: &str, append| ObservedEvent::Artifact(text.to_owned(), append);
        vec![
            (6, artifact("one", false)),
            (7, artifact("two", true)),
            (8, form.status("failed", "enough", true)),
        ]
    };
    assert_eq!(
        rest(WireFormat::Rpc1, &mut scene.reader).await,
        told(WireFormat::Rpc1)
    );
    for (form, mut reader) in readers {
        assert_eq!(rest(form, &mut reader).await, told(form));
    }
}

#[tokio::test]
async fn rest_takes_a_subscription_by_get_and_by_post() {
    for form in [WireFormat::Rest1, WireFormat::Rest03] {
        let scene = Scene::new(form).await;
        let mut ask = form.subscribe(&scene.id);
        ask.head = ask.head.replacen("GET", "POST", 1);
        let mut reader = scene.server.read(&ask).await;
        assert_eq!(next(form, &mut reader).await, (5, working()));
    }
}

#[tokio::test]
async fn a_stream_of_another_tenant_is_as_good_as_none() {
    for form in [WireFormat::Rpc1, WireFormat::Rest1] {
        let (agent, mut strings) = SteppedAgent::new();
        let server = start_with(agent, |server| server.tenants(["blue", "red"])).await;
        let params = json!({"tenant": "blue", "message": form.message("go", json!({}))});
        let mut reader = server.read(&form.ask("SendStreamingMessage", params)).await;
        let id = strings.next_task().await;
        strings.say("on it").await;
        for told in opening(form) {
            assert_eq!(next(form, &mut reader).await, told);
        }
        let subscribe = |tenant: &str, id: &str| {
            let mut ask = form.ask("SubscribeToTask", json!({"id": id, "tenant": tenant}));
            if tenant.is_empty() {
                ask = form.subscribe(id);
            }
            ask.resuming(2)
        };
        for tenant in ["", "red", "green"] {
            // Identical to the error for a task that does not exist, except for its id.
            let foreign = server.ask(&subscribe(tenant, &id)).await;
            let none = server.ask(&subscribe(tenant, "gone")).await;
            assert_eq!(form.refusal(&foreign).0, -32001);
            assert_eq!(
                (foreign.status, foreign.body.replace(&id, "gone")),
                (none.status, none.body),
                "{tenant}"
            );
        }
        let mut own = server.read(&subscribe("blue", &id)).await;
        for told in &opening(form)[1..] {
            assert_eq!(next(form, &mut own).await, *told);
        }
    }
}

#[tokio::test]
async fn every_event_answers_the_call_by_its_id() {
    let (agent, _strings) = SteppedAgent::new();
    let server = start(agent).await;
    for form in [WireFormat::Rpc1, WireFormat::Rpc03] {
        for id in [
            "7",
            "null",
            "\"é \\\" \\u0007\"",
            "-9223372036854775808",
            "\"\"",
        ] {
            let mut ask = form.stream("ping", json!({}));
            ask.body = ask.body.replace("\"call-1\"", id);
            let mut reader = server.read(&ask).await;
            let data = reader.one().await.data;
            assert!(
                data.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#)),
                "{data}"
            );
        }
    }
}

#[tokio::test]
async fn a_client_of_the_first_days_streams_by_the_name_it_gave_the_task() {
    let (agent, mut strings) = SteppedAgent::new();
    let server = start(agent).await;
    let call = |method: &str, params: Value| {
        let mut ask = WireFormat::Rpc03.ask("GetTask", params);
        ask.body = ask.body.replace("tasks/get", method);
        ask
    };
    let message = json!({"role": "user", "parts": [{"type": "text", "text": "go"}]});
    let begin = call(
        "tasks/sendSubscribe",
        json!({"id": "mine", "sessionId": "s", "message": message}),
    );
    let mut reader = server.read(&begin).await;
    strings.next_task().await;
    strings.say("on it").await;
    let payload =
        async |reader: &mut SseReader| WireFormat::Rpc03.payload(&reader.one().await.data);
    let first = payload(&mut reader).await;
    assert_eq!(
        (&first["id"], &first["sessionId"]),
        (&json!("mine"), &json!("s"))
    );
    let second = payload(&mut reader).await;
    assert_eq!(
        (&second["id"], &second["final"]),
        (&json!("mine"), &json!(false))
    );
    assert_eq!(
        (&second["status"]["state"], second["status"].get("message")),
        (&json!("working"), None)
    );
    let third = payload(&mut reader).await;
    assert_eq!(
        (&third["id"], &third["final"]),
        (&json!("mine"), &json!(false))
    );
    assert_eq!(third["status"]["message"]["parts"][0]["type"], "text");
    let mut again = server
        .read(&call("tasks/resubscribe", json!({"id": "mine"})).resuming(2))
        .await;
    for told in &opening(WireFormat::Rpc03)[1..] {
        assert_eq!(next(WireFormat::Rpc03, &mut again).await, *told);
    }
    strings.end(Outcome::Completed).await;
    let last = payload(&mut reader).await;
    assert_eq!(
        (&last["id"], &last["final"], &last["status"]["state"]),
        (&json!("mine"), &json!(true), &json!("completed"))
    );
    assert_eq!(reader.next().await, None);
}
