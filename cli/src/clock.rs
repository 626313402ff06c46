//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use attache::model::Timestamp;

const NANOS_PER_MILLI: u128 = 1_000_000;

/// Current time, in Unix milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "client verbs have no engine whose clock they could use"
)]
pub(crate) fn now_ms() -> i64 {
    unix_ms(SystemTime::now())
}

/// Converts a time of the machine, which may be before 1970. Rounds down.
fn unix_ms(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => {
            let millis = before.duration().as_nanos().div_ceil(NANOS_PER_MILLI);
            i64::try_from(millis).map_or(i64::MIN, |millis| -millis)
        }
    }
}

/// Current time.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(now_ms()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn d23_times_before_1970_are_negative() {
        for (before, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), -1),
            (Duration::from_secs(86_400), -86_400_000),
        ] {
            assert_eq!(unix_ms(UNIX_EPOCH - before), expected, "{before:?}");
        }
        assert_eq!(unix_ms(UNIX_EPOCH + Duration::from_millis(7)), 7);
    }
}
