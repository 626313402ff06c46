//! Limits on the JSON that requests carry: metadata and data parts.
//!
//! They are checked before anything reads a member, so that the work of a request is bounded.

use super::{CancelTaskRequest, Content, Json, Limits, Object, Part, Request, Result};
use super::{SendMessageRequest, Violation};

/// Minimum number of bytes of a member: `"":0` and a comma.
const MIN_MEMBER_BYTES: usize = 5;

impl Request {
    /// Checks the size of metadata objects and the number of members of objects.
    ///
    /// # Errors
    /// Invalid parameters; names the field and the limit.
    pub fn check_content_size(&self, limits: &Limits) -> Result<()> {
        match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => {
                check_send(request, limits)
            }
            Self::CancelTask(CancelTaskRequest { metadata, .. }) => {
                check_metadata(metadata.as_ref(), limits, || "metadata".to_owned())
            }
            Self::GetTask(_)
            | Self::ListTasks(_)
            | Self::SubscribeToTask(_)
            | Self::CreatePushConfig(_)
            | Self::GetPushConfig(_)
            | Self::ListPushConfigs(_)
            | Self::DeletePushConfig(_)
            | Self::GetExtendedAgentCard(_) => Ok(()),
        }
    }
}

fn check_send(request: &SendMessageRequest, limits: &Limits) -> Result<()> {
    let message = &request.message;
    check_metadata(request.metadata.as_ref(), limits, || "metadata".to_owned())?;
    check_metadata(message.metadata.as_ref(), limits, || {
        "message.metadata".to_owned()
    })?;
    for (number, part) in message.parts.iter().enumerate() {
        check_part(part, limits, number)?;
    }
    Ok(())
}

fn check_part(part: &Part, limits: &Limits, number: usize) -> Result<()> {
    check_metadata(part.metadata(), limits, || {
        format!("message.parts[{number}].metadata")
    })?;
    match &part.content {
        Content::Data(data) => {
            check_members(data, limits, || format!("message.parts[{number}].data"))
        }
        Content::Text(_) | Content::Raw(_) | Content::Url(_) => Ok(()),
    }
}

/// Checks a metadata object. `field` returns its path, for the error.
fn check_metadata(
    metadata: Option<&Object>,
    limits: &Limits,
    field: impl Fn() -> String,
) -> Result<()> {
    let Some(metadata) = metadata else {
        return Ok(());
    };
    let limit = limits.max_metadata_bytes;
    if metadata.as_str().len() > limit {
        let problem = format!("must have at most {limit} bytes (max_metadata_bytes)");
        return Err(Violation::new(field(), problem).into());
    }
    check_members(metadata.as_json(), limits, field)
}

fn check_members(json: &Json, limits: &Limits, field: impl Fn() -> String) -> Result<()> {
    let limit = limits.max_object_members;
    if has_larger_object(json.get(), limit) {
        let problem =
            format!("must have no object with more than {limit} members (max_object_members)");
        return Err(Violation::new(field(), problem).into());
    }
    Ok(())
}

/// Whether an object at any depth has more members than `limit`. `text` is valid JSON.
fn has_larger_object(text: &str, limit: usize) -> bool {
    if text.len() / MIN_MEMBER_BYTES < limit {
        return false;
    }
    let mut open_objects: Vec<usize> = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' => open_objects.push(0),
            b'}' => drop(open_objects.pop()),
            b':' => {
                let Some(members) = open_objects.last_mut() else {
                    continue;
                };
                *members += 1;
                if *members > limit {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

/// Skips a string behind its opening quote.
fn skip_string(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Message;

    fn object(members: usize) -> Object {
        (0..members)
            .map(|number| (number.to_string(), Json::null()))
            .collect()
    }

    fn limits() -> Limits {
        Limits {
            max_object_members: 3,
            max_metadata_bytes: 64,
            ..Limits::default()
        }
    }

    fn problem(request: SendMessageRequest) -> Option<String> {
        let request = Request::SendMessage(Box::new(request));
        let error = request.check_content_size(&limits()).err()?;
        Some(error.to_string())
    }

    #[test]
    fn d07_members_are_counted_per_object_at_every_depth() {
        for (text, largest) in [
            ("{}", 0),
            ("[]", 0),
            (r#"{"":0}"#, 1),
            (r#"{"a":{"b":1,"c":2},"d":{"e":[{"f":"{:\":}"}]}}"#, 2),
            (r#"[{"a":1},{"a":":::::","b":"\\"},{"c":{}}]"#, 2),
            (r#"{"a":1,"a":1,"a":1}"#, 3),
            (r#""{\"a\":1,\"b\":2}""#, 0),
        ] {
            assert!(!has_larger_object(text, largest), "{text}");
            assert!(
                largest == 0 || has_larger_object(text, largest - 1),
                "{text}"
            );
        }
    }

    #[test]
    fn d07_errors_name_the_field_and_the_limit() {
        let plain = || SendMessageRequest::new(Message::user("hi"));
        assert_eq!(problem(plain()), None);
        let mut request = plain();
        request.metadata = Some(object(3));
        assert_eq!(problem(request.clone()), None);
        request.metadata = Some(object(4));
        let text = problem(request).unwrap();
        assert!(
            text.contains("metadata") && text.contains("max_object_members"),
            "{text}"
        );
        let mut request = plain();
        let long = [("a", Json::from("x".repeat(64).as_str()))];
        request.message.metadata = Some(long.into_iter().collect());
        let text = problem(request).unwrap();
        assert!(
            text.contains("message.metadata") && text.contains("max_metadata_bytes"),
            "{text}"
        );
        let mut request = plain();
        request.message = request.message.part(Part::data(object(4)));
        let text = problem(request).unwrap();
        assert!(text.contains("message.parts[1].data"), "{text}");
    }
}
