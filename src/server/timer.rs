//! Reusable timer for one HTTP/1 connection. hyper starts a timer for every request; almost none of
//! them fires.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use tokio::time::{Instant, sleep_until};

use crate::rt::lock;

/// Timer that keeps one Tokio timer entry across consecutive sleeps of a connection.
///
/// A later deadline does not reset the entry. The entry then fires early, and the sleep resets it
/// at that point. So a request costs no timer registration as long as the entry fires before the
/// deadline.
#[derive(Clone, Default)]
pub(super) struct ReusableTimer(Arc<Mutex<Option<SharedSleep>>>);

type SharedSleep = Pin<Box<tokio::time::Sleep>>;

/// One sleep on the shared timer entry. Only one of them is polled at a time.
struct ReusableSleep {
    timer: ReusableTimer,
    deadline: Instant,
}

impl Future for ReusableSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let mut shared = lock(&self.timer.0);
        let sleep = shared.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        ready!(sleep.as_mut().poll(context));
        if sleep.deadline() < deadline {
            sleep.as_mut().reset(deadline);
            return sleep.as_mut().poll(context);
        }
        Poll::Ready(())
    }
}

impl Sleep for ReusableSleep {}

impl Timer for ReusableTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(ReusableSleep {
            timer: self.clone(),
            deadline: deadline.into(),
        })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const DURATION: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn sleeps_end_on_time_after_other_sleeps() {
        let timer = ReusableTimer::default();
        for _ in 0..5 {
            // Dropped before its end, like the timer of a request that arrives in time.
            assert!(timeout(DURATION / 3, timer.sleep(DURATION)).await.is_err());
        }
        for wait in [
            DURATION,
            DURATION / 10,
            DURATION * 3,
            Duration::ZERO,
            DURATION,
        ] {
            let begin = Instant::now();
            timer.sleep(wait).await;
            assert_eq!(begin.elapsed(), wait);
        }
        let late = timer.sleep(DURATION);
        advance(DURATION * 2).await;
        let begin = Instant::now();
        late.await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
