//! Parsing of messages to the MCP agent: the skill and its arguments.

use attache::model::{Content, Message};
use serde_json::{Map, Value};

/// Requested skill and its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolRequest {
    pub(super) skill: String,
    pub(super) arguments: Map<String, Value>,
}

impl ToolRequest {
    /// Parses a message.
    ///
    /// # Errors
    /// The message names no skill, or its arguments are invalid. The message is for the caller.
    pub(super) fn from_message(message: &Message) -> Result<Self, String> {
        let data = message.parts.iter().find_map(|part| match &part.content {
            Content::Data(data) => data.read::<Map<String, Value>>().ok(),
            _ => None,
        });
        match data {
            Some(data) if data.contains_key("skill") => Self::from_data(data),
            data => Self::from_text(&message.text(), data),
        }
    }

    fn from_data(mut data: Map<String, Value>) -> Result<Self, String> {
        let Some(Value::String(skill)) = data.remove("skill") else {
            return Err("`skill` must be the id of a skill".to_owned());
        };
        let arguments = match data.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err("`arguments` must be an object".to_owned()),
        };
        Ok(Self { skill, arguments })
    }

    /// Parses a text: the name of the skill, and its arguments as JSON. A data part may hold the arguments instead.
    fn from_text(text: &str, data: Option<Map<String, Value>>) -> Result<Self, String> {
        let text = text.trim();
        let (skill, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if skill.is_empty() {
            return Err(
                "name a skill, in the text or as {\"skill\": …, \"arguments\": {…}}".to_owned(),
            );
        }
        let arguments = match (rest.trim(), data) {
            ("", data) => data.unwrap_or_default(),
            (rest, _) => serde_json::from_str(rest).map_err(|_| {
                "the name of a skill must be followed by its arguments as a JSON object, or by nothing"
                    .to_owned()
            })?,
        };
        Ok(Self {
            skill: skill.to_owned(),
            arguments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::Part;
    use serde_json::json;

    fn request(message: &Message) -> Result<(String, Value), String> {
        ToolRequest::from_message(message)
            .map(|request| (request.skill, Value::Object(request.arguments)))
    }

    #[test]
    fn a_skill_is_named_in_data_or_text() {
        let given = |value: Value| Message::user(Part::data(value));
        let add = Ok(("add".to_owned(), json!({"a": 1})));
        assert_eq!(
            request(&given(json!({"skill": "add", "arguments": {"a": 1}}))),
            add
        );
        assert_eq!(request(&Message::user("  add\n{\"a\": 1} ")), add);
        assert_eq!(
            request(&Message::user("add").part(Part::data(json!({"a": 1})))),
            add
        );
        assert_eq!(
            request(&Message::user("now")),
            Ok(("now".to_owned(), json!({})))
        );
        assert_eq!(
            request(&given(json!({"skill": "now"}))),
            Ok(("now".to_owned(), json!({})))
        );
        for wrong in [
            given(json!({"skill": 1})),
            given(json!({"skill": "a", "arguments": []})),
            given(json!({})),
        ] {
            assert!(request(&wrong).is_err());
        }
        assert!(
            request(&Message::user("add 1 and 2"))
                .unwrap_err()
                .contains("JSON object")
        );
        assert!(request(&Message::user("")).is_err());
    }
}
