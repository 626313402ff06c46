//! Replacement of the gRPC binding if the feature `grpc` is disabled: every call fails.

use ::http::Uri;

use super::{Client, EventStream};
use crate::model::{Error, ErrorKind, Request, Response, Result, Seq, StreamResponse};

/// Whether this build supports gRPC.
pub(super) const IS_SUPPORTED: bool = false;

pub(super) fn parse_url(_: &str) -> Result<Option<Uri>> {
    Err(unsupported())
}

pub(super) async fn call(_: &Client, _: &Request) -> Result<Response> {
    Err(unsupported())
}

pub(super) async fn stream(_: &Client, _: &Request, _: Option<Seq>) -> Result<EventStream> {
    Err(unsupported())
}

fn unsupported() -> Error {
    Error::new(ErrorKind::UnsupportedOperation)
        .with_message("This operation is not supported: gRPC needs the feature `grpc`")
}

/// Uninhabited: no stream can be opened.
pub(super) enum GrpcMessages {}

impl GrpcMessages {
    pub(super) async fn next_event(&mut self) -> Option<Result<StreamResponse>> {
        match *self {}
    }
}
