//! Whether somebody has called: what is asked at every step of some work, and rarely has an answer, is asked again only then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// Wakes whoever works, and remembers that it did.
#[derive(Default)]
pub(crate) struct WakeFlag(Option<Arc<WakeState>>);

struct WakeState {
    woken: AtomicBool,
    waker: Waker,
}

impl WakeFlag {
    /// What to leave with those who are to call, where it is time to ask them: at first, when one has called, and when
    /// somebody else does the work now.
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
        // Read first: a step that finds nothing writes nothing.
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
    struct Counts(AtomicU32);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_poll_is_due_after_each_wake_and_for_each_new_waker() {
        let (one, other) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        let (first, second) = (Waker::from(one.clone()), Waker::from(other.clone()));
        let (first, second) = (Context::from_waker(&first), Context::from_waker(&second));
        let mut flag = WakeFlag::default();
        let waker = flag.poll_due(&first).expect("nobody has looked yet");
        assert!(flag.poll_due(&first).is_none());
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(one.0.load(Ordering::Relaxed), 2);
        assert!(flag.poll_due(&first).is_some());
        assert!(flag.poll_due(&first).is_none());
        flag.poll_due(&second).expect("somebody else does").wake();
        assert_eq!(
            (
                one.0.load(Ordering::Relaxed),
                other.0.load(Ordering::Relaxed)
            ),
            (2, 1)
        );
    }
}
