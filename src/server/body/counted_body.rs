//! Request body that is read message by message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::budget::{BodyBudget, budget_exceeded};
use crate::model::{CallerKey, Result};
use crate::rt::BudgetLimits;
use crate::service::StreamPermit;

/// Body that is read message by message, of which the reader holds at most `max_held` bytes. They count against the
/// budget of the caller until the body is dropped.
pub(in crate::server) struct CountedBody {
    inner: Incoming,
    budget: Arc<BodyBudget>,
    caller: CallerKey,
    max_held: usize,
    /// Counts the body as a stream.
    _stream: StreamPermit,
}

impl CountedBody {
    /// Counts a body.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    pub(in crate::server) fn new(
        inner: Incoming,
        max_held: usize,
        limits: BudgetLimits,
        budget: &Arc<BodyBudget>,
        caller: CallerKey,
        stream: StreamPermit,
    ) -> Result<Self> {
        let reserved = budget.reserve(&caller, max_held, limits);
        reserved.map_err(|exceeded| budget_exceeded(exceeded, limits))?;
        Ok(Self {
            inner,
            budget: budget.clone(),
            caller,
            max_held,
            _stream: stream,
        })
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.budget.release(&self.caller, self.max_held);
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
