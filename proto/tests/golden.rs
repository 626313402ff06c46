//! Checks that the golden gRPC messages decode and encode to the same bytes.
//!
//! Every file with `grpc.messages` in `tests/golden` is a test case. Only a new type needs a line
//! here.

use std::fs;
use std::path::Path;

use attache_proto::{v1, v03};
use prost::{DecodeError, Message};
use serde_json::Value;

type RoundTrip = fn(&[u8]) -> Result<Vec<u8>, DecodeError>;

fn round_trip<T: Message + Default>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    T::decode(bytes).map(|message| message.encode_to_vec())
}

macro_rules! types {
    ($($package:literal $module:ident { $($name:ident)* })*) => {
        &[$($((concat!($package, ".", stringify!($name)), round_trip::<$module::$name>),)*)*]
    };
}

/// Types of all RPC requests and responses.
const TYPES: &[(&str, RoundTrip)] = types! {
    "lf.a2a.v1" v1 {
        SendMessageRequest SendMessageResponse StreamResponse
        GetTaskRequest Task ListTasksRequest ListTasksResponse CancelTaskRequest SubscribeToTaskRequest
        TaskPushNotificationConfig GetTaskPushNotificationConfigRequest
        ListTaskPushNotificationConfigsRequest ListTaskPushNotificationConfigsResponse
        DeleteTaskPushNotificationConfigRequest
        GetExtendedAgentCardRequest AgentCard
    }
    "a2a.v1" v03 {
        SendMessageRequest SendMessageResponse StreamResponse
        GetTaskRequest Task CancelTaskRequest TaskSubscriptionRequest
        CreateTaskPushNotificationConfigRequest TaskPushNotificationConfig GetTaskPushNotificationConfigRequest
        ListTaskPushNotificationConfigRequest ListTaskPushNotificationConfigResponse
        DeleteTaskPushNotificationConfigRequest
        GetAgentCardRequest AgentCard
    }
};

#[test]
fn golden_bytes_survive_a_round_trip() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let mut checked = 0;
    let mut failures = Vec::new();

    for entry in fs::read_dir(&folder).expect("tests/golden exists") {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let golden: Value = serde_json::from_slice(&fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{name} is not JSON: {error}"));
        let Some(grpc) = golden.get("grpc") else {
            continue;
        };

        let messages = grpc["messages"]
            .as_array()
            .unwrap_or_else(|| panic!("{name} has no grpc.messages"));
        for (index, message) in messages.iter().enumerate() {
            checked += 1;
            if let Err(failure) = check(message) {
                failures.push(format!("{name}, message {index}: {failure}"));
            }
        }
    }

    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checked > 0, "no golden file has grpc.messages");
}

fn check(message: &Value) -> Result<(), String> {
    let name = message["type"].as_str().ok_or("no `type`")?;
    let hex = message["hex"].as_str().ok_or("no `hex`")?;

    let (_, round_trip) = TYPES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| {
            format!("unknown type {name}; if it is right, add it to TYPES in proto/tests/golden.rs")
        })?;
    let bytes = from_hex(hex).ok_or("`hex` is not hexadecimal")?;
    let again = round_trip(&bytes).map_err(|error| format!("not a {name}: {error}"))?;
    if again == bytes {
        Ok(())
    } else {
        Err(format!(
            "{name} came back as other bytes\n  {hex}\n  {}",
            to_hex(&again)
        ))
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex
        .chars()
        .map(|digit| digit.to_digit(16))
        .collect::<Option<Vec<_>>>()?;
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    });
    bytes.collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
