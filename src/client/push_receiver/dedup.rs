//! What has been taken before: as much as fits, as long as it counts.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

type Fingerprint = [u8; 32];

pub(super) struct DedupWindow {
    window: Duration,
    limit: usize,
    names: HashSet<Fingerprint>,
    /// The oldest first.
    order: VecDeque<(Instant, Fingerprint)>,
}

impl DedupWindow {
    pub(super) fn new(window: Duration, limit: usize) -> Self {
        Self {
            window,
            limit: limit.max(1),
            names: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn contains(&mut self, name: &Fingerprint, now: Instant) -> bool {
        self.evict(|age, _, window| age >= window, now);
        self.names.contains(name)
    }

    pub(super) fn insert(&mut self, name: Fingerprint, now: Instant) {
        let limit = self.limit;
        self.evict(|_, count, _| count >= limit, now);
        if self.names.insert(name) {
            self.order.push_back((now, name));
        }
    }

    /// Forgets the oldest while `is_over` says so, by its age, how many there are, and the window.
    fn evict(&mut self, is_over: impl Fn(Duration, usize, Duration) -> bool, now: Instant) {
        while let Some((at, name)) = self.order.front()
            && is_over(now.duration_since(*at), self.order.len(), self.window)
        {
            self.names.remove(name);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_bounded_by_age_and_count() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut recent = DedupWindow::new(minute, 2);
        recent.insert([1; 32], start);
        assert!(recent.contains(&[1; 32], start));
        assert!(!recent.contains(&[1; 32], start + minute));
        for name in 2..5 {
            recent.insert([name; 32], start + minute);
        }
        let known = (1..5).map(|name| recent.contains(&[name; 32], start + minute));
        assert_eq!(known.collect::<Vec<_>>(), [false, false, true, true]);
    }
}
