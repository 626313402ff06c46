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
pub(super) struct Lazy(Arc<Mutex<Option<Alarm>>>);

type Alarm = Pin<Box<tokio::time::Sleep>>;

/// One thing that is waited for.
struct Until {
    timer: Lazy,
    deadline: Instant,
}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        // Set or not, whatever panics elsewhere.
        let mut alarm = self.timer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alarm = alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if alarm.deadline() > deadline {
            alarm.as_mut().reset(deadline);
        }
        ready!(alarm.as_mut().poll(context));
        if alarm.deadline() < deadline {
            alarm.as_mut().reset(deadline);
            return alarm.as_mut().poll(context);
        }
        Poll::Ready(())
    }
}

impl Sleep for Until {}

impl Timer for Lazy {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Until {
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
    async fn whoever_waits_is_woken_in_time_whatever_was_waited_for_before() {
        let timer = Lazy::default();
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
