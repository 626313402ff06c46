//! Stand-in for the gRPC binding in builds without the feature `grpc`.

use http::{Request, StatusCode};
use hyper::body::Incoming;

use crate::server::peer::ConnectionPeer;
use crate::server::reply::{Reply, text};
use crate::server::routes::Routes;

/// Whether cards declare gRPC interfaces.
pub(in crate::server) const IS_ENABLED: bool = false;

/// Whether a path is that of a health check.
pub(in crate::server) fn is_health_check(_: &str) -> bool {
    false
}

/// Refuses every gRPC request with status 415.
pub(in crate::server) async fn handle(
    _: &Routes,
    _: &ConnectionPeer,
    _: Box<Request<Incoming>>,
) -> Reply {
    not_served()
}

/// Refuses a gRPC request.
pub(in crate::server) fn not_served() -> Reply {
    text(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "gRPC is not supported\n",
    )
}
