//! Conversions of messages, tasks and stream events.

use std::sync::Arc;

use attache_proto::v1;
use v1::part::Content as ProtoContent;
use v1::send_message_response::Payload as Answer;
use v1::stream_response::Payload;

use crate::model::{
    Base64, Content, Error, Message, Part, SendMessageResponse, StreamResponse, TaskStatus,
    TaskStatusUpdateEvent,
};
use crate::wire::proto::{
    build_part, impl_task_conversions, non_empty, or_empty, read, read_list, read_option,
    read_or_default, read_role, read_state, role_number, state_number, to_strings, write_list,
};

impl_task_conversions!(v1);

impl From<&TaskStatus> for v1::TaskStatus {
    fn from(status: &TaskStatus) -> Self {
        Self {
            state: state_number(status.state),
            message: status.message.as_deref().map(Into::into),
            timestamp: status.timestamp.map(Into::into),
        }
    }
}

impl TryFrom<v1::TaskStatus> for TaskStatus {
    type Error = Error;

    fn try_from(status: v1::TaskStatus) -> Result<Self, Error> {
        Ok(Self {
            state: read_state("state", status.state)?,
            message: read_option("message", status.message)?.map(Arc::new),
            timestamp: read_option("timestamp", status.timestamp)?,
        })
    }
}

impl From<&Message> for v1::Message {
    fn from(message: &Message) -> Self {
        Self {
            message_id: message.message_id.to_string(),
            context_id: or_empty(message.context_id.as_ref()),
            task_id: or_empty(message.task_id.as_ref()),
            role: role_number(message.role),
            parts: write_list(&message.parts),
            metadata: message.metadata.as_ref().map(Into::into),
            extensions: message.extensions.clone(),
            reference_task_ids: to_strings(&message.reference_task_ids),
        }
    }
}

impl TryFrom<v1::Message> for Message {
    type Error = Error;

    fn try_from(message: v1::Message) -> Result<Self, Error> {
        Ok(Self {
            message_id: message.message_id.into(),
            role: read_role("role", message.role)?,
            parts: read_list("parts", message.parts)?,
            context_id: non_empty(message.context_id),
            task_id: non_empty(message.task_id),
            reference_task_ids: message
                .reference_task_ids
                .into_iter()
                .map(Into::into)
                .collect(),
            extensions: message.extensions,
            metadata: read_option("metadata", message.metadata)?,
        })
    }
}

impl From<&Part> for v1::Part {
    fn from(part: &Part) -> Self {
        let content = match &part.content {
            Content::Text(text) => ProtoContent::Text(text.clone()),
            Content::Raw(bytes) => ProtoContent::Raw(bytes.decode()),
            Content::Url(url) => ProtoContent::Url(url.to_string()),
            Content::Data(data) => ProtoContent::Data(data.into()),
        };
        Self {
            metadata: part.metadata().map(Into::into),
            filename: part.filename().unwrap_or_default().to_owned(),
            media_type: part.media_type().unwrap_or_default().to_owned(),
            content: Some(content),
        }
    }
}

impl TryFrom<v1::Part> for Part {
    type Error = Error;

    fn try_from(proto: v1::Part) -> Result<Self, Error> {
        let content = match proto.content {
            Some(ProtoContent::Text(text)) => Content::Text(text),
            Some(ProtoContent::Raw(bytes)) => Content::Raw(Base64::encode(bytes)),
            Some(ProtoContent::Url(url)) => Content::Url(url.into()),
            Some(ProtoContent::Data(data)) => Content::Data(read("data", data)?),
            None => {
                return Err(Error::invalid(
                    "",
                    "must have exactly one of text, raw, url, data",
                ));
            }
        };
        Ok(build_part(
            content,
            read_option("metadata", proto.metadata)?,
            proto.filename,
            proto.media_type,
        ))
    }
}

