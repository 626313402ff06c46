//! In the place of the gRPC binding where the library is built without it.

use http::{Request, StatusCode};
use hyper::body::Incoming;

use crate::model::Error;
use crate::server::admission::RequestContext;
use crate::server::reply::{Reply, text};
use crate::server::routes::Routes;
use crate::service::AgentEntry;

/// Whether cards say that there is gRPC.
pub(in crate::server) const IS_ENABLED: bool = false;

/// What servers say that speak no gRPC.
pub(in crate::server) async fn handle(
    _: &Routes,
    _: &AgentEntry,
    _: RequestContext,
    _: Box<Request<Incoming>>,
) -> Reply {
    text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no gRPC here\n")
}

/// Nothing of it is anybody's secret.
pub(in crate::server) fn is_public(_: &str) -> bool {
    true
}

/// Never asked for: everybody is told the same.
pub(in crate::server) fn unauthenticated(_: &Request<Incoming>, _: Error) -> Reply {
    text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no gRPC here\n")
}
