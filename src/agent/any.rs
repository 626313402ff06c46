//! Any agent behind one type, with its panics caught.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};

use super::{Agent, Failure, Outcome, Turn};
use crate::model::{Call, Message};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any agent. A panic in it is a failure like any other: nobody outside this file meets one.
pub(crate) trait AnyAgent: Send + Sync {
    fn run(&self, turn: Turn) -> Boxed<'_, Result<Outcome, Failure>>;
    fn reply<'a>(
        &'a self,
        message: &'a Message,
        call: &'a Call,
    ) -> Boxed<'a, Result<Option<Message>, Failure>>;
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

    fn durable_start(&self) -> bool {
        Agent::durable_start(self)
    }
}

/// Runs a future to its end, or to its panic.
async fn calm<F: Future>(future: F) -> Result<F::Output, Failure> {
    let mut future = pin!(future);
    // Unwind safe: after a panic the future is dropped and never polled again.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => std::task::Poll::Ready(Err(Failure::panic(payload))),
    })
    .await
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
}