impl From<&TaskStatusUpdateEvent> for v1::TaskStatusUpdateEvent {
    fn from(event: &TaskStatusUpdateEvent) -> Self {
        Self {
            task_id: event.task_id.to_string(),
            context_id: event.context_id.to_string(),
            status: Some((&event.status).into()),
            metadata: event.metadata.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    type Error = Error;

    fn try_from(event: v1::TaskStatusUpdateEvent) -> Result<Self, Error> {
        Ok(Self {
            task_id: event.task_id.into(),
            context_id: event.context_id.into(),
            status: read_or_default("status", event.status)?,
            metadata: read_option("metadata", event.metadata)?,
        })
    }
}

impl From<&StreamResponse> for v1::StreamResponse {
    fn from(update: &StreamResponse) -> Self {
        let payload = match update {
            StreamResponse::Task(task) => Payload::Task(task.into()),
            StreamResponse::Message(message) => Payload::Message(message.into()),
            StreamResponse::StatusUpdate(event) => Payload::StatusUpdate(event.into()),
            StreamResponse::ArtifactUpdate(event) => Payload::ArtifactUpdate(event.into()),
        };
        Self {
            payload: Some(payload),
        }
    }
}

impl TryFrom<v1::StreamResponse> for StreamResponse {
    type Error = Error;

    fn try_from(update: v1::StreamResponse) -> Result<Self, Error> {
        match update.payload {
            Some(Payload::Task(task)) => read("task", task).map(Self::Task),
            Some(Payload::Message(message)) => read("message", message).map(Self::Message),
            Some(Payload::StatusUpdate(event)) => {
                read("statusUpdate", event).map(Self::StatusUpdate)
            }
            Some(Payload::ArtifactUpdate(event)) => {
                read("artifactUpdate", event).map(Self::ArtifactUpdate)
            }
            None => {
                let rule = "must have exactly one of task, message, statusUpdate, artifactUpdate";
                Err(Error::invalid("", rule))
            }
        }
    }
}

impl From<&SendMessageResponse> for v1::SendMessageResponse {
    fn from(answer: &SendMessageResponse) -> Self {
        let payload = match answer {
            SendMessageResponse::Task(task) => Answer::Task(task.into()),
            SendMessageResponse::Message(message) => Answer::Message(message.into()),
        };
        Self {
            payload: Some(payload),
        }
    }
}

impl TryFrom<v1::SendMessageResponse> for SendMessageResponse {
    type Error = Error;

    fn try_from(answer: v1::SendMessageResponse) -> Result<Self, Error> {
        match answer.payload {
            Some(Answer::Task(task)) => read("task", task).map(Self::Task),
            Some(Answer::Message(message)) => read("message", message).map(Self::Message),
            None => Err(Error::invalid("", "must have exactly one of task, message")),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Struct;

    use super::*;
    use crate::model::{Json, Object, Task, TaskState};

    #[test]
    fn errors_have_the_full_field_path() {
        let fault = |task: v1::Task| {
            let error = Task::try_from(task).unwrap_err();
            error.violations()[0].field().to_owned()
        };
        let message = |message: v1::Message| v1::Task {
            history: vec![message],
            ..Default::default()
        };
        let status = |status: v1::TaskStatus| v1::Task {
            status: Some(status),
            ..Default::default()
        };
        assert_eq!(
            fault(message(v1::Message {
                parts: vec![v1::Part::from(&Part::text("")), v1::Part::default()],
                ..Default::default()
            })),
            "history[0].parts[1]"
        );
        assert_eq!(
            fault(message(v1::Message {
                role: 3,
                ..Default::default()
            })),
            "history[0].role"
        );
        assert_eq!(
            fault(status(v1::TaskStatus {
                state: 9,
                ..Default::default()
            })),
            "status.state"
        );
        let timestamp = Some(prost_types::Timestamp {
            seconds: 0,
            nanos: -1,
        });
        assert_eq!(
            fault(status(v1::TaskStatus {
                timestamp,
                ..Default::default()
            })),
            "status.timestamp"
        );
        let nan = Struct {
            fields: [("x".to_owned(), f64::NAN.into())].into(),
        };
        assert_eq!(
            fault(v1::Task {
                metadata: Some(nan),
                ..Default::default()
            }),
            "metadata.x"
        );
    }

    #[test]
    fn missing_fields_are_left_to_validation() {
        let task = Task::try_from(v1::Task::default()).unwrap();
        assert_eq!(task, Task::default());
        assert_eq!(task.status.state, TaskState::Unspecified);
        assert_eq!(
            Message::try_from(v1::Message::default()),
            Ok(Message::default())
        );
        assert!(StreamResponse::try_from(v1::StreamResponse::default()).is_err());
        assert!(SendMessageResponse::try_from(v1::SendMessageResponse::default()).is_err());
    }

    #[test]
    fn parts_round_trip_with_absent_and_empty_metadata() {
        for content in [
            Part::text(""),
            Part::file([0, 255], "a/b").with_filename("n"),
            Part::url("u").with_metadata(Object::new()),
            Part::data(Json::null()).with_media_type("application/json"),
            Part::data(serde_json::json!([1.5, { "a": "b" }])),
        ] {
            let proto = v1::Part::from(&content);
            assert_eq!(proto.metadata.is_some(), content.metadata().is_some());
            assert_eq!(Part::try_from(proto), Ok(content));
        }
        let empty = Part::text("x").with_filename("").with_media_type("");
        assert_eq!(Part::try_from(v1::Part::from(&empty)), Ok(Part::text("x")));
    }
}
