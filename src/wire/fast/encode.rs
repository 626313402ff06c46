//! Fast encoder for tasks and messages in 1.0 JSON, the results of most calls.
//!
//! Writing the result of a send costs 2,600 of the 48,800 instructions of the whole call
//! (`bench/RESULTS.md`).
//!
//! The generic serializer inspects every byte of strings and member names for characters to escape.
//! Here member names are constants, and strings are checked 16 bytes at a time and copied. Rare
//! members use the generic serializer.
//!
//! The unit tests compare the output byte by byte with `Serialize` of the model.

use crate::model::{
    Artifact, ContextId, Message, Object, Part, SendMessageResponse, Task, TaskId, TaskStatus,
};
use crate::wire::write_json;

/// Writes the result of a send.
pub(in crate::wire) fn write_send_response(out: &mut Vec<u8>, answer: &SendMessageResponse) {
    match answer {
        SendMessageResponse::Task(task) => write_wrapped_task(out, task),
        SendMessageResponse::Message(message) => {
            out.extend_from_slice(br#"{"message":"#);
            write_message(out, message);
            out.push(b'}');
        }
    }
}

/// Writes `{"task": …}`: the result of a send, or the first event of a stream.
pub(in crate::wire) fn write_wrapped_task(out: &mut Vec<u8>, task: &Task) {
    out.extend_from_slice(br#"{"task":"#);
    write_task(out, task);
    out.push(b'}');
}

/// Writes a task.
pub(in crate::wire) fn write_task(out: &mut Vec<u8>, task: &Task) {
    let Task {
        id,
        context_id,
        status,
        artifacts,
        history,
        metadata,
    } = task;
    out.extend_from_slice(br#"{"id":"#);
    write_text(out, id.as_str());
    let context_id = Some(context_id.as_str()).filter(|id| !id.is_empty());
    write_optional_text(out, br#","contextId":"#, context_id);
    out.extend_from_slice(br#","status":"#);
    write_status(out, status);
    if !artifacts.is_empty() {
        out.extend_from_slice(br#","artifacts":"#);
        write_list(out, artifacts, write_artifact);
    }
    if !history.is_empty() {
        out.extend_from_slice(br#","history":"#);
        write_list(out, history, |out, message| write_message(out, message));
    }
    write_metadata(out, metadata.as_ref());
    out.push(b'}');
}

fn write_status(out: &mut Vec<u8>, status: &TaskStatus) {
    let TaskStatus {
        state,
        message,
        timestamp,
    } = status;
    out.extend_from_slice(br#"{"state":""#);
    out.extend_from_slice(state.as_str().as_bytes());
    out.push(b'"');
    if let Some(message) = message {
        out.extend_from_slice(br#","message":"#);
        write_message(out, message);
    }
    if let Some(timestamp) = timestamp {
        out.extend_from_slice(br#","timestamp":"#);
        write_json(out, timestamp);
    }
    out.push(b'}');
}

/// Writes a message.
pub(in crate::wire) fn write_message(out: &mut Vec<u8>, message: &Message) {
    let Message {
        message_id,
        role,
        parts,
        context_id,
        task_id,
        reference_task_ids,
        extensions,
        metadata,
    } = message;
    out.extend_from_slice(br#"{"messageId":"#);
    write_text(out, message_id.as_str());
    out.extend_from_slice(br#","role":""#);
    out.extend_from_slice(role.as_str().as_bytes());
    out.extend_from_slice(br#"","parts":"#);
    write_list(out, parts, write_part);
    write_optional_text(
        out,
        br#","contextId":"#,
        context_id.as_ref().map(ContextId::as_str),
    );
    write_optional_text(out, br#","taskId":"#, task_id.as_ref().map(TaskId::as_str));
    if !reference_task_ids.is_empty() {
        out.extend_from_slice(br#","referenceTaskIds":"#);
        write_json(out, reference_task_ids);
    }
    write_extensions(out, extensions);
    write_metadata(out, metadata.as_ref());
    out.push(b'}');
}

fn write_artifact(out: &mut Vec<u8>, artifact: &Artifact) {
    let Artifact {
        artifact_id,
        name,
        description,
        parts,
        extensions,
        metadata,
    } = artifact;
    out.extend_from_slice(br#"{"artifactId":"#);
    write_text(out, artifact_id.as_str());
    write_optional_text(out, br#","name":"#, name.as_deref());
    write_optional_text(out, br#","description":"#, description.as_deref());
    out.extend_from_slice(br#","parts":"#);
    write_list(out, parts, write_part);
    write_extensions(out, extensions);
    write_metadata(out, metadata.as_ref());
    out.push(b'}');
}

fn write_part(out: &mut Vec<u8>, part: &Part) {
    match part.as_text().filter(|_| part.is_plain()) {
        Some(text) => {
            out.extend_from_slice(br#"{"text":"#);
            write_text(out, text);
            out.push(b'}');
        }
        None => write_json(out, part),
    }
}

/// Writes an optional string with its member name.
fn write_optional_text(out: &mut Vec<u8>, name: &[u8], text: Option<&str>) {
    if let Some(text) = text {
        out.extend_from_slice(name);
        write_text(out, text);
    }
}

fn write_extensions(out: &mut Vec<u8>, extensions: &[String]) {
    if !extensions.is_empty() {
        out.extend_from_slice(br#","extensions":"#);
        write_json(out, extensions);
    }
}

fn write_metadata(out: &mut Vec<u8>, metadata: Option<&Object>) {
    if let Some(metadata) = metadata {
        out.extend_from_slice(br#","metadata":"#);
        write_json(out, metadata);
    }
}

fn write_list<T>(out: &mut Vec<u8>, items: &[T], item: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, value) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        item(out, value);
    }
    out.push(b']');
}

/// Writes a string. Copies it if it needs no escapes.
pub(in crate::wire) fn write_text(out: &mut Vec<u8>, text: &str) {
    if needs_escapes(text.as_bytes()) {
        return write_json(out, text);
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn needs_escapes(text: &[u8]) -> bool {
    let (whole, rest) = text.as_chunks::<16>();
    // The last chunk overlaps the previous one, which is faster than checking the remainder byte by
    // byte.
    let end = text.last_chunk::<16>().filter(|_| !rest.is_empty());
    let end_has_escaped = match end {
        None => rest.iter().any(|&byte| is_escaped_byte(byte)),
        Some(end) => has_escaped_byte(end),
    };
    end_has_escaped || whole.iter().any(has_escaped_byte)
}

/// Branch-free, so that the compiler vectorizes it.
fn has_escaped_byte(piece: &[u8; 16]) -> bool {
    piece
        .iter()
        .fold(false, |found, &byte| found | is_escaped_byte(byte))
}

fn is_escaped_byte(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TaskState, Timestamp};
    use serde_json::{Value, json};

    /// Asserts that `fast` writes the same bytes as `Serialize`.
    #[track_caller]
    fn check<T: serde::Serialize>(value: &T, fast: impl Fn(&mut Vec<u8>, &T)) {
        let mut out = b"> ".to_vec();
        fast(&mut out, value);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("> {}", serde_json::to_string(value).unwrap())
        );
    }

    fn texts() -> Vec<String> {
        let long = "über ".repeat(40);
        let mut texts = vec![format!("\t{long}"), format!("{long}\t"), long];
        texts.extend(["", "plain", "\"", "\\", "\n", "\u{1f}", "\u{7f} "].map(str::to_owned));
        texts
    }

    fn messages() -> Vec<Message> {
        let part = Part::text("<p>").with_media_type("text/html");
        let mut messages: Vec<_> = texts().into_iter().map(Message::user).collect();
        messages.push(
            Message::agent("one")
                .part("two")
                .part(Part::data(json!({"a": [1]})))
                .part(part),
        );
        messages.push(
            Message::user("in")
                .in_task("task \"1\"")
                .in_context("a/context"),
        );
        messages.push(Message {
            reference_task_ids: vec!["t1".into(), "t2".into()],
            extensions: vec!["urn:x".to_owned()],
            metadata: Some([("key", Value::from("value"))].into_iter().collect()),
            ..Message::user("more")
        });
        messages.push(Message::default());
        messages
    }

    #[test]
    fn fast_output_equals_generic_output() {
        messages()
            .iter()
            .for_each(|message| check(message, write_message));
        let mut task = Task::default();
        check(&task, write_task);
        task = Task::submitted("an id".into(), "a \"context\"".into(), Timestamp::default());
        check(&task, write_task);
        for state in TaskState::ALL {
            task.status.state = state;
            check(&task, write_task);
        }
        task.history = messages().into_iter().map(std::sync::Arc::new).collect();
        task.status = task.status.with_message(Message::agent("done"));
        task.artifacts = texts()
            .into_iter()
            .map(|text| Artifact::text("named", text))
            .collect();
        task.artifacts.push(Artifact {
            description: Some("what\tit is".to_owned()),
            extensions: vec!["urn:x".to_owned()],
            metadata: Some(Object::new()),
            ..Artifact::new("data", Part::data(json!(null))).part("and text")
        });
        task.artifacts.push(Artifact::default());
        task.metadata = Some([("key", Value::from(1))].into_iter().collect());
        check(&task, write_task);
        check(&SendMessageResponse::Task(task), write_send_response);
        check(
            &SendMessageResponse::Message(Message::agent("hi")),
            write_send_response,
        );
    }
}
