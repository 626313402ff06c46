//! Texts of messages, artifacts and metadata.

use std::sync::Arc;

use attache::model::{Base64, Content, Json, Message, Object, Part, StreamResponse};

/// Metadata that the server records about its own work: ids, names and numbers.
const SERVER_RECORDS: [&str; 9] = [
    "attache.dialect",
    "attache.omitted",
    "attache.reason",
    "attache.remote",
    "attache.route",
    "attache.routed",
    "attache.script",
    "attache.state",
    "attache.usage",
];

/// Metadata of a step of an agent: ids and names, and texts of models and tools.
const STEP_KEY: &str = "attache.step";

/// Changes a text; `None` if it stays.
pub(super) type Rewrite<'a> = &'a mut dyn FnMut(&str) -> Option<String>;

/// Rewrites the texts of a message: its parts, and the strings of its metadata.
pub(super) fn rewrite_message(message: &mut Message, rewrite: Rewrite<'_>) {
    for part in &mut message.parts {
        rewrite_part(part, rewrite);
    }
    rewrite_object(&mut message.metadata, rewrite);
}

/// Rewrites the texts of an event, except for the text parts of an artifact.
pub(super) fn rewrite_event(event: &mut StreamResponse, rewrite: Rewrite<'_>) {
    match event {
        StreamResponse::Task(_) => {}
        StreamResponse::Message(message) => rewrite_message(message, rewrite),
        StreamResponse::StatusUpdate(update) => {
            if let Some(message) = &mut update.status.message {
                rewrite_message(Arc::make_mut(message), rewrite);
            }
            rewrite_object(&mut update.metadata, rewrite);
        }
        StreamResponse::ArtifactUpdate(update) => {
            let artifact = &mut update.artifact;
            for text in [&mut artifact.name, &mut artifact.description]
                .into_iter()
                .flatten()
            {
                rewrite_text(text, rewrite);
            }
            for part in &mut artifact.parts {
                match part.content {
                    Content::Text(_) => rewrite_attributes(part, rewrite),
                    Content::Raw(_) | Content::Url(_) | Content::Data(_) => {
                        rewrite_part(part, rewrite);
                    }
                }
            }
            rewrite_object(&mut artifact.metadata, rewrite);
            rewrite_object(&mut update.metadata, rewrite);
        }
    }
}

/// Rewrites the strings of an object, including the names of its members. Ids and names that the server has recorded
/// stay: it reads them in later turns.
pub(super) fn rewrite_object(object: &mut Option<Object>, rewrite: Rewrite<'_>) {
    let Some(object) = object else {
        return;
    };
    let records = SERVER_RECORDS.map(|name| (name, object.remove(name)));
    let step = object.remove(STEP_KEY);
    if let Some(changed) = rewrite_json(object.as_json(), rewrite) {
        *object = Object::try_from(changed).unwrap_or_default();
    }
    for (name, record) in records {
        if let Some(record) = record {
            object.insert(name, record);
        }
    }
    if let Some(step) = step {
        object.insert(STEP_KEY, rewrite_step(step, rewrite));
    }
}

/// Rewrites the texts of a step of an agent, except for its ids and names.
fn rewrite_step(step: Json, rewrite: Rewrite<'_>) -> Json {
    let Ok(step) = Object::try_from(step) else {
        return Json::null();
    };
    let mut rewrite_member = |(name, value): (String, Json)| {
        let value = match &*name {
            "type" | "id" | "name" | "task" | "caller" => value,
            "calls" => rewrite_calls(&value, rewrite),
            _ => rewrite_json(&value, rewrite).unwrap_or(value),
        };
        (name, value)
    };
    let members: Object = step.iter().map(&mut rewrite_member).collect();
    members.as_json().clone()
}

/// Rewrites the tool calls of a step, except for their ids and names.
fn rewrite_calls(calls: &Json, rewrite: Rewrite<'_>) -> Json {
    let calls: Vec<Json> = calls.read().unwrap_or_default();
    let calls = calls.into_iter().map(|call| rewrite_step(call, rewrite));
    Json::from_serialize(&calls.collect::<Vec<_>>()).unwrap_or_default()
}

fn rewrite_text(text: &mut String, rewrite: Rewrite<'_>) {
    if let Some(changed) = rewrite(text) {
        *text = changed;
    }
}

/// Rewrites the content of a part, its file name and its metadata. Files that are no text stay.
fn rewrite_part(part: &mut Part, rewrite: Rewrite<'_>) {
    let is_text_file = part.media_type().is_some_and(is_text_type);
    match &mut part.content {
        Content::Text(text) => rewrite_text(text, rewrite),
        Content::Data(data) => {
            if let Some(changed) = rewrite_json(data, rewrite) {
                *data = changed;
            }
        }
        Content::Url(url) => {
            if let Some(changed) = rewrite(url) {
                *url = changed.into();
            }
        }
        Content::Raw(file) if is_text_file => {
            let text = String::from_utf8(file.decode()).ok();
            if let Some(changed) = text.and_then(|text| rewrite(&text)) {
                *file = Base64::encode(changed);
            }
        }
        Content::Raw(_) => {}
    }
    rewrite_attributes(part, rewrite);
}

/// Rewrites the file name and the metadata of a part.
fn rewrite_attributes(part: &mut Part, rewrite: Rewrite<'_>) {
    if let Some(name) = part.filename().and_then(&mut *rewrite) {
        *part = part.clone().with_filename(name);
    }
    let mut metadata = part.metadata().cloned();
    rewrite_object(&mut metadata, rewrite);
    if let Some(metadata) = metadata {
        *part = part.clone().with_metadata(metadata);
    }
}

