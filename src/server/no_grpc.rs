//! In the place of the gRPC binding where the library is built without it.

use http::{Request, StatusCode};
use hyper::body::Incoming;

use super::guest::Guest;
use super::reply::{Reply, plain};
use super::routes::Routes;
use crate::model::Error;
use crate::service::Resident;

/// Whether cards say that there is gRPC.
pub(super) const SERVED: bool = false;

/// What servers say that speak no gRPC.
pub(super) async fn answer(_: &Routes, _: &Resident, _: Guest, _: Box<Request<Incoming>>) -> Reply {
    plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no gRPC here\n")
}

/// Nothing of it is anybody's secret.
pub(super) fn is_public(_: &str) -> bool {
    true
}

/// Never asked for: everybody is told the same.
pub(super) fn turned_away(_: &Request<Incoming>, _: Error) -> Reply {
    plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no gRPC here\n")
}
