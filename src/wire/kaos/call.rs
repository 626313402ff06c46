//! Requests to KAOS agents: three methods with the names of 1.0, and messages with `type` parts and
//! the context beside the message (09, S0).

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::model::{Error, ErrorKind, Request, SendMessageRequest, TaskId, Version};
use crate::wire::jsonrpc::{JsonRpcId, write_request};
use crate::wire::method::method_name;
use crate::wire::v03::{Audience, V03};
use crate::wire::write_json;

/// Writes a JSON-RPC call to a KAOS agent.
///
/// # Errors
/// Unsupported operation: KAOS agents only send messages, and read and cancel tasks.
pub fn write_kaos_call(out: &mut Vec<u8>, id: &JsonRpcId, request: &Request) -> Result<(), Error> {
    let params = match request {
        Request::SendMessage(request) => KaosParams::Send(request),
        Request::GetTask(request) => KaosParams::Task(&request.id),
        Request::CancelTask(request) => KaosParams::Task(&request.id),
        Request::SendStreamingMessage(_)
        | Request::ListTasks(_)
        | Request::SubscribeToTask(_)
        | Request::CreatePushConfig(_)
        | Request::GetPushConfig(_)
        | Request::ListPushConfigs(_)
        | Request::DeletePushConfig(_)
        | Request::GetExtendedAgentCard(_) => return Err(unsupported()),
    };
    let method = method_name(request.operation(), Version::V1).ok_or_else(unsupported)?;
    write_request(out, id, method, |out| write_json(out, &params));
    Ok(())
}

fn unsupported() -> Error {
    Error::new(ErrorKind::UnsupportedOperation).with_message(
        "This operation is not supported: a KAOS agent has SendMessage, GetTask and CancelTask only",
    )
}

/// Params of a call.
enum KaosParams<'a> {
    Send(&'a SendMessageRequest),
    Task(&'a TaskId),
}

impl Serialize for KaosParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Send(request) => {
                let message = &request.message;
                map.serialize_entry("message", &V03(message, Audience::V01(None)))?;
                if let Some(context) = &message.context_id {
                    map.serialize_entry("contextId", context)?;
                }
                if let Some(metadata) = &request.metadata {
                    map.serialize_entry("metadata", metadata)?;
                }
            }
            Self::Task(id) => map.serialize_entry("id", id)?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GetTaskRequest, ListTasksRequest, Message};
    use serde_json::Value;

    fn written(request: &Request) -> Value {
        let mut out = Vec::new();
        write_kaos_call(&mut out, &JsonRpcId::from(1), request).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// Whether every member of `seed` is in `ours` with the same value.
    fn contains(ours: &Value, seed: &Value) -> bool {
        match (ours, seed) {
            (Value::Object(ours), Value::Object(seed)) => seed
                .iter()
                .all(|(name, value)| ours.get(name).is_some_and(|own| contains(own, value))),
            (Value::Array(ours), Value::Array(seed)) => {
                ours.len() == seed.len()
                    && ours
                        .iter()
                        .zip(seed)
                        .all(|(own, value)| contains(own, value))
            }
            (ours, seed) => ours == seed,
        }
    }

    #[test]
    fn seed_0_34_calls_have_every_member_of_the_seed() {
        let seed = include_str!("../../../tests/golden/seed/kaos-send-request.json");
        let seed: Value = serde_json::from_str(seed).unwrap();
        let message = Message::user("Analyze this data").in_context("optional-session-id");
        let ours = written(&Request::SendMessage(Box::new(message.into())));
        assert!(contains(&ours, &seed), "{ours}");
        let get = written(&Request::GetTask(GetTaskRequest {
            id: "task-uuid".into(),
            ..GetTaskRequest::default()
        }));
        assert_eq!(
            get,
            serde_json::json!({"jsonrpc": "2.0", "method": "GetTask", "id": 1, "params": {"id": "task-uuid"}})
        );
    }

    #[test]
    fn other_operations_are_refused_before_a_call() {
        let list = Request::ListTasks(ListTasksRequest::default());
        let error = write_kaos_call(&mut Vec::new(), &JsonRpcId::from(1), &list).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }
}