/// Whether files of a media type contain text.
fn is_text_type(media_type: &str) -> bool {
    let name = media_type.split(';').next().unwrap_or_default();
    let name = name.trim().to_ascii_lowercase();
    name.starts_with("text/")
        || name.ends_with("json")
        || name.ends_with("xml")
        || name.ends_with("yaml")
}

/// Rewrites the strings of JSON text, including the names of members; `None` if all stay. Numbers keep their digits.
fn rewrite_json(json: &Json, rewrite: Rewrite<'_>) -> Option<Json> {
    let text = json.get();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_changed = false;
    let mut changed_names = 0_usize;
    while let Some(start) = rest.find('"') {
        let length = string_length(&rest[start..]);
        let literal = &rest[start..start + length];
        let after = &rest[start + length..];
        out.push_str(&rest[..start]);
        let value = serde_json::from_str::<String>(literal).ok();
        match value.and_then(|value| rewrite(&value)) {
            Some(mut changed) => {
                if after.trim_start().starts_with(':') {
                    changed_names += 1;
                    number_name(&mut changed, changed_names);
                }
                out.push_str(&serde_json::Value::from(changed).to_string());
                is_changed = true;
            }
            None => out.push_str(literal),
        }
        rest = after;
    }
    out.push_str(rest);
    // The text stays JSON. If that were wrong, `null` discloses nothing.
    is_changed.then(|| Json::parse(&out).unwrap_or_default())
}

/// Keeps changed names of members unique within a document: `***`, `***2`, `***3`.
fn number_name(name: &mut String, number: usize) {
    if number > 1 {
        name.push_str(&number.to_string());
    }
}

/// Length of the string literal at the start of JSON text, with its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::TaskStatusUpdateEvent;

    fn mask(text: &str) -> Option<String> {
        let masked = text.replace("secret", "***");
        (masked != text).then_some(masked)
    }

    #[test]
    fn values_and_names_of_json_are_rewritten() {
        let json = r#"{"a secret": 1.10, "secret": ["my \"secret\"", {"n": "se\u0063ret"}], "b": 12345678901234567890}"#;
        let expected =
            r#"{"a ***": 1.10, "***2": ["my \"***\"", {"n": "***"}], "b": 12345678901234567890}"#;
        let changed = rewrite_json(&Json::parse(json).unwrap(), &mut mask).unwrap();
        assert_eq!(changed.get(), expected);
        let plain = Json::parse(r#"{"a": "b"}"#).unwrap();
        assert_eq!(rewrite_json(&plain, &mut mask), None);
    }

    #[test]
    fn every_part_is_rewritten() {
        let metadata = || Object::from_iter([("key", Json::from("secret"))]);
        let parts = [
            Part::text("a secret"),
            Part::url("https://example.com/?key=secret"),
            Part::file("a secret", "text/plain; charset=utf-8"),
            Part::file(r#"{"a": "secret"}"#, "application/json"),
            Part::data(Json::from("secret")),
        ];
        for part in parts {
            let part = part.with_filename("secret.txt").with_metadata(metadata());
            let mut message = Message::agent(part.clone());
            rewrite_message(&mut message, &mut mask);
            let mut event = StreamResponse::ArtifactUpdate(Default::default());
            if let StreamResponse::ArtifactUpdate(update) = &mut event {
                update.artifact.parts = vec![part.clone()];
            }
            rewrite_event(&mut event, &mut mask);
            let mut seen = format!("{message:?} {event:?}");
            let artifact_parts = match &event {
                StreamResponse::ArtifactUpdate(update) => &update.artifact.parts[..],
                _ => &[],
            };
            for part in message.parts.iter().chain(artifact_parts) {
                if let Content::Raw(file) = &part.content {
                    seen.push_str(&String::from_utf8(file.decode()).unwrap());
                }
            }
            // The mask of a turn rewrites the text of artifacts.
            let seen = seen.replace(r#"Part(Text("a secret")"#, "");
            assert!(!seen.contains("secret"), "{seen}");
        }
    }

    #[test]
    fn ids_and_names_that_the_server_recorded_stay() {
        let remote = r#"{"peer":"secret","taskId":"secret","caller":"secret"}"#;
        let step = r#"{"type":"secret","id":"secret","text":"secret","calls":[{"id":"secret","name":"secret","arguments":"secret"}]}"#;
        let masked = r#"{"type":"secret","id":"secret","text":"***","calls":[{"id":"secret","name":"secret","arguments":"***"}]}"#;
        let object =
            format!(r#"{{"attache.remote":{remote},"attache.step":{step},"mine":"secret"}}"#);
        let object = Object::try_from(Json::parse(&object).unwrap()).unwrap();
        let mut update = TaskStatusUpdateEvent {
            metadata: Some(object),
            ..TaskStatusUpdateEvent::default()
        };
        update.status.message = Some(Arc::new(Message::agent("secret")));
        let mut event = StreamResponse::StatusUpdate(update);
        rewrite_event(&mut event, &mut mask);
        let StreamResponse::StatusUpdate(update) = event else {
            panic!("another kind");
        };
        let metadata = update.metadata.unwrap();
        assert_eq!(metadata.get("attache.remote").unwrap().get(), remote);
        assert_eq!(metadata.get("attache.step").unwrap().get(), masked);
        assert_eq!(metadata.get("mine").unwrap().get(), r#""***""#);
    }

    #[test]
    fn a_file_that_is_no_text_stays() {
        let mut part = Part::file("secret", "image/png");
        let original = part.clone();
        rewrite_part(&mut part, &mut mask);
        assert_eq!(part, original);
    }
}
