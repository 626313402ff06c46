//! Proptest strategies for every type of the model.
//!
//! The values are canonical: if an empty text means absent, it is absent.

mod card;
mod request;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use attache::model::{
    Artifact, AuthenticationInfo, Base64, Content, Json, Message, Object, Part, PushConfig, Role,
    Secret, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState,
    TaskStatus, TaskStatusUpdateEvent, Timestamp, Violation,
};
use attache::{Error, ErrorKind};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

pub(crate) use card::card;
pub(crate) use request::{request, response};

/// The representation that generated values must fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// JSON: numbers of any size and precision, deeply nested.
    Json,
    /// Protobuf: numbers are doubles in shortest form, and a flag cannot distinguish `false` from
    /// absent.
    Protobuf,
    /// Official SDK models: no unknown locations of API keys.
    Official,
}

/// Checks a property on `cases` values. Deterministic unless `PROPTEST_RNG_SEED` is set.
#[track_caller]
pub(crate) fn check<S: Strategy>(
    cases: u32,
    values: S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let mut config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0xA2A);
    }
    if let Err(fault) = TestRunner::new(config).run(&values, property) {
        panic!("{fault}");
    }
}

/// Any text: empty, non-ASCII, beyond the basic plane, with quotes and control characters,
/// sometimes long.
pub(crate) fn text() -> BoxedStrategy<String> {
    let odd = [
        "",
        "\"\\/\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}\u{85}",
        "😀 \u{10ffff}\u{2028}\u{feff}é",
        "{\"kind\":\"task\"}",
        "true",
        " null ",
        "data: x\n\nevent: error",
    ];
    prop_oneof![
        4 => select(vec!["a", "hello", "text/plain", "https://example.org/x?y=z#1", "0.3"]).prop_map(str::to_owned),
        2 => select(odd.to_vec()).prop_map(str::to_owned),
        3 => vec(any::<char>(), 0..10).prop_map(String::from_iter),
        1 => (any::<char>(), 500..2000_usize).prop_map(|(c, times)| String::from(c).repeat(times)),
    ]
    .boxed()
}

/// Non-empty text.
pub(crate) fn some_text() -> BoxedStrategy<String> {
    text()
        .prop_map(|text| {
            if text.is_empty() {
                "x".to_owned()
            } else {
                text
            }
        })
        .boxed()
}

fn texts() -> BoxedStrategy<Vec<String>> {
    vec(text(), 0..3).boxed()
}

/// Valid id: up to 256 bytes without control characters.
pub(crate) fn id() -> BoxedStrategy<String> {
    let odd = [
        "a:b",
        "a/b",
        "a..b",
        "x:cancel",
        "50%",
        "x?y#z",
        "é 潮",
        "tasks/1",
        "%2F",
        "a+b&c=d",
        "\"quoted\"",
    ];
    prop_oneof![
        3 => "[a-z0-9-]{1,12}",
        2 => select(odd.to_vec()).prop_map(str::to_owned),
        2 => vec(any::<char>(), 1..20).prop_map(|chars| {
            chars.into_iter().map(|c| if c.is_control() { '_' } else { c }).collect()
        }),
    ]
    // A path cannot contain them; `write_rest` rejects them.
    .prop_filter("dots alone", |id: &String| {
        !matches!(id.as_str(), "." | "..")
    })
    .boxed()
}

/// Tenant that is usable as a path segment.
pub(crate) fn tenant() -> BoxedStrategy<String> {
    id().prop_map(|id| {
        if attache::wire::path::is_tenant(&id) {
            id
        } else {
            format!("t{id}")
        }
    })
    .boxed()
}

/// Text of any JSON value.
fn json_text(fit: Fit) -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        1 => select(vec!["null", "true", "false", "{}", "[]", "\"\""]).prop_map(str::to_owned),
        2 => number(fit),
        2 => text().prop_map(quoted),
    ];
    let depth = if fit == Fit::Json { 6 } else { 3 };
    leaf.prop_recursive(depth, 24, 4, |inner| {
        let members = vec((name(), inner.clone()), 0..4);
        prop_oneof![
            vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            members.prop_map(object_text),
        ]
    })
    .boxed()
}

fn quoted(text: String) -> String {
    serde_json::to_string(&text).unwrap()
}

fn name() -> BoxedStrategy<String> {
    let ours = [
        "kind", "type", "value", "data", "metadata", "final", "text", "a", "b",
    ];
    prop_oneof![select(ours.to_vec()).prop_map(str::to_owned), text()].boxed()
}

/// Builds an object without duplicate names.
fn object_text(members: Vec<(String, String)>) -> String {
    let mut seen = BTreeSet::new();
    let unique = members
        .into_iter()
        .filter(|(name, _)| seen.insert(name.clone()));
    let members: Vec<_> = unique
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    format!("{{{}}}", members.join(","))
}

