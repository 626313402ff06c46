//! Protobuf codecs of both versions: round trips of generated values, and robustness against
//! arbitrary bytes.

use attache::Error;
use attache::model::{
    AgentCapabilities, AgentCard, AgentExtension, Artifact, CancelTaskRequest,
    DeletePushConfigRequest, GetExtendedAgentCardRequest, GetPushConfigRequest, GetTaskRequest,
    ListPushConfigsRequest, ListPushConfigsResponse, ListTasksRequest, ListTasksResponse, Message,
    Part, PushConfig, Request, Response, SendMessageRequest, SendMessageResponse, StreamResponse,
    SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent,
    Version,
};
use attache::wire::{grpc, proto_v03};
use attache_proto::{v1, v03};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::strategies::{self, Fit};
use crate::wire::golden_grpc::{from_hex, golden};
use crate::wire::lossy_conversion::{Carrier, Form, Lossy, card_after, card_form, error_after};
use crate::wire::roundtrip::or_fail;

const CASES: u32 = 200;

/// Encoded message and the name of its type.
pub(crate) type Written = (&'static str, Vec<u8>);

/// Decodes a message and converts it to the model.
pub(crate) fn read<P, M>(bytes: &[u8]) -> Result<M, Error>
where
    P: prost::Message + Default,
    M: TryFrom<P, Error = Error>,
{
    P::decode(bytes)
        .map_err(|fault| Error::invalid("", fault.to_string()))
        .and_then(M::try_from)
}

macro_rules! requests {
    (
        $($call:ident: $v1:ident $($v03:ident)?,)*;
        $($large:ident: $large_v1:ident $large_v03:ident,)*
    ) => {
        /// Encodes a request; `None` if the version lacks the operation.
        pub(crate) fn write_request(request: &Request, version: Version) -> Option<Written> {
            use prost::Message as _;
            match (request, version) {
                $(
                    (Request::$call(request), Version::V1) => {
                        Some((stringify!($v1), v1::$v1::from(request).encode_to_vec()))
                    }
                    $((Request::$call(request), Version::V03) => {
                        Some((stringify!($v03), v03::$v03::from(request).encode_to_vec()))
                    })?
                )*
                $(
                    (Request::$large(request), Version::V1) => {
                        Some((stringify!($large_v1), v1::$large_v1::from(&**request).encode_to_vec()))
                    }
                    (Request::$large(request), Version::V03) => {
                        Some((stringify!($large_v03), v03::$large_v03::from(&**request).encode_to_vec()))
                    }
                )*
                (_, Version::V03) => None,
            }
        }

        /// Decodes a request of the same operation as `like`.
        pub(crate) fn read_request(like: &Request, version: Version, bytes: &[u8]) -> Result<Request, Error> {
            match (like, version) {
                $(
                    (Request::$call(_), Version::V1) => read::<v1::$v1, _>(bytes).map(Request::$call),
                    $((Request::$call(_), Version::V03) => read::<v03::$v03, _>(bytes).map(Request::$call),)?
                )*
                $(
                    (Request::$large(_), Version::V1) => {
                        read::<v1::$large_v1, _>(bytes).map(|read| Request::$large(Box::new(read)))
                    }
                    (Request::$large(_), Version::V03) => {
                        read::<v03::$large_v03, _>(bytes).map(|read| Request::$large(Box::new(read)))
                    }
                )*
                (_, Version::V03) => panic!("0.3 has no such call"),
            }
        }
    };
}

requests! {
    GetTask: GetTaskRequest GetTaskRequest,
    ListTasks: ListTasksRequest,
    CancelTask: CancelTaskRequest CancelTaskRequest,
    SubscribeToTask: SubscribeToTaskRequest TaskSubscriptionRequest,
    GetPushConfig: GetTaskPushNotificationConfigRequest GetTaskPushNotificationConfigRequest,
    ListPushConfigs: ListTaskPushNotificationConfigsRequest ListTaskPushNotificationConfigRequest,
    DeletePushConfig: DeleteTaskPushNotificationConfigRequest DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCard: GetExtendedAgentCardRequest GetAgentCardRequest,
    ;
    SendMessage: SendMessageRequest SendMessageRequest,
    SendStreamingMessage: SendMessageRequest SendMessageRequest,
    CreatePushConfig: TaskPushNotificationConfig CreateTaskPushNotificationConfigRequest,
}

macro_rules! responses {
    ($($answer:ident: $v1:ident $($v03:ident)?,)*) => {
        /// Encodes a response; `None` if the version lacks the message.
        pub(crate) fn write_response(response: &Response, version: Version) -> Option<Written> {
            use prost::Message as _;
            match (response, version) {
                $(
                    (Response::$answer(response), Version::V1) => {
                        Some((stringify!($v1), v1::$v1::from(response).encode_to_vec()))
                    }
                    $((Response::$answer(response), Version::V03) => {
                        Some((stringify!($v03), v03::$v03::from(response).encode_to_vec()))
                    })?
                )*
                (Response::AgentCard(card), Version::V1) => {
                    Some(("AgentCard", v1::AgentCard::from(&**card).encode_to_vec()))
                }
                (Response::AgentCard(card), Version::V03) => {
                    Some(("AgentCard", v03::AgentCard::try_from(&**card).ok()?.encode_to_vec()))
                }
                (Response::Empty, _) | (Response::ListTasks(_), Version::V03) => None,
            }
        }

        /// Decodes a response of the same type as `like`.
        pub(crate) fn read_response(like: &Response, version: Version, bytes: &[u8]) -> Result<Response, Error> {
            match (like, version) {
                $(
                    (Response::$answer(_), Version::V1) => read::<v1::$v1, _>(bytes).map(Response::$answer),
                    $((Response::$answer(_), Version::V03) => read::<v03::$v03, _>(bytes).map(Response::$answer),)?
                )*
                (Response::AgentCard(_), Version::V1) => {
                    read::<v1::AgentCard, _>(bytes).map(|card| Response::AgentCard(Box::new(card)))
                }
                (Response::AgentCard(_), Version::V03) => {
                    read::<v03::AgentCard, _>(bytes).map(|card| Response::AgentCard(Box::new(card)))
                }
                (Response::Empty, _) | (Response::ListTasks(_), Version::V03) => panic!("no such message"),
            }
        }
    };
}

responses! {
    SendMessage: SendMessageResponse SendMessageResponse,
    Task: Task Task,
    ListTasks: ListTasksResponse,
    PushConfig: TaskPushNotificationConfig TaskPushNotificationConfig,
    ListPushConfigs: ListTaskPushNotificationConfigsResponse ListTaskPushNotificationConfigResponse,
}

/// Encodes an event.
pub(crate) fn write_event(event: &StreamResponse, closes: bool, version: Version) -> Written {
    use prost::Message as _;
    let bytes = match version {
        Version::V1 => v1::StreamResponse::from(event).encode_to_vec(),
        Version::V03 => proto_v03::stream_response(event, closes).encode_to_vec(),
    };
    ("StreamResponse", bytes)
}

/// Decodes an event.
pub(crate) fn read_event(version: Version, bytes: &[u8]) -> Result<StreamResponse, Error> {
    match version {
        Version::V1 => read::<v1::StreamResponse, _>(bytes),
        Version::V03 => read::<v03::StreamResponse, _>(bytes),
    }
}

/// Returns the form of a version, for its documented losses.
pub(crate) fn form(version: Version) -> Form {
    match version {
        Version::V1 => Form::V1,
        Version::V03 => Form::V03Grpc,
    }
}

#[test]
fn requests_round_trip_in_both_versions() {
    strategies::check(3 * CASES, strategies::request(Fit::Protobuf), |request| {
        for version in Version::ALL {
            let Some((_, bytes)) = write_request(&request, version) else {
                prop_assert!(matches!(request, Request::ListTasks(_)) && version == Version::V03);
                continue;
            };
            prop_assert_eq!(
                or_fail(read_request(&request, version, &bytes))?,
                request.after_round_trip(form(version))
            );
        }
        Ok(())
    });
}

#[test]
fn responses_round_trip_in_both_versions() {
    strategies::check(3 * CASES, strategies::response(Fit::Protobuf), |response| {
        for version in Version::ALL {
            let Some((_, bytes)) = write_response(&response, version) else {
                match &response {
                    Response::AgentCard(card) => {
                        // 03 §7: only agents with an interface before 1.0 have a legacy card.
                        prop_assert!(card_after(card, card_form(form(version))).is_none());
                    }
                    Response::Empty => {}
                    other => prop_assert!(
                        matches!(other, Response::ListTasks(_)) && version == Version::V03
                    ),
                }
                continue;
            };
            prop_assert_eq!(
                or_fail(read_response(&response, version, &bytes))?,
                response.after_round_trip(form(version))
            );
        }
        Ok(())
    });
}

#[test]
fn events_round_trip_in_both_versions() {
    let events = (strategies::stream_response(Fit::Protobuf), any::<bool>());
    strategies::check(2 * CASES, events, |(event, closes)| {
        for version in Version::ALL {
            let (_, bytes) = write_event(&event, closes, version);
            prop_assert_eq!(
                or_fail(read_event(version, &bytes))?,
                event.after_round_trip(form(version))
            );
        }
        Ok(())
    });
}

#[test]
fn equal_values_encode_to_equal_bytes() {
    strategies::check(CASES, strategies::response(Fit::Protobuf), |response| {
        for version in Version::ALL {
            let Some((_, once)) = write_response(&response, version) else {
                continue;
            };
            let read = or_fail(read_response(&response, version, &once))?;
            prop_assert_eq!(
                write_response(&read, version).map(|(_, twice)| twice),
                Some(once)
            );
        }
        Ok(())
    });
}

#[test]
fn errors_round_trip_as_statuses() {
    strategies::check(CASES, strategies::error(), |error| {
        for version in Version::ALL {
            let read = grpc::from_status(&grpc::to_status(&error, version));
            prop_assert_eq!(read, error_after(&error, Carrier::Grpc, version));
        }
        Ok(())
    });
}

/// Decodes bytes and converts them to the model. Valid ones must round-trip.
type Probe = fn(&[u8]);

fn probe<P, M>(bytes: &[u8])
where
    P: prost::Message + Default + for<'a> From<&'a M>,
    M: TryFrom<P, Error = Error> + PartialEq + std::fmt::Debug,
{
    probe_with(bytes, |model: &M| Some(P::from(model)));
}

fn probe_with<P, M>(bytes: &[u8], write: impl Fn(&M) -> Option<P>)
where
    P: prost::Message + Default,
    M: TryFrom<P, Error = Error> + PartialEq + std::fmt::Debug,
{
    let Ok(first) = read::<P, M>(bytes) else {
        return;
    };
    let Some(once) = write(&first) else { return };
    let second = read::<P, M>(&once.encode_to_vec()).expect("we read what we write");
    let again = write(&second).expect("the value was written before");
    assert_eq!(once.encode_to_vec(), again.encode_to_vec());
}

macro_rules! probes {
    ($($module:ident { $($proto:ident: $model:ident,)* })*) => {
        &[$($(probe::<$module::$proto, $model>,)*)*]
    };
}

const PROBES: &[Probe] = probes! {
    v1 {
        SendMessageRequest: SendMessageRequest,
        SendMessageResponse: SendMessageResponse,
        StreamResponse: StreamResponse,
        GetTaskRequest: GetTaskRequest,
        Task: Task,
        TaskStatus: TaskStatus,
        Message: Message,
        Part: Part,
        Artifact: Artifact,
        TaskStatusUpdateEvent: TaskStatusUpdateEvent,
        TaskArtifactUpdateEvent: TaskArtifactUpdateEvent,
        ListTasksRequest: ListTasksRequest,
        ListTasksResponse: ListTasksResponse,
        CancelTaskRequest: CancelTaskRequest,
        SubscribeToTaskRequest: SubscribeToTaskRequest,
        TaskPushNotificationConfig: PushConfig,
        GetTaskPushNotificationConfigRequest: GetPushConfigRequest,
        ListTaskPushNotificationConfigsRequest: ListPushConfigsRequest,
        ListTaskPushNotificationConfigsResponse: ListPushConfigsResponse,
        DeleteTaskPushNotificationConfigRequest: DeletePushConfigRequest,
        GetExtendedAgentCardRequest: GetExtendedAgentCardRequest,
        AgentCard: AgentCard,
        AgentCapabilities: AgentCapabilities,
        AgentExtension: AgentExtension,
    }
    v03 {
        SendMessageRequest: SendMessageRequest,
        SendMessageResponse: SendMessageResponse,
        GetTaskRequest: GetTaskRequest,
        Task: Task,
        TaskStatus: TaskStatus,
        Message: Message,
        Part: Part,
        Artifact: Artifact,
        TaskArtifactUpdateEvent: TaskArtifactUpdateEvent,
        CancelTaskRequest: CancelTaskRequest,
        TaskSubscriptionRequest: SubscribeToTaskRequest,
        CreateTaskPushNotificationConfigRequest: PushConfig,
        TaskPushNotificationConfig: PushConfig,
        GetTaskPushNotificationConfigRequest: GetPushConfigRequest,
        ListTaskPushNotificationConfigRequest: ListPushConfigsRequest,
        ListTaskPushNotificationConfigResponse: ListPushConfigsResponse,
        DeleteTaskPushNotificationConfigRequest: DeletePushConfigRequest,
        GetAgentCardRequest: GetExtendedAgentCardRequest,
        AgentCapabilities: AgentCapabilities,
        AgentExtension: AgentExtension,
    }
};

fn probe_all(bytes: &[u8]) {
    PROBES.iter().for_each(|probe| probe(bytes));
    probe_with(bytes, |event: &StreamResponse| {
        Some(proto_v03::stream_response(event, true))
    });
    probe_with(bytes, |event: &TaskStatusUpdateEvent| {
        Some(proto_v03::status_event(event, false))
    });
    probe_with(bytes, |card: &AgentCard| {
        v03::AgentCard::try_from(card).ok()
    });
}

#[test]
fn arbitrary_bytes_are_decoded_or_rejected() {
    strategies::check(CASES, vec(any::<u8>(), 0..120), |bytes| {
        probe_all(&bytes);
        Ok(())
    });
}

#[test]
fn damaged_messages_are_decoded_or_rejected() {
    let samples: Vec<_> = golden()
        .iter()
        .flat_map(|(_, grpc)| grpc["messages"].as_array().unwrap().clone())
        .map(|message| from_hex(&message["hex"]))
        .collect();
    assert!(samples.len() > 10, "only {} golden messages", samples.len());
    samples.iter().for_each(|bytes| probe_all(bytes));
    let made = prop_oneof![
        proptest::sample::select(samples),
        strategies::response(Fit::Protobuf)
            .prop_map(|response| some_bytes(write_response(&response, Version::V1))),
        strategies::request(Fit::Protobuf)
            .prop_map(|request| some_bytes(write_request(&request, Version::V03))),
    ];
    let damages = vec((any::<Index>(), any::<u8>(), 0..4_u8), 1..4);
    strategies::check(2 * CASES, (made, damages), |(mut bytes, damages)| {
        for (at, value, kind) in damages {
            damage(&mut bytes, at, value, kind);
        }
        probe_all(&bytes);
        Ok(())
    });
}

fn some_bytes(written: Option<Written>) -> Vec<u8> {
    written.map(|(_, bytes)| bytes).unwrap_or_default()
}

fn damage(bytes: &mut Vec<u8>, at: Index, value: u8, kind: u8) {
    let place = at.index(bytes.len() + 1);
    match (kind, bytes.get_mut(place)) {
        (0, Some(byte)) => *byte = value,
        (1, Some(byte)) => *byte ^= 1 << (value % 8),
        (2, _) => bytes.truncate(place),
        _ => bytes.insert(place, value),
    }
}

/// Nested lists, deeper than any protobuf decoder accepts.
#[test]
fn deep_nesting_is_rejected() {
    use prost::Message as _;
    for depth in [1, 10, 40, 60, 200, 5_000] {
        let mut value = Vec::new();
        for _ in 0..depth {
            // A list value (field 6) whose values (field 1) contain the inner value.
            value = tagged(6, &tagged(1, &value));
        }
        let data = v1::part::Content::Data(prost_types::Value::default());
        let part = v1::Part {
            content: Some(data),
            ..Default::default()
        }
        .encode_to_vec();
        let tag = part[0];
        let mut bytes = vec![tag];
        prost::encoding::encode_varint(value.len() as u64, &mut bytes);
        bytes.extend(value);
        assert_eq!(
            read::<v1::Part, Part>(&bytes).is_ok(),
            depth < 50,
            "{depth}"
        );
        probe_all(&bytes);
    }
}

/// Encodes a length-delimited field.
fn tagged(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(inner.len() as u64, &mut out);
    out.extend_from_slice(inner);
    out
}
