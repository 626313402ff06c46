//! Conversions of push configurations and their requests.

use attache_proto::v03;

use super::resource_name;
use crate::model::{
    DeletePushConfigRequest, Error, GetPushConfigRequest, ListPushConfigsRequest,
    ListPushConfigsResponse, PushConfig, PushConfigId, TaskId,
};
use crate::wire::proto::{non_empty, or_empty, prefix_field, read_list, write_list};
use crate::wire::v03::set_authentication;

impl From<&PushConfig> for v03::PushNotificationConfig {
    fn from(config: &PushConfig) -> Self {
        let authentication = config
            .authentication
            .as_ref()
            .map(|info| v03::AuthenticationInfo {
                schemes: [&info.scheme]
                    .into_iter()
                    .filter(|scheme| !scheme.is_empty())
                    .chain(&config.other_schemes)
                    .cloned()
                    .collect(),
                credentials: or_empty(info.credentials.as_ref()),
            });
        Self {
            id: or_empty(config.id.as_ref()),
            url: config.url.clone(),
            token: or_empty(config.token.as_ref()),
            authentication,
        }
    }
}

impl From<v03::PushNotificationConfig> for PushConfig {
    /// Uses the first scheme. The others are kept to return them to the client.
    fn from(config: v03::PushNotificationConfig) -> Self {
        let mut read = Self {
            id: non_empty(config.id),
            url: config.url,
            token: non_empty(config.token),
            ..Self::default()
        };
        if let Some(info) = config.authentication {
            let credentials = non_empty(info.credentials);
            set_authentication(&mut read, info.schemes.into_iter(), credentials);
        }
        read
    }
}

impl From<&PushConfig> for v03::TaskPushNotificationConfig {
    /// Leaves the name empty unless both ids are known.
    fn from(config: &PushConfig) -> Self {
        let name = match (&config.task_id, &config.id) {
            (Some(task), Some(id)) => resource_name::push_config_name(task, id),
            (Some(_), None) | (None, _) => String::new(),
        };
        Self {
            name,
            push_notification_config: Some(config.into()),
        }
    }
}

impl TryFrom<v03::TaskPushNotificationConfig> for PushConfig {
    type Error = Error;

    fn try_from(proto: v03::TaskPushNotificationConfig) -> Result<Self, Error> {
        let mut config = Self::from(proto.push_notification_config.unwrap_or_default());
        if !proto.name.is_empty() {
            let (task, id) = resource_name::parse_push_config_name_lenient("name", &proto.name)?;
            config.task_id = Some(task);
            config.id = config.id.or(id);
        }
        Ok(config)
    }
}

impl From<&PushConfig> for v03::CreateTaskPushNotificationConfigRequest {
    fn from(config: &PushConfig) -> Self {
        Self {
            parent: config
                .task_id
                .as_ref()
                .map(resource_name::task_name)
                .unwrap_or_default(),
            config_id: or_empty(config.id.as_ref()),
            config: Some(config.into()),
        }
    }
}

impl TryFrom<v03::CreateTaskPushNotificationConfigRequest> for PushConfig {
    type Error = Error;

    /// Uses the task id for a configuration without an id, so that a second one replaces it
    /// (04 §3.7).
    fn try_from(request: v03::CreateTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        let task = resource_name::parse_task_name("parent", &request.parent)?;
        let proto = request.config.unwrap_or_default();
        let mut config = Self::from(proto.push_notification_config.unwrap_or_default());
        let config_id: Option<PushConfigId> = non_empty(request.config_id);
        if let (Some(config_id), Some(inner)) = (&config_id, &config.id)
            && config_id != inner
        {
            let field = "config.pushNotificationConfig.id";
            return Err(Error::invalid(
                field,
                "must be the same as configId, or left out",
            ));
        }
        let named =
            id_from_name(&task, &proto.name).map_err(|error| prefix_field("config", error))?;
        config.id = config_id
            .or(config.id)
            .or(named)
            .or_else(|| Some(task.as_str().into()));
        config.task_id = Some(task);
        Ok(config)
    }
}

/// Returns the id in the resource name of a new configuration. Used last, because SDKs disagree on
/// its content.
fn id_from_name(task: &TaskId, name: &str) -> Result<Option<PushConfigId>, Error> {
    if name.is_empty() {
        return Ok(None);
    }
    // The prefix is known exactly, so the id may contain any characters.
    if let Some(id) = name.strip_prefix(&resource_name::push_config_name(
        task,
        &PushConfigId::default(),
    )) {
        return Ok(Some(id)
            .filter(|id| !matches!(*id, "" | "None"))
            .map(Into::into));
    }
    match resource_name::parse_push_config_name_lenient("name", name)? {
        (named, id) if named == *task => Ok(id),
        _ => Err(Error::invalid("name", "must belong to parent")),
    }
}

impl From<&GetPushConfigRequest> for v03::GetTaskPushNotificationConfigRequest {
    /// A resource name requires an id. The default configuration has the id of its task.
    fn from(request: &GetPushConfigRequest) -> Self {
        let unnamed = PushConfigId::from(request.task_id.as_str());
        Self {
            name: resource_name::push_config_name(
                &request.task_id,
                request.id.as_ref().unwrap_or(&unnamed),
            ),
        }
    }
}

impl TryFrom<v03::GetTaskPushNotificationConfigRequest> for GetPushConfigRequest {
    type Error = Error;

    fn try_from(request: v03::GetTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        let (task_id, id) = resource_name::parse_push_config_name_lenient("name", &request.name)?;
        Ok(Self {
            tenant: None,
            task_id,
            allow_missing_id: id.is_none(),
            id,
        })
    }
}

