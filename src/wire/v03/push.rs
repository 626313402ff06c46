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

/// Push configuration without its task, with the members of the protobuf file only: its readers
/// refuse others.
pub(in crate::wire) struct ProtoPushConfigBody<'a>(pub(in crate::wire) &'a PushConfig);

impl Serialize for ProtoPushConfigBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        serialize_members::<S>(self.0, &mut map)?;
        map.end()
    }
}

/// Serializes the members that JSON-RPC and the protobuf file have in common.
fn serialize_members<S: Serializer>(
    config: &PushConfig,
    map: &mut S::SerializeMap,
) -> Result<(), S::Error> {
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
    Ok(())
}

/// Push configuration without its task.
pub(in crate::wire) struct V03PushConfigBody<'a>(pub(in crate::wire) &'a PushConfig);

impl Serialize for V03PushConfigBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let config = self.0;
        let mut map = serializer.serialize_map(None)?;
        serialize_members::<S>(config, &mut map)?;
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

/// Push configuration of 1.0, which has no `headers`: the member is ignored like any unknown one.
pub(in crate::wire) struct V1PushConfig(pub(in crate::wire) PushConfig);

/// Treatment of a `headers` member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeaderMode {
    Read,
    Ignore,
}

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
    headers: Option<Json>,
}

/// Reads the request headers for a webhook.
fn read_headers<E: serde::de::Error>(headers: &Json) -> Result<Vec<(String, String)>, E> {
    let read = |(name, value): (String, Json)| match value.read() {
        Ok(text) => Ok((name, text)),
        Err(_) => Err(field_error(&format!("headers.{name}"), "must be a string")),
    };
    let object: Object = headers
        .read()
        .map_err(|_| field_error("headers", "must be an object"))?;
    object.iter().map(read).collect()
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
        let members = V03PushConfigMembers::deserialize(deserializer)?;
        members.into_whole_config(HeaderMode::Read).map(Self)
    }
}

impl<'de> Deserialize<'de> for V1PushConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = V03PushConfigMembers::deserialize(deserializer)?;
        members.into_whole_config(HeaderMode::Ignore).map(Self)
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
    /// Converts the outermost object, whose `id` is that of the task if it nests the configuration.
    fn into_whole_config<E: serde::de::Error>(self, headers: HeaderMode) -> Result<PushConfig, E> {
        let Some(inner) = self.push_notification_config else {
            return self.into_push_config(headers);
        };
        let (named_task, named_id) = parse_optional_name(self.name.as_deref());
        let task = self.task_id.or_else(|| self.id.map(TaskId::from));
        let mut config = inner.into_push_config(headers)?;
        config.id = config.id.or(named_id);
        config.task_id = task.or(config.task_id).or(named_task);
        Ok(config)
    }

    fn into_push_config<E: serde::de::Error>(self, headers: HeaderMode) -> Result<PushConfig, E> {
        // If `config` contains the whole configuration, it is nested once more.
        if let Some(inner) = self.push_notification_config {
            let (named_task, named_id) = parse_optional_name(self.name.as_deref());
            let mut config = inner.into_push_config(headers)?;
            config.id = config.id.or(named_id);
            config.task_id = config.task_id.or(self.task_id).or(named_task);
            return Ok(config);
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
        if let (HeaderMode::Read, Some(headers)) = (headers, &self.headers) {
            apply_headers(&mut config, read_headers(headers)?);
        }
        Ok(config)
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

/// Applies a `headers` member (09, 3.11). `Authorization` becomes the authentication. Validation refuses
/// the header if there is another authentication, and if it has no scheme.
fn apply_headers(config: &mut PushConfig, headers: Vec<(String, String)>) {
    for (name, value) in headers {
        let is_authorization = name.eq_ignore_ascii_case("authorization");
        match value.split_once(' ') {
            Some((scheme, credentials)) if is_authorization && config.authentication.is_none() => {
                config.authentication = Some(AuthenticationInfo {
                    scheme: scheme.to_owned(),
                    credentials: Some(Secret::from(credentials.trim())),
                });
            }
            Some(_) | None => config.headers.push((name, value.into())),
        }
    }
}
