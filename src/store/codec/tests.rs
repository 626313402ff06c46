//! Golden files and property tests of the codec.

use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::event::MESSAGE;
use super::snapshot::{SNAPSHOT_FORMAT, decode_task};
use super::*;
use crate::model::{
    Artifact, AuthenticationInfo, Base64, CallMetadata, Content, Json, Message, Object, Part,
    PushConfig, Role, Secret, Task, TaskStatus, TraceContext, Version,
};
use crate::store::{PushRegistration, Snapshot};

#[test]
fn golden_files_decode_and_encode_unchanged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/log");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 15, "only {} golden files", files.len());
    for path in files {
        let golden: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let (reads, again) = golden_read(&golden);
        assert_eq!(reads, golden["reads"], "{}", path.display());
        // Old formats are decoded but no longer encoded.
        if bytes_of(&golden).first() == again.first() {
            assert_eq!(
                hex(&again),
                golden["hex"].as_str().unwrap(),
                "{}",
                path.display()
            );
        }
    }
}

fn golden_read(golden: &Value) -> (Value, Vec<u8>) {
    let bytes = bytes_of(golden);
    match golden["kind"].as_str().unwrap() {
        "events" => {
            let (time, events) = decode_events(&bytes).unwrap();
            let json: Vec<_> = events.iter().map(event_json).collect();
            (
                json!({ "time": time, "events": json }),
                encode_events(time, &events),
            )
        }
        "task" => {
            // A snapshot of format 1 has no unanswered messages: it is not decoded.
            assert_eq!(decode_snapshot(&bytes), Err(CodecError("unknown format")));
            let task = decode_task(&mut LogDecoder::new(&bytes, PLAIN_FORMAT).unwrap()).unwrap();
            (json!(task), encode_snapshot(&Snapshot::default()))
        }
        // A snapshot without traces: it is not decoded.
        "folded" if bytes[0] < SNAPSHOT_FORMAT => {
            assert_eq!(decode_snapshot(&bytes), Err(CodecError("unknown format")));
            (
                golden["reads"].clone(),
                encode_snapshot(&Snapshot::default()),
            )
        }
        "folded" => {
            let snapshot = decode_snapshot(&bytes).unwrap();
            (snapshot_json(&snapshot), encode_snapshot(&snapshot))
        }
        "config" => {
            let registration = decode_registration(&bytes).unwrap();
            (
                config_json(&registration),
                encode_registration(&registration),
            )
        }
        kind => panic!("unknown golden kind: {kind}"),
    }
}

/// Converts an event to the JSON of protocol version 1.0, for readable golden files.
fn event_json(event: &Event) -> Value {
    match event {
        Event::Created {
            id,
            context_id,
            metadata,
        } => {
            json!({ "created": { "id": id, "contextId": context_id, "metadata": metadata } })
        }
        Event::Message(message) => json!({ "message": message }),
        Event::TraceContext(trace) => json!({ "traced": trace_json(trace) }),
        Event::CallMetadata(call) => json!({ "call": call_json(call) }),
        Event::TurnStarted => json!("turnStarted"),
        Event::Status { status, metadata } => json!({ "status": status, "metadata": metadata }),
        Event::Artifact {
            artifact,
            append,
            last_chunk,
            metadata,
        } => {
            json!({ "artifact": artifact, "append": append, "lastChunk": last_chunk, "metadata": metadata })
        }
        Event::CancelRequested { metadata } => {
            json!({ "cancelRequested": { "metadata": metadata } })
        }
        Event::Ignored { reason } => json!({ "ignored": reason }),
        Event::TurnEnded => json!("turnEnded"),
    }
}

