//! What callers of 1.0 are told of an entry, written straight from the log.
//!
//! A stream is mostly chunks of one text: these are put down without a copy of the artifact, and without a generic writer.
//! Whatever has more to it is written as the model says.

use super::write;
use crate::model::{Artifact, ContextId, Entry, Event, TaskId};

/// Writes what callers are told of an entry; nothing where that is nothing.
pub(super) fn write_update(out: &mut Vec<u8>, entry: &Entry, (task, context): (&TaskId, &ContextId)) {
    let Event::Artifact { artifact, append, last_chunk, metadata } = &entry.event else {
        if let Some(event) = entry.update(task, context) {
            write(out, &event);
        }
        return;
    };
    out.extend_from_slice(br#"{"artifactUpdate":{"taskId":"#);
    write_text(out, task.as_str());
    out.extend_from_slice(br#","contextId":"#);
    write_text(out, context.as_str());
    out.extend_from_slice(br#","artifact":"#);
    match lone_text(artifact) {
        Some(text) => write_chunk(out, artifact, text),
        None => write(out, artifact),
    }
    if *append {
        out.extend_from_slice(br#","append":true"#);
    }
    if *last_chunk {
        out.extend_from_slice(br#","lastChunk":true"#);
    }
    if let Some(metadata) = metadata {
        out.extend_from_slice(br#","metadata":"#);
        write(out, metadata);
    }
    out.extend_from_slice(b"}}");
}

/// The text of an artifact that has nothing else but its id.
fn lone_text(artifact: &Artifact) -> Option<&str> {
    let Artifact { artifact_id: _, name: None, description: None, parts, extensions, metadata: None } =
        artifact
    else {
        return None;
    };
    match &**parts {
        [part] if part.is_plain() && extensions.is_empty() => part.as_text(),
        _ => None,
    }
}

fn write_chunk(out: &mut Vec<u8>, artifact: &Artifact, text: &str) {
    out.extend_from_slice(br#"{"artifactId":"#);
    write_text(out, artifact.artifact_id.as_str());
    out.extend_from_slice(br#","parts":[{"text":"#);
    write_text(out, text);
    out.extend_from_slice(b"}]}");
}

/// Writes a string; one in which nothing has to be escaped is copied as it is.
fn write_text(out: &mut Vec<u8>, text: &str) {
    if needs_escapes(text.as_bytes()) {
        return write(out, text);
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn needs_escapes(text: &[u8]) -> bool {
    let (whole, rest) = text.as_chunks::<16>();
    // The end is looked at once more where it does not fill a piece: that is quicker than byte by byte.
    let end = text.last_chunk::<16>().filter(|_| !rest.is_empty());
    let end_needs = match end {
        None => rest.iter().any(|&byte| is_escaped(byte)),
        Some(end) => has_escaped(end),
    };
    end_needs || whole.iter().any(has_escaped)
}

/// Without branches, so that the compiler looks at all of them at once.
fn has_escaped(piece: &[u8; 16]) -> bool {
    piece.iter().fold(false, |found, &byte| found | is_escaped(byte))
}

fn is_escaped(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Object, Part, Seq, TaskState, TaskStatus, Timestamp};

    /// The same bytes that the model writes.
    #[track_caller]
    fn check(event: Event) {
        let entry = Entry { seq: Seq(3), time: Timestamp::default(), event };
        let ids = (&TaskId::from("task \"1\""), &ContextId::from("context"));
        let mut out = b"> ".to_vec();
        write_update(&mut out, &entry, ids);
        let told = entry.update(ids.0, ids.1).map(|event| serde_json::to_string(&event).unwrap());
        assert_eq!(String::from_utf8(out).unwrap(), format!("> {}", told.unwrap_or_default()));
    }

    fn chunk(artifact: Artifact) {
        for (append, last_chunk) in [(false, false), (true, false), (true, true)] {
            let metadata = last_chunk.then(|| [("key", "value")].into_iter().collect::<Object>());
            check(Event::Artifact { artifact: artifact.clone(), append, last_chunk, metadata });
        }
    }

    #[test]
    fn what_is_written_in_short_is_what_the_model_writes() {
        let long = "über ".repeat(40);
        let (before, behind) = (format!("\t{long}"), format!("{long}\t"));
        for text in ["", "plain", "\"", "\\", "\n", "\u{1f}", "\u{7f} ", &long, &before, &behind] {
            chunk(Artifact { name: None, ..Artifact::text("", text).with_id("an/id") });
            chunk(Artifact { name: None, ..Artifact::text("", text).with_id("an \"id\"").part("more") });
            chunk(Artifact::text("named", text));
        }
        let bare = || Artifact { name: None, ..Artifact::text("", "text") };
        chunk(Artifact { parts: vec![Part::data(serde_json::json!({"a": 1}))], ..bare() });
        chunk(Artifact { parts: vec![Part::text("x").with_media_type("text/html")], ..bare() });
        chunk(Artifact { parts: Vec::new(), ..bare() });
        chunk(Artifact { description: Some("what it is".to_owned()), ..bare() });
        chunk(Artifact { extensions: vec!["urn:x".to_owned()], ..bare() });
        chunk(Artifact { metadata: Some(Object::new()), ..bare() });
        check(Event::Status { status: TaskStatus::new(TaskState::Working), metadata: None });
        check(Event::TurnStarted);
    }
}
