//! Timestamps in UTC with millisecond precision.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use serde::ser::{Serialize, Serializer};

/// Timestamp in UTC with millisecond precision, the precision that A2A writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

/// Error: the text is not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidTimestamp;

/// Start of year 1, the minimum of protobuf, to 9999-12-30T22:00:00.999Z, the maximum that stays in
/// year 9999 in every time zone.
const MILLIS_RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_207_200_999;

impl Timestamp {
    /// Latest representable timestamp.
    pub const MAX: Self = Self(*MILLIS_RANGE.end());

    /// Creates a timestamp from Unix milliseconds; `None` outside the years 1 to 9999.
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        MILLIS_RANGE.contains(&millis).then_some(Self(millis))
    }

    /// Returns the Unix time in milliseconds.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Parses a timestamp from a peer: RFC 3339 with any offset; without an offset it is UTC.
    ///
    /// # Errors
    /// [`InvalidTimestamp`] if the text is not a date with a time.
    pub fn parse_lenient(text: &str) -> Result<Self, InvalidTimestamp> {
        text.parse().or_else(|InvalidTimestamp| {
            let civil: DateTime = text.trim().parse().map_err(|_| InvalidTimestamp)?;
            // A bare date would parse as midnight; reject it as ambiguous.
            let time = civil
                .to_zoned(TimeZone::UTC)
                .map_err(|_| InvalidTimestamp)?
                .timestamp();
            if text.len() <= 10 {
                Err(InvalidTimestamp)
            } else {
                Self::from_jiff(time)
            }
        })
    }

    fn from_jiff(time: jiff::Timestamp) -> Result<Self, InvalidTimestamp> {
        // Rounds down, so that rounding does not change the order of events.
        let millis = time.as_nanosecond().div_euclid(1_000_000);
        i64::try_from(millis)
            .ok()
            .and_then(Self::from_millis)
            .ok_or(InvalidTimestamp)
    }

    /// Formats `YYYY-MM-DDTHH:MM:SS.sssZ` into a fixed buffer. Cheaper than jiff's general printer.
    fn format_into(self, text: &mut [u8; 24]) -> &str {
        // Seconds and milliseconds separately: jiff's millisecond range is one second shorter than
        // its second range.
        let time = jiff::Timestamp::from_second(self.0.div_euclid(1000))
            .expect("MILLIS_RANGE is within the range of jiff");
        let time = Offset::UTC.to_datetime(time);
        let millis = self.0.rem_euclid(1000);
        *text = *b"0000-00-00T00:00:00.000Z";
        write_digits(&mut text[0..4], time.year());
        write_digits(&mut text[5..7], time.month().into());
        write_digits(&mut text[8..10], time.day().into());
        write_digits(&mut text[11..13], time.hour().into());
        write_digits(&mut text[14..16], time.minute().into());
        write_digits(&mut text[17..19], time.second().into());
        write_digits(
            &mut text[20..23],
            i16::try_from(millis).expect("a remainder of 1000 fits into i16"),
        );
        std::str::from_utf8(text).expect("digits are ASCII")
    }
}

/// Writes a non-negative number right-aligned, padded with zeros.
fn write_digits(field: &mut [u8], number: i16) {
    let mut rest = number.unsigned_abs();
    for digit in field.iter_mut().rev() {
        *digit = b"0123456789"[usize::from(rest % 10)];
        rest /= 10;
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Parses RFC 3339. Requires an offset or `Z`.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        Self::from_jiff(text.parse().map_err(|_| InvalidTimestamp)?)
    }
}

impl fmt::Display for Timestamp {
    /// Formats as `YYYY-MM-DDTHH:MM:SS.sssZ`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format_into(&mut [0; 24]))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.format_into(&mut [0; 24]))
    }
}

impl fmt::Display for InvalidTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be an RFC 3339 time such as 2026-03-14T09:26:53.589Z")
    }
}

impl std::error::Error for InvalidTimestamp {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_normalized_to_utc_milliseconds() {
        for (text, written) in [
            ("2026-03-14T09:26:53Z", "2026-03-14T09:26:53.000Z"),
            ("2026-03-14T09:26:53.5+02:00", "2026-03-14T07:26:53.500Z"),
            ("2026-03-14t09:26:53.123456789z", "2026-03-14T09:26:53.123Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
            ("9999-12-30T22:00:00.999Z", "9999-12-30T22:00:00.999Z"),
            ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn r33_lenient_parser_reads_missing_offset_as_utc() {
        let text = "2026-03-14T09:26:53.5";
        assert_eq!(text.parse::<Timestamp>(), Err(InvalidTimestamp));
        assert_eq!(
            Timestamp::parse_lenient(text).unwrap().to_string(),
            "2026-03-14T09:26:53.500Z"
        );
        assert_eq!(
            Timestamp::parse_lenient("2026-03-14 09:26:53")
                .unwrap()
                .to_string(),
            "2026-03-14T09:26:53.000Z"
        );
        for bad in [
            "",
            "soon",
            "2026-03-14",
            "2026-13-14T09:26:53",
            "0000-01-01T00:00:00Z",
        ] {
            assert_eq!(
                Timestamp::parse_lenient(bad),
                Err(InvalidTimestamp),
                "{bad}"
            );
        }
    }
}
