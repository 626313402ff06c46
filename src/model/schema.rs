//! What a reader of settings may expect of times and sizes, as JSON Schema.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::Secret;
use super::measure::{Count, Size, SizeOrUnlimited, SomeTime, Time, TimeOrNever, Times};

const SIZE: &str = r"^\s*[0-9]+\s*([KkMmGg]?[Ii]?[Bb])?\s*$";
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

impl JsonSchema for Times {
    fn schema_name() -> Cow<'static, str> {
        "Times".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": Time::json_schema(generator)})
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
                {"type": "string", "pattern": SIZE},
                {"type": "integer", "minimum": 0},
            ],
        })
    }
}

impl JsonSchema for SizeOrUnlimited {
    fn schema_name() -> Cow<'static, str> {
        "SizeOrUnlimited".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size: 64KiB, 8MiB, 10MB, or a number of bytes; or unlimited",
            "anyOf": [
                {"const": "unlimited"},
                {"type": "string", "pattern": SIZE},
                {"type": "integer", "minimum": 1},
            ],
        })
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or unlimited",
            "anyOf": [{"const": "unlimited"}, {"type": "integer", "minimum": 1}],
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
