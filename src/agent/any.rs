//! Any agent behind one type, with its panics caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Agent, Failure, Outcome, Turn};
use crate::model::{Call, Message, Task};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any agent. A panic in it is a failure like any other: nobody outside this file meets one.
pub(crate) trait AnyAgent: Send + Sync {
    fn run(&self, turn: Turn) -> Boxed<'_, Result<Outcome, Failure>>;
    fn reply<'a>(
        &'a self,
        message: &'a Message,
        call: &'a Call,
    ) -> Boxed<'a, Result<Option<Message>, Failure>>;
    fn canceled<'a>(&'a self, task: &'a Task) -> Boxed<'a, Result<(), Failure>>;
    fn durable_start(&self) -> bool;
}

impl<A: Agent> AnyAgent for A {
    fn run(&self, turn: Turn) -> Boxed<'_, Result<Outcome, Failure>> {
        Box::pin(Calm::new(async move { Agent::run(self, turn).await }))
    }

    fn reply<'a>(
        &'a self,
        message: &'a Message,
        call: &'a Call,
    ) -> Boxed<'a, Result<Option<Message>, Failure>> {
        Box::pin(Calm::new(async move { Ok(Agent::reply(self, message, call).await) }))
    }

    fn canceled<'a>(&'a self, task: &'a Task) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(Calm::new(async move {
            Agent::canceled(self, task).await;
            Ok(())
        }))
    }

    fn durable_start(&self) -> bool {
        Agent::durable_start(self)
    }
}

/// Runs a future to its end, or to its panic. A panic while it is dropped is swallowed.
///
/// In a box of its own, where it has room once: an `async` block around it would have room for it twice.
struct Calm<F>(Option<Pin<Box<F>>>);

impl<F> Calm<F> {
    fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<T, F: Future<Output = Result<T, Failure>>> Future for Calm<F> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        // Unwind safe: after a panic the future is dropped and never polled again.
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)))
            .unwrap_or_else(|payload| Poll::Ready(Err(Failure::panic(payload))))
    }
}

impl<F> Drop for Calm<F> {
    fn drop(&mut self) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.0 = None)) {
            let cause = Failure::panic(payload);
            tracing::warn!(
                cause = cause.cause() as &dyn std::error::Error,
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
        let panics = Calm::new(async { panic!("at {}", "/etc/secret") });
        let failure = panics.await.map(|(): ()| ()).unwrap_err();
        assert_eq!(failure.to_string(), "Agent execution failed (panic)");
        assert_eq!(failure.cause().to_string(), "at /etc/secret");
        assert_eq!(Calm::new(async { Ok(7) }).await.unwrap(), 7);
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
        let mut calm = Calm::new(armed);
        let pending =
            std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut calm).poll(context).is_pending())).await;
        assert!(pending);
        drop(calm);
    }
}