fn number(fit: Fit) -> BoxedStrategy<String> {
    let whole = (-(1_i64 << 53)..=1 << 53).prop_map(|number| number.to_string());
    let double = any::<f64>().prop_filter("finite and with a fraction", |n| {
        n.is_finite() && n.fract() != 0.0
    });
    let double = double.prop_map(|number| serde_json::to_string(&number).unwrap());
    let exact = prop_oneof![
        whole,
        double,
        select(vec!["0", "0.1", "-2.5", "1e300"]).prop_map(str::to_owned)
    ];
    if fit != Fit::Json {
        return exact.boxed();
    }
    let odd = [
        "-0",
        "1.0",
        "1.10",
        "2E+5",
        "1e400",
        "-1e-400",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "3.14159265358979323846264338327950288",
    ];
    prop_oneof![exact, select(odd.to_vec()).prop_map(str::to_owned)].boxed()
}

/// Any JSON value.
pub(crate) fn json(fit: Fit) -> BoxedStrategy<Json> {
    json_text(fit)
        .prop_map(|text| Json::parse(&text).unwrap())
        .boxed()
}

/// Any JSON object.
pub(crate) fn object(fit: Fit) -> BoxedStrategy<Object> {
    let members = vec((name(), json_text(fit)), 0..4);
    members
        .prop_map(|members| serde_json::from_str(&object_text(members)).unwrap())
        .boxed()
}

/// Optional metadata.
pub(crate) fn metadata(fit: Fit) -> BoxedStrategy<Option<Object>> {
    option::weighted(0.3, object(fit)).boxed()
}

/// Any bytes.
pub(crate) fn base64() -> BoxedStrategy<Base64> {
    vec(any::<u8>(), 0..40).prop_map(Base64::encode).boxed()
}

/// Any timestamp in the supported range.
pub(crate) fn timestamp() -> BoxedStrategy<Timestamp> {
    const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_207_200_999;
    let edges = [*RANGE.start(), *RANGE.end(), -1, 0, 999, 1_773_480_413_589];
    prop_oneof![RANGE, select(edges.to_vec())]
        .prop_map(|millis| Timestamp::from_millis(millis).unwrap())
        .boxed()
}

/// Part of any content, plain or with all attributes.
pub(crate) fn part(fit: Fit) -> BoxedStrategy<Part> {
    let content = prop_oneof![
        text().prop_map(Content::Text),
        base64().prop_map(Content::Raw),
        text().prop_map(|url| Content::Url(url.into())),
        json(fit).prop_map(Content::Data),
        object(fit).prop_map(|object| Content::Data(object.into())),
    ];
    let beside = (
        metadata(fit),
        option::weighted(0.2, some_text()),
        option::weighted(0.2, some_text()),
    );
    let any = (content, beside).prop_map(move |(content, (metadata, filename, media_type))| {
        let mut part = Part::from(content);
        if let Some(metadata) = metadata {
            part = part.with_metadata(metadata);
        }
        if let Some(filename) = filename {
            part = part.with_filename(filename);
        }
        if let Some(media_type) = media_type {
            part = part.with_media_type(media_type);
        }
        part
    });
    // Data with the kind that an older version had.
    let kinds = select(vec!["tool-result", "text", "data", "", "é\n"]).prop_map(str::to_owned);
    let kept = (object(fit), object(fit), kinds).prop_map(|(data, mut metadata, kind)| {
        metadata.insert("kind", serde_json::Value::from(kind));
        Part::data(data).with_metadata(metadata)
    });
    prop_oneof![8 => any, 1 => kept].boxed()
}

fn parts(fit: Fit) -> BoxedStrategy<Vec<Part>> {
    vec(part(fit), 0..4).boxed()
}

/// Message of either role.
pub(crate) fn message(fit: Fit) -> BoxedStrategy<Message> {
    let ids = (id(), option::of(id()), option::of(id()), vec(id(), 0..3));
    let role = select(vec![Role::User, Role::Agent]);
    (ids, role, parts(fit), texts(), metadata(fit))
        .prop_map(
            |((id, context, task, references), role, parts, extensions, metadata)| Message {
                message_id: id.into(),
                role,
                parts,
                context_id: context.map(Into::into),
                task_id: task.map(Into::into),
                reference_task_ids: references.into_iter().map(Into::into).collect(),
                extensions,
                metadata,
            },
        )
        .boxed()
}

/// Artifact or chunk.
pub(crate) fn artifact(fit: Fit) -> BoxedStrategy<Artifact> {
    let about = (option::of(some_text()), option::of(some_text()));
    (id(), about, parts(fit), texts(), metadata(fit))
        .prop_map(
            |(id, (name, description), parts, extensions, metadata)| Artifact {
                artifact_id: id.into(),
                name,
                description,
                parts,
                extensions,
                metadata,
            },
        )
        .boxed()
}

/// Any state except unspecified.
pub(crate) fn state() -> BoxedStrategy<TaskState> {
    select(TaskState::ALL.to_vec()).boxed()
}

