//! Whether somebody has called: what is asked at every step of some work, and rarely has an answer, is asked again only then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// Wakes whoever works, and remembers that it did.
#[derive(Default)]
pub(crate) struct Bell(Option<Arc<Rung>>);

struct Rung {
    rung: AtomicBool,
    worker: Waker,
}

impl Bell {
    /// What to leave with those who are to call, where it is time to ask them: at first, when one has called, and when
    /// somebody else does the work now.
    pub(crate) fn look(&mut self, context: &Context<'_>) -> Option<Waker> {
        let rung = match self.0.take() {
            Some(rung) if rung.worker.will_wake(context.waker()) => {
                if !rung.take() {
                    self.0 = Some(rung);
                    return None;
                }
                rung
            }
            _ => Arc::new(Rung {
                rung: AtomicBool::new(false),
                worker: context.waker().clone(),
            }),
        };
        self.0 = Some(rung.clone());
        Some(rung.into())
    }
}

impl Rung {
    fn take(&self) -> bool {
        // Read first: a step that finds nothing writes nothing.
        self.rung.load(Ordering::Acquire) && self.rung.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.worker.wake_by_ref();
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
    fn it_is_looked_at_once_for_every_call_and_by_everybody_who_comes_anew() {
        let (one, other) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        let (first, second) = (Waker::from(one.clone()), Waker::from(other.clone()));
        let (first, second) = (Context::from_waker(&first), Context::from_waker(&second));
        let mut bell = Bell::default();
        let waker = bell.look(&first).expect("nobody has looked yet");
        assert!(bell.look(&first).is_none());
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(one.0.load(Ordering::Relaxed), 2);
        assert!(bell.look(&first).is_some());
        assert!(bell.look(&first).is_none());
        bell.look(&second).expect("somebody else does").wake();
        assert_eq!(
            (
                one.0.load(Ordering::Relaxed),
                other.0.load(Ordering::Relaxed)
            ),
            (2, 1)
        );
    }
}
