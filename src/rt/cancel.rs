//! Runs a future until a `CancellationToken` fires, without taking the token's lock on every poll.
//!
//! `CancellationToken::cancelled` locks a mutex of its token on each poll, and all connections and turns of a process
//! share one token. [`run_until`] polls it only after it was woken (see [`WakeFlag`]).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio_util::sync::CancellationToken;

use super::WakeFlag;

/// Polls `future` until it completes or `token` is cancelled. The future is dropped before this returns.
pub(crate) async fn run_until(
    token: CancellationToken,
    mut future: Pin<Box<impl Future<Output = ()> + ?Sized>>,
) {
    let mut cancelled = pin!(token.cancelled());
    let mut wake_flag = WakeFlag::default();
    poll_fn(|context| {
        if let Some(waker) = wake_flag.poll_due(context)
            && cancelled
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
        {
            return Poll::Ready(());
        }
        future.as_mut().poll(context)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    const DEADLINE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_future_that_completes_ends_the_run() {
        let future = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        timeout(
            DEADLINE,
            run_until(CancellationToken::new(), Box::pin(future)),
        )
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn pending_and_busy_futures_are_dropped_on_cancellation() {
        let token = CancellationToken::new();
        let guard = Arc::new(());
        let pending_guard = guard.clone();
        let busy_guard = guard.clone();
        let mut runs = tokio::task::JoinSet::new();
        runs.spawn(run_until(
            token.clone(),
            Box::pin(async move {
                let _guard = pending_guard;
                std::future::pending::<()>().await;
            }),
        ));
        runs.spawn(run_until(
            token.clone(),
            Box::pin(async move {
                let _guard = busy_guard;
                loop {
                    tokio::task::yield_now().await;
                }
            }),
        ));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&guard), 3);
        token.cancel();
        timeout(DEADLINE, runs.join_all()).await.unwrap();
        assert_eq!(Arc::strong_count(&guard), 1);
    }

    #[tokio::test]
    async fn a_cancelled_token_prevents_the_first_poll() {
        let token = CancellationToken::new();
        token.cancel();
        timeout(
            DEADLINE,
            run_until(token, Box::pin(async { panic!("it was polled") })),
        )
        .await
        .unwrap();
    }
}
