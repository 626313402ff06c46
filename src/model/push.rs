//! Webhook registrations.

use serde::{Deserialize, Serialize};

use super::{PushConfigId, Secret, TaskId, Version, Violation, non_empty, or_default};

/// Where to post the updates of a task, and how to prove who posts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfig {
    /// The tenant it was registered under.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Its name within the task; the server makes one if the client does not.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<PushConfigId>,
    /// The task; left out where it travels with the first message.
    #[serde(
        default,
        alias = "task_id",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_id: Option<TaskId>,
    /// Where to post.
    #[serde(default, deserialize_with = "or_default")]
    pub url: String,
    /// Sent along, so that the receiver knows its own registration.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub token: Option<Secret>,
    /// What to put into the `Authorization` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<AuthenticationInfo>,
    /// Other schemes that a 0.3 client named; told back to it, never used.
    #[serde(skip)]
    pub other_schemes: Vec<String>,
    /// Headers that a client asked for beside `Authorization`; sent only if the operator allows it.
    #[serde(skip)]
    pub headers: Vec<(String, Secret)>,
}

impl PushConfig {
    /// A registration for this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    /// Gives a registration that has no id one of its own; `fresh` makes one that nobody has.
    pub fn assign_id(
        &mut self,
        task: &TaskId,
        version: Version,
        fresh: impl FnOnce() -> PushConfigId,
    ) {
        self.id.get_or_insert_with(|| match version {
            // 0.3 says that a second registration without an id replaces the first.
            Version::V03 if !task.is_empty() => PushConfigId::from(task.as_str()),
            Version::V03 | Version::V1 => fresh(),
        });
    }

    /// Checks what can be checked without asking the network; `field` is the place, empty at the top.
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
        let header_safe = |text: &str| !text.chars().any(char::is_control);
        if !self
            .token
            .as_ref()
            .is_none_or(|token| header_safe(token.expose()))
        {
            return Err(Violation::new(
                field_path("token"),
                "must not contain control characters",
            ));
        }
        let credentials = self.authentication.iter().flat_map(|info| {
            [
                Some(info.scheme.as_str()),
                info.credentials.as_ref().map(Secret::expose),
            ]
            .into_iter()
            .flatten()
        });
        if !credentials.into_iter().all(header_safe) {
            return Err(Violation::new(
                field_path("authentication"),
                "must not contain control characters",
            ));
        }
        let mut headers = self
            .headers
            .iter()
            .flat_map(|(name, value)| [name.as_str(), value.expose()]);
        if !headers.all(header_safe) {
            return Err(Violation::new(
                field_path("headers"),
                "must not contain control characters",
            ));
        }
        Ok(())
    }
}

/// An `Authorization` header in two pieces.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AuthenticationInfo {
    /// The HTTP authentication scheme, such as `Bearer`.
    #[serde(default, deserialize_with = "or_default")]
    pub scheme: String,
    /// What follows it.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub credentials: Option<Secret>,
}
