//! Push configurations in 0.3 JSON.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};

use super::{Audience, V03};
use crate::model::{
    AuthenticationInfo, Json, Object, PushConfig, PushConfigId, Secret, TaskId, non_empty,
    or_default,
};
use crate::wire::json::field_error;

/// Push configuration without its task.
pub(in crate::wire) struct V03PushConfigBody<'a>(pub(in crate::wire) &'a PushConfig);

impl Serialize for V03PushConfigBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let config = self.0;
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &config.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("url", &config.url)?;
        if let Some(token) = &config.token {
            map.serialize_entry("token", token)?;
        }
        if let Some(info) = &config.authentication {
            map.serialize_entry(
                "authentication",
                &V03AuthenticationWriter(info, &config.other_schemes),
            )?;
        }
        if !config.headers.is_empty() {
            let headers: BTreeMap<_, _> = config.headers.iter().map(|(k, v)| (k, v)).collect();
            map.serialize_entry("headers", &headers)?;
        }
        map.end()
    }
}

struct V03AuthenticationWriter<'a>(&'a AuthenticationInfo, &'a [String]);

impl Serialize for V03AuthenticationWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let schemes: Vec<&String> = std::iter::once(&self.0.scheme).chain(self.1).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schemes", &schemes)?;
        if let Some(credentials) = &self.0.credentials {
            map.serialize_entry("credentials", credentials)?;
        }
        map.end()
    }
}

impl Serialize for V03<'_, PushConfig> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(config, audience) = *self;
        let task = config.task_id.clone().unwrap_or_default();
        let mut map = serializer.serialize_map(None)?;
        if let Audience::V01(id) = audience {
            map.serialize_entry("id", id.unwrap_or(&task))?;
        }
        map.serialize_entry("taskId", &task)?;
        map.serialize_entry("pushNotificationConfig", &V03PushConfigBody(config))?;
        map.end()
    }
}

/// Reply to clients that send `headers`: `success` beside the configuration (09, 3.12).
pub(in crate::wire) struct V03PushSuccess<'a>(pub(in crate::wire) &'a PushConfig);

impl Serialize for V03PushSuccess<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("success", &true)?;
        map.serialize_entry("taskId", &self.0.task_id.clone().unwrap_or_default())?;
        map.serialize_entry("pushNotificationConfig", &V03PushConfigBody(self.0))?;
        map.end()
    }
}

/// Push configuration of 0.1 to 0.3, nested below its task or flat.
pub(in crate::wire) struct V03PushConfig(pub(in crate::wire) PushConfig);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct V03PushConfigMembers {
    /// Only in 1.0, inside the configuration of a send.
    #[serde(default, deserialize_with = "non_empty")]
    tenant: Option<String>,
    #[serde(default, alias = "task_id", deserialize_with = "non_empty")]
    task_id: Option<TaskId>,
    /// Nested: the task in a 0.1 call. Flat: the configuration.
    #[serde(default, deserialize_with = "non_empty")]
    id: Option<String>,
    /// Resource name: `tasks/{task}/pushNotificationConfigs/{id}`.
    #[serde(default, deserialize_with = "non_empty")]
    name: Option<String>,
    #[serde(alias = "push_notification_config", alias = "config")]
    push_notification_config: Option<Box<V03PushConfigMembers>>,
    #[serde(default, deserialize_with = "non_empty")]
    url: Option<String>,
    #[serde(default, deserialize_with = "non_empty")]
    token: Option<Secret>,
    authentication: Option<V03Authentication>,
    headers: Option<V03Headers>,
}

/// Request headers for the webhook.
struct V03Headers(Vec<(String, String)>);

impl<'de> Deserialize<'de> for V03Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |(name, value): (String, Json)| match value.read() {
            Ok(text) => Ok((name, text)),
            Err(_) => Err(field_error(&name, "must be a string")),
        };
        let object = Object::deserialize(deserializer)?;
        object.iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Deserialize)]
