//! Work that is dropped when it is told to end.
//!
//! A token that is asked at every step, as it usually is, has a lock that all work of the process would share. Here it tells
//! whoever waits once, and the work looks at a flag of its own.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio_util::sync::CancellationToken;

use super::WakeFlag;

/// Does the work, or as much as is done when `stop` is cancelled. What it is in goes with it.
pub(crate) async fn run_until(
    stop: CancellationToken,
    mut work: Pin<Box<impl Future<Output = ()> + ?Sized>>,
) {
    let (mut cancelled, mut wake_flag) = (pin!(stop.cancelled()), WakeFlag::default());
    poll_fn(|context| {
        if let Some(waker) = wake_flag.poll_due(context)
            && cancelled
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
        {
            return Poll::Ready(());
        }
        work.as_mut().poll(context)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_future_that_completes_ends_the_run() {
        let work = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, run_until(CancellationToken::new(), Box::pin(work)))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn pending_and_busy_futures_are_dropped_on_cancellation() {
        let (stop, here) = (CancellationToken::new(), Arc::new(()));
        let held = (here.clone(), here.clone());
        let mut both = tokio::task::JoinSet::new();
        both.spawn(run_until(
            stop.clone(),
            Box::pin(async move {
                let _held = held.0;
                std::future::pending::<()>().await;
            }),
        ));
        both.spawn(run_until(
            stop.clone(),
            Box::pin(async move {
                let _held = held.1;
                loop {
                    tokio::task::yield_now().await;
                }
            }),
        ));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&here), 3);
        stop.cancel();
        timeout(SOON, both.join_all()).await.unwrap();
        assert_eq!(Arc::strong_count(&here), 1);
    }

    #[tokio::test]
    async fn a_cancelled_token_prevents_the_first_poll() {
        let stop = CancellationToken::new();
        stop.cancel();
        timeout(
            SOON,
            run_until(stop, Box::pin(async { panic!("it began") })),
        )
        .await
        .unwrap();
    }
}
