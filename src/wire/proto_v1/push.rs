//! Conversions of push configurations and their requests.

use attache_proto::v1;

use crate::model::{
    AuthenticationInfo, DeletePushConfigRequest, Error, GetPushConfigRequest,
    ListPushConfigsRequest, ListPushConfigsResponse, PushConfig,
};
use crate::wire::proto::{non_empty, or_empty, read_list, write_list};

impl From<&PushConfig> for v1::TaskPushNotificationConfig {
    fn from(config: &PushConfig) -> Self {
        Self {
            tenant: or_empty(config.tenant.as_ref()),
            id: or_empty(config.id.as_ref()),
            task_id: or_empty(config.task_id.as_ref()),
            url: config.url.clone(),
            token: or_empty(config.token.as_ref()),
            authentication: config
                .authentication
                .as_ref()
                .map(|info| v1::AuthenticationInfo {
                    scheme: info.scheme.clone(),
                    credentials: or_empty(info.credentials.as_ref()),
                }),
        }
    }
}

impl TryFrom<v1::TaskPushNotificationConfig> for PushConfig {
    type Error = Error;

    fn try_from(config: v1::TaskPushNotificationConfig) -> Result<Self, Error> {
        Ok(push_config(config))
    }
}

/// Converts a configuration; cannot fail.
pub(super) fn push_config(config: v1::TaskPushNotificationConfig) -> PushConfig {
    PushConfig {
        tenant: non_empty(config.tenant),
        id: non_empty(config.id),
        task_id: non_empty(config.task_id),
        url: config.url,
        token: non_empty(config.token),
        authentication: config.authentication.map(|info| AuthenticationInfo {
            scheme: info.scheme,
            credentials: non_empty(info.credentials),
        }),
        ..PushConfig::default()
    }
}

impl From<&GetPushConfigRequest> for v1::GetTaskPushNotificationConfigRequest {
    fn from(request: &GetPushConfigRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
            task_id: request.task_id.to_string(),
            id: or_empty(request.id.as_ref()),
        }
    }
}

impl TryFrom<v1::GetTaskPushNotificationConfigRequest> for GetPushConfigRequest {
    type Error = Error;

    fn try_from(request: v1::GetTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            task_id: request.task_id.into(),
            id: non_empty(request.id),
            allow_missing_id: false,
        })
    }
}

impl From<&ListPushConfigsRequest> for v1::ListTaskPushNotificationConfigsRequest {
    fn from(request: &ListPushConfigsRequest) -> Self {
        Self {
            task_id: request.task_id.to_string(),
            page_size: request.page_size,
            page_token: or_empty(request.page_token.as_ref()),
            tenant: or_empty(request.tenant.as_ref()),
        }
    }
}

impl TryFrom<v1::ListTaskPushNotificationConfigsRequest> for ListPushConfigsRequest {
    type Error = Error;

    fn try_from(request: v1::ListTaskPushNotificationConfigsRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            task_id: request.task_id.into(),
            page_size: request.page_size,
            page_token: non_empty(request.page_token),
        })
    }
}

impl From<&ListPushConfigsResponse> for v1::ListTaskPushNotificationConfigsResponse {
    fn from(page: &ListPushConfigsResponse) -> Self {
        Self {
            configs: write_list(&page.configs),
            next_page_token: page.next_page_token.clone(),
        }
    }
}

impl TryFrom<v1::ListTaskPushNotificationConfigsResponse> for ListPushConfigsResponse {
    type Error = Error;

    fn try_from(page: v1::ListTaskPushNotificationConfigsResponse) -> Result<Self, Error> {
        Ok(Self {
            configs: read_list("configs", page.configs)?,
            next_page_token: page.next_page_token,
        })
    }
}

impl From<&DeletePushConfigRequest> for v1::DeleteTaskPushNotificationConfigRequest {
    fn from(request: &DeletePushConfigRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
            task_id: request.task_id.to_string(),
            id: request.id.to_string(),
        }
    }
}

impl TryFrom<v1::DeleteTaskPushNotificationConfigRequest> for DeletePushConfigRequest {
    type Error = Error;

    fn try_from(request: v1::DeleteTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            task_id: request.task_id.into(),
            id: request.id.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Secret;

    #[test]
    fn secrets_of_a_push_config_round_trip() {
        let config = PushConfig {
            tenant: Some("x".to_owned()),
            id: Some("c".into()),
            task_id: Some("t".into()),
            token: Some(Secret::from("s")),
            authentication: Some(AuthenticationInfo {
                scheme: "Bearer".to_owned(),
                credentials: None,
            }),
            ..PushConfig::new("https://c.example.net/h")
        };
        let proto = v1::TaskPushNotificationConfig::from(&config);
        assert_eq!(proto.token, "s");
        assert_eq!(PushConfig::try_from(proto), Ok(config));
    }
}
