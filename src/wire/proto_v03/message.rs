//! Conversions of messages, tasks and stream events.

use std::sync::Arc;

use attache_proto::v03;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use v03::file_part::File;
use v03::part::Content as ProtoContent;
use v03::send_message_response::Payload as Answer;
use v03::stream_response::Payload;

use crate::model::{
    Base64, Content, Error, Json, Message, Object, Part, SendMessageResponse, StreamResponse,
    TaskStatus, TaskStatusUpdateEvent,
};
use crate::wire::part::WRAPPED_DATA_KEY;
use crate::wire::proto::{
    build_part, impl_task_conversions, non_empty, or_empty, prefix_field, read, read_list,
    read_option, read_or_default, read_role, read_state, role_number, state_number, write_list,
};

impl_task_conversions!(v03);

impl From<&TaskStatus> for v03::TaskStatus {
    fn from(status: &TaskStatus) -> Self {
        Self {
            state: state_number(status.state),
            update: status.message.as_deref().map(Into::into),
            timestamp: status.timestamp.map(Into::into),
        }
    }
}

impl TryFrom<v03::TaskStatus> for TaskStatus {
    type Error = Error;

    fn try_from(status: v03::TaskStatus) -> Result<Self, Error> {
        Ok(Self {
            state: read_state("state", status.state)?,
            message: read_option("message", status.update)?.map(Arc::new),
            timestamp: read_option("timestamp", status.timestamp)?,
        })
    }
}

impl From<&Message> for v03::Message {
    fn from(message: &Message) -> Self {
        Self {
            message_id: message.message_id.to_string(),
            context_id: or_empty(message.context_id.as_ref()),
            task_id: or_empty(message.task_id.as_ref()),
            role: role_number(message.role),
            content: write_list(&message.parts),
            metadata: message.metadata.as_ref().map(Into::into),
            extensions: message.extensions.clone(),
            // Only one of the three revisions has this field; the others may reject unknown fields.
            reference_task_ids: Vec::new(),
        }
    }
}

impl TryFrom<v03::Message> for Message {
    type Error = Error;

