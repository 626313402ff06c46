//! The protocol's eleven operations, independent of binding and version.
//!
//! A binding decodes a request, calls [`Service::call`] and encodes the [`ServiceResponse`]. Each operation validates the
//! request, looks tasks up within the caller's scope and calls the engine.

mod capabilities;
mod cursor;
mod directory;
mod hooked_call;
mod idempotency;
mod modes;
mod push_configs;
mod quotas;
mod reply_budget;
mod send;
mod stream;
mod stream_limits;
mod subscribe;
mod tasks;
#[cfg(test)]
mod tests;
mod tool_results;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{AgentHandle, Engine};
use crate::hooks::HookChain;
use crate::model::{Call, Error, Limits, Request, Response, Result, SendMessageResponse};
use crate::push::PushDispatcher;
use crate::rt::{ByteBudget, Reservation};
use crate::store::IdempotencyKey;

pub(crate) use capabilities::Capabilities;
pub(crate) use directory::{AgentEntry, CallMetadata, Directory};
pub(crate) use modes::EnforcedModes;
pub(crate) use quotas::TaskQuota;
pub(crate) use stream::{StreamItem, TaskEventStream};
#[cfg(feature = "grpc")]
pub(crate) use stream_limits::StreamPermit;
pub(crate) use stream_limits::{StreamLimiter, StreamLimits};

pub(crate) use crate::engine::TaskView;
#[cfg(test)]
pub(crate) use crate::engine::turn_future_size;

/// The operations of one hosted agent.
pub(crate) struct Service {
    engine: Engine,
    /// `None` while the agent drains: messages are refused, tasks can be read and canceled.
    agent: Option<Arc<AgentHandle>>,
    push: PushDispatcher,
    options: ServiceOptions,
}

/// Capabilities and limits of a [`Service`].
#[derive(Clone)]
pub(crate) struct ServiceOptions {
    pub(crate) capabilities: Capabilities,
    pub(crate) limits: Limits,
    pub(crate) quota: TaskQuota,
    pub(crate) stream_limiter: Arc<StreamLimiter>,
    /// Budget of large responses.
    pub(crate) outgoing: Arc<ByteBudget>,
    /// How long a subscription stays open while its task waits for input; `None`: without limit.
    pub(crate) waiting_stream_timeout: Option<Duration>,
    /// How long `SendMessage` waits for the end of a turn; `None`: without limit.
    pub(crate) max_blocking_wait: Option<Duration>,
    /// Hooks on calls, responses and direct replies.
    pub(crate) hooks: HookChain,
}

/// Result of an operation.
pub(crate) enum ServiceResponse {
    /// A response, and its part of the byte budget if it was reserved already. Boxed: each layer that passes it on would
    /// copy 208 bytes.
    Single(Box<Response>, Option<Box<Reservation>>),
    /// An untrimmed task. Its encoding may be cached and shared between callers.
    Task(TaskView),
    Stream(Box<TaskEventStream>),
}

impl ServiceResponse {
    /// Returns the part of the byte budget of a single response.
    pub(crate) fn take_reservation(&mut self) -> Option<Box<Reservation>> {
        match self {
            Self::Single(_, reservation) => reservation.take(),
            Self::Task(_) | Self::Stream(_) => None,
        }
    }

    /// Returns the large task of the response, or of the first event of a stream.
    pub(crate) fn large_task(&mut self) -> Option<&mut TaskView> {
        match self {
            Self::Single(..) => None,
            Self::Task(task) => task.large_size().is_some().then_some(task),
            Self::Stream(stream) => stream.large_task(),
        }
    }
}

impl From<Response> for ServiceResponse {
    fn from(response: Response) -> Self {
        Self::Single(Box::new(response), None)
    }
}

impl From<TaskEventStream> for ServiceResponse {
    fn from(stream: TaskEventStream) -> Self {
        Self::Stream(Box::new(stream))
    }
}

impl From<SendMessageResponse> for ServiceResponse {
    fn from(response: SendMessageResponse) -> Self {
        Self::from(Response::SendMessage(response))
    }
}

type ServiceFuture<'a> = Pin<Box<dyn Future<Output = Result<ServiceResponse>> + Send + 'a>>;

/// An operation that completed synchronously, or the future that runs it.
pub(crate) enum CallResult<'a> {
    Ready(ServiceResponse),
    Pending(ServiceFuture<'a>),
}