fn snapshot_json(snapshot: &Snapshot) -> Value {
    let Snapshot {
        task,
        unanswered,
        traces,
        turns_ended,
        attempts,
        cancel_requested,
        calls,
    } = snapshot;
    let calls: Vec<_> = calls
        .iter()
        .map(|(turn, call)| json!([turn, call_json(call)]))
        .collect();
    let traces: Vec<_> = traces
        .iter()
        .map(|(turn, trace)| json!([turn, trace_json(trace)]))
        .collect();
    json!({
        "task": **task, "waiting": messages_json(unanswered), "traces": traces,
        "turnsEnded": turns_ended, "attempts": attempts, "cancelRequested": cancel_requested,
        "calls": calls,
    })
}

fn call_json(call: &CallMetadata) -> Value {
    json!({ "version": call.version.as_str(), "extensions": call.extensions })
}

fn trace_json(trace: &TraceContext) -> Value {
    json!({ "parent": trace.parent(), "state": trace.state() })
}

fn messages_json(messages: &[Arc<Message>]) -> Vec<Value> {
    messages.iter().map(|message| json!(**message)).collect()
}

fn bytes_of(golden: &Value) -> Vec<u8> {
    unhex(golden["hex"].as_str().unwrap())
}

fn config_json(registration: &PushRegistration) -> Value {
    let PushRegistration { config, version } = registration;
    let headers: Vec<_> = config
        .headers
        .iter()
        .map(|(name, value)| json!([name, value]))
        .collect();
    let other = &config.other_schemes;
    json!({ "version": version.as_str(), "config": config, "otherSchemes": other, "headers": headers })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text
        .as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    digits
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

proptest! {
    #[test]
    fn encoded_events_decode_to_the_same(time in times(), events in vec(events(), 0..6)) {
        let bytes = encode_events(time, &events);
        let read = decode_events(&bytes).unwrap();
        prop_assert_eq!(&read, &(time, events));
        prop_assert_eq!(encode_events(read.0, &read.1), bytes);
    }

    #[test]
    fn encoded_snapshots_decode_to_the_same(
        task in tasks(),
        unanswered in vec(messages(), 0..3),
        traces in vec((any::<u64>(), traces()), 0..3),
        turns_ended in any::<u64>(),
        attempts in any::<u32>(),
        cancel_requested in any::<bool>(),
        calls in vec((any::<u64>(), calls()), 0..3),
    ) {
        let task = Arc::new(task);
        let snapshot =
            Snapshot { task, unanswered, traces, turns_ended, attempts, cancel_requested, calls };
        prop_assert_eq!(decode_snapshot(&encode_snapshot(&snapshot)).unwrap(), snapshot);
    }

    #[test]
    fn encoded_registrations_decode_to_the_same(registration in configs()) {
        prop_assert_eq!(decode_registration(&encode_registration(&registration)).unwrap(), registration);
    }

    #[test]
    fn decoding_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        for first in [bytes.first().copied().unwrap_or(0), PLAIN_FORMAT, SNAPSHOT_FORMAT] {
            let bytes: Vec<u8> = std::iter::once(first).chain(bytes.iter().copied()).collect();
            let _ = decode_events(&bytes);
            let _ = decode_snapshot(&bytes);
            let _ = decode_registration(&bytes);
        }
    }

    #[test]
    fn decoding_damaged_bytes_does_not_panic(
        events in vec(events(), 1..4),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encode_events(Timestamp::default(), &events);
        let at = at.index(bytes.len());
        prop_assert!(decode_events(&bytes[..at]).is_err(), "truncated at {}", at);
        bytes[at] = byte;
        let _ = decode_events(&bytes);
    }
}

#[test]
fn forged_lengths_are_refused() {
    for forged in [
        &[PLAIN_FORMAT, 0, 0xff, 0xff, 0xff, 0xff, 0x7f][..],
        &[PLAIN_FORMAT, 0, 1, MESSAGE, 0xff, 0xff, 0x7f],
    ] {
        assert_eq!(decode_events(forged), Err(CodecError("truncated")));
    }
    let endless = [&[PLAIN_FORMAT, 0][..], &[0xff; 20]].concat();
    assert_eq!(
        decode_events(&endless),
        Err(CodecError("integer over 64 bits"))
    );
}

