//! Conversions of requests for messages, tasks and the card.

use attache_proto::v03;

use super::resource_name;
use crate::model::{
    CancelTaskRequest, Error, GetExtendedAgentCardRequest, GetTaskRequest,
    SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
};
use crate::wire::proto::{read_option, read_or_default};

impl From<&SendMessageRequest> for v03::SendMessageRequest {
    /// Always includes a configuration: without one, servers disagree on blocking.
    fn from(request: &SendMessageRequest) -> Self {
        let configuration = request.configuration.clone().unwrap_or_default();
        Self {
            request: Some((&request.message).into()),
            configuration: Some((&configuration).into()),
            metadata: request.metadata.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v03::SendMessageRequest> for SendMessageRequest {
    type Error = Error;

    fn try_from(request: v03::SendMessageRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: None,
            message: read_or_default("message", request.request)?,
            configuration: request.configuration.map(Into::into),
            metadata: read_option("metadata", request.metadata)?,
            alias: None,
            dialect: None,
            tool_parts: Vec::new(),
        })
    }
}

impl From<&SendMessageConfiguration> for v03::SendMessageConfiguration {
    fn from(configuration: &SendMessageConfiguration) -> Self {
        let push = configuration.task_push_notification_config.as_ref();
        Self {
            accepted_output_modes: configuration.accepted_output_modes.clone(),
            push_notification: push.map(Into::into),
            history_length: configuration.history_length.unwrap_or_default(),
            blocking: !configuration.return_immediately,
        }
    }
}

impl From<v03::SendMessageConfiguration> for SendMessageConfiguration {
    fn from(configuration: v03::SendMessageConfiguration) -> Self {
        Self {
            accepted_output_modes: configuration.accepted_output_modes,
            task_push_notification_config: configuration.push_notification.map(Into::into),
            history_length: history_length(configuration.history_length),
            // `false` is the default of the field, so it is the only way to request a non-blocking
            // call.
            return_immediately: !configuration.blocking,
        }
    }
}

/// Converts a history length. In 0.3, 0 means all and also represents an absent number.
fn history_length(length: i32) -> Option<i32> {
    (length != 0).then_some(length)
}

impl From<&GetTaskRequest> for v03::GetTaskRequest {
    fn from(request: &GetTaskRequest) -> Self {
        Self {
            name: resource_name::task_name(&request.id),
            history_length: request.history_length.unwrap_or_default(),
        }
    }
}

impl TryFrom<v03::GetTaskRequest> for GetTaskRequest {
    type Error = Error;

    fn try_from(request: v03::GetTaskRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: None,
            id: resource_name::parse_task_name("name", &request.name)?,
            history_length: history_length(request.history_length),
        })
    }
}

impl From<&CancelTaskRequest> for v03::CancelTaskRequest {
    fn from(request: &CancelTaskRequest) -> Self {
        Self {
            name: resource_name::task_name(&request.id),
        }
    }
}

impl TryFrom<v03::CancelTaskRequest> for CancelTaskRequest {
    type Error = Error;

    fn try_from(request: v03::CancelTaskRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: None,
            id: resource_name::parse_task_name("name", &request.name)?,
            metadata: None,
        })
    }
}

impl From<&SubscribeToTaskRequest> for v03::TaskSubscriptionRequest {
    fn from(request: &SubscribeToTaskRequest) -> Self {
        Self {
            name: resource_name::task_name(&request.id),
        }
    }
}

impl TryFrom<v03::TaskSubscriptionRequest> for SubscribeToTaskRequest {
    type Error = Error;

    fn try_from(request: v03::TaskSubscriptionRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: None,
            id: resource_name::parse_task_name("name", &request.name)?,
        })
    }
}

impl From<&GetExtendedAgentCardRequest> for v03::GetAgentCardRequest {
    fn from(_: &GetExtendedAgentCardRequest) -> Self {
        Self {}
    }
}

impl TryFrom<v03::GetAgentCardRequest> for GetExtendedAgentCardRequest {
    type Error = Error;

    fn try_from(_: v03::GetAgentCardRequest) -> Result<Self, Error> {
        Ok(Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Message;

    fn send(configuration: Option<v03::SendMessageConfiguration>) -> SendMessageRequest {
        let request = v03::SendMessageRequest {
            configuration,
            ..Default::default()
        };
        SendMessageRequest::try_from(request).unwrap()
    }

    #[test]
    fn missing_configuration_blocks_and_empty_one_does_not() {
        assert!(!send(None).returns_immediately());
        assert!(send(Some(v03::SendMessageConfiguration::default())).returns_immediately());
        let blocking = v03::SendMessageConfiguration {
            blocking: true,
            ..Default::default()
        };
        assert!(!send(Some(blocking)).returns_immediately());
    }

    #[test]
    fn blocking_is_always_written() {
        let request = SendMessageRequest::new(Message::user("x"));
        let written = v03::SendMessageRequest::from(&request)
            .configuration
            .unwrap();
        assert_eq!(
            written,
            v03::SendMessageConfiguration {
                blocking: true,
                ..Default::default()
            }
        );
        let configuration = SendMessageConfiguration {
            return_immediately: true,
            ..SendMessageConfiguration::default()
        };
        let request = SendMessageRequest {
            configuration: Some(configuration),
            ..request
        };
        assert!(
            !v03::SendMessageRequest::from(&request)
                .configuration
                .unwrap()
                .blocking
        );
    }

    #[test]
    fn history_length_zero_means_all() {
        let request = |length| GetTaskRequest {
            id: "t".into(),
            history_length: length,
            tenant: None,
        };
        for (length, wire, back) in [
            (None, 0, None),
            (Some(0), 0, None),
            (Some(5), 5, Some(5)),
            (Some(-1), -1, Some(-1)),
        ] {
            let proto = v03::GetTaskRequest::from(&request(length));
            assert_eq!(
                (proto.name.as_str(), proto.history_length),
                ("tasks/t", wire)
            );
            assert_eq!(GetTaskRequest::try_from(proto), Ok(request(back)));
        }
        let error = CancelTaskRequest::try_from(v03::CancelTaskRequest {
            name: "t".to_owned(),
        })
        .unwrap_err();
        assert_eq!(error.violations()[0].field(), "name");
    }
}
