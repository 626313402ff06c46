//! Conversions of requests and responses for messages, tasks and the card.

use attache_proto::v1;

use super::push::push_config;
use crate::model::{
    CancelTaskRequest, Error, GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest,
    ListTasksResponse, SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
    TaskState,
};
use crate::wire::proto::{
    non_empty, or_empty, read_list, read_option, read_or_default, read_state, state_number,
    write_list,
};

impl From<&SendMessageRequest> for v1::SendMessageRequest {
    fn from(request: &SendMessageRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
            message: Some((&request.message).into()),
            configuration: request.configuration.as_ref().map(Into::into),
            metadata: request.metadata.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::SendMessageRequest> for SendMessageRequest {
    type Error = Error;

    fn try_from(request: v1::SendMessageRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            message: read_or_default("message", request.message)?,
            configuration: request.configuration.map(Into::into),
            metadata: read_option("metadata", request.metadata)?,
            alias: None,
            dialect: None,
            tool_parts: Vec::new(),
        })
    }
}

impl From<&SendMessageConfiguration> for v1::SendMessageConfiguration {
    fn from(configuration: &SendMessageConfiguration) -> Self {
        Self {
            accepted_output_modes: configuration.accepted_output_modes.clone(),
            task_push_notification_config: configuration
                .task_push_notification_config
                .as_ref()
                .map(Into::into),
            history_length: configuration.history_length,
            return_immediately: configuration.return_immediately,
        }
    }
}

impl From<v1::SendMessageConfiguration> for SendMessageConfiguration {
    fn from(configuration: v1::SendMessageConfiguration) -> Self {
        let push = configuration.task_push_notification_config;
        Self {
            accepted_output_modes: configuration.accepted_output_modes,
            task_push_notification_config: push.map(push_config),
            history_length: configuration.history_length,
            return_immediately: configuration.return_immediately,
        }
    }
}

impl From<&GetTaskRequest> for v1::GetTaskRequest {
    fn from(request: &GetTaskRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
            id: request.id.to_string(),
            history_length: request.history_length,
        }
    }
}

impl TryFrom<v1::GetTaskRequest> for GetTaskRequest {
    type Error = Error;

    fn try_from(request: v1::GetTaskRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            id: request.id.into(),
            history_length: request.history_length,
        })
    }
}

impl From<&ListTasksRequest> for v1::ListTasksRequest {
    fn from(request: &ListTasksRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
            context_id: or_empty(request.context_id.as_ref()),
            status: request.status.map_or(0, state_number),
            page_size: request.page_size,
            page_token: or_empty(request.page_token.as_ref()),
            history_length: request.history_length,
            status_timestamp_after: request.status_timestamp_after.map(Into::into),
            include_artifacts: request.include_artifacts,
        }
    }
}

impl TryFrom<v1::ListTasksRequest> for ListTasksRequest {
    type Error = Error;

    fn try_from(request: v1::ListTasksRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            context_id: non_empty(request.context_id),
            // An unspecified state means no filter.
            status: Some(read_state("status", request.status)?)
                .filter(|state| *state != TaskState::Unspecified),
            page_size: request.page_size,
            page_token: non_empty(request.page_token),
            history_length: request.history_length,
            status_timestamp_after: read_option(
                "statusTimestampAfter",
                request.status_timestamp_after,
            )?,
            include_artifacts: request.include_artifacts,
        })
    }
}

impl From<&ListTasksResponse> for v1::ListTasksResponse {
    fn from(page: &ListTasksResponse) -> Self {
        Self {
            tasks: write_list(&page.tasks),
            next_page_token: page.next_page_token.clone(),
            page_size: page.page_size,
            total_size: page.total_size,
        }
    }
}

impl TryFrom<v1::ListTasksResponse> for ListTasksResponse {
    type Error = Error;

    fn try_from(page: v1::ListTasksResponse) -> Result<Self, Error> {
        Ok(Self {
            tasks: read_list("tasks", page.tasks)?,
            next_page_token: page.next_page_token,
            page_size: page.page_size,
            total_size: page.total_size,
        })
    }
}

impl From<&CancelTaskRequest> for v1::CancelTaskRequest {
    fn from(request: &CancelTaskRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
            id: request.id.to_string(),
            metadata: request.metadata.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::CancelTaskRequest> for CancelTaskRequest {
    type Error = Error;

    fn try_from(request: v1::CancelTaskRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            id: request.id.into(),
            metadata: read_option("metadata", request.metadata)?,
        })
    }
}

impl From<&SubscribeToTaskRequest> for v1::SubscribeToTaskRequest {
    fn from(request: &SubscribeToTaskRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
            id: request.id.to_string(),
        }
    }
}

impl TryFrom<v1::SubscribeToTaskRequest> for SubscribeToTaskRequest {
    type Error = Error;

    fn try_from(request: v1::SubscribeToTaskRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
            id: request.id.into(),
        })
    }
}

impl From<&GetExtendedAgentCardRequest> for v1::GetExtendedAgentCardRequest {
    fn from(request: &GetExtendedAgentCardRequest) -> Self {
        Self {
            tenant: or_empty(request.tenant.as_ref()),
        }
    }
}

impl TryFrom<v1::GetExtendedAgentCardRequest> for GetExtendedAgentCardRequest {
    type Error = Error;

    fn try_from(request: v1::GetExtendedAgentCardRequest) -> Result<Self, Error> {
        Ok(Self {
            tenant: non_empty(request.tenant),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_round_trips() {
        let request = ListTasksRequest {
            page_size: Some(0),
            history_length: Some(0),
            include_artifacts: Some(false),
            ..ListTasksRequest::default()
        };
        assert_eq!(
            ListTasksRequest::try_from(v1::ListTasksRequest::from(&request)),
            Ok(request)
        );
        assert_eq!(
            ListTasksRequest::try_from(v1::ListTasksRequest::default()),
            Ok(ListTasksRequest::default())
        );
        let error = ListTasksRequest::try_from(v1::ListTasksRequest {
            status: 99,
            ..Default::default()
        })
        .unwrap_err();
        assert_eq!(error.violations()[0].field(), "status");
        for history_length in [None, Some(0), Some(-1)] {
            let request = GetTaskRequest {
                id: "t".into(),
                history_length,
                ..GetTaskRequest::default()
            };
            assert_eq!(
                GetTaskRequest::try_from(v1::GetTaskRequest::from(&request)),
                Ok(request)
            );
        }
    }
}
