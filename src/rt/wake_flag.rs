//! A waker that records whether it was woken.
//!
//! Poll loops use it to skip futures (cancellation, timers) that were not woken since the last poll. A skipped poll
//! costs one atomic load instead of the lock that the future takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// Flag that records wake-ups of the futures polled with its waker. It forwards them to the polling task.
#[derive(Default)]
pub(crate) struct WakeFlag(Option<Arc<WakeState>>);

struct WakeState {
    woken: AtomicBool,
    waker: Waker,
}

impl WakeFlag {
    /// Returns the waker to poll with if a poll is due, else `None`.
    ///
    /// A poll is due the first time, after each wake-up, and if the polling task's waker has changed.
    pub(crate) fn poll_due(&mut self, context: &Context<'_>) -> Option<Waker> {
        let state = match self.0.take() {
            Some(state) if state.waker.will_wake(context.waker()) => {
                if !state.take_woken() {
                    self.0 = Some(state);
                    return None;
                }
                state
            }
            _ => Arc::new(WakeState {
                woken: AtomicBool::new(false),
                waker: context.waker().clone(),
            }),
        };
        self.0 = Some(state.clone());
        Some(state.into())
    }
}

impl WakeState {
    fn take_woken(&self) -> bool {
        // Load before swap: the common case, not woken, writes nothing.
        self.woken.load(Ordering::Acquire) && self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[derive(Default)]
    struct CountingWaker(AtomicU32);

    impl CountingWaker {
        fn count(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_poll_is_due_after_each_wake_and_for_each_new_waker() {
        let first_counter = Arc::new(CountingWaker::default());
        let second_counter = Arc::new(CountingWaker::default());
        let first_waker = Waker::from(first_counter.clone());
        let second_waker = Waker::from(second_counter.clone());
        let first = Context::from_waker(&first_waker);
        let second = Context::from_waker(&second_waker);
        let mut flag = WakeFlag::default();
        let waker = flag.poll_due(&first).expect("the first poll is due");
        assert!(flag.poll_due(&first).is_none());
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(first_counter.count(), 2);
        assert!(flag.poll_due(&first).is_some());
        assert!(flag.poll_due(&first).is_none());
        let waker = flag.poll_due(&second).expect("the waker has changed");
        waker.wake();
        assert_eq!(first_counter.count(), 2);
        assert_eq!(second_counter.count(), 1);
    }
}
