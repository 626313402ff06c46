//! In the place of the gRPC binding where the library is built without it.

use http::{Request, StatusCode};
use hyper::body::Incoming;

use super::reply::{Reply, plain};
use super::routes::Routes;
use crate::model::Caller;
use crate::service::Resident;

/// Whether cards say that there is gRPC.
pub(super) const SERVED: bool = false;

/// What servers say that speak no gRPC.
pub(super) async fn answer(_: &Routes, _: &Resident, _: Caller, _: Request<Incoming>) -> Reply {
    plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no gRPC here\n")
}
