//! Call that has passed admission: runs the operation, and completes its reply.

use std::pin::Pin;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, HeaderValue};

use super::admission::{RateLimitGrant, ResolvedCall};
use super::call_headers::set_call_headers;
#[cfg(feature = "grpc")]
use super::card::PublishedCard;
use super::rate_limit_headers;
use super::reply::Reply;
use crate::auth::Access;
use crate::model::{CallerKey, Error, Operation, Request, Response, Result, Task};
use crate::rt::{ByteBudget, Reservation};
use crate::service::{CallResult, ServiceResponse};
use crate::telemetry::metrics;

/// Call that has passed all checks. It counts as a running call of its caller until it is dropped.
pub(super) struct AdmittedCall<'a> {
    resolved: ResolvedCall<'a>,
    rate_limit: RateLimitGrant,
}

impl<'a> AdmittedCall<'a> {
    pub(super) fn new(resolved: ResolvedCall<'a>, rate_limit: RateLimitGrant) -> Self {
        Self {
            resolved,
            rate_limit,
        }
    }

    /// Runs the operation. The returned future does not contain the decoded request.
    pub(super) fn call(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<ServiceResponse>> + Send {
        let ResolvedCall { agent, call, .. } = &self.resolved;
        let result = agent.service.call(call, request);
        async {
            let mut response = match result {
                Ok(CallResult::Ready(response)) => Ok(response),
                Ok(CallResult::Pending(pending)) => pending.await,
                Err(error) => Err(error),
            };
            self.record(response.as_ref().err());
            if let (Ok(response), Some(access)) = (&mut response, &self.resolved.admission.access) {
                self.complete(response, access);
            }
            response
        }
    }

    /// Returns the public card of the agent. `None` if the caller may not read it.
    #[cfg(feature = "grpc")]
    pub(super) fn public_card(&self, cards: &[PublishedCard]) -> Option<ServiceResponse> {
        let ResolvedCall {
            admission,
            context,
            agent,
            ..
        } = &self.resolved;
        let card = cards.get(admission.directory.position(&agent.name)?)?;
        if card.needs_authentication() && context.is_anonymous() {
            return None;
        }
        let card = Box::new(card.complete_card().clone());
        Some(Response::AgentCard(card).into())
    }

    fn record(&self, error: Option<&Error>) {
        let ResolvedCall { agent, call, .. } = &self.resolved;
        let failure = error.map(Error::kind);
        metrics::record_call(&agent.name, self.resolved.operation, call.version, failure);
    }

    /// Removes the skills from an extended card that the caller may not use. Limits a stream to the lifetime of the caller's
    /// credential.
    fn complete(&self, response: &mut ServiceResponse, access: &Access) {
        let ResolvedCall { context, agent, .. } = &self.resolved;
        match response {
            ServiceResponse::Single(response, _) => {
                if let Response::AgentCard(card) = &mut **response {
                    access.filter_skills(&context.identity, &agent.name, card);
                }
            }
            ServiceResponse::Stream(stream) if context.identity.lifetime().is_limited() => {
                let end = context.identity.lifetime().clone().wait_ended();
                stream.end_with(Box::pin(end));
            }
            ServiceResponse::Stream(_) | ServiceResponse::Task(_) => {}
        }
    }

    /// Encodes a response within the byte budget, which its body counts against until it is written.
    ///
    /// `format` returns the number of the format for a large task; `None`: its encoding is not shared. Not an `async`
    /// function: only replies that wait have a future, which is boxed (future size).
    ///
    /// # Errors
    /// Those of `encode`. Unavailable, also after waiting: the budget is exhausted. Not for a reply that tells the client
    /// what it has created or changed.
    pub(super) fn encode<'b>(
        &'b self,
        response: ServiceResponse,
        format: impl FnOnce(&Task) -> Option<u8>,
        encode: impl FnOnce(ServiceResponse) -> Result<Reply> + Send + 'b,
    ) -> Result<Budgeted<'b, Reply>> {
        let encode = move |mut response: ServiceResponse| {
            let reserved = response.take_reservation();
            Ok(self.count_reply(encode(response)?, reserved))
        };
        match self.reserve_encoding(response, format) {
            Budgeted::Ready(response) => encode(response),
            Budgeted::Waiting(response) => Ok(Budgeted::Waiting(Box::pin(async move {
                match encode(response.await?)? {
                    Budgeted::Ready(reply) => Ok(reply),
                    Budgeted::Waiting(reply) => reply.await,
                }
            }))),
        }
    }

    /// Counts the body of a reply against the byte budget until it is written. `reserved` is the part of the budget that
    /// was reserved before the response was produced. Small bodies are not counted.
    ///
    /// Without such a part, the reply waits up to `outgoing_timeout` for the budget, and fails as unavailable after that. A
    /// reply that tells the client what it has created or changed does not fail.
    fn count_reply(&self, reply: Reply, reserved: Option<Box<Reservation>>) -> Budgeted<'_, Reply> {
        if !reply.body().is_counted() {
            return Budgeted::Ready(reply);
        }
        let bytes = reply.body().uncounted_bytes();
        let reserved = reserved.map(|reservation| *reservation);
        match reserved.or_else(|| self.try_reserve_reply(bytes)) {
            Some(reservation) => Budgeted::Ready(with_reservation(reply, reservation)),
            None => Budgeted::Waiting(Box::pin(async move {
                let caller = self.caller_key();
                let reservation = self.outgoing().reserve_held(&caller, bytes).await?;
                Ok(with_reservation(reply, reservation))
            })),
        }
    }

    fn try_reserve_reply(&self, bytes: usize) -> Option<Reservation> {
        let caller = self.caller_key();
        let outgoing = self.outgoing();
        match self.resolved.operation {
            // Its result is bounded by the limits on its request.
            Operation::CreatePushConfig => Some(outgoing.force_reserve(&caller, bytes)),
            _ => outgoing.try_reserve(&caller, bytes).ok(),
        }
    }

    /// Reserves the part of the byte budget for the encoding of a large task, and waits for it up to `outgoing_timeout`.
    /// `format` returns the number of the format for a task; `None`: its encoding is not shared.
    fn reserve_encoding(
        &self,
        mut response: ServiceResponse,
        format: impl FnOnce(&Task) -> Option<u8>,
    ) -> Budgeted<'_, ServiceResponse> {
        let missing = response
            .large_task()
            .and_then(|task| task.missing_bytes(format(task)));
        let Some(bytes) = missing else {
            return Budgeted::Ready(response);
        };
        Budgeted::Waiting(Box::pin(async move {
            let caller = self.caller_key();
            let reservation = self.outgoing().reserve(&caller, bytes).await?;
            if let Some(task) = response.large_task() {
                task.set_reservation(reservation);
            }
            Ok(response)
        }))
    }

    pub(super) fn outgoing(&self) -> &Arc<ByteBudget> {
        &self.resolved.admission.outgoing
    }

    /// Returns the key of the caller in limits.
    pub(super) fn caller_key(&self) -> CallerKey {
        self.resolved.context.key()
    }

    /// Returns a reply with version, active extensions and rate-limit status. An extended card is marked
    /// as not cacheable.
    pub(super) fn with_response_headers(&self, mut reply: Reply) -> Reply {
        let headers = reply.headers_mut();
        let ResolvedCall {
            call,
            operation,
            extension_headers,
            ..
        } = &self.resolved;
        set_call_headers(headers, *extension_headers, call);
        if let Some(status) = &self.rate_limit.status {
            rate_limit_headers::set(headers, status);
        }
        if *operation == Operation::GetExtendedAgentCard {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        }
        reply
    }
}

/// Value that may wait for the byte budget. The future is boxed because few values wait: future size.
pub(super) enum Budgeted<'a, T> {
    Ready(T),
    Waiting(Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>),
}

fn with_reservation(mut reply: Reply, reservation: Reservation) -> Reply {
    reply.body_mut().attach(reservation);
    reply
}
