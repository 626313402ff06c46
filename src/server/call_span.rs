//! Tracing span and log span of a call.

use std::pin::Pin;

use http::HeaderMap;
use tracing::{Instrument, Span};

use super::call_headers::read_trace;
use crate::model::{Binding, Caller, Operation, Result, Version};
use crate::telemetry::trace;

/// Spans of one call: one in the trace that its headers name, and one for its log lines.
pub(super) struct CallSpan {
    operation: Operation,
    binding: Binding,
    version: Version,
    span: Span,
}

impl CallSpan {
    pub(super) fn new(
        operation: Operation,
        binding: Binding,
        version: Version,
        headers: &HeaderMap,
    ) -> Self {
        let span = trace::call_span(operation, binding, version, || read_trace(headers));
        Self {
            operation,
            binding,
            version,
            span,
        }
    }

    /// Runs `call` inside the spans and records its failure.
    ///
    /// `call` is pinned outside: passed by value, it would be stored twice in this future.
    pub(super) async fn instrument<T>(
        self,
        caller: &Caller,
        call: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<T> {
        let log_span = tracing::info_span!(
            "call",
            method = ?self.operation,
            binding = self.binding.as_str(),
            version = self.version.as_str(),
            caller = caller.name(),
        );
        let span = self.span;
        let result = call.instrument(span.clone()).instrument(log_span).await;
        if let Err(error) = &result {
            trace::record_failure(&span, error.kind());
        }
        result
    }
}
