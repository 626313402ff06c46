//! Validation of tool arguments against the simple parts of a JSON Schema. The server validates the rest.

use serde_json::{Map, Value};

/// Maximum depth of the validation.
const MAX_DEPTH: usize = 8;

/// Invalid argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentError {
    /// Path of the field, such as `place.city` or `days[2]`.
    pub(crate) field: String,
    pub(crate) reason: String,
}

/// Validates arguments: required and unknown members, types and enumerations.
///
/// # Errors
/// The first invalid field.
pub(crate) fn validate(
    arguments: &Map<String, Value>,
    schema: &Map<String, Value>,
) -> Result<(), ArgumentError> {
    validate_object(arguments, schema, "", 0)
}

fn validate_object(
    value: &Map<String, Value>,
    schema: &Map<String, Value>,
    path: &str,
    depth: usize,
) -> Result<(), ArgumentError> {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for name in required.filter_map(Value::as_str) {
        if !value.contains_key(name) {
            return Err(ArgumentError {
                field: below(name),
                reason: "is missing".to_owned(),
            });
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    for (name, value) in value {
        match properties.and_then(|properties| properties.get(name)) {
            Some(schema) => validate_value(value, schema, &below(name), depth + 1)?,
            None if is_closed => {
                return Err(ArgumentError {
                    field: below(name),
                    reason: "is not known".to_owned(),
                });
            }
            None => {}
        }
    }
    Ok(())
}

fn validate_value(
    value: &Value,
    schema: &Value,
    path: &str,
    depth: usize,
) -> Result<(), ArgumentError> {
    let Some(schema) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else {
        return Ok(());
    };
    let invalid = |reason: String| {
        Err(ArgumentError {
            field: path.to_owned(),
            reason,
        })
    };
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| has_type(value, kind)) {
        return invalid(format!("must be of type {}", kinds.join(" or ")));
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        let choices: Vec<_> = choices.iter().take(20).map(Value::to_string).collect();
        return invalid(format!("must be one of {}", choices.join(", ")));
    }
    match value {
        Value::Object(members) => validate_object(members, schema, path, depth),
        Value::Array(elements) => {
            let Some(schema) = schema.get("items") else {
                return Ok(());
            };
            elements.iter().enumerate().try_for_each(|(at, element)| {
                validate_value(element, schema, &format!("{path}[{at}]"), depth + 1)
            })
        }
        _ => Ok(()),
    }
}

fn has_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        // The server validates other types.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_invalid_field_is_named() {
        let schema = json!({
            "required": ["zone"], "additionalProperties": false,
            "properties": {
                "zone": {"type": "string"}, "unit": {"enum": ["C", "F"]}, "days": {"type": "array", "items": {"type": "integer"}},
                "place": {"type": "object", "required": ["city"]}, "much": {"type": ["number", "null"]},
            },
        });
        let check = |arguments: Value| {
            validate(arguments.as_object().unwrap(), schema.as_object().unwrap())
                .map_err(|error| format!("{} {}", error.field, error.reason))
        };
        assert_eq!(
            check(json!({"zone": "UTC", "days": [1, 2.0], "place": {"city": "x"}, "much": null})),
            Ok(())
        );
        for (arguments, reason) in [
            (json!({}), "zone is missing"),
            (json!({"zone": 1}), "zone must be of type string"),
            (
                json!({"zone": "", "unit": "K"}),
                r#"unit must be one of "C", "F""#,
            ),
            (
                json!({"zone": "", "days": [1, "x"]}),
                "days[1] must be of type integer",
            ),
            (json!({"zone": "", "place": {}}), "place.city is missing"),
            (
                json!({"zone": "", "much": "x"}),
                "much must be of type number or null",
            ),
            (json!({"zone": "", "zoo": 1}), "zoo is not known"),
        ] {
            assert_eq!(check(arguments), Err(reason.to_owned()));
        }
    }
}
