//! Conversions of JSON and `google.protobuf.Struct` / `Value`.
//!
//! Protobuf numbers are doubles. Encoding selects the nearest double and clamps to the finite
//! range. Decoding writes the shortest representation, as JavaScript does: integers without a
//! fraction, no exponent below 1e21. Members are sorted by name.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

use super::prefix_field;
use crate::model::{Error, Json, Object, Result};
use crate::wire::json::MAX_DEPTH;

impl From<&Json> for Value {
    /// Encodes JSON nested deeper than [`MAX_DEPTH`] as `null`; protobuf decoders would reject it
    /// too.
    fn from(json: &Json) -> Self {
        JsonCursor(json.get())
            .value(MAX_DEPTH)
            .unwrap_or_else(|| Kind::NullValue(0).into())
    }
}

impl From<&Object> for Struct {
    /// Encodes an object nested deeper than [`MAX_DEPTH`] as an empty one.
    fn from(object: &Object) -> Self {
        Self {
            fields: JsonCursor(object.as_str())
                .members(MAX_DEPTH)
                .unwrap_or_default(),
        }
    }
}

impl TryFrom<Value> for Json {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self> {
        let mut out = Vec::new();
        write_value(&mut out, &value)?;
        parse_json(&out)
    }
}

impl TryFrom<Struct> for Object {
    type Error = Error;

    fn try_from(object: Struct) -> Result<Self> {
        let mut out = Vec::new();
        write_members(&mut out, &object.fields)?;
        Self::try_from(parse_json(&out)?).map_err(|rule| Error::invalid("", rule.to_string()))
    }
}

fn parse_json(text: &[u8]) -> Result<Json> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    Json::parse(text).map_err(|rule| Error::invalid("", rule.to_string()))
}

/// Remaining text of a valid JSON document; each method consumes a token.
///
/// A hand-written parser, because serde_json rejects numbers beyond the double range and rounds
/// long ones differently.
struct JsonCursor<'a>(&'a str);

impl<'a> JsonCursor<'a> {
    /// Parses the next value; `None` if it nests deeper than `depth`.
    fn value(&mut self, depth: usize) -> Option<Value> {
        Some(match self.peek()? {
            '{' => self.members(depth)?.into(),
            '[' => self.items(depth)?.into(),
            '"' => self.string()?.into(),
            't' => self.keyword("true", Kind::BoolValue(true))?,
            'f' => self.keyword("false", Kind::BoolValue(false))?,
            'n' => self.keyword("null", Kind::NullValue(0))?,
            _ => self.number()?.into(),
        })
    }

    /// Parses an object. Of duplicate names, the last value counts.
    fn members(&mut self, depth: usize) -> Option<BTreeMap<String, Value>> {
        let depth = depth.checked_sub(1)?;
        let mut members = BTreeMap::new();
        self.consume('{')?;
        while self.peek()? != '}' {
            let name = self.string()?;
            self.consume(':')?;
            members.insert(name, self.value(depth)?);
            self.consume(',');
        }
        self.consume('}')?;
        Some(members)
    }

    fn items(&mut self, depth: usize) -> Option<Vec<Value>> {
        let depth = depth.checked_sub(1)?;
        let mut items = Vec::new();
        self.consume('[')?;
        while self.peek()? != ']' {
            items.push(self.value(depth)?);
            self.consume(',');
        }
        self.consume(']')?;
        Some(items)
    }

    fn string(&mut self) -> Option<String> {
        self.consume('"')?;
        let mut escaped = false;
        let end = self.0.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        let (inner, rest) = self.0.split_at(end);
        self.0 = rest.strip_prefix('"')?;
        if inner.contains('\\') {
            serde_json::from_str(&format!("\"{inner}\"")).ok()
        } else {
            Some(inner.into())
        }
    }

    fn number(&mut self) -> Option<f64> {
        let ends = |c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
        let end = self.0.find(ends).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits
            .parse()
            .ok()
            .map(|number: f64| number.clamp(f64::MIN, f64::MAX))
    }

    fn keyword(&mut self, keyword: &str, kind: Kind) -> Option<Value> {
        self.0 = self.0.strip_prefix(keyword)?;
        Some(kind.into())
    }

    fn consume(&mut self, token: char) -> Option<()> {
        self.peek();
        self.0 = self.0.strip_prefix(token)?;
        Some(())
    }

