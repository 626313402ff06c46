//! Conversions of `google.protobuf.Timestamp`.

use crate::model::{Error, Timestamp};

impl From<Timestamp> for prost_types::Timestamp {
    fn from(time: Timestamp) -> Self {
        let seconds = time.as_millis().div_euclid(1000);
        let millis = time.as_millis().rem_euclid(1000);
        // The remainder is below 1000, so the conversion cannot fail.
        Self {
            seconds,
            nanos: i32::try_from(millis * 1_000_000).unwrap_or_default(),
        }
    }
}

impl TryFrom<prost_types::Timestamp> for Timestamp {
    type Error = Error;

    /// Rounds down, so that rounding does not change the order of events.
    fn try_from(time: prost_types::Timestamp) -> Result<Self, Error> {
        millis(&time)
            .and_then(Self::from_millis)
            .ok_or_else(|| Error::invalid("", "must be a time in the years 1 to 9999"))
    }
}

fn millis(time: &prost_types::Timestamp) -> Option<i64> {
    if !(0..1_000_000_000).contains(&time.nanos) {
        return None;
    }
    time.seconds
        .checked_mul(1000)?
        .checked_add(i64::from(time.nanos / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(seconds: i64, nanos: i32) -> Option<String> {
        Timestamp::try_from(prost_types::Timestamp { seconds, nanos })
            .ok()
            .map(|time| time.to_string())
    }

    #[test]
    fn timestamps_are_rounded_down_and_round_trip() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (1_773_480_413, 589_999_999, "2026-03-14T09:26:53.589Z"),
            (-1, 999_999_999, "1969-12-31T23:59:59.999Z"),
            (-62_135_596_800, 0, "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(read(seconds, nanos).as_deref(), Some(text));
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(
                Timestamp::try_from(prost_types::Timestamp::from(time)),
                Ok(time)
            );
        }
    }

    #[test]
    fn invalid_timestamps_are_rejected() {
        for (seconds, nanos) in [
            (0, -1),
            (0, 1_000_000_000),
            (i64::MAX, 0),
            (i64::MIN, 999_999_999),
            (-62_135_596_801, 0),
        ] {
            assert_eq!(read(seconds, nanos), None, "{seconds} {nanos}");
        }
    }
}
