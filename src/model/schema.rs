//! JSON Schema of durations, sizes, counts and secrets in settings.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::Secret;
use super::units::{
    ByteSize, ByteSizeOrHalf, ByteSizeOrUnlimited, CountOrHalf, CountOrUnlimited, HumanDuration,
    HumanDurationOrNever, HumanDurations, OptionalByteSize, OptionalHumanDuration,
};

const SIZE: &str = r"^\s*[0-9]+\s*([KkMmGg]?[Ii]?[Bb])?\s*$";
const TIME: &str = r"^\s*([0-9]+(w|d|h|ms|m|s)\s*)+$";

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "Duration: 250ms, 30s, 5m, 1h30m, 7d", "pattern": TIME})
    }
}

impl JsonSchema for OptionalHumanDuration {
    fn schema_name() -> Cow<'static, str> {
        HumanDuration::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        HumanDuration::json_schema(generator)
    }
}

impl JsonSchema for HumanDurations {
    fn schema_name() -> Cow<'static, str> {
        "Times".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": HumanDuration::json_schema(generator)})
    }
}

impl JsonSchema for HumanDurationOrNever {
    fn schema_name() -> Cow<'static, str> {
        "TimeOrNever".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Duration: 250ms, 30s, 5m, 1h30m, 7d; or never",
            "anyOf": [{"const": "never"}, {"type": "string", "pattern": TIME}],
        })
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Size: 64KiB, 8MiB, 10MB, or a number of bytes",
            "anyOf": [
                {"type": "string", "pattern": SIZE},
                {"type": "integer", "minimum": 0},
            ],
        })
    }
}

impl JsonSchema for OptionalByteSize {
    fn schema_name() -> Cow<'static, str> {
        ByteSize::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ByteSize::json_schema(generator)
    }
}

impl JsonSchema for ByteSizeOrUnlimited {
    fn schema_name() -> Cow<'static, str> {
        "SizeOrUnlimited".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Size: 64KiB, 8MiB, 10MB, or a number of bytes; or unlimited",
            "anyOf": [
                {"const": "unlimited"},
                {"type": "string", "pattern": SIZE},
                {"type": "integer", "minimum": 1},
            ],
        })
    }
}

impl JsonSchema for CountOrUnlimited {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Number, or unlimited",
            "anyOf": [{"const": "unlimited"}, {"type": "integer", "minimum": 1}],
        })
    }
}

impl JsonSchema for CountOrHalf {
    fn schema_name() -> Cow<'static, str> {
        "CountOrHalf".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Number, or half of the limit for all together",
            "anyOf": [{"const": "half"}, {"type": "integer", "minimum": 1}],
        })
    }
}

impl JsonSchema for ByteSizeOrHalf {
    fn schema_name() -> Cow<'static, str> {
        "SizeOrHalf".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Size: 64KiB, 8MiB, 10MB, or a number of bytes; or half of the limit for all together",
            "anyOf": [
                {"const": "half"},
                {"type": "string", "pattern": SIZE},
                {"type": "integer", "minimum": 1},
            ],
        })
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "Secret. Prefer ${VAR} or ${file:path} to the text itself"})
    }
}
