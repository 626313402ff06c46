//! Time and randomness, injected into the engine so that tests control both.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::model::{Timestamp, random_id};
use crate::rt::lock;

/// Source of time and ids.
pub(crate) trait Clock: Send + Sync + 'static {
    /// Returns the wall-clock time. It may jump in both directions.
    fn now(&self) -> Timestamp;

    /// Returns the monotonic time since an arbitrary start.
    fn elapsed(&self) -> Duration;

    /// Returns a new unique id. `now` is a reading of this clock: ids of one call share it.
    fn new_id(&self, now: Timestamp) -> Arc<str>;
}

/// The clock of the machine, and ids of time and random bits.
pub(crate) struct SystemClock;

const NANOS_PER_MILLI: u128 = 1_000_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn now(&self) -> Timestamp {
        timestamp(SystemTime::now())
    }

    fn elapsed(&self) -> Duration {
        START.elapsed()
    }

    fn new_id(&self, now: Timestamp) -> Arc<str> {
        random_id(now)
    }
}

/// The clock of the machine, corrected by its offset to the database that the replicas share.
///
/// Recorded times of several replicas are thereby comparable. The order of a log does not depend on them.
pub(crate) struct AdjustedClock {
    machine: Arc<dyn Clock>,
    /// Offset that is added to the clock of the machine.
    offset_millis: AtomicI64,
    /// Last measured offset.
    measured_millis: AtomicI64,
}

/// Offset up to which the clock of the machine is used as it is.
const TOLERATED_OFFSET_MILLIS: i64 = 50;

impl AdjustedClock {
    pub(super) fn new(machine: Arc<dyn Clock>) -> Self {
        Self {
            machine,
            offset_millis: AtomicI64::new(0),
            measured_millis: AtomicI64::new(0),
        }
    }

    /// Returns the time of the machine.
    pub(super) fn machine_time(&self) -> Timestamp {
        self.machine.now()
    }

    /// Measures the offset: the database had this time between two times of the machine. Returns the offset.
    pub(super) fn adjust(&self, sent: Timestamp, database: Timestamp) -> Duration {
        let received = self.machine.now();
        let middle = sent.as_millis().midpoint(received.as_millis());
        let offset = database.as_millis().saturating_sub(middle);
        let is_tolerated = offset.abs() <= TOLERATED_OFFSET_MILLIS;
        let used = if is_tolerated { 0 } else { offset };
        self.offset_millis.store(used, Ordering::Relaxed);
        self.measured_millis.store(offset, Ordering::Relaxed);
        self.skew()
    }

    /// Returns the last measured offset, without its sign.
    pub(super) fn skew(&self) -> Duration {
        let offset = self.measured_millis.load(Ordering::Relaxed);
        Duration::from_millis(offset.unsigned_abs())
    }
}

impl Clock for AdjustedClock {
    fn now(&self) -> Timestamp {
        let machine = self.machine.now();
        let offset = self.offset_millis.load(Ordering::Relaxed);
        Timestamp::from_millis(machine.as_millis().saturating_add(offset)).unwrap_or(machine)
    }

    fn elapsed(&self) -> Duration {
        self.machine.elapsed()
    }

    fn new_id(&self, now: Timestamp) -> Arc<str> {
        self.machine.new_id(now)
    }
}

/// Converts a time of the machine. Times outside the years 1 to 9999 become the default: the order of a log does not
/// depend on the clock.
fn timestamp(time: SystemTime) -> Timestamp {
    let millis = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).ok(),
        // Rounds down, like times after 1970.
        Err(before) => {
            let millis = before.duration().as_nanos().div_ceil(NANOS_PER_MILLI);
            i64::try_from(millis).ok().map(|millis| -millis)
        }
    };
    millis.and_then(Timestamp::from_millis).unwrap_or_default()
}

/// A clock for ages that resists forward jumps of the wall clock.
///
/// After a jump it advances at twice the monotonic speed until it has caught up. So a jump does not expire all tasks
/// at once, and the time that a machine was suspended is counted eventually.
#[derive(Debug, Default)]
pub(super) struct SteadyClock {
    last: Mutex<Option<Reading>>,
}

/// The last returned time, and when it was returned.
#[derive(Debug, Clone, Copy)]
struct Reading {
    elapsed: Duration,
    time: Timestamp,
}

impl SteadyClock {
    /// Starts the clock no later than at `known`, a time that has certainly passed. Guards against a wall clock that
    /// is ahead when the process starts.
    pub(super) fn start_at(&self, known: Timestamp, clock: &dyn Clock) {
        *lock(&self.last) = Some(Reading {
            elapsed: clock.elapsed(),
            time: known.min(clock.now()),
        });
    }

    /// Returns the wall-clock time, or less if it has jumped ahead.
    pub(super) fn now(&self, clock: &dyn Clock) -> Timestamp {
        let elapsed = clock.elapsed();
        let wall = clock.now();
        let mut last = lock(&self.last);
        let time = last.map_or(wall, |last| last.advanced(elapsed, wall));
        *last = Some(Reading { elapsed, time });
        time
    }
}

impl Reading {
    /// Returns the wall-clock time, but at most twice the elapsed time after this reading.
    fn advanced(self, elapsed: Duration, wall: Timestamp) -> Timestamp {
        let advance = 2 * elapsed.saturating_sub(self.elapsed);
        let advance = i64::try_from(advance.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.time.as_millis().saturating_add(advance))
            .map_or(wall, |limit| limit.min(wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d23_times_before_1970_are_not_written_as_1970() {
        for (millis, nanos, expected) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (1, 0, "1969-12-31T23:59:59.999Z"),
            (1, 1, "1969-12-31T23:59:59.998Z"),
            (86_400_000, 0, "1969-12-31T00:00:00.000Z"),
        ] {
            let before = Duration::from_millis(millis) + Duration::from_nanos(nanos);
            assert_eq!(timestamp(UNIX_EPOCH - before).to_string(), expected);
        }
        let after = Duration::from_micros(1_500);
        assert_eq!(timestamp(UNIX_EPOCH + after).as_millis(), 1);
    }
}
