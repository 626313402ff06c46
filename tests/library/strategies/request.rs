//! Strategies for requests and responses of every operation.

use attache::model::{
    CancelTaskRequest, DeletePushConfigRequest, GetExtendedAgentCardRequest, GetPushConfigRequest,
    GetTaskRequest, ListPushConfigsRequest, ListPushConfigsResponse, ListTasksRequest,
    ListTasksResponse, PushConfig, Request, Response, SendMessageConfiguration, SendMessageRequest,
    SubscribeToTaskRequest,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{
    Fit, card, id, message, metadata, push_config, send_response, some_text, state, task, tenant,
    text, texts, timestamp,
};

/// Request of any operation, equally distributed.
pub(crate) fn request(fit: Fit) -> BoxedStrategy<Request> {
    prop_oneof![
        2 => send(fit).prop_map(Box::new).prop_map(Request::SendMessage),
        1 => send(fit).prop_map(Box::new).prop_map(Request::SendStreamingMessage),
        1 => get_task().prop_map(Request::GetTask),
        1 => list_tasks().prop_map(Request::ListTasks),
        1 => cancel(fit).prop_map(Request::CancelTask),
        1 => subscribe().prop_map(Request::SubscribeToTask),
        2 => create_config().prop_map(Box::new).prop_map(Request::CreatePushConfig),
        1 => get_config().prop_map(Request::GetPushConfig),
        1 => list_configs().prop_map(Request::ListPushConfigs),
        1 => delete_config().prop_map(Request::DeletePushConfig),
        1 => option::of(tenant())
            .prop_map(|tenant| Request::GetExtendedAgentCard(GetExtendedAgentCardRequest { tenant })),
    ]
    .boxed()
}

/// Response of any operation that does not stream.
pub(crate) fn response(fit: Fit) -> BoxedStrategy<Response> {
    prop_oneof![
        send_response(fit).prop_map(Response::SendMessage),
        task(fit).prop_map(Response::Task),
        tasks(fit).prop_map(Response::ListTasks),
        push_config().prop_map(Response::PushConfig),
        configs().prop_map(Response::ListPushConfigs),
        Just(Response::Empty),
        card(fit).prop_map(|card| Response::AgentCard(Box::new(card))),
    ]
    .boxed()
}

fn send(fit: Fit) -> BoxedStrategy<SendMessageRequest> {
    (
        option::of(tenant()),
        message(fit),
        option::of(configuration()),
        metadata(fit),
    )
        .prop_map(
            |(tenant, message, configuration, metadata)| SendMessageRequest {
                tenant,
                message,
                configuration,
                metadata,
                alias: None,
                dialect: None,
                tool_parts: Vec::new(),
            },
        )
        .boxed()
}

fn configuration() -> BoxedStrategy<SendMessageConfiguration> {
    // The request itself creates the task.
    let inline = push_config().prop_map(|config| PushConfig {
        task_id: None,
        ..config
    });
    (texts(), option::of(inline), length(), any::<bool>())
        .prop_map(
            |(accepted_output_modes, config, history_length, return_immediately)| {
                SendMessageConfiguration {
                    accepted_output_modes,
                    task_push_notification_config: config,
                    history_length,
                    return_immediately,
                }
            },
        )
        .boxed()
}

fn length() -> BoxedStrategy<Option<i32>> {
    option::of(prop_oneof![
        select(vec![0, 1, -1, i32::MAX, i32::MIN]),
        any::<i32>()
    ])
    .boxed()
}

fn get_task() -> BoxedStrategy<GetTaskRequest> {
    (option::of(tenant()), id(), length())
        .prop_map(|(tenant, id, history_length)| GetTaskRequest {
            tenant,
            id: id.into(),
            history_length,
        })
        .boxed()
}

fn list_tasks() -> BoxedStrategy<ListTasksRequest> {
    let filter = (
        option::of(id()),
        option::of(state()),
        option::of(timestamp()),
    );
    let page = (
        length(),
        option::of(some_text()),
        length(),
        option::of(any::<bool>()),
    );
    (option::of(tenant()), filter, page)
        .prop_map(
            |(tenant, (context, status, after), (size, page_token, history, artifacts))| {
                ListTasksRequest {
                    tenant,
                    context_id: context.map(Into::into),
                    status,
                    page_size: size,
                    page_token,
                    history_length: history,
                    status_timestamp_after: after,
                    include_artifacts: artifacts,
                }
            },
        )
        .boxed()
}

fn cancel(fit: Fit) -> BoxedStrategy<CancelTaskRequest> {
    (option::of(tenant()), id(), metadata(fit))
        .prop_map(|(tenant, id, metadata)| CancelTaskRequest {
            tenant,
            id: id.into(),
            metadata,
        })
        .boxed()
}

fn subscribe() -> BoxedStrategy<SubscribeToTaskRequest> {
    (option::of(tenant()), id())
        .prop_map(|(tenant, id)| SubscribeToTaskRequest {
            tenant,
            id: id.into(),
        })
        .boxed()
}

fn create_config() -> BoxedStrategy<PushConfig> {
    (push_config(), id())
        .prop_map(|(config, task)| PushConfig {
            task_id: Some(task.into()),
            ..config
        })
        .boxed()
}

fn get_config() -> BoxedStrategy<GetPushConfigRequest> {
    (option::of(tenant()), id(), id(), any::<bool>())
        .prop_map(
            |(tenant, task, id, allow_missing_id)| GetPushConfigRequest {
                tenant,
                task_id: task.into(),
                id: Some(id.into()),
                allow_missing_id,
            },
        )
        .boxed()
}

fn list_configs() -> BoxedStrategy<ListPushConfigsRequest> {
    (
        option::of(tenant()),
        id(),
        any::<i32>(),
        option::of(some_text()),
    )
        .prop_map(
            |(tenant, task, page_size, page_token)| ListPushConfigsRequest {
                tenant,
                task_id: task.into(),
                page_size,
                page_token,
            },
        )
        .boxed()
}

fn delete_config() -> BoxedStrategy<DeletePushConfigRequest> {
    (option::of(tenant()), id(), id())
        .prop_map(|(tenant, task, id)| DeletePushConfigRequest {
            tenant,
            task_id: task.into(),
            id: id.into(),
        })
        .boxed()
}

fn tasks(fit: Fit) -> BoxedStrategy<ListTasksResponse> {
    (vec(task(fit), 0..3), text(), any::<i32>(), any::<i32>())
        .prop_map(
            |(tasks, next_page_token, page_size, total_size)| ListTasksResponse {
                tasks,
                next_page_token,
                page_size,
                total_size,
            },
        )
        .boxed()
}

fn configs() -> BoxedStrategy<ListPushConfigsResponse> {
    (vec(push_config(), 0..3), text())
        .prop_map(|(configs, next_page_token)| ListPushConfigsResponse {
            configs,
            next_page_token,
        })
        .boxed()
}
