//! Human-readable durations and sizes in settings: `30s`, `1h30m`, `8MiB`.
//!
//! The types are used as `#[serde(with = "…")]` on fields of plain types. With the feature `schema`
//! they also define the JSON Schema of the field.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;

/// Time units in milliseconds, longest first.
const TIME_UNITS: [(&str, u64); 6] = [
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];
/// Size units in bytes, largest first.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];
/// Text for an absent duration.
const NEVER: &str = "never";
/// Text for an absent limit.
const UNLIMITED: &str = "unlimited";
/// Text for a limit that is half of another one.
const HALF: &str = "half";

/// Serde helper: a [`Duration`] as text such as `250ms`, `30s`, `1h30m` or `7d`.
#[derive(Debug)]
pub struct HumanDuration;

/// Serde helper: a list of [`Duration`]s, each like [`HumanDuration`].
#[derive(Debug)]
pub struct HumanDurations;

/// Serde helper: an optional [`Duration`] like [`HumanDuration`], or `never`.
#[derive(Debug)]
pub struct HumanDurationOrNever;

/// Serde helper: an optional [`Duration`] like [`HumanDuration`]; omitted if absent.
#[derive(Debug)]
pub struct OptionalHumanDuration;

/// Serde helper: a number of bytes, or text such as `64KiB` or `10MB`.
#[derive(Debug)]
pub struct ByteSize;

/// Serde helper: an optional size like [`ByteSize`]; omitted if absent.
#[derive(Debug)]
pub struct OptionalByteSize;

/// Serde helper: a number above 0, or `unlimited`.
#[derive(Debug)]
pub struct CountOrUnlimited;

/// Serde helper: a number above 0, or `half` of the limit for all together.
#[derive(Debug)]
pub struct CountOrHalf;

/// Serde helper: a size like [`ByteSize`], or `half` of the limit for all together.
#[derive(Debug)]
pub struct ByteSizeOrHalf;

/// Serde helper: a size like [`ByteSize`], or `unlimited`.
#[derive(Debug)]
pub struct ByteSizeOrUnlimited;

/// Parses a duration; `None` if the text is not one.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = (!rest.is_empty()).then_some(0_u64)?;
    while !rest.is_empty() {
        let (number, after) = split_prefix(rest, |c| c.is_ascii_digit());
        let (unit, after) = split_prefix(after, |c| c.is_ascii_alphabetic());
        let (_, each) = TIME_UNITS.into_iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(each)?)?;
        rest = after.trim_start();
    }
    Some(Duration::from_millis(total))
}

/// Parses a size in bytes; `None` if the text is not one.
#[must_use]
pub fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = split_prefix(text.trim(), |c| c.is_ascii_digit());
    let unit = unit.trim_start();
    let each = SIZE_UNITS
        .into_iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name));
    let each = if unit.is_empty() { 1 } else { each?.1 };
    usize::try_from(number.parse::<u64>().ok()?.checked_mul(each)?).ok()
}

/// Splits off the longest prefix of characters that satisfy `fits`.
fn split_prefix(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !fits(c)).unwrap_or(text.len()))
}

/// Formats a duration for [`parse_duration`], in whole milliseconds.
#[must_use]
pub fn format_duration(time: Duration) -> String {
    let mut left = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, each) in TIME_UNITS {
        if left >= each {
            text.push_str(&format!("{}{unit}", left / each));
            left %= each;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// Formats a size for [`parse_size`], without rounding.
#[must_use]
pub fn format_size(bytes: usize) -> String {
    let binary = SIZE_UNITS
        .into_iter()
        .filter(|(unit, _)| unit.ends_with("iB"));
    let bytes = bytes as u64;
    match binary
        .into_iter()
        .find(|(_, each)| bytes > 0 && bytes.is_multiple_of(*each))
    {
        Some((unit, each)) => format!("{}{unit}", bytes / each),
        None => format!("{bytes}B"),
    }
}

impl HumanDuration {
    /// Serializes the duration.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(*time))
    }

    /// Deserializes the duration.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let expected = "a duration such as \"30s\", \"5m\" or \"1h30m\"";
        deserializer.deserialize_str(UnitVisitor {
            expected,
            from_text: parse_duration,
            from_number: |_| None,
        })
    }
}

impl HumanDurations {
    /// Serializes the durations.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(times: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(times.iter().map(|time| format_duration(*time)))
    }

    /// Deserializes the durations.
    ///
    /// # Errors
    /// An element is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Duration>, D::Error> {
        let times = Vec::<DurationItem>::deserialize(deserializer)?;
        Ok(times.into_iter().map(|DurationItem(time)| time).collect())
    }
}

/// Element of a list of durations.
#[derive(Deserialize)]
struct DurationItem(#[serde(with = "HumanDuration")] Duration);

impl HumanDurationOrNever {
    /// Serializes the value as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&time.map_or_else(|| NEVER.to_owned(), format_duration))
    }

    /// Deserializes the duration.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let expected = "a duration such as \"30s\", \"5m\" or \"1h30m\", or \"never\"";
        let from_text = |text: &str| {
            if text == NEVER {
                Some(None)
            } else {
                parse_duration(text).map(Some)
            }
        };
        deserializer.deserialize_str(UnitVisitor {
            expected,
            from_text,
            from_number: |_| None,
        })
    }
}

impl OptionalHumanDuration {
    /// Serializes the value as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => HumanDuration::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Deserializes the duration.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        HumanDuration::deserialize(deserializer).map(Some)
    }
}