impl From<&ListPushConfigsRequest> for v03::ListTaskPushNotificationConfigRequest {
    fn from(request: &ListPushConfigsRequest) -> Self {
        Self {
            parent: resource_name::task_name(&request.task_id),
            page_size: request.page_size,
            page_token: or_empty(request.page_token.as_ref()),
        }
    }
}

impl TryFrom<v03::ListTaskPushNotificationConfigRequest> for ListPushConfigsRequest {
    type Error = Error;

    fn try_from(request: v03::ListTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: None,
            task_id: resource_name::parse_task_name("parent", &request.parent)?,
            page_size: request.page_size,
            page_token: non_empty(request.page_token),
        })
    }
}

impl From<&ListPushConfigsResponse> for v03::ListTaskPushNotificationConfigResponse {
    fn from(page: &ListPushConfigsResponse) -> Self {
        Self {
            configs: write_list(&page.configs),
            next_page_token: page.next_page_token.clone(),
        }
    }
}

impl TryFrom<v03::ListTaskPushNotificationConfigResponse> for ListPushConfigsResponse {
    type Error = Error;

    fn try_from(page: v03::ListTaskPushNotificationConfigResponse) -> Result<Self, Error> {
        Ok(Self {
            configs: read_list("configs", page.configs)?,
            next_page_token: page.next_page_token,
        })
    }
}

impl From<&DeletePushConfigRequest> for v03::DeleteTaskPushNotificationConfigRequest {
    fn from(request: &DeletePushConfigRequest) -> Self {
        Self {
            name: resource_name::push_config_name(&request.task_id, &request.id),
        }
    }
}

impl TryFrom<v03::DeleteTaskPushNotificationConfigRequest> for DeletePushConfigRequest {
    type Error = Error;

    fn try_from(request: v03::DeleteTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        let (task_id, id) = resource_name::parse_push_config_name("name", &request.name)?;
        Ok(Self {
            tenant: None,
            task_id,
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(config_id: &str, inner: &str, name: &str) -> Result<Option<PushConfigId>, String> {
        let push_notification_config = Some(v03::PushNotificationConfig {
            id: inner.to_owned(),
            ..Default::default()
        });
        let request = v03::CreateTaskPushNotificationConfigRequest {
            parent: "tasks/t".to_owned(),
            config_id: config_id.to_owned(),
            config: Some(v03::TaskPushNotificationConfig {
                name: name.to_owned(),
                push_notification_config,
            }),
        };
        let read = PushConfig::try_from(request).map(|config| config.id);
        read.map_err(|error| error.violations()[0].field().to_owned())
    }

    #[test]
    fn id_is_read_from_three_places() {
        let name = "tasks/t/pushNotificationConfigs/c";
        for (config_id, inner, name, id) in [
            ("a", "", "", "a"),
            ("a", "a", "", "a"),
            ("", "b", name, "b"),
            ("a", "", name, "a"),
            ("", "", name, "c"),
            ("", "", "tasks/t/pushNotificationConfigs/None", "t"),
            ("", "", "tasks/t/pushNotificationConfigs/", "t"),
            ("", "", "", "t"),
        ] {
            assert_eq!(
                create(config_id, inner, name),
                Ok(Some(id.into())),
                "{config_id} {inner} {name}"
            );
        }
        assert_eq!(
            create("a", "b", ""),
            Err("config.pushNotificationConfig.id".to_owned())
        );
        assert_eq!(
            create("", "", "tasks/x/pushNotificationConfigs/c"),
            Err("config.name".to_owned())
        );
        assert_eq!(create("", "", "c"), Err("config.name".to_owned()));
    }

    #[test]
    fn first_scheme_is_used_and_the_others_are_returned() {
        let proto = v03::PushNotificationConfig {
            id: "c".to_owned(),
            url: "https://c.example.net/h".to_owned(),
            token: "s".to_owned(),
            authentication: Some(v03::AuthenticationInfo {
                schemes: ["Bearer", "Basic", "Digest"].map(String::from).to_vec(),
                credentials: "x".to_owned(),
            }),
        };
        let config = PushConfig::from(proto.clone());
        assert_eq!(config.authentication.as_ref().unwrap().scheme, "Bearer");
        assert_eq!(config.other_schemes, ["Basic", "Digest"]);
        assert_eq!(v03::PushNotificationConfig::from(&config), proto);
    }

    #[test]
    fn resource_name_consists_of_both_ids() {
        let config = PushConfig {
            id: Some("c".into()),
            task_id: Some("t".into()),
            ..PushConfig::new("https://c.example.net/h")
        };
        let proto = v03::TaskPushNotificationConfig::from(&config);
        assert_eq!(proto.name, "tasks/t/pushNotificationConfigs/c");
        assert_eq!(PushConfig::try_from(proto), Ok(config.clone()));
        let request = v03::CreateTaskPushNotificationConfigRequest::from(&config);
        assert_eq!(
            (request.parent.as_str(), request.config_id.as_str()),
            ("tasks/t", "c")
        );
        assert_eq!(PushConfig::try_from(request), Ok(config));
        let any = GetPushConfigRequest {
            task_id: "t".into(),
            allow_missing_id: true,
            ..GetPushConfigRequest::default()
        };
        let request = v03::GetTaskPushNotificationConfigRequest::from(&any);
        assert_eq!(request.name, "tasks/t/pushNotificationConfigs/t");
        let name = "tasks/t/pushNotificationConfigs/None".to_owned();
        let request = v03::GetTaskPushNotificationConfigRequest { name };
        assert_eq!(GetPushConfigRequest::try_from(request), Ok(any));
    }
}
