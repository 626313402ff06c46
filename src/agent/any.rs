//! Any agent behind one type, with its panics caught.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
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
        Box::pin(async { calm(async { Agent::run(self, turn).await }).await? })
    }

    fn reply<'a>(
        &'a self,
        message: &'a Message,
        call: &'a Call,
    ) -> Boxed<'a, Result<Option<Message>, Failure>> {
        Box::pin(calm(async { Agent::reply(self, message, call).await }))
    }

    fn canceled<'a>(&'a self, task: &'a Task) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(calm(async { Agent::canceled(self, task).await }))
    }

    fn durable_start(&self) -> bool {
        Agent::durable_start(self)
    }
}

/// Runs a future to its end, or to its panic. A panic while it is dropped is swallowed.
async fn calm<F: Future>(future: F) -> Result<F::Output, Failure> {
    let mut future = pin!(Some(future));
    let mut calm = Calm(future.as_mut());
    poll_fn(|context| calm.poll(context)).await
}

/// A future whose panics stay within.
struct Calm<'a, F>(Pin<&'a mut Option<F>>);

impl<F: Future> Calm<'_, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<F::Output, Failure>> {
        let Some(future) = self.0.as_mut().as_pin_mut() else { return Poll::Pending };
        // Unwind safe: after a panic the future is dropped and never polled again.
        match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(Failure::panic(payload))),
        }
    }
}

impl<F> Drop for Calm<'_, F> {
    fn drop(&mut self) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.0.set(None))) {
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
        let failure = calm(async { panic!("at {}", "/etc/secret") }).await.map(|(): ()| ()).unwrap_err();
        assert_eq!(failure.to_string(), "Agent execution failed (panic)");
        assert_eq!(failure.cause().to_string(), "at /etc/secret");
        assert_eq!(calm(async { 7 }).await.unwrap(), 7);
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
            std::future::pending::<()>().await;
        };
        let mut calm = Box::pin(calm(armed));
        let pending = poll_fn(|context| Poll::Ready(calm.as_mut().poll(context).is_pending())).await;
        assert!(pending);
        drop(calm);
    }
}
