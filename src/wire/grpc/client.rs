//! gRPC messages from the client's side: requests are encoded, responses and events decoded.

use attache_proto::{v1, v03};
use prost::Message;

use crate::model::{Error, Operation, Request, Response, StreamResponse, Version};
use crate::wire::list_tasks_unsupported;
use crate::wire::read_response::into_invalid_agent_response;

macro_rules! requests {
    ($($call:ident: $v1:ident $v03:ident,)*; $($large:ident: $large_v1:ident $large_v03:ident,)*) => {
        /// Encodes a request.
        ///
        /// # Errors
        /// Unsupported operation: 0.3 cannot list tasks.
        pub fn write_request(request: &Request, version: Version) -> Result<Vec<u8>, Error> {
            Ok(match (request, version) {
                (Request::ListTasks(request), Version::V1) => v1::ListTasksRequest::from(request).encode_to_vec(),
                (Request::ListTasks(_), Version::V03) => return Err(list_tasks_unsupported()),
                $(
                    (Request::$call(request), Version::V1) => v1::$v1::from(request).encode_to_vec(),
                    (Request::$call(request), Version::V03) => v03::$v03::from(request).encode_to_vec(),
                )*
                $(
                    (Request::$large(request), Version::V1) => v1::$large_v1::from(&**request).encode_to_vec(),
                    (Request::$large(request), Version::V03) => v03::$large_v03::from(&**request).encode_to_vec(),
                )*
            })
        }
    };
}

requests! {
    GetTask: GetTaskRequest GetTaskRequest,
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

/// Decodes the response to an operation.
///
/// # Errors
/// Invalid agent response.
pub fn read_response(
    operation: Operation,
    message: &[u8],
    version: Version,
) -> Result<Response, Error> {
    let read = match version {
        Version::V1 => reply_v1(operation, message),
        Version::V03 => reply_v03(operation, message),
    };
    read.map_err(into_invalid_agent_response)
}

/// Decodes a stream event.
///
/// # Errors
/// Invalid agent response.
pub fn read_event(message: &[u8], version: Version) -> Result<StreamResponse, Error> {
    let read = match version {
        Version::V1 => read::<v1::StreamResponse, _>(message),
        Version::V03 => read::<v03::StreamResponse, _>(message),
    };
    read.map_err(into_invalid_agent_response)
}

fn reply_v1(operation: Operation, message: &[u8]) -> Result<Response, Error> {
    Ok(match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            Response::SendMessage(read::<v1::SendMessageResponse, _>(message)?)
        }
        Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => {
            Response::Task(read::<v1::Task, _>(message)?)
        }
        Operation::ListTasks => Response::ListTasks(read::<v1::ListTasksResponse, _>(message)?),
        Operation::CreatePushConfig | Operation::GetPushConfig => {
            Response::PushConfig(read::<v1::TaskPushNotificationConfig, _>(message)?)
        }
        Operation::ListPushConfigs => Response::ListPushConfigs(read::<
            v1::ListTaskPushNotificationConfigsResponse,
            _,
        >(message)?),
        Operation::DeletePushConfig => Response::Empty,
        Operation::GetExtendedAgentCard => {
            Response::AgentCard(Box::new(read::<v1::AgentCard, _>(message)?))
        }
    })
}

fn reply_v03(operation: Operation, message: &[u8]) -> Result<Response, Error> {
    Ok(match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            Response::SendMessage(read::<v03::SendMessageResponse, _>(message)?)
        }
        Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => {
            Response::Task(read::<v03::Task, _>(message)?)
        }
        Operation::ListTasks => return Err(list_tasks_unsupported()),
        Operation::CreatePushConfig | Operation::GetPushConfig => {
            Response::PushConfig(read::<v03::TaskPushNotificationConfig, _>(message)?)
        }
        Operation::ListPushConfigs => Response::ListPushConfigs(read::<
            v03::ListTaskPushNotificationConfigResponse,
            _,
        >(message)?),
        Operation::DeletePushConfig => Response::Empty,
        Operation::GetExtendedAgentCard => {
            Response::AgentCard(Box::new(read::<v03::AgentCard, _>(message)?))
        }
    })
}

fn read<P, M>(message: &[u8]) -> Result<M, Error>
where
    P: Message + Default,
    M: TryFrom<P, Error = Error>,
{
    P::decode(message)
        .map_err(|_| Error::invalid("", "must be protobuf"))?
        .try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ErrorKind, GetTaskRequest, ListTasksRequest, Task};

    #[test]
    fn v03_cannot_list_tasks() {
        let list = Request::ListTasks(ListTasksRequest::default());
        assert!(write_request(&list, Version::V1).is_ok());
        assert_eq!(
            write_request(&list, Version::V03).unwrap_err().kind(),
            ErrorKind::UnsupportedOperation
        );
    }

    #[test]
    fn requests_and_responses_use_the_requested_version() {
        let get = Request::GetTask(GetTaskRequest {
            id: "t".into(),
            ..GetTaskRequest::default()
        });
        let v1 = v1::GetTaskRequest::decode(&*write_request(&get, Version::V1).unwrap()).unwrap();
        let v03 =
            v03::GetTaskRequest::decode(&*write_request(&get, Version::V03).unwrap()).unwrap();
        assert_eq!((&*v1.id, &*v03.name), ("t", "tasks/t"));
        let task = Task {
            id: "t".into(),
            ..Task::default()
        };
        for (version, bytes) in [
            (Version::V1, v1::Task::from(&task).encode_to_vec()),
            (Version::V03, v03::Task::from(&task).encode_to_vec()),
        ] {
            let reply = read_response(Operation::GetTask, &bytes, version);
            assert_eq!(reply, Ok(Response::Task(task.clone())), "{version}");
            assert_eq!(
                read_response(Operation::DeletePushConfig, b"", version),
                Ok(Response::Empty)
            );
        }
    }

    #[test]
    fn invalid_protobuf_is_an_invalid_agent_response() {
        for version in Version::ALL {
            let reply = read_response(Operation::GetTask, b"\xff", version).unwrap_err();
            let event = read_event(b"\xff", version).unwrap_err();
            assert_eq!(
                (reply.kind(), event.kind()),
                (
                    ErrorKind::InvalidAgentResponse,
                    ErrorKind::InvalidAgentResponse
                )
            );
            let empty = read_event(b"", version).unwrap_err();
            assert_eq!(empty.kind(), ErrorKind::InvalidAgentResponse);
        }
    }
}
