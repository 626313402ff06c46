//! gRPC health checking (`grpc.health.v1.Health`). It reports the state of `/readyz`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use prost::Message;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::frame;
use super::stream_body::server_stopping;
use crate::model::{Error, ErrorKind, Result, Version};
use crate::server::admission::{Admission, RequestContext};
use crate::server::body::SizeLimit;
use crate::server::reply::{BodyError, Reply};
use crate::server::routes::Routes;
use crate::service::StreamPermit;
use crate::wire::grpc::to_status;

/// Services that have a health status. The empty name is the server as a whole.
const SERVICES: [&str; 3] = ["", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"];

/// Maximum size of a request. The longest service name has 20 bytes.
const MAX_REQUEST_BYTES: usize = 1 << 10;

/// Method of the health service.
#[derive(Clone, Copy)]
pub(super) enum HealthRpc {
    /// Returns the status once.
    Check,
    /// Streams the status and its changes.
    Watch,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "Health", tag = "1")]
    status: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Health {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

impl Health {
    /// Returns the current status of a service.
    async fn current(service: &str, routes: &Routes) -> Self {
        if !SERVICES.contains(&service) {
            return Self::ServiceUnknown;
        }
        match routes.unready_reason().await {
            Some(_) => Self::NotServing,
            None => Self::Serving,
        }
    }

    fn to_frame(self) -> Vec<u8> {
        let mut out = Vec::new();
        let message = HealthCheckResponse {
            status: self.into(),
        }
        .encode_to_vec();
        frame::write(&mut out, |out| out.extend_from_slice(&message));
        out
    }
}

/// Returns the method that a path names.
pub(super) fn parse_rpc(path: &str) -> Option<HealthRpc> {
    match path {
        "/grpc.health.v1.Health/Check" => Some(HealthRpc::Check),
        "/grpc.health.v1.Health/Watch" => Some(HealthRpc::Watch),
        _ => None,
    }
}

/// Handles a health request. Needs no authentication, so it is small and rate-limited by address.
///
/// # Errors
/// The request cannot be read or decoded. Rate limited. Unavailable: too many streams.
pub(super) async fn handle(
    routes: &Routes,
    context: &mut RequestContext,
    rpc: HealthRpc,
    body: Incoming,
) -> Result<Reply> {
    let admission = &routes.admission;
    let _permit = admission.rate_limit_health(context)?;
    let request = read_request(admission, context, body).await?;
    let health = Health::current(&request.service, routes).await;
    match (rpc, health) {
        // `Watch` reports an unknown service as a status, since it may appear later.
        (HealthRpc::Check, Health::ServiceUnknown) => Ok(frame::status_reply(
            &tonic::Status::not_found("unknown service"),
        )),
        (HealthRpc::Check, _) => Ok(frame::unary_reply(health.to_frame())),
        (HealthRpc::Watch, _) => Ok(frame::stream_reply(Box::new(HealthWatch {
            state: WatchState::Send(health),
            shutting_down: Box::pin(routes.shutting_down.clone().cancelled_owned()),
            _permit: admission.acquire_stream(context)?,
        }))),
    }
}

async fn read_request(
    admission: &Admission,
    context: &RequestContext,
    body: Incoming,
) -> Result<HealthCheckRequest> {
    let limit = SizeLimit::without_discarding(MAX_REQUEST_BYTES);
    let body = admission
        .read_within(context, body, limit)
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::PayloadTooLarge => error.with_message(format!(
                "a health request must not exceed {MAX_REQUEST_BYTES} bytes"
            )),
            _ => error,
        })?;
    HealthCheckRequest::decode(frame::unframe(body)?).map_err(|cause| {
        Error::new(ErrorKind::Parse)
            .with_message("Invalid protobuf message")
            .with_source(cause)
    })
}

/// Body of `Watch`: the current status, then `NOT_SERVING` when shutdown begins.
struct HealthWatch {
    state: WatchState,
    shutting_down: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: StreamPermit,
}

/// Next step of a [`HealthWatch`].
enum WatchState {
    Send(Health),
    Wait(Health),
    SendTrailers,
    Done,
}

impl Body for HealthWatch {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            match self.state {
                WatchState::Send(health) => {
                    self.state = match health {
                        Health::NotServing => WatchState::SendTrailers,
                        other => WatchState::Wait(other),
                    };
                    return Poll::Ready(Some(Ok(Frame::data(health.to_frame().into()))));
                }
                WatchState::Wait(health) => {
                    ready!(self.shutting_down.as_mut().poll(context));
                    self.state = match health {
                        Health::Serving => WatchState::Send(Health::NotServing),
                        _ => WatchState::SendTrailers,
                    };
                }
                WatchState::SendTrailers => {
                    self.state = WatchState::Done;
                    let status = to_status(&server_stopping(), Version::V1);
                    return Poll::Ready(Some(Ok(Frame::trailers(frame::trailers(&status)))));
                }
                WatchState::Done => return Poll::Ready(None),
            }
        }
    }
}
