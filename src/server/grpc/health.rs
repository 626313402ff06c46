//! `grpc.health.v1.Health`: whether the server takes calls.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use prost::Message;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::frame;
use super::messages::stopping;
use crate::model::{Error, ErrorKind, Result, Version};
use crate::server::reply::{Fault, Reply};
use crate::server::routes::Routes;
use crate::wire::grpc::to_status;

/// The server as a whole, and the services by their names.
const SERVICES: [&str; 3] = ["", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"];

#[derive(Clone, Copy)]
pub(super) enum Rpc {
    /// Answers once.
    Check,
    /// Answers whenever it changes.
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
    /// As `/readyz` has it.
    async fn now(service: &str, routes: &Routes) -> Self {
        if !SERVICES.contains(&service) {
            return Self::ServiceUnknown;
        }
        match routes.unready().await {
            Some(_) => Self::NotServing,
            None => Self::Serving,
        }
    }

    fn message(self) -> Vec<u8> {
        let mut out = Vec::new();
        let message = HealthCheckResponse {
            status: self.into(),
        }
        .encode_to_vec();
        frame::write(&mut out, |out| out.extend_from_slice(&message));
        out
    }
}

/// The rpc behind a path.
pub(super) fn rpc(path: &str) -> Option<Rpc> {
    match path {
        "/grpc.health.v1.Health/Check" => Some(Rpc::Check),
        "/grpc.health.v1.Health/Watch" => Some(Rpc::Watch),
        _ => None,
    }
}

pub(super) async fn answer(routes: &Routes, rpc: Rpc, body: Incoming) -> Result<Reply> {
    let message = frame::read(body, routes).await?;
    let request = HealthCheckRequest::decode(message).map_err(|fault| {
        Error::new(ErrorKind::Parse)
            .with_message("Invalid protobuf message")
            .with_source(fault)
    })?;
    let health = Health::now(&request.service, routes).await;
    match (rpc, health) {
        // A watcher waits for a service to appear; whoever checks wants to know.
        (Rpc::Check, Health::ServiceUnknown) => Ok(frame::refusal(&tonic::Status::not_found(
            "there is no such service",
        ))),
        (Rpc::Check, _) => Ok(frame::one(health.message())),
        (Rpc::Watch, _) => Ok(frame::reply(Box::new(Watch {
            next: Next::Tell(health),
            leaving: Box::pin(routes.leaving.clone().cancelled_owned()),
        }))),
    }
}

/// What a watcher is told: how it is now, then that the server stops.
struct Watch {
    next: Next,
    leaving: Pin<Box<WaitForCancellationFutureOwned>>,
}

enum Next {
    Tell(Health),
    Wait(Health),
    End,
    Nothing,
}

impl Body for Watch {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        loop {
            match self.next {
                Next::Tell(health) => {
                    self.next = match health {
                        Health::NotServing => Next::End,
                        other => Next::Wait(other),
                    };
                    return Poll::Ready(Some(Ok(Frame::data(health.message().into()))));
                }
                Next::Wait(health) => {
                    ready!(self.leaving.as_mut().poll(context));
                    self.next = match health {
                        Health::Serving => Next::Tell(Health::NotServing),
                        _ => Next::End,
                    };
                }
                Next::End => {
                    self.next = Next::Nothing;
                    let status = to_status(&stopping(), Version::V1);
                    return Poll::Ready(Some(Ok(Frame::trailers(frame::trailers(&status)))));
                }
                Next::Nothing => return Poll::Ready(None),
            }
        }
    }
}
