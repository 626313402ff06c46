//! Type-erased agents. Panics of an agent are caught here and become failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tracing::{Instrument, Span};

use super::{Agent, Failure, Outcome, Turn};
use crate::model::{Call, Message, Task};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Object-safe form of [`Agent`]. Its futures return a panic as [`Failure`].
pub(crate) trait DynAgent: Send + Sync {
    fn run(&self, turn: Turn) -> CatchPanic<'_, Outcome>;
    fn reply<'a>(&'a self, message: &'a Message, call: &'a Call)
    -> CatchPanic<'a, Option<Message>>;
    fn on_canceled<'a>(&'a self, task: &'a Task) -> CatchPanic<'a, ()>;
    fn needs_durable_start(&self) -> bool;
}

impl<A: Agent> DynAgent for A {
    fn run(&self, turn: Turn) -> CatchPanic<'_, Outcome> {
        CatchPanic::new(|| Box::pin(Agent::run(self, turn)))
    }

    fn reply<'a>(
        &'a self,
        message: &'a Message,
        call: &'a Call,
    ) -> CatchPanic<'a, Option<Message>> {
        CatchPanic::new(|| Box::pin(async move { Ok(Agent::reply(self, message, call).await) }))
    }

    fn on_canceled<'a>(&'a self, task: &'a Task) -> CatchPanic<'a, ()> {
        CatchPanic::new(|| {
            Box::pin(async move {
                Agent::on_canceled(self, task).await;
                Ok(())
            })
        })
    }

    fn needs_durable_start(&self) -> bool {
        Agent::needs_durable_start(self)
    }
}

/// A future that returns panics of the wrapped future as [`Failure`].
///
/// Covers its construction and its polls. A panic while it is dropped is logged.
pub(crate) struct CatchPanic<'a, T>(Option<BoxFuture<'a, T>>);

impl<'a, T: Send + 'a> CatchPanic<'a, T> {
    fn new(make: impl FnOnce() -> BoxFuture<'a, T>) -> Self {
        // Unwind safe: after a panic there is no future to observe.
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(future) => Self(Some(future)),
            Err(payload) => Self::failed(Failure::from_panic(payload)),
        }
    }

    /// Returns a future that fails on its first poll.
    pub(crate) fn failed(failure: Failure) -> Self {
        Self(Some(Box::pin(async { Err(failure) })))
    }

    /// Runs the wrapped future within `span`.
    pub(crate) fn instrumented(mut self, span: Span) -> Self {
        self.0 = self
            .0
            .take()
            .map(|future| Box::pin(future.instrument(span)) as BoxFuture<'a, T>);
        self
    }
}

impl<T> Future for CatchPanic<'_, T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else {
            return Poll::Pending;
        };
        // Unwind safe: after a panic the future is only dropped.
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)))
            .unwrap_or_else(|payload| Poll::Ready(Err(Failure::from_panic(payload))))
    }
}

impl<T> Drop for CatchPanic<'_, T> {
    fn drop(&mut self) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.0 = None)) {
            let failure = Failure::from_panic(payload);
            tracing::warn!(
                cause = failure.cause() as &dyn std::error::Error,
                "agent panicked while it was dropped"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        let panics = CatchPanic::<()>::new(|| Box::pin(async { panic!("at {}", "/etc/secret") }));
        let failure = panics.await.unwrap_err();
        assert_eq!(failure.to_string(), "Agent execution failed (panic)");
        assert_eq!(failure.cause().to_string(), "at /etc/secret");
        let unmade = CatchPanic::<()>::new(|| panic!("during construction"));
        assert_eq!(
            unmade.await.unwrap_err().to_string(),
            "Agent execution failed (panic)"
        );
        let completes = CatchPanic::new(|| Box::pin(async { Ok(7) }));
        assert_eq!(completes.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn r44_a_panic_while_an_agent_is_dropped_stays_within() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("while dropped");
            }
        }
        let armed = async {
            let _bomb = Bomb;
            std::future::pending::<Result<(), Failure>>().await
        };
        let mut future = CatchPanic::new(|| Box::pin(armed));
        let pending = std::future::poll_fn(|context| {
            Poll::Ready(Pin::new(&mut future).poll(context).is_pending())
        })
        .await;
        assert!(pending);
        drop(future);
    }
}