struct V03Authentication {
    #[serde(default, deserialize_with = "or_default")]
    schemes: Vec<String>,
    #[serde(default, deserialize_with = "non_empty")]
    scheme: Option<String>,
    #[serde(default, deserialize_with = "non_empty")]
    credentials: Option<Secret>,
}

impl<'de> Deserialize<'de> for V03PushConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let outer = V03PushConfigMembers::deserialize(deserializer)?;
        Ok(Self(match outer.push_notification_config {
            Some(inner) => {
                let (named_task, named_id) = parse_optional_name(outer.name.as_deref());
                let task = outer.task_id.or_else(|| outer.id.map(TaskId::from));
                let mut config = inner.into_push_config();
                config.id = config.id.or(named_id);
                config.task_id = task.or(config.task_id).or(named_task);
                config
            }
            None => outer.into_push_config(),
        }))
    }
}

/// Parses the resource name of a push configuration. Without an id it ends with the slash.
pub(in crate::wire) fn parse_push_config_name(name: &str) -> Option<(TaskId, PushConfigId)> {
    let (task, id) = name
        .strip_prefix("tasks/")?
        .rsplit_once("/pushNotificationConfigs/")?;
    (!task.is_empty()).then(|| (task.into(), id.into()))
}

/// Parses an optional resource name; empty ids count as absent.
fn parse_optional_name(name: Option<&str>) -> (Option<TaskId>, Option<PushConfigId>) {
    let (task, id) = name.and_then(parse_push_config_name).unzip();
    (task, id.filter(|id| !id.is_empty()))
}

impl V03PushConfigMembers {
    fn into_push_config(self) -> PushConfig {
        // If `config` contains the whole configuration, it is nested once more.
        if let Some(inner) = self.push_notification_config {
            let (named_task, named_id) = parse_optional_name(self.name.as_deref());
            let mut config = inner.into_push_config();
            config.id = config.id.or(named_id);
            config.task_id = config.task_id.or(self.task_id).or(named_task);
            return config;
        }
        let mut config = PushConfig {
            tenant: self.tenant,
            id: self.id.map(PushConfigId::from),
            task_id: self.task_id,
            url: self.url.unwrap_or_default(),
            token: self.token,
            ..PushConfig::default()
        };
        if let Some(read) = self.authentication {
            let schemes = read.scheme.into_iter().chain(read.schemes);
            set_authentication(&mut config, schemes, read.credentials);
        }
        apply_headers(&mut config, self.headers);
        config
    }
}

/// Sets the authentication of a 0.3 client: its first scheme. Without schemes and credentials there
/// is none; older clients send an empty object or list then.
pub(in crate::wire) fn set_authentication(
    config: &mut PushConfig,
    mut schemes: impl Iterator<Item = String>,
    credentials: Option<Secret>,
) {
    let scheme = schemes.next();
    if scheme.is_none() && credentials.is_none() {
        return;
    }
    config.other_schemes = schemes.collect();
    config.authentication = Some(AuthenticationInfo {
        scheme: scheme.unwrap_or_default(),
        credentials,
    });
}

/// Applies a `headers` member (09, 3.11). `Authorization` becomes the authentication, unless there is
/// one; validation then refuses it.
fn apply_headers(config: &mut PushConfig, headers: Option<V03Headers>) {
    for (name, value) in headers.into_iter().flat_map(|headers| headers.0) {
        if !name.eq_ignore_ascii_case("authorization") || config.authentication.is_some() {
            config.headers.push((name, value.into()));
        } else {
            let (scheme, credentials) = match value.split_once(' ') {
                Some((scheme, credentials)) => {
                    (scheme.to_owned(), Some(Secret::from(credentials.trim())))
                }
                None => (value, None),
            };
            config.authentication = Some(AuthenticationInfo {
                scheme,
                credentials,
            });
        }
    }
}
