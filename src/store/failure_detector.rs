//! Failure detector: finds replicas whose heartbeats have stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Observes the heartbeat counters of the other replicas on the monotonic clock of this one.
///
/// A replica is to be evicted if its counter is unchanged for one lease. If the observer itself had a gap of more than half
/// a lease between two observations, the fault may be local, and all observations restart.
#[derive(Debug)]
pub(crate) struct FailureDetector {
    lease: Duration,
    last_observation: Option<Instant>,
    observed: BTreeMap<i64, ObservedCounter>,
}

/// Heartbeat counter of a replica, and the time of the observation that found it changed.
#[derive(Debug, Clone, Copy)]
struct ObservedCounter {
    counter: i64,
    changed: Instant,
}

impl FailureDetector {
    pub(crate) fn new(lease: Duration) -> Self {
        Self {
            lease,
            last_observation: None,
            observed: BTreeMap::new(),
        }
    }

    /// Records the counters of the other live replicas, by replica id, and returns those to evict with their counters.
    pub(crate) fn observe(&mut self, now: Instant, counters: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let had_gap = self
            .last_observation
            .is_none_or(|last| now.saturating_duration_since(last) > self.lease / 2);
        self.last_observation = Some(now);
        let earlier = std::mem::take(&mut self.observed);
        let mut silent = Vec::new();
        for (replica, counter) in counters.iter().copied() {
            let unchanged = earlier
                .get(&replica)
                .filter(|observed| !had_gap && observed.counter == counter);
            let changed = unchanged.map_or(now, |observed| observed.changed);
            if now.saturating_duration_since(changed) >= self.lease {
                silent.push((replica, counter));
            }
            self.observed
                .insert(replica, ObservedCounter { counter, changed });
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LEASE: Duration = Duration::from_secs(3);
    const INTERVAL: Duration = Duration::from_millis(500);

    /// Observes one replica at these intervals after the start, with these counters.
    fn evictions(observations: &[(u64, i64)]) -> Vec<u64> {
        let start = Instant::now();
        let mut detector = FailureDetector::new(LEASE);
        let mut evicted = Vec::new();
        for (interval, counter) in observations.iter().copied() {
            let now = start + INTERVAL * u32::try_from(interval).unwrap();
            if !detector.observe(now, &[(7, counter)]).is_empty() {
                evicted.push(interval);
            }
        }
        evicted
    }

    #[test]
    fn a_silent_replica_is_evicted_one_lease_after_its_last_change() {
        let silent: Vec<_> = (0..8).map(|interval| (interval, 5)).collect();
        assert_eq!(evictions(&silent), [6, 7]);
        let killed: Vec<_> = (0_u64..12)
            .map(|interval| (interval, interval.min(4).cast_signed()))
            .collect();
        assert_eq!(evictions(&killed), [10, 11]);
    }

    #[test]
    fn a_replica_whose_counter_changes_is_not_evicted() {
        let flapping: Vec<_> = (0_u64..40)
            .map(|interval| (interval, (interval / 5).cast_signed()))
            .collect();
        assert!(evictions(&flapping).is_empty());
    }

    #[test]
    fn a_gap_of_the_observer_restarts_all_observations() {
        let mut observations: Vec<_> = (0..5).map(|interval| (interval, 5)).collect();
        observations.extend((9..16).map(|interval| (interval, 5)));
        assert_eq!(evictions(&observations), [15]);
    }

    proptest! {
        /// Any schedule: a replica is evicted if and only if the observer, without a gap of its own, has seen no change for
        /// one lease.
        #[test]
        fn evictions_are_neither_early_nor_late(steps in vec((1_u32..9, 0_u8..8), 1..60)) {
            let mut detector = FailureDetector::new(LEASE);
            let mut now = Instant::now();
            let mut counter = 0;
            let mut changed = now;
            let mut gap_free_since = now;
            for (half_intervals, change) in steps {
                let step = INTERVAL * half_intervals / 2;
                let is_first = counter == 0;
                now += step;
                if step > LEASE / 2 || is_first {
                    gap_free_since = now;
                }
                if change == 0 || is_first {
                    counter += 1;
                    changed = now;
                }
                let since = now - changed.max(gap_free_since);
                let is_evicted = !detector.observe(now, &[(1, counter)]).is_empty();
                prop_assert_eq!(is_evicted, since >= LEASE, "{:?} since the last change", since);
            }
        }
    }
}
