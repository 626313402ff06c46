//! Names of headers and gRPC metadata, and media types (01 §3, 01 §4).

use crate::model::Version;

/// Protocol version of a request.
pub const VERSION: &str = "a2a-version";
/// Id of a push notification; identical in every delivery attempt.
pub const EVENT_ID: &str = "a2a-event-id";
/// Position of a push notification in the log of its task.
pub const EVENT_SEQUENCE: &str = "a2a-event-sequence";
/// Headers for the token of a push configuration. SDKs disagree on the name, so both are sent.
pub const NOTIFICATION_TOKENS: &[&str] = &["x-a2a-notification-token", "a2a-notification-token"];
/// JSON Web Token that authenticates the sender of a push notification.
pub const NOTIFICATION_JWT: &str = "a2a-notification-jwt";
/// Position after which an SSE stream resumes.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// Returns the request headers for extensions. 0.3 servers know only the second name.
#[must_use]
pub fn extension_headers(version: Version) -> &'static [&'static str] {
    match version {
        Version::V1 => &["a2a-extensions"],
        Version::V03 => &["a2a-extensions", "x-a2a-extensions"],
    }
}

/// Returns the media type of a REST request body.
#[must_use]
pub fn rest_media_type(version: Version) -> &'static str {
    match version {
        Version::V1 => "application/a2a+json",
        Version::V03 => "application/json",
    }
}
