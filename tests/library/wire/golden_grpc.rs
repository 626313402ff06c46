//! Golden gRPC messages: round trip through the model. Every file with `grpc` in `tests/golden` is
//! a test case.

use std::fs;
use std::path::Path;

use attache::model::{
    AgentCard, CancelTaskRequest, DeletePushConfigRequest, Error, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest, ListPushConfigsResponse,
    ListTasksRequest, ListTasksResponse, PushConfig, SendMessageRequest, SendMessageResponse,
    StreamResponse, SubscribeToTaskRequest, Task,
};
use attache::wire::{grpc, json, proto_v03};
use attache_proto::{v1, v03};
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Round trip of one type: decodes bytes and JSON, returns the encodings of both.
type RoundTrip = fn(&[u8], &Value) -> Result<Vec<Vec<u8>>, Error>;

macro_rules! types {
    (
        $($package:literal $module:ident $trip:ident { $($proto:ident: $model:ident,)* })*
        $(@ $name:literal $odd:ident)*
    ) => {
        &[
            $($((concat!($package, ".", stringify!($proto)), $trip::<$module::$proto, $model>),)*)*
            $(($name, $odd),)*
        ]
    };
}

/// Types of all RPC requests and responses.
const TYPES: &[(&str, RoundTrip)] = types! {
    "lf.a2a.v1" v1 bytes_and_json {
        SendMessageRequest: SendMessageRequest,
        SendMessageResponse: SendMessageResponse,
        StreamResponse: StreamResponse,
        GetTaskRequest: GetTaskRequest,
        Task: Task,
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
    }
    "a2a.v1" v03 bytes {
        SendMessageRequest: SendMessageRequest,
        SendMessageResponse: SendMessageResponse,
        GetTaskRequest: GetTaskRequest,
        Task: Task,
        CancelTaskRequest: CancelTaskRequest,
        TaskSubscriptionRequest: SubscribeToTaskRequest,
        CreateTaskPushNotificationConfigRequest: PushConfig,
        TaskPushNotificationConfig: PushConfig,
        GetTaskPushNotificationConfigRequest: GetPushConfigRequest,
        ListTaskPushNotificationConfigRequest: ListPushConfigsRequest,
        ListTaskPushNotificationConfigResponse: ListPushConfigsResponse,
        DeleteTaskPushNotificationConfigRequest: DeletePushConfigRequest,
        GetAgentCardRequest: GetExtendedAgentCardRequest,
    }
    @ "a2a.v1.StreamResponse" stream
    @ "a2a.v1.AgentCard" card
};

fn decode<P: Message + Default>(bytes: &[u8]) -> P {
    P::decode(bytes).expect("proto/tests/golden.rs has decoded it")
}

fn bytes<P, M>(bytes: &[u8], _: &Value) -> Result<Vec<Vec<u8>>, Error>
where
    P: Message + Default + for<'a> From<&'a M>,
    M: TryFrom<P, Error = Error>,
{
    Ok(vec![P::from(&M::try_from(decode(bytes))?).encode_to_vec()])
}

/// Round trip for types whose JSON is that of the model.
fn bytes_and_json<P, M>(bytes: &[u8], json: &Value) -> Result<Vec<Vec<u8>>, Error>
where
    P: Message + Default + for<'a> From<&'a M>,
    M: TryFrom<P, Error = Error> + DeserializeOwned,
{
    let mut again = self::bytes::<P, M>(bytes, json)?;
    again.push(P::from(&json::read::<M>(&json.to_string())?).encode_to_vec());
    Ok(again)
}

/// Round trip of a stream event. The model does not contain `final`, so it is passed separately.
fn stream(bytes: &[u8], _: &Value) -> Result<Vec<Vec<u8>>, Error> {
    let proto: v03::StreamResponse = decode(bytes);
    let closes = matches!(
        &proto.payload,
        Some(v03::stream_response::Payload::StatusUpdate(event)) if event.r#final
    );
    let update = StreamResponse::try_from(proto)?;
    Ok(vec![
        proto_v03::stream_response(&update, closes).encode_to_vec(),
    ])
}

/// Round trip of a 0.3 card, whose encoding may fail.
fn card(bytes: &[u8], _: &Value) -> Result<Vec<Vec<u8>>, Error> {
    let card = AgentCard::try_from(decode::<v03::AgentCard>(bytes))?;
    Ok(vec![v03::AgentCard::try_from(&card)?.encode_to_vec()])
}

/// Returns the golden files with `grpc`, by name.
pub(crate) fn golden() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = fs::read_dir(folder)
        .expect("tests/golden exists")
        .flatten()
        .map(|entry| entry.path());
    let read = |path: &Path| -> Option<(String, Value)> {
        let text = fs::read(path).expect("a golden file is readable");
        let mut file: Value = serde_json::from_slice(&text).expect("a golden file is JSON");
        let name = path.file_name()?.to_string_lossy().into_owned();
        file.get_mut("grpc").map(|grpc| (name, grpc.take()))
    };
    let found: Vec<_> = files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .filter_map(|path| read(&path))
        .collect();
    assert!(!found.is_empty(), "no golden file has `grpc`");
    found
}

pub(crate) fn from_hex(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().expect("hex is a string");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex is hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn golden_messages_round_trip() {
    for (file, grpc) in golden() {
        for (at, message) in grpc["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .enumerate()
        {
            let name = message["type"].as_str().expect("type");
            let known = TYPES.iter().find(|(known, _)| *known == name);
            let (_, round_trip) = known.unwrap_or_else(|| panic!("{file}: {name} is not in TYPES"));
            let bytes = from_hex(&message["hex"]);
            let again = round_trip(&bytes, &message["json"])
                .unwrap_or_else(|e| panic!("{file}, {at}: {e}"));
            assert!(
                again.iter().all(|again| *again == bytes),
                "{file}, message {at}: {again:02x?}"
            );
        }
    }
}

#[test]
fn golden_paths_map_both_ways() {
    for (file, grpc) in golden() {
        let path = grpc["path"].as_str().expect("path");
        let (operation, version) =
            grpc::operation(path).unwrap_or_else(|| panic!("{file}: {path}"));
        assert_eq!(grpc::path(operation, version), Some(path), "{file}");
    }
}

#[test]
fn golden_statuses_round_trip() {
    for (file, grpc) in golden() {
        let Some(golden) = grpc.get("status") else {
            continue;
        };
        let (_, version) =
            grpc::operation(grpc["path"].as_str().expect("path")).expect("a known path");
        let code = i32::try_from(golden["grpc-status"].as_i64().expect("a code")).unwrap();
        let text = golden["grpc-message"].as_str().expect("a message");
        let details = golden.get("detailsHex").map(from_hex).unwrap_or_default();
        let status =
            tonic::Status::with_details(tonic::Code::from_i32(code), text, details.clone().into());
        let again = grpc::to_status(&grpc::from_status(&status), version);
        assert_eq!(
            (i32::from(again.code()), again.message()),
            (code, text),
            "{file}"
        );
        assert_eq!(again.details(), details, "{file}");
    }
}