    fn peek(&mut self) -> Option<char> {
        self.0 = self.0.trim_ascii_start();
        self.0.chars().next()
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) -> Result<()> {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => out.extend(b"null"),
        Some(Kind::BoolValue(flag)) => crate::wire::write_json(out, flag),
        Some(Kind::StringValue(text)) => crate::wire::write_json(out, text),
        Some(Kind::NumberValue(number)) => write_number(out, *number)?,
        Some(Kind::StructValue(object)) => write_members(out, &object.fields)?,
        Some(Kind::ListValue(list)) => write_items(out, list)?,
    }
    Ok(())
}

fn write_members(out: &mut Vec<u8>, members: &BTreeMap<String, Value>) -> Result<()> {
    out.push(b'{');
    for (at, (name, value)) in members.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        crate::wire::write_json(out, name);
        out.push(b':');
        write_value(out, value).map_err(|error| prefix_field(name, error))?;
    }
    out.push(b'}');
    Ok(())
}

fn write_items(out: &mut Vec<u8>, list: &ListValue) -> Result<()> {
    out.push(b'[');
    for (at, value) in list.values.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_value(out, value).map_err(|error| prefix_field(&format!("[{at}]"), error))?;
    }
    out.push(b']');
    Ok(())
}

/// Bounds beyond which numbers are written with an exponent, as in JavaScript.
const EXPONENT_FROM: f64 = 1e21;
const EXPONENT_BELOW: f64 = 1e-6;

fn write_number(out: &mut Vec<u8>, number: f64) -> Result<()> {
    if !number.is_finite() {
        return Err(Error::invalid("", "must be a finite number"));
    }
    let plain = number == 0.0 || (EXPONENT_BELOW..EXPONENT_FROM).contains(&number.abs());
    out.extend(
        if plain {
            number.to_string()
        } else {
            format!("{number:e}")
        }
        .into_bytes(),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_proto(text: &str) -> Value {
        Value::from(&Json::parse(text).unwrap())
    }

    fn round_trip(text: &str) -> String {
        Json::try_from(to_proto(text)).unwrap().to_string()
    }

    #[test]
    fn json_round_trips_with_sorted_members() {
        for text in [
            "null",
            "true",
            "false",
            "[]",
            "{}",
            r#"["",[],{},[[null]],false]"#,
            r#"{"a":{"b":[1,"x"]},"é\n\"\\":"\u0000😀/"}"#,
        ] {
            assert_eq!(round_trip(text), text);
        }
        assert_eq!(
            round_trip(r#" { "b" : 1 , "a" : [ true , null ] , "b" : "\u00e9\ud83d\ude00\/" } "#),
            r#"{"a":[true,null],"b":"é😀/"}"#
        );
    }

    #[test]
    fn numbers_become_the_nearest_double_in_shortest_form() {
        for (text, back) in [
            ("0", "0"),
            ("-0", "-0"),
            ("1.0", "1"),
            ("1e2", "100"),
            ("-2.50", "-2.5"),
            ("9007199254740993", "9007199254740992"),
            ("18446744073709551616", "18446744073709552000"),
            ("1e21", "1e21"),
            ("1.5E+300", "1.5e300"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("5e-324", "5e-324"),
            ("1e-400", "0"),
            ("1e400", "1.7976931348623157e308"),
            ("-1e400", "-1.7976931348623157e308"),
            // serde_json is off by one bit for these.
            ("0.40900993826735515", "0.40900993826735516"),
            ("8.383658838626809e-78", "8.383658838626809e-78"),
        ] {
            assert_eq!(round_trip(text), back, "{text}");
            assert_eq!(round_trip(back), back, "{text}");
        }
    }

    #[test]
    fn values_without_json_form_are_rejected_with_their_path() {
        let inner = Value::from(BTreeMap::from([("x".to_owned(), Value::from(f64::NAN))]));
        let outer = BTreeMap::from([("a".to_owned(), Value::from(vec![Value::from(1), inner]))]);
        let error = Object::try_from(Struct { fields: outer }).unwrap_err();
        assert_eq!(error.violations()[0].field(), "a[1].x");
        assert!(Json::try_from(Value::from(f64::NEG_INFINITY)).is_err());
        assert_eq!(Json::try_from(Value { kind: None }), Ok(Json::null()));
        assert_eq!(
            Json::try_from(Value::from(Kind::NullValue(7))),
            Ok(Json::null())
        );
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(round_trip(&nested(128)), nested(128));
        assert_eq!(round_trip(&nested(100_000)), "null");
        let object: Object = serde_json::from_str(&format!("{{\"a\":{}}}", nested(128))).unwrap();
        assert_eq!(Struct::from(&object), Struct::default());
    }
}
