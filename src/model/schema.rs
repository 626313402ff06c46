//! What a reader of settings may expect of times and sizes, as JSON Schema.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::Secret;
use super::measure::{Size, SomeTime, Time, TimeOrNever};

const TIME: &str = r"^\s*([0-9]+(w|d|h|ms|m|s)\s*)+$";

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "A time: 250ms, 30s, 5m, 1h30m, 7d", "pattern": TIME})
    }
}

impl JsonSchema for SomeTime {
    fn schema_name() -> Cow<'static, str> {
        Time::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Time::json_schema(generator)
    }
}

impl JsonSchema for TimeOrNever {
    fn schema_name() -> Cow<'static, str> {
        "TimeOrNever".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A time: 250ms, 30s, 5m, 1h30m, 7d; or never",
            "anyOf": [{"const": "never"}, {"type": "string", "pattern": TIME}],
        })
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size: 64KiB, 8MiB, 10MB, or a number of bytes",
            "anyOf": [
                {"type": "string", "pattern": "^\\s*[0-9]+\\s*([KkMmGg]?[Ii]?[Bb])?\\s*$"},
                {"type": "integer", "minimum": 0},
            ],
        })
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "A secret; better ${VAR} or ${file:path} than the text itself"})
    }
}