    fn try_from(message: v03::Message) -> Result<Self, Error> {
        Ok(Self {
            message_id: message.message_id.into(),
            role: read_role("role", message.role)?,
            parts: read_list("content", message.content)?,
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

impl From<&Part> for v03::Part {
    fn from(part: &Part) -> Self {
        let mut metadata = part.metadata().map(Struct::from);
        let content = match &part.content {
            Content::Text(text) => ProtoContent::Text(text.clone()),
            Content::Raw(bytes) => file_content(part, File::FileWithBytes(bytes.decode())),
            Content::Url(url) => file_content(part, File::FileWithUri(url.to_string())),
            Content::Data(data) => ProtoContent::Data(v03::DataPart {
                data: Some(wrap_data(data.into(), &mut metadata)),
            }),
        };
        Self {
            metadata,
            content: Some(content),
        }
    }
}

fn file_content(part: &Part, file: File) -> ProtoContent {
    ProtoContent::File(v03::FilePart {
        mime_type: part.media_type().unwrap_or_default().to_owned(),
        name: part.filename().unwrap_or_default().to_owned(),
        file: Some(file),
    })
}

impl TryFrom<v03::Part> for Part {
    type Error = Error;

    fn try_from(proto: v03::Part) -> Result<Self, Error> {
        let mut metadata = proto.metadata;
        let mut name = String::new();
        let mut media_type = String::new();
        let content = match proto.content {
            Some(ProtoContent::Text(text)) => Content::Text(text),
            Some(ProtoContent::Data(data)) => Content::Data(read_data(data, &mut metadata)?),
            Some(ProtoContent::File(file)) => {
                name = file.name;
                media_type = file.mime_type;
                match file.file {
                    Some(File::FileWithBytes(bytes)) => Content::Raw(Base64::encode(bytes)),
                    Some(File::FileWithUri(uri)) => Content::Url(uri.into()),
                    None => {
                        let rule = "must have exactly one of fileWithBytes, fileWithUri";
                        return Err(Error::invalid("file", rule));
                    }
                }
            }
            None => {
                return Err(Error::invalid(
                    "",
                    "must have exactly one of text, file, data",
                ));
            }
        };
        Ok(build_part(
            content,
            read_option("metadata", metadata)?,
            name,
            media_type,
        ))
    }
}

/// Member of the wrapper object that contains the value.
const WRAPPED_VALUE_KEY: &str = "value";

/// Wraps a value that is not an object. Data must be an object in 0.3, and both official SDKs wrap
/// other values in this way.
fn wrap_data(data: Value, metadata: &mut Option<Struct>) -> Struct {
    match data.kind {
        Some(Kind::StructValue(object)) => object,
        kind => {
            metadata
                .get_or_insert_default()
                .fields
                .insert(WRAPPED_DATA_KEY.to_owned(), true.into());
            Struct {
                fields: [(WRAPPED_VALUE_KEY.to_owned(), Value { kind })].into(),
            }
        }
    }
}

fn read_data(data: v03::DataPart, metadata: &mut Option<Struct>) -> Result<Json, Error> {
    let in_data = |error| prefix_field("data.data", error);
    let mut object = data.data.unwrap_or_default();
    match unwrap(&mut object, metadata) {
        Some(value) => Json::try_from(value).map_err(in_data),
        None => Object::try_from(object).map(Json::from).map_err(in_data),
    }
}

/// Unwraps a value and removes the marker. Removes the metadata if it becomes empty.
fn unwrap(object: &mut Struct, metadata: &mut Option<Struct>) -> Option<Value> {
    let fields = &mut metadata.as_mut()?.fields;
    if fields.get(WRAPPED_DATA_KEY)?.kind != Some(Kind::BoolValue(true)) {
        return None;
    }
    let value = object.fields.remove(WRAPPED_VALUE_KEY)?;
    fields.remove(WRAPPED_DATA_KEY);
    if fields.is_empty() {
        *metadata = None;
    }
    Some(value)
}

/// Converts a status event. `closes` is written as `final`, which 1.0 does not have.
#[must_use]
pub fn status_event(event: &TaskStatusUpdateEvent, closes: bool) -> v03::TaskStatusUpdateEvent {
    v03::TaskStatusUpdateEvent {
        task_id: event.task_id.to_string(),
        context_id: event.context_id.to_string(),
        status: Some((&event.status).into()),
        r#final: closes,
        metadata: event.metadata.as_ref().map(Into::into),
    }
}

impl TryFrom<v03::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    type Error = Error;

    /// Ignores `final`; the state determines whether the task has ended.
    fn try_from(event: v03::TaskStatusUpdateEvent) -> Result<Self, Error> {
        Ok(Self {
            task_id: event.task_id.into(),
            context_id: event.context_id.into(),
            status: read_or_default("status", event.status)?,
            metadata: read_option("metadata", event.metadata)?,
        })
    }
}

/// Converts a stream event; `closes` as for [`status_event`].
#[must_use]
pub fn stream_response(update: &StreamResponse, closes: bool) -> v03::StreamResponse {
    let payload = match update {
        StreamResponse::Task(task) => Payload::Task(task.into()),
        StreamResponse::Message(message) => Payload::Msg(message.into()),
        StreamResponse::StatusUpdate(event) => Payload::StatusUpdate(status_event(event, closes)),
        StreamResponse::ArtifactUpdate(event) => Payload::ArtifactUpdate(event.into()),
    };
    v03::StreamResponse {
        payload: Some(payload),
    }
}

impl TryFrom<v03::StreamResponse> for StreamResponse {
    type Error = Error;

    fn try_from(update: v03::StreamResponse) -> Result<Self, Error> {
        match update.payload {
            Some(Payload::Task(task)) => read("task", task).map(Self::Task),
            Some(Payload::Msg(message)) => read("message", message).map(Self::Message),
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

impl From<&SendMessageResponse> for v03::SendMessageResponse {
    fn from(answer: &SendMessageResponse) -> Self {
        let payload = match answer {
            SendMessageResponse::Task(task) => Answer::Task(task.into()),
            SendMessageResponse::Message(message) => Answer::Msg(message.into()),
        };
        Self {
            payload: Some(payload),
        }
    }
}

impl TryFrom<v03::SendMessageResponse> for SendMessageResponse {
    type Error = Error;

    fn try_from(answer: v03::SendMessageResponse) -> Result<Self, Error> {
        match answer.payload {
            Some(Answer::Task(task)) => read("task", task).map(Self::Task),
            Some(Answer::Msg(message)) => read("message", message).map(Self::Message),
            None => Err(Error::invalid("", "must have exactly one of task, message")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TaskId, TaskState};

    fn round_trip(part: &Part) -> Part {
        Part::try_from(v03::Part::from(part)).unwrap()
    }

    #[test]
    fn file_names_round_trip_and_other_names_are_lost() {
        let metadata: Object = [("k", serde_json::json!("v"))].into_iter().collect();
        for part in [
            Part::text("").with_metadata(metadata.clone()),
            Part::file([0, 255], "a/b").with_filename("n"),
            Part::url("u").with_metadata(Object::new()),
            Part::data(serde_json::json!({ "a": 1 })).with_metadata(metadata),
        ] {
            assert_eq!(round_trip(&part), part);
        }
        let named = Part::text("x").with_filename("n").with_media_type("a/b");
        assert_eq!(round_trip(&named), Part::text("x"));
    }

    #[test]
    fn data_that_is_not_an_object_is_wrapped() {
        for value in [
            serde_json::json!(null),
            serde_json::json!([1, "x"]),
            serde_json::json!("s"),
        ] {
            let part = Part::data(value.clone());
            let proto = v03::Part::from(&part);
            let marks = &proto.metadata.as_ref().unwrap().fields;
            assert_eq!(marks.get("data_part_compat"), Some(&true.into()));
            assert_eq!(round_trip(&part), part);
            let kept = part.with_metadata(
                [("k", 1)]
                    .map(|(k, v)| (k, serde_json::json!(v)))
                    .into_iter()
                    .collect(),
            );
            assert_eq!(round_trip(&kept), kept);
        }
        let object = Part::data(serde_json::json!({ "value": 1 }));
        assert_eq!(round_trip(&object), object);
    }

    #[test]
    fn errors_use_the_field_names_of_v03() {
        let fault = |content: ProtoContent| {
            let parts = vec![v03::Part {
                content: Some(content),
                metadata: None,
            }];
            let request = v03::SendMessageResponse {
                payload: Some(Answer::Msg(v03::Message {
                    content: parts,
                    ..Default::default()
                })),
            };
            SendMessageResponse::try_from(request)
                .unwrap_err()
                .violations()[0]
                .field()
                .to_owned()
        };
        assert_eq!(
            fault(ProtoContent::File(v03::FilePart::default())),
            "message.content[0].file"
        );
        let data = Struct {
            fields: [("x".to_owned(), f64::INFINITY.into())].into(),
        };
        assert_eq!(
            fault(ProtoContent::Data(v03::DataPart { data: Some(data) })),
            "message.content[0].data.data.x"
        );
        let empty = v03::Message {
            content: vec![v03::Part::default()],
            ..Default::default()
        };
        assert_eq!(
            Message::try_from(empty).unwrap_err().violations()[0].field(),
            "content[0]"
        );
    }

    #[test]
    fn references_are_decoded_and_not_encoded() {
        let proto = v03::Message {
            reference_task_ids: vec!["t".to_owned()],
            ..Default::default()
        };
        let message = Message::try_from(proto).unwrap();
        assert_eq!(message.reference_task_ids, [TaskId::from("t")]);
        assert!(v03::Message::from(&message).reference_task_ids.is_empty());
    }

    #[test]
    fn final_is_written_and_ignored_when_read() {
        let event = TaskStatusUpdateEvent {
            task_id: "t".into(),
            status: TaskStatus::new(TaskState::Working),
            ..TaskStatusUpdateEvent::default()
        };
        for closes in [true, false] {
            let proto = stream_response(&StreamResponse::StatusUpdate(event.clone()), closes);
            assert_eq!(
                proto.payload,
                Some(Payload::StatusUpdate(status_event(&event, closes)))
            );
            assert_eq!(status_event(&event, closes).r#final, closes);
            assert_eq!(
                StreamResponse::try_from(proto),
                Ok(StreamResponse::StatusUpdate(event.clone()))
            );
        }
    }
}
