//! Push configurations: webhooks registered for a task.

use serde::{Deserialize, Serialize};

use super::{PushConfigId, Secret, TaskId, Version, Violation, non_empty, or_default};

/// Webhook for the updates of a task, with the credentials to send. The protocol calls it
/// `TaskPushNotificationConfig`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfig {
    /// Tenant of the task.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Id, unique within the task. The server generates one if absent.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<PushConfigId>,
    /// Task. Absent if the configuration is part of the first message.
    #[serde(
        default,
        alias = "task_id",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_id: Option<TaskId>,
    /// URL of the webhook.
    #[serde(default, deserialize_with = "or_default")]
    pub url: String,
    /// Token that the receiver checks to recognize its own registration.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub token: Option<Secret>,
    /// Credentials for the `Authorization` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<AuthenticationInfo>,
    /// Further schemes from a 0.3 client. Returned to the client, never used.
    #[serde(skip)]
    pub other_schemes: Vec<String>,
    /// Additional request headers from a 0.x client, at most [`MAX_HEADERS`](Self::MAX_HEADERS).
    #[serde(skip)]
    pub headers: Vec<(String, Secret)>,
}

impl PushConfig {
    /// Maximum number of additional request headers.
    pub const MAX_HEADERS: usize = 16;
    /// Maximum length of the name and the value of one header, in bytes.
    pub const MAX_HEADER_BYTES: usize = 8192;

    /// Returns the additional request headers that may be sent.
    #[cfg(feature = "server")]
    pub(crate) fn sendable_headers(&self) -> impl Iterator<Item = &(String, Secret)> {
        let headers = self.headers.iter().take(Self::MAX_HEADERS);
        headers.filter(|(name, _)| is_token(name) && !is_forbidden_header(name))
    }

    /// Creates a configuration for a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    /// Sets the id if it is missing. `fresh` generates a unique id.
    pub fn assign_id(
        &mut self,
        task: &TaskId,
        version: Version,
        fresh: impl FnOnce() -> PushConfigId,
    ) {
        self.id.get_or_insert_with(|| match version {
            // In 0.3, a second configuration without an id replaces the first (04 §3.7), so the id
            // is derived from the task.
            Version::V03 if !task.is_empty() => PushConfigId::from(task.as_str()),
            Version::V03 | Version::V1 => fresh(),
        });
    }

    /// Validates everything that needs no network access. `field` is the JSON path of the
    /// configuration, empty at the top level.
    pub(super) fn check(&self, field: &str) -> Result<(), Violation> {
        let field_path = |name: &str| {
            if field.is_empty() {
                name.to_owned()
            } else {
                format!("{field}.{name}")
            }
        };
        if let Some(id) = &self.id {
            id.check(&field_path("id"))?;
        }
        if self.url.is_empty() {
            return Err(Violation::new(field_path("url"), "must not be empty"));
        }
        if self
            .authentication
            .as_ref()
            .is_some_and(|info| info.scheme.is_empty())
        {
            return Err(Violation::new(
                field_path("authentication.scheme"),
                "must not be empty",
            ));
        }
        if let Some(name) = self.unsafe_header_field() {
            let rule = "must not contain control characters";
            return Err(Violation::new(field_path(name), rule));
        }
        self.check_headers(&field_path("headers"))
    }

    fn check_headers(&self, field: &str) -> Result<(), Violation> {
        let count = self.headers.len();
        if count > Self::MAX_HEADERS {
            let rule = format!(
                "must have at most {} members, not {count}",
                Self::MAX_HEADERS
            );
            return Err(Violation::new(field, rule));
        }
        for (index, (name, value)) in self.headers.iter().enumerate() {
            let mut earlier = self.headers[..index].iter();
            let bytes = name.len() + value.expose().len();
            let rule = if !is_token(name) {
                "must be the name of an HTTP header"
            } else if bytes > Self::MAX_HEADER_BYTES {
                "must have at most 8192 bytes with its name"
            } else if name.eq_ignore_ascii_case("authorization") {
                "must be a scheme and credentials, such as `Bearer abc`, and replaces `authentication`"
            } else if is_forbidden_header(name) {
                "must not be set: the server or the connection sets it"
            } else if earlier.any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                "must be given only once"
            } else {
                continue;
            };
            return Err(Violation::new(format!("{field}.{name}"), rule));
        }
        Ok(())
    }

    /// Returns the first member with control characters. These members become request headers, so
    /// a line break would inject a header.
    fn unsafe_header_field(&self) -> Option<&'static str> {
        let is_unsafe = |text: &str| text.chars().any(char::is_control);
        if self.token.iter().any(|token| is_unsafe(token.expose())) {
            return Some("token");
        }
        let has_unsafe_credentials = self.authentication.iter().any(|info| {
            let mut credentials = info.credentials.iter().map(Secret::expose);
            is_unsafe(&info.scheme) || credentials.any(is_unsafe)
        });
        if has_unsafe_credentials {
            return Some("authentication");
        }
        let mut headers = self.headers.iter();
        headers
            .any(|(name, value)| is_unsafe(name) || is_unsafe(value.expose()))
            .then_some("headers")
    }
}

/// Headers of a notification that clients must not set: those of the connection and of the server.
const FORBIDDEN_HEADERS: [&str; 16] = [
    "connection",
    "cookie",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Prefixes of such headers: the content, and the version, id and signature of the notification.
const FORBIDDEN_PREFIXES: [&str; 3] = ["content-", "a2a-", "x-a2a-"];

fn is_forbidden_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    FORBIDDEN_HEADERS.contains(&name.as_str())
        || FORBIDDEN_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Whether a text is a token of RFC 9110, as names of headers are.
fn is_token(text: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Value of an `Authorization` header, split into scheme and credentials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AuthenticationInfo {
    /// HTTP authentication scheme, such as `Bearer`.
    #[serde(default, deserialize_with = "or_default")]
    pub scheme: String,
    /// Credentials after the scheme.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub credentials: Option<Secret>,
}
