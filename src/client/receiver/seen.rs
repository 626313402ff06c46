//! What has been taken before: as much as fits, as long as it counts.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

type Name = [u8; 32];

pub(super) struct Seen {
    window: Duration,
    limit: usize,
    names: HashSet<Name>,
    /// The oldest first.
    order: VecDeque<(Instant, Name)>,
}

impl Seen {
    pub(super) fn new(window: Duration, limit: usize) -> Self {
        Self {
            window,
            limit: limit.max(1),
            names: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn contains(&mut self, name: &Name, now: Instant) -> bool {
        self.forget(|age, _, window| age >= window, now);
        self.names.contains(name)
    }

    pub(super) fn remember(&mut self, name: Name, now: Instant) {
        let limit = self.limit;
        self.forget(|_, count, _| count >= limit, now);
        if self.names.insert(name) {
            self.order.push_back((now, name));
        }
    }

    /// Forgets the oldest while `is_over` says so, by its age, how many there are, and the window.
    fn forget(&mut self, is_over: impl Fn(Duration, usize, Duration) -> bool, now: Instant) {
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
    fn memory_is_bounded_by_time_and_by_number() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut seen = Seen::new(minute, 2);
        seen.remember([1; 32], start);
        assert!(seen.contains(&[1; 32], start));
        assert!(!seen.contains(&[1; 32], start + minute));
        for name in 2..5 {
            seen.remember([name; 32], start + minute);
        }
        let known = (1..5).map(|name| seen.contains(&[name; 32], start + minute));
        assert_eq!(known.collect::<Vec<_>>(), [false, false, true, true]);
    }
}
