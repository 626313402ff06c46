//! Deduplication window: fingerprints of recent notifications, bounded by age and number.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// SHA-256 digest that identifies a notification or a request.
pub(super) type Fingerprint = [u8; 32];

/// Set of fingerprints. The oldest are evicted when they exceed the maximum age or number.
pub(super) struct DedupWindow {
    max_age: Duration,
    capacity: usize,
    known: HashSet<Fingerprint>,
    /// Insertion times, oldest first.
    order: VecDeque<(Instant, Fingerprint)>,
}

impl DedupWindow {
    pub(super) fn new(max_age: Duration, capacity: usize) -> Self {
        Self {
            max_age,
            capacity: capacity.max(1),
            known: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    /// Whether a fingerprint was inserted within the window.
    pub(super) fn contains(&mut self, fingerprint: &Fingerprint, now: Instant) -> bool {
        let max_age = self.max_age;
        self.evict_while(|oldest, _| now.duration_since(oldest) >= max_age);
        self.known.contains(fingerprint)
    }

    pub(super) fn insert(&mut self, fingerprint: Fingerprint, now: Instant) {
        let capacity = self.capacity;
        self.evict_while(|_, count| count >= capacity);
        if self.known.insert(fingerprint) {
            self.order.push_back((now, fingerprint));
        }
    }

    /// Evicts the oldest fingerprint while `is_full` returns `true` for its insertion time and the current number.
    fn evict_while(&mut self, is_full: impl Fn(Instant, usize) -> bool) {
        while let Some((inserted, fingerprint)) = self.order.front()
            && is_full(*inserted, self.order.len())
        {
            self.known.remove(fingerprint);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_bounded_by_age_and_count() {
        let start = Instant::now();
        let minute = Duration::from_secs(60);
        let mut window = DedupWindow::new(minute, 2);
        window.insert([1; 32], start);
        assert!(window.contains(&[1; 32], start));
        assert!(!window.contains(&[1; 32], start + minute));
        for byte in 2..5 {
            window.insert([byte; 32], start + minute);
        }
        let known = (1..5).map(|byte| window.contains(&[byte; 32], start + minute));
        assert_eq!(known.collect::<Vec<_>>(), [false, false, true, true]);
    }
}