#[test]
fn other_formats_and_trailing_bytes_are_refused() {
    assert_eq!(decode_events(&[]), Err(CodecError("empty")));
    assert_eq!(
        decode_events(&[PLAIN_FORMAT + 1, 0, 0]),
        Err(CodecError("unknown format"))
    );
    assert_eq!(
        decode_events(&[PLAIN_FORMAT, 0, 0, 0]),
        Err(CodecError("trailing bytes"))
    );
}

#[test]
fn decoded_chunks_of_an_artifact_share_its_id() {
    let chunk = |id: &str| {
        let artifact = Artifact {
            artifact_id: id.into(),
            parts: vec![Part::text("x")],
            ..Artifact::default()
        };
        Event::Artifact {
            artifact,
            append: true,
            last_chunk: false,
            metadata: None,
        }
    };
    let events: Vec<_> = ["one", "one", "two", "one"].map(chunk).to_vec();
    let (_, decoded) = decode_events(&encode_events(Timestamp::default(), &events)).unwrap();
    assert_eq!(decoded, events);
    let id = |at: usize| match &decoded[at] {
        Event::Artifact { artifact, .. } => artifact.artifact_id.as_str().as_ptr(),
        event => panic!("{event:?}"),
    };
    assert_eq!(id(0), id(1));
    assert_ne!(id(1), id(2));
}

fn times() -> impl Strategy<Value = Timestamp> {
    (-62_135_596_800_000..=253_402_207_200_999_i64)
        .prop_map(|millis| Timestamp::from_millis(millis).unwrap())
}

fn objects() -> impl Strategy<Value = Option<Object>> {
    let members = vec(
        (
            ".{0,4}",
            prop_oneof![Just(json!(null)), any::<i64>().prop_map(|n| json!([n]))],
        ),
        0..3,
    );
    option::weighted(
        0.3,
        members.prop_map(|members| members.into_iter().collect()),
    )
}

fn parts() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        ".{0,20}".prop_map(Content::Text),
        vec(any::<u8>(), 0..9).prop_map(|bytes| Content::Raw(Base64::encode(bytes))),
        ".{0,9}".prop_map(|url| Content::Url(url.into())),
        "[0-9]{1,30}\\.[0-9]e9"
            .prop_map(|n| Content::Data(Json::parse(&format!("{{\"n\":[-1{n}]}}")).unwrap())),
    ];
    let more = (
        objects(),
        option::weighted(0.2, ".{0,5}"),
        option::weighted(0.2, ".{0,5}"),
    );
    (content, more).prop_map(|(content, (metadata, filename, media_type))| {
        let mut part = Part::from(content);
        if let Some(metadata) = metadata {
            part = part.with_metadata(metadata);
        }
        if let Some(name) = filename {
            part = part.with_filename(name);
        }
        if let Some(media_type) = media_type {
            part = part.with_media_type(media_type);
        }
        part
    })
}

fn messages() -> impl Strategy<Value = Arc<Message>> {
    let role = prop::sample::select(&[Role::Unspecified, Role::User, Role::Agent][..]);
    let ids = (
        ".{0,9}",
        option::of(".{0,9}"),
        option::of(".{0,9}"),
        vec(".{0,9}", 0..3),
    );
    (
        role,
        ids,
        vec(parts(), 0..3),
        vec(".{0,9}", 0..3),
        objects(),
    )
        .prop_map(
            |(role, (message_id, context_id, task_id, references), parts, extensions, metadata)| {
                Arc::new(Message {
                    message_id: message_id.into(),
                    role,
                    parts,
                    context_id: context_id.map(Into::into),
                    task_id: task_id.map(Into::into),
                    reference_task_ids: references.into_iter().map(Into::into).collect(),
                    extensions,
                    metadata,
                })
            },
        )
}