/// Status with or without message and timestamp.
pub(crate) fn status(fit: Fit) -> BoxedStrategy<TaskStatus> {
    (state(), option::of(message(fit)), option::of(timestamp()))
        .prop_map(|(state, message, timestamp)| TaskStatus {
            state,
            message: message.map(Arc::new),
            timestamp,
        })
        .boxed()
}

/// Any task.
pub(crate) fn task(fit: Fit) -> BoxedStrategy<Task> {
    let said = (vec(artifact(fit), 0..3), vec(message(fit), 0..3));
    (
        id(),
        prop_oneof![4 => id(), 1 => Just(String::new())],
        status(fit),
        said,
        metadata(fit),
    )
        .prop_map(
            |(id, context, status, (artifacts, history), metadata)| Task {
                id: id.into(),
                context_id: context.into(),
                status,
                artifacts,
                history: history.into_iter().map(Arc::new).collect(),
                metadata,
            },
        )
        .boxed()
}

/// A status event.
pub(crate) fn status_event(fit: Fit) -> BoxedStrategy<TaskStatusUpdateEvent> {
    (id(), id(), status(fit), metadata(fit))
        .prop_map(|(task, context, status, metadata)| TaskStatusUpdateEvent {
            task_id: task.into(),
            context_id: context.into(),
            status,
            metadata,
        })
        .boxed()
}

/// An artifact event.
pub(crate) fn artifact_event(fit: Fit) -> BoxedStrategy<TaskArtifactUpdateEvent> {
    (id(), id(), artifact(fit), any::<[bool; 2]>(), metadata(fit))
        .prop_map(
            |(task, context, artifact, [append, last_chunk], metadata)| TaskArtifactUpdateEvent {
                task_id: task.into(),
                context_id: context.into(),
                artifact,
                append,
                last_chunk,
                metadata,
            },
        )
        .boxed()
}

/// Payload of streams and push notifications.
pub(crate) fn stream_response(fit: Fit) -> BoxedStrategy<StreamResponse> {
    prop_oneof![
        task(fit).prop_map(StreamResponse::Task),
        message(fit).prop_map(StreamResponse::Message),
        status_event(fit).prop_map(StreamResponse::StatusUpdate),
        artifact_event(fit).prop_map(StreamResponse::ArtifactUpdate),
    ]
    .boxed()
}

/// Result of a send.
pub(crate) fn send_response(fit: Fit) -> BoxedStrategy<SendMessageResponse> {
    prop_oneof![
        task(fit).prop_map(SendMessageResponse::Task),
        message(fit).prop_map(SendMessageResponse::Message),
    ]
    .boxed()
}

/// Push configuration; additional schemes only after a first one.
pub(crate) fn push_config() -> BoxedStrategy<PushConfig> {
    let ids = (option::of(tenant()), option::of(id()), option::of(id()));
    let secret = || option::of(some_text().prop_map(Secret::from));
    let info = (some_text(), secret()).prop_map(|(scheme, credentials)| AuthenticationInfo {
        scheme,
        credentials,
    });
    let authentication = option::of((info, vec(some_text(), 0..2)));
    (ids, text(), secret(), authentication)
        .prop_map(|((tenant, id, task), url, token, authentication)| {
            let (authentication, other_schemes) = authentication.unzip();
            PushConfig {
                tenant,
                id: id.map(Into::into),
                task_id: task.map(Into::into),
                url,
                token,
                authentication,
                other_schemes: other_schemes.unwrap_or_default(),
                headers: Vec::new(),
            }
        })
        .boxed()
}

/// Error of any kind, with or without details.
pub(crate) fn error() -> BoxedStrategy<Error> {
    let own =
        prop_oneof![-32099..=-32010_i32, Just(-32000), 1..1000_i32].prop_map(ErrorKind::Other);
    let kind = prop_oneof![6 => select(ErrorKind::ALL.to_vec()), 1 => own];
    let keys = prop_oneof![
        select(vec!["taskId", "contextId", "requested"]).prop_map(str::to_owned),
        text()
    ];
    let details = vec((keys, text()), 0..3);
    let violations = vec((text(), text()), 0..3);
    let rest = (option::of(state()), option::of(1..60_u64));
    (kind, option::of(some_text()), details, violations, rest)
        .prop_map(|(kind, message, details, violations, (state, retry))| {
            let mut error = Error::new(kind);
            if let Some(message) = message {
                error = error.with_message(message);
            }
            for (key, value) in details {
                error = error.with_detail(key, value);
            }
            if let Some(state) = state {
                error = error.with_detail("state", state.as_str());
            }
            if let Some(seconds) = retry {
                error = error.with_retry_after(Duration::from_secs(seconds));
            }
            violations.into_iter().fold(error, |error, (field, rule)| {
                error.with_violation(Violation::new(field, rule))
            })
        })
        .boxed()
}
