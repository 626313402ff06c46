//! The timer of one connection, which is set for every request and goes off for hardly any.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use tokio::time::{Instant, sleep_until};

/// Times what one connection waits for, one thing after the other. What the runtime was told for one of them stays there for
/// those behind it: it goes off too early for them, once in a while, and is set anew only then.
#[derive(Clone, Default)]
pub(super) struct ReusableTimer(Arc<Mutex<Option<SharedSleep>>>);

type SharedSleep = Pin<Box<tokio::time::Sleep>>;

/// One thing that is waited for.
struct ReusableSleep {
    timer: ReusableTimer,
    deadline: Instant,
}

impl Future for ReusableSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        // Set or not, whatever panics elsewhere.
        let mut sleep = self.timer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
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

    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn sleeps_end_on_time_after_other_sleeps() {
        let timer = ReusableTimer::default();
        for _ in 0..5 {
            // Not waited for to its end, as with a request that comes.
            assert!(timeout(SOON / 3, timer.sleep(SOON)).await.is_err());
        }
        for wait in [SOON, SOON / 10, SOON * 3, Duration::ZERO, SOON] {
            let begun = Instant::now();
            timer.sleep(wait).await;
            assert_eq!(begun.elapsed(), wait);
        }
        let late = timer.sleep(SOON);
        advance(SOON * 2).await;
        let begun = Instant::now();
        late.await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