fn artifacts() -> impl Strategy<Value = Artifact> {
    let names = (".{0,9}", option::of(".{0,9}"), option::of(".{0,9}"));
    (names, vec(parts(), 0..3), vec(".{0,9}", 0..3), objects()).prop_map(
        |((artifact_id, name, description), parts, extensions, metadata)| Artifact {
            artifact_id: artifact_id.into(),
            name,
            description,
            parts,
            extensions,
            metadata,
        },
    )
}

fn statuses() -> impl Strategy<Value = TaskStatus> {
    let state = (0..9_u8).prop_map(|number| state_from_number(number).unwrap());
    (state, option::of(messages()), option::of(times())).prop_map(|(state, message, timestamp)| {
        TaskStatus {
            state,
            message,
            timestamp,
        }
    })
}

fn calls() -> impl Strategy<Value = CallMetadata> {
    let versions = (0..Version::ALL.len()).prop_map(|index| Version::ALL[index]);
    (versions, vec(".{0,9}", 0..3)).prop_map(|(version, extensions)| CallMetadata {
        version,
        extensions,
    })
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        (".{0,40}", ".{0,40}", objects()).prop_map(|(id, context_id, metadata)| Event::Created {
            id: id.into(),
            context_id: context_id.into(),
            metadata
        }),
        messages().prop_map(Event::Message),
        traces().prop_map(Event::TraceContext),
        calls().prop_map(Event::CallMetadata),
        Just(Event::TurnStarted),
        (statuses(), objects()).prop_map(|(status, metadata)| Event::Status { status, metadata }),
        (artifacts(), any::<(bool, bool)>(), objects()).prop_map(
            |(artifact, (append, last_chunk), metadata)| Event::Artifact {
                artifact,
                append,
                last_chunk,
                metadata
            }
        ),
        objects().prop_map(|metadata| Event::CancelRequested { metadata }),
        ".{0,9}".prop_map(|reason| Event::Ignored { reason }),
        Just(Event::TurnEnded),
    ]
}

fn traces() -> impl Strategy<Value = TraceContext> {
    (
        1..=u128::MAX,
        1..=u64::MAX,
        any::<u8>(),
        option::of("[a-z]{1,9}=[!-+]{1,9}"),
    )
        .prop_map(|(trace, span, flags, state)| {
            TraceContext::parse(
                &format!("00-{trace:032x}-{span:016x}-{flags:02x}"),
                state.as_deref(),
            )
            .unwrap()
        })
}

fn tasks() -> impl Strategy<Value = Task> {
    (
        ".{0,9}",
        ".{0,9}",
        statuses(),
        vec(artifacts(), 0..3),
        vec(messages(), 0..3),
        objects(),
    )
        .prop_map(
            |(id, context_id, status, artifacts, history, metadata)| Task {
                id: id.into(),
                context_id: context_id.into(),
                status,
                artifacts,
                history,
                metadata,
            },
        )
}

fn configs() -> impl Strategy<Value = PushRegistration> {
    let names = (
        option::of(".{0,9}"),
        option::of(".{0,9}"),
        option::of(".{0,9}"),
        ".{0,9}",
    );
    let secrets = (
        option::of(".{0,9}"),
        option::of((".{0,9}", option::of(".{0,9}"))),
    );
    let rest = (vec(".{0,9}", 0..3), vec((".{0,9}", ".{0,9}"), 0..3));
    (
        prop::sample::select(&Version::ALL[..]),
        names,
        secrets,
        rest,
    )
        .prop_map(
            |(
                version,
                (tenant, id, task_id, url),
                (token, authentication),
                (other_schemes, headers),
            )| {
                let authentication =
                    authentication.map(|(scheme, credentials)| AuthenticationInfo {
                        scheme,
                        credentials: credentials.map(Secret::from),
                    });
                let headers = headers
                    .into_iter()
                    .map(|(name, value)| (name, value.into()))
                    .collect();
                let config = PushConfig {
                    tenant,
                    id: id.map(Into::into),
                    task_id: task_id.map(Into::into),
                    url,
                    token: token.map(Secret::from),
                    authentication,
                    other_schemes,
                    headers,
                };
                PushRegistration { config, version }
            },
        )
}
