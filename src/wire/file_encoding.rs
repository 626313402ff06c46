//! Files over the protobuf forms of 0.3, gRPC and HTTP+JSON.
//!
//! The field for the content of a file is bytes. The Python SDKs (`a2a-sdk` 0.2, 0.3, and 1.x in its 0.3 mode) put base64
//! text there and expect it there. 0.3 has no size to check against, so the peer decides, and the content must be valid
//! base64. All other content stays as it is.

use std::sync::Arc;

#[cfg(feature = "server")]
use crate::model::Version;
use crate::model::{
    Base64, Content, Message, Part, Request, Response, SendMessageResponse, StreamResponse, Task,
    TaskStatus,
};

/// Beginnings of the header `User-Agent` of the gRPC and HTTP libraries that the Python SDKs use.
#[cfg(feature = "server")]
const PYTHON_CLIENTS: [&str; 2] = ["grpc-python", "python-httpx"];

/// Whether a caller over gRPC or HTTP+JSON puts base64 text into the bytes of files, and expects it there.
#[cfg(feature = "server")]
pub(crate) fn has_base64_files(user_agent: Option<&str>, version: Version) -> bool {
    match version {
        Version::V03 => user_agent.is_some_and(|agent| {
            PYTHON_CLIENTS
                .iter()
                .any(|python| agent.starts_with(python))
        }),
        Version::V1 => false,
    }
}

/// Conversion of the content of files for a peer that puts base64 text into bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileConversion {
    /// To the base64 text that the peer expects.
    Encode,
    /// From the base64 text that the peer has sent, if it is valid.
    Decode,
}

impl FileConversion {
    /// Converts the files of a request.
    pub(crate) fn apply_to_request(self, request: &mut Request) {
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = request {
            self.apply_to_parts(&mut send.message.parts);
        }
    }

    /// Converts the files of a response.
    pub(crate) fn apply_to_response(self, response: &mut Response) {
        match response {
            Response::SendMessage(SendMessageResponse::Task(task)) | Response::Task(task) => {
                self.apply_to_task(task);
            }
            Response::SendMessage(SendMessageResponse::Message(message)) => {
                self.apply_to_parts(&mut message.parts);
            }
            Response::ListTasks(page) => {
                page.tasks
                    .iter_mut()
                    .for_each(|task| self.apply_to_task(task));
            }
            Response::PushConfig(_)
            | Response::ListPushConfigs(_)
            | Response::Empty
            | Response::AgentCard(_) => {}
        }
    }

    /// Converts the files of an event.
    pub(crate) fn apply_to_event(self, event: &mut StreamResponse) {
        match event {
            StreamResponse::Task(task) => self.apply_to_task(task),
            StreamResponse::Message(message) => self.apply_to_parts(&mut message.parts),
            StreamResponse::StatusUpdate(event) => self.apply_to_status(&mut event.status),
            StreamResponse::ArtifactUpdate(event) => self.apply_to_parts(&mut event.artifact.parts),
        }
    }

    fn apply_to_task(self, task: &mut Task) {
        self.apply_to_status(&mut task.status);
        for artifact in &mut task.artifacts {
            self.apply_to_parts(&mut artifact.parts);
        }
        for message in &mut task.history {
            self.apply_to_shared(message);
        }
    }

    fn apply_to_status(self, status: &mut TaskStatus) {
        if let Some(message) = &mut status.message {
            self.apply_to_shared(message);
        }
    }

    /// Converts the files of a shared message, which is copied only if it has any.
    fn apply_to_shared(self, message: &mut Arc<Message>) {
        if message.parts.iter().any(|part| file(part).is_some()) {
            self.apply_to_parts(&mut Arc::make_mut(message).parts);
        }
    }

    fn apply_to_parts(self, parts: &mut [Part]) {
        for part in parts {
            let converted = file(part).and_then(|bytes| match self {
                Self::Encode => Some(Base64::encode(bytes.as_str())),
                Self::Decode => decode(bytes),
            });
            if let Some(bytes) = converted {
                part.content = Content::Raw(bytes);
            }
        }
    }
}

/// Whether a request has files.
#[cfg(feature = "client")]
pub(crate) fn has_files(request: &Request) -> bool {
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            send.message.parts.iter().any(|part| file(part).is_some())
        }
        Request::GetTask(_)
        | Request::ListTasks(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::CreatePushConfig(_)
        | Request::GetPushConfig(_)
        | Request::ListPushConfigs(_)
        | Request::DeletePushConfig(_)
        | Request::GetExtendedAgentCard(_) => false,
    }
}

/// Returns the base64 text that the bytes of a file are; `None` for other bytes.
fn decode(bytes: &Base64) -> Option<Base64> {
    let text = String::from_utf8(bytes.decode()).ok()?;
    let inner = Base64::parse(&text).ok()?;
    (!text.is_empty() && inner.as_str() == text).then_some(inner)
}

fn file(part: &Part) -> Option<&Base64> {
    match &part.content {
        Content::Raw(bytes) => Some(bytes),
        Content::Text(_) | Content::Url(_) | Content::Data(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_base64_is_decoded() {
        let inner = |bytes: &[u8]| decode(&Base64::encode(bytes)).map(|inner| inner.decode());
        assert_eq!(inner(b"aGVsbG8="), Some(b"hello".to_vec()));
        for other in [
            &b""[..],
            b"hello",
            b"aGVsbG8",
            b"aGVs bG8=",
            b"aGVsbG9=",
            b"\xff\xfe",
        ] {
            assert_eq!(inner(other), None, "{other:?}");
        }
    }

    #[cfg(feature = "server")]
    #[test]
    fn python_callers_of_0_3_have_base64_files() {
        let grpc = "grpc-python-asyncio/1.85.1 grpc-c/51.0.0 (linux; chttp2)";
        assert!(has_base64_files(Some(grpc), Version::V03));
        assert!(has_base64_files(Some("python-httpx/0.28.1"), Version::V03));
        assert!(!has_base64_files(Some("python-httpx/0.28.1"), Version::V1));
        assert!(!has_base64_files(
            Some("own/1 grpc-python/1.85.1"),
            Version::V03
        ));
        assert!(!has_base64_files(Some("grpc-node-js/1.14.7"), Version::V03));
        assert!(!has_base64_files(None, Version::V03));
    }

    #[test]
    fn an_encoded_event_is_decoded_to_itself() {
        let part = Part::file(b"\x00\xff", "image/png");
        let event = StreamResponse::Task(Task {
            history: vec![Arc::new(Message::user(part.clone()))],
            status: TaskStatus {
                message: Some(Arc::new(Message::agent(part))),
                ..TaskStatus::default()
            },
            ..Task::default()
        });
        let mut converted = event.clone();
        FileConversion::Encode.apply_to_event(&mut converted);
        assert_ne!(converted, event);
        FileConversion::Decode.apply_to_event(&mut converted);
        assert_eq!(converted, event);
    }
}
