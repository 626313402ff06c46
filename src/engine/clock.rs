//! Time and randomness, injected into the engine so that tests control both.

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

    /// Returns a new unique id.
    fn new_id(&self) -> Arc<str>;
}

/// The clock of the machine, and ids of time and random bits.
pub(crate) struct SystemClock;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn now(&self) -> Timestamp {
        // Times outside the years 1970 to 9999 become the default: the order of a log does not depend on the clock.
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let millis = i64::try_from(since_epoch.as_millis()).ok();
        millis.and_then(Timestamp::from_millis).unwrap_or_default()
    }

    fn elapsed(&self) -> Duration {
        START.elapsed()
    }

    fn new_id(&self) -> Arc<str> {
        random_id()
    }
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
