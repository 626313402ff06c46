//! What travels beside the body: the names of headers and metadata, and media types.

use crate::model::Version;

/// The version of the protocol that a request is in.
pub const VERSION: &str = "a2a-version";
/// The name of a notification: the same however often it is sent.
pub const EVENT_ID: &str = "a2a-event-id";
/// Where a notification stands in the log of its task.
pub const EVENT_SEQUENCE: &str = "a2a-event-sequence";
/// The headers in which a webhook looks for its token: some SDKs know one, some the other.
pub const NOTIFICATION_TOKENS: &[&str] = &["x-a2a-notification-token", "a2a-notification-token"];
/// The token that says who sent a notification: a JSON Web Token.
pub const NOTIFICATION_JWT: &str = "a2a-notification-jwt";
/// Where a reader of server-sent events goes on.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// The headers in which a client of this version names the extensions it wants; servers of 0.3 know only the second.
#[must_use]
pub fn extension_headers(version: Version) -> &'static [&'static str] {
    match version {
        Version::V1 => &["a2a-extensions"],
        Version::V03 => &["a2a-extensions", "x-a2a-extensions"],
    }
}

/// The media type of a REST body as a client of this version sends it.
#[must_use]
pub fn rest_media_type(version: Version) -> &'static str {
    match version {
        Version::V1 => "application/a2a+json",
        Version::V03 => "application/json",
    }
}
