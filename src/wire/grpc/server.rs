//! gRPC messages from the server's side: requests are decoded, responses and events encoded.

use attache_proto::{v1, v03};
use prost::Message;

use super::field_count::has_at_most;
use crate::model::{
    Error, ErrorKind, Operation, Publish, Request, Response, Result, StreamResponse, Task, Version,
};
use crate::wire::proto_v03;

macro_rules! requests {
    ($($operation:ident: $v1:ident $($v03:ident)?,)*; $($large:ident: $large_v1:ident $large_v03:ident,)*) => {
        /// Decodes a request.
        ///
        /// # Errors
        /// The message or one of its fields is invalid, or the version has no such RPC.
        pub fn read_grpc(operation: Operation, version: Version, bytes: &[u8]) -> Result<Request> {
            check_parts(operation, version, bytes)?;
            match (operation, version) {
                $(
                    (Operation::$operation, Version::V1) => read::<v1::$v1, _>(bytes).map(Request::$operation),
                    $((Operation::$operation, Version::V03) => {
                        read::<v03::$v03, _>(bytes).map(Request::$operation)
                    })?
                )*
                $(
                    (Operation::$large, Version::V1) => {
                        read::<v1::$large_v1, _>(bytes).map(|read| Request::$large(Box::new(read)))
                    }
                    (Operation::$large, Version::V03) => {
                        read::<v03::$large_v03, _>(bytes).map(|read| Request::$large(Box::new(read)))
                    }
                )*
                (Operation::ListTasks, Version::V03) => Err(ErrorKind::MethodNotFound.into()),
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

/// Maximum number of parts that are decoded. An empty part has 2 bytes on the wire and about 100 in
/// memory, so they are counted first (S62).
const MAX_PARTS: usize = 100_000;

fn check_parts(operation: Operation, version: Version, bytes: &[u8]) -> Result<()> {
    if !matches!(
        operation,
        Operation::SendMessage | Operation::SendStreamingMessage
    ) {
        return Ok(());
    }
    // Field numbers: the message in the request, the parts in the message.
    let path = match version {
        Version::V1 => [2, 5],
        Version::V03 => [1, 5],
    };
    if has_at_most(MAX_PARTS, bytes, &path) {
        return Ok(());
    }
    Err(Error::invalid(
        "message.parts",
        format!("must not have more than {MAX_PARTS} elements"),
    ))
}

fn read<P: Message + Default, M: TryFrom<P, Error = Error>>(bytes: &[u8]) -> Result<M> {
    let message = P::decode(bytes).map_err(|fault| {
        Error::new(ErrorKind::Parse)
            .with_message("Invalid protobuf message")
            .with_source(fault)
    })?;
    M::try_from(message)
}

/// Encodes a response without internal metadata; empty if it has no content.
///
/// # Errors
/// Unsupported operation: the card has no interface of the requested version.
pub fn write_grpc(out: &mut Vec<u8>, response: &Response, version: Version) -> Result<()> {
    let response = &*response.published();
    match version {
        Version::V1 => write_v1(out, response),
        Version::V03 => write_v03(out, response)?,
    }
    Ok(())
}

fn write_v1(out: &mut Vec<u8>, response: &Response) {
    match response {
        Response::SendMessage(response) => {
            encode_into(out, &v1::SendMessageResponse::from(response))
        }
        Response::Task(task) => encode_into(out, &v1::Task::from(task)),
        Response::ListTasks(page) => encode_into(out, &v1::ListTasksResponse::from(page)),
        Response::PushConfig(config) => {
            encode_into(out, &v1::TaskPushNotificationConfig::from(config))
        }
        Response::ListPushConfigs(list) => encode_into(
            out,
            &v1::ListTaskPushNotificationConfigsResponse::from(list),
        ),
        Response::Empty => {}
        Response::AgentCard(card) => encode_into(out, &v1::AgentCard::from(&**card)),
    }
}

fn write_v03(out: &mut Vec<u8>, response: &Response) -> Result<()> {
    match response {
        Response::SendMessage(response) => {
            encode_into(out, &v03::SendMessageResponse::from(response))
        }
        Response::Task(task) => encode_into(out, &v03::Task::from(task)),
        Response::ListTasks(_) => return Err(ErrorKind::UnsupportedOperation.into()),
        Response::PushConfig(config) => {
            encode_into(out, &v03::TaskPushNotificationConfig::from(config))
        }
        Response::ListPushConfigs(list) => encode_into(
            out,
            &v03::ListTaskPushNotificationConfigResponse::from(list),
        ),
        Response::Empty => {}
        Response::AgentCard(card) => encode_into(out, &v03::AgentCard::try_from(&**card)?),
    }
    Ok(())
}

/// Encodes a stream event without internal metadata. `closes` marks the last event, which 0.3 sends as `final`.
pub fn write_grpc_event(out: &mut Vec<u8>, event: &StreamResponse, closes: bool, version: Version) {
    let event = &*event.published();
    match version {
        Version::V1 => encode_into(out, &v1::StreamResponse::from(event)),
        Version::V03 => encode_into(out, &proto_v03::stream_response(event, closes)),
    }
}

/// Encodes a task like [`write_grpc`], without a copy of the response.
pub fn write_grpc_task(out: &mut Vec<u8>, task: &Task, version: Version) {
    let task = &*task.published();
    match version {
        Version::V1 => encode_into(out, &v1::Task::from(task)),
        Version::V03 => encode_into(out, &v03::Task::from(task)),
    }
}

/// Writes the bytes before an encoded task in a stream event. The task is field 1 of the event in both versions.
pub fn write_event_header(out: &mut Vec<u8>, task_bytes: usize) {
    prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(task_bytes as u64, out);
}

fn encode_into(out: &mut Vec<u8>, message: &impl Message) {
    message.encode(out).expect("a Vec grows as needed");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Artifact, Part};

    #[test]
    fn d02_the_event_of_a_task_is_a_header_and_the_task() {
        let task = Task {
            id: "t".into(),
            context_id: "c".into(),
            artifacts: vec![Artifact {
                parts: vec![Part::text("x".repeat(1000))],
                ..Artifact::default()
            }],
            ..Task::default()
        };
        for version in [Version::V1, Version::V03] {
            let mut encoded = Vec::new();
            write_grpc_task(&mut encoded, &task, version);
            let mut response = Vec::new();
            write_grpc(&mut response, &Response::Task(task.clone()), version).unwrap();
            assert_eq!(encoded, response, "{version:?}");
            let mut pieces = Vec::new();
            write_event_header(&mut pieces, encoded.len());
            pieces.extend_from_slice(&encoded);
            let mut event = Vec::new();
            write_grpc_event(
                &mut event,
                &StreamResponse::Task(task.clone()),
                true,
                version,
            );
            assert_eq!(pieces, event, "{version:?}");
        }
    }
}
