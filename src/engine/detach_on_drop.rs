//! Work that a caller's leaving cannot stop: done where it was begun as long as its caller waits for the answer, then on the
//! tracker.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::timeout_at;

use super::{Engine, Error, Result};
use crate::rt::cancel;

/// Work on a task. Dropped before it is done, it goes on without us.
pub(super) struct DetachOnDrop {
    engine: Engine,
    /// In a box from the start, so that nobody carries it around; and once, since it is large. `None` when it is done.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl DetachOnDrop {
    /// Nothing is done yet; and nothing ever, if the engine stops.
    pub(super) fn new(engine: &Engine, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let engine = engine.clone();
        if engine.stop.is_cancelled() {
            return Self {
                engine,
                future: None,
            };
        }
        Self {
            engine,
            future: Some(Box::pin(work)),
        }
    }

    /// Does what can be done without waiting; the rest goes on without us.
    pub(super) async fn poll_once(mut self) {
        poll_fn(|context| {
            self.poll_inner(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Works until there is an answer, or has waited long enough for one. Whoever waits for the store waits here, and no
    /// other task has to be woken first.
    pub(super) async fn run_until_reply<T>(
        mut self,
        mut answer: oneshot::Receiver<Result<T>>,
    ) -> Result<T> {
        let engine = self.engine.clone();
        let mut result = poll_fn(|context| {
            self.poll_inner(context);
            // Looked at first: an agent that never pauses may have used up what this task may do before it lets others run,
            // and then whoever waits for something is told to wait, though it is there.
            let answer = match answer.try_recv() {
                Err(TryRecvError::Empty) => ready!(Pin::new(&mut answer).poll(context)).ok(),
                known => known.ok(),
            };
            Poll::Ready(answer.unwrap_or(Err(Error::ShuttingDown)))
        });
        // Without a timer, where the work is done at once.
        let immediate = poll_fn(|context| Poll::Ready(Pin::new(&mut result).poll(context)));
        if let Poll::Ready(result) = immediate.await {
            return result;
        }
        let waited = async {
            tokio::select! {
                biased;
                result = result => result,
                () = engine.stop.cancelled() => Err(Error::ShuttingDown),
            }
        };
        timeout_at(engine.reply_deadline(Duration::ZERO), waited)
            .await
            .unwrap_or(Err(Error::StoreUnavailable))
    }

    fn poll_inner(&mut self, context: &mut Context<'_>) {
        let Some(work) = &mut self.future else { return };
        // A panic is the task's, not the caller's. Unwind safe: the work is not polled again.
        if !catch_unwind(AssertUnwindSafe(|| {
            work.as_mut().poll(context).is_pending()
        }))
        .unwrap_or(false)
        {
            self.future = None;
        }
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        let Some(work) = self.future.take() else {
            return;
        };
        // A runtime that is itself going down takes it along.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        self.engine
            .tracker
            .spawn_on(cancel::run_until(self.engine.stop.clone(), work), &runtime);
    }
}
