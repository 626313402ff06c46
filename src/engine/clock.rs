//! Time and chance: given to the engine, so that a test can hold both still.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::model::{Timestamp, random_id};

/// Where the engine gets the time and fresh ids.
pub(crate) trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// How long it is since some moment; nobody can set this.
    fn elapsed(&self) -> Duration;

    /// An id that nobody has had before.
    fn new_id(&self) -> Arc<str>;
}

/// The clock of the machine, and 122 random bits.
pub(crate) struct SystemClock;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is given")]
    fn now(&self) -> Timestamp {
        // A clock outside the years 1970 to 9999 is broken; the log's order does not depend on it.
        let passed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let millis = i64::try_from(passed.as_millis()).ok();
        millis.and_then(Timestamp::from_millis).unwrap_or_default()
    }

    fn elapsed(&self) -> Duration {
        START.elapsed()
    }

    fn new_id(&self) -> Arc<str> {
        random_id()
    }
}

/// The time by which ages are told: that of the clock, unless it has jumped ahead. Then it follows at twice the speed of
/// what really passes, so that nothing is taken for old all at once, and a machine that slept is caught up with.
#[derive(Debug, Default)]
pub(super) struct SteadyClock {
    last: Mutex<Option<(Duration, Timestamp)>>,
}

impl SteadyClock {
    /// Begins no later than at a time that is known to have been: a clock that is wrong from the start has jumped too.
    pub(super) fn start_at(&self, known: Timestamp, clock: &dyn Clock) {
        let begun = Some((clock.elapsed(), known.min(clock.now())));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = begun;
    }

    pub(super) fn now(&self, clock: &dyn Clock) -> Timestamp {
        let (passed, wall) = (clock.elapsed(), clock.now());
        // Put there whole, so a panic elsewhere spoils nothing.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = last.map_or(wall, |(then, last)| {
            let since = 2 * passed.saturating_sub(then);
            let since = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(last.as_millis().saturating_add(since))
                .map_or(wall, |most| most.min(wall))
        });
        *last = Some((passed, now));
        now
    }
}