impl Service {
    /// Creates the operations of an agent; `agent` is `None` if it accepts no messages.
    pub(crate) fn new(
        engine: Engine,
        agent: Option<Arc<AgentHandle>>,
        push: PushDispatcher,
        options: ServiceOptions,
    ) -> Self {
        Self {
            engine,
            agent,
            push,
            options,
        }
    }

    /// Returns a copy for a draining agent: its tasks can be read and canceled, messages are refused.
    pub(crate) fn to_draining(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            agent: None,
            push: self.push.clone(),
            options: self.options.clone(),
        }
    }

    /// The agent that receives messages; `None` while draining.
    pub(crate) fn agent(&self) -> Option<&Arc<AgentHandle>> {
        self.agent.as_ref()
    }

    /// Returns the requested extensions that the agent supports.
    pub(crate) fn activate_extensions<'a>(
        &self,
        requested: impl IntoIterator<Item = &'a str>,
    ) -> Vec<String> {
        self.options.capabilities.activate_extensions(requested)
    }

    /// Readiness check: whether the store can be read and written.
    ///
    /// # Errors
    /// Unavailable: the store does not respond or refuses writes.
    pub(crate) async fn check_store(&self) -> Result<()> {
        self.engine.check().await.map_err(|error| match error {
            error @ crate::engine::Error::Unwritable(_) => error.into(),
            error => Error::from(error).with_message("the store does not answer"),
        })
    }

    /// Starts an operation. Validation and capability checks have passed when this returns.
    ///
    /// `GetTask` of a cached task completes synchronously, without a boxed future. Hooks run in the returned future.
    ///
    /// # Errors
    /// The request is invalid, or the agent does not support the operation. Validation errors take precedence.
    pub(crate) fn call<'a>(
        &'a self,
        call: &'a Call,
        mut request: Request,
    ) -> Result<CallResult<'a>> {
        request.validate(&self.options.limits)?;
        request.strip_reserved_metadata();
        self.options.capabilities.check(request.operation(), call)?;
        self.options.capabilities.check_parts(&request)?;
        if self.options.hooks.intercepts_call(request.operation()) {
            return Ok(CallResult::Pending(Box::pin(
                self.call_with_hooks(call, request),
            )));
        }
        if let Request::GetTask(request) = &request
            && let Some(response) = self.get_cached_task(call, request)
        {
            return Ok(CallResult::Ready(response));
        }
        Ok(CallResult::Pending(self.dispatch(call, request, None)))
    }

    /// Returns the future of an operation. Each is boxed separately: future size. `key` is the idempotency key of the
    /// message as the caller sent it, if a hook may have changed the message.
    fn dispatch<'a>(
        &'a self,
        call: &'a Call,
        request: Request,
        key: Option<Box<IdempotencyKey>>,
    ) -> ServiceFuture<'a> {
        match request {
            Request::SendMessage(request) => Box::pin(self.send_message(call, request, key)),
            Request::SendStreamingMessage(request) => {
                Box::pin(self.send_streaming_message(call, request, key))
            }
            Request::GetTask(request) => Box::pin(self.get_task(call, request)),
            Request::SubscribeToTask(request) => Box::pin(self.subscribe_to_task(call, request)),
            Request::ListTasks(request) => Box::pin(async {
                let (page, reservation) = self.list_tasks(call, request).await?;
                let response = Box::new(Response::ListTasks(page));
                Ok(ServiceResponse::Single(response, reservation.map(Box::new)))
            }),
            Request::CancelTask(request) => Box::pin(self.cancel_task(call, request)),
            Request::CreatePushConfig(config) => single(async {
                Ok(Response::PushConfig(
                    self.create_push_config(call, *config).await?,
                ))
            }),
            Request::GetPushConfig(request) => single(async {
                Ok(Response::PushConfig(
                    self.get_push_config(call, request).await?,
                ))
            }),
            Request::ListPushConfigs(request) => single(async {
                Ok(Response::ListPushConfigs(
                    self.list_push_configs(call, request).await?,
                ))
            }),
            Request::DeletePushConfig(request) => single(async {
                self.delete_push_config(call, request).await?;
                Ok(Response::Empty)
            }),
            Request::GetExtendedAgentCard(_) => single(async {
                Ok(Response::AgentCard(
                    self.options.capabilities.extended_card(call.version)?,
                ))
            }),
        }
    }
}

fn single<'a>(response: impl Future<Output = Result<Response>> + Send + 'a) -> ServiceFuture<'a> {
    Box::pin(async { Ok(response.await?.into()) })
}