impl ByteSize {
    /// Serializes the value as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(bytes: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_size(*bytes))
    }

    /// Deserializes the size.
    ///
    /// # Errors
    /// The value is not a size.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        let expected = "a size such as \"64KiB\" or \"8MiB\", or a number of bytes";
        let from_number = |number: u64| usize::try_from(number).ok();
        deserializer.deserialize_any(UnitVisitor {
            expected,
            from_text: parse_size,
            from_number,
        })
    }
}

impl OptionalByteSize {
    /// Serializes the value as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(
        bytes: &Option<usize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => ByteSize::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Deserializes the size.
    ///
    /// # Errors
    /// The value is not a size.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<usize>, D::Error> {
        ByteSize::deserialize(deserializer).map(Some)
    }
}

impl CountOrUnlimited {
    /// Serializes the value as a number or as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<T: fmt::Display, S: Serializer>(
        count: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        // Numbers beyond `u64` saturate.
        let number = |count: &T| count.to_string().parse().unwrap_or(u64::MAX);
        match count {
            Some(count) => serializer.serialize_u64(number(count)),
            None => serializer.serialize_str(UNLIMITED),
        }
    }

    /// Deserializes the value.
    ///
    /// # Errors
    /// The value is not a number or does not fit into `T`.
    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let expected = "a number above 0, or \"unlimited\"";
        let from_text = |text: &str| (text == UNLIMITED).then_some(None);
        let from_number = |number: u64| {
            (number > 0)
                .then(|| number.to_string().parse().ok())
                .flatten()
                .map(Some)
        };
        deserializer.deserialize_any(UnitVisitor {
            expected,
            from_text,
            from_number,
        })
    }
}

impl CountOrHalf {
    /// Serializes the value as a number or as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(
        count: &Option<usize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match count {
            Some(count) => serializer.serialize_u64(*count as u64),
            None => serializer.serialize_str(HALF),
        }
    }

    /// Deserializes the value.
    ///
    /// # Errors
    /// The value is neither a number above 0 nor `half`.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_any(UnitVisitor {
            expected: "a number above 0, or \"half\"",
            from_text: |text: &str| (text == HALF).then_some(None),
            from_number: positive,
        })
    }
}

impl ByteSizeOrHalf {
    /// Serializes the value as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(
        bytes: &Option<usize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&bytes.map_or_else(|| HALF.to_owned(), format_size))
    }

    /// Deserializes the size.
    ///
    /// # Errors
    /// The value is neither a size above 0 nor `half`.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<usize>, D::Error> {
        let from_text = |text: &str| match text {
            HALF => Some(None),
            size => positive(parse_size(size)? as u64),
        };
        deserializer.deserialize_any(UnitVisitor {
            expected: "a size such as \"8MiB\", or \"half\"",
            from_text,
            from_number: positive,
        })
    }
}

/// Returns a number above 0.
fn positive(number: u64) -> Option<Option<usize>> {
    let number = usize::try_from(number).ok()?;
    (number > 0).then_some(Some(number))
}

impl ByteSizeOrUnlimited {
    /// Serializes the value as text.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(
        bytes: &Option<NonZeroU32>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let written = |bytes: &NonZeroU32| format_size(bytes.get() as usize);
        serializer.serialize_str(&bytes.as_ref().map_or_else(|| UNLIMITED.to_owned(), written))
    }

    /// Deserializes the size.
    ///
    /// # Errors
    /// The value is not a size.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<NonZeroU32>, D::Error> {
        let expected = "a size up to 4GB such as \"8MiB\", or \"unlimited\"";
        let from_number = |number: u64| {
            u32::try_from(number)
                .ok()
                .and_then(NonZeroU32::new)
                .map(Some)
        };
        let from_text = |text: &str| {
            if text == UNLIMITED {
                Some(None)
            } else {
                from_number(parse_size(text)? as u64)
            }
        };
        deserializer.deserialize_any(UnitVisitor {
            expected,
            from_text,
            from_number,
        })
    }
}

/// Visitor with one parser for text and one for numbers.
struct UnitVisitor<R, P> {
    expected: &'static str,
    from_text: R,
    from_number: P,
}

impl<T, R: Fn(&str) -> Option<T>, P: Fn(u64) -> Option<T>> Visitor<'_> for UnitVisitor<R, P> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.from_text)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.from_number)(number)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let from_number = u64::try_from(number).ok().and_then(&self.from_number);
        from_number.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_with_units_are_parsed() {
        for (text, millis) in [
            ("30s", 30_000),
            ("250ms", 250),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "30",
            "s",
            "1.5h",
            "-1s",
            "3 parsecs",
            "99999999999999999999s",
            "never",
            "1S",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_with_units_are_parsed() {
        for (text, bytes) in [
            ("8MiB", 8 << 20),
            ("10 MB", 10_000_000),
            ("64kib", 64 << 10),
            ("512", 512),
            ("7B", 7),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "1.5MB",
            "-1",
            "8 stone",
            "99999999999999999999",
            "20000000000GiB",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn formatted_values_parse_back() {
        for millis in [0, 1, 999, 1000, 5_400_000, 604_800_000, 90_061_001] {
            let time_ = Duration::from_millis(millis);
            assert_eq!(parse_duration(&format_duration(time_)), Some(time_));
        }
        for bytes in [0, 1, 1000, 1024, 8 << 20, (8 << 20) + 1] {
            assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
        }
        assert_eq!(
            (
                format_duration(Duration::from_secs(5400)),
                format_size(8 << 20)
            ),
            ("1h30m".into(), "8MiB".into())
        );
    }
}
