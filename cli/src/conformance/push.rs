//! Checks of webhook registrations and deliveries.

mod delivery;

use attache::ErrorKind;
use attache::model::{
    DeletePushConfigRequest, GetPushConfigRequest, ListPushConfigsRequest, Message, PushConfig,
    SendMessageConfiguration, SendMessageRequest, TaskId,
};

use super::{
    AgentUnderTest, CheckResult, ConformanceCheck, ensure, expect_error, expect_ok, skip,
    unknown_task_id, violation, with_timeout,
};

const ID: &str = "attache-conformance";

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "push/undeclared",
        rule: "without declared push notifications, registrations are PushNotificationNotSupported",
        run: |agent| Box::pin(undeclared(agent)),
    },
    ConformanceCheck {
        name: "push/configs",
        rule: "a registration can be created, read, listed and deleted, and deletion is idempotent",
        run: |agent| Box::pin(configs(agent)),
    },
    ConformanceCheck {
        name: "push/unknown-task",
        rule: "registrations of an unknown task are TaskNotFound",
        run: |agent| Box::pin(unknown_task(agent)),
    },
    ConformanceCheck {
        name: "push/unknown-config",
        rule: "an unknown registration is TaskNotFound",
        run: |agent| Box::pin(unknown_config(agent)),
    },
    ConformanceCheck {
        name: "push/several",
        rule: "a task can have several registrations, and the same id replaces one",
        run: |agent| Box::pin(several(agent)),
    },
    ConformanceCheck {
        name: "push/in-send",
        rule: "a webhook in SendMessage is registered for its task",
        run: |agent| Box::pin(in_send(agent)),
    },
    ConformanceCheck {
        name: "push/delivery",
        rule: "a webhook receives StreamResponses with its token, the last with the final state",
        run: |agent| Box::pin(delivery::delivery(agent)),
    },
    ConformanceCheck {
        name: "push/bad-url",
        rule: "an invalid webhook URL is InvalidParams",
        run: |agent| Box::pin(bad_url(agent)),
    },
];

fn config(url: &str, task: TaskId) -> PushConfig {
    PushConfig {
        id: Some(ID.into()),
        task_id: Some(task),
        ..PushConfig::new(url.to_owned())
    }
}

fn require_push(agent: &AgentUnderTest<'_>) -> CheckResult {
    match agent.session.card.capabilities.push_notifications {
        Some(true) => Ok(()),
        _ => Err(skip("the agent declares no push notifications")),
    }
}

async fn undeclared(agent: &AgentUnderTest<'_>) -> CheckResult {
    if require_push(agent).is_ok() {
        return Err(skip("the agent declares push notifications"));
    }
    let created = with_timeout(
        agent
            .session
            .client
            .create_push_config(config(agent.webhook, unknown_task_id())),
    )
    .await;
    expect_error(created, &[ErrorKind::PushNotificationNotSupported])
}

async fn configs(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_push(agent)?;
    let client = &agent.session.client;
    let task_id = agent.first_task()?.id.clone();
    let made =
        with_timeout(client.create_push_config(config(agent.webhook, task_id.clone()))).await;
    if made
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::InvalidParams)
    {
        return Err(skip(format!(
            "the agent refuses {}; give another URL with --webhook",
            agent.webhook
        )));
    }
    let made = expect_ok(made)?;
    ensure(made.url == agent.webhook, || {
        format!("it is for {}", made.url)
    })?;
    let id = made.id.unwrap_or_else(|| ID.into());
    let get = GetPushConfigRequest {
        task_id: task_id.clone(),
        id: Some(id.clone()),
        ..Default::default()
    };
    let read = expect_ok(with_timeout(client.get_push_config(get)).await)?;
    ensure(read.url == agent.webhook, || {
        format!("it is read as {}", read.url)
    })?;
    let list = ListPushConfigsRequest {
        task_id: task_id.clone(),
        ..Default::default()
    };
    let listed = expect_ok(with_timeout(client.list_push_configs(list.clone())).await)?;
    ensure(
        listed
            .configs
            .iter()
            .any(|one| one.id.as_ref() == Some(&id)),
        || "it is not listed".to_owned(),
    )?;
    let delete = DeletePushConfigRequest {
        task_id,
        id: id.clone(),
        ..Default::default()
    };
    expect_ok(with_timeout(client.delete_push_config(delete.clone())).await)?;
    expect_ok(with_timeout(client.delete_push_config(delete)).await)?;
    let listed = expect_ok(with_timeout(client.list_push_configs(list)).await)?;
    ensure(
        !listed
            .configs
            .iter()
            .any(|one| one.id.as_ref() == Some(&id)),
        || "it is still there".to_owned(),
    )
}

/// Registers a webhook; skips the check if the agent refuses its URL.
async fn register(agent: &AgentUnderTest<'_>, config: PushConfig) -> CheckResult<PushConfig> {
    match with_timeout(agent.session.client.create_push_config(config)).await {
        Err(error) if error.kind() == ErrorKind::InvalidParams => {
            Err(skip("the agent refuses this webhook"))
        }
        made => expect_ok(made),
    }
}

async fn several(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_push(agent)?;
    let client = &agent.session.client;
    let task_id = agent.first_task()?.id.clone();
    let other = format!("{}-other", agent.webhook);
    for (id, url) in [
        ("one", agent.webhook),
        ("two", agent.webhook),
        ("two", &other),
    ] {
        let id = Some(format!("{ID}-{id}").as_str().into());
        register(
            agent,
            PushConfig {
                id,
                ..config(url, task_id.clone())
            },
        )
        .await?;
    }
    let list = ListPushConfigsRequest {
        task_id: task_id.clone(),
        ..Default::default()
    };
    let listed = expect_ok(with_timeout(client.list_push_configs(list)).await)?.configs;
    let ours = |one: &&PushConfig| {
        one.id
            .as_ref()
            .is_some_and(|id| id.as_str().starts_with(ID))
    };
    let urls: Vec<_> = listed
        .iter()
        .filter(ours)
        .map(|one| one.url.clone())
        .collect();
    for id in ["one", "two"] {
        let id = format!("{ID}-{id}").as_str().into();
        let delete = DeletePushConfigRequest {
            task_id: task_id.clone(),
            id,
            ..Default::default()
        };
        expect_ok(with_timeout(client.delete_push_config(delete)).await)?;
    }
    let replaced =
        urls.len() == 2 && urls.contains(&other) && urls.iter().any(|url| url == agent.webhook);
    ensure(replaced, || format!("there are {urls:?}"))
}

async fn in_send(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_push(agent)?;
    agent.first_task()?;
    let hook = PushConfig {
        task_id: None,
        ..config(agent.webhook, unknown_task_id())
    };
    let configuration = SendMessageConfiguration {
        task_push_notification_config: Some(hook),
        ..Default::default()
    };
    let message = SendMessageRequest::new(Message::user("hello"));
    let request = SendMessageRequest {
        configuration: Some(configuration),
        ..message
    };
    let answer = match with_timeout(agent.session.client.send_message(request)).await {
        Err(error) if error.kind() == ErrorKind::InvalidParams => {
            return Err(skip(format!(
                "the agent refuses {}; give another URL with --webhook",
                agent.webhook
            )));
        }
        answer => expect_ok(answer)?,
    };
    let Some(task) = answer.task() else {
        return Err(skip("the agent answered with a message"));
    };
    let list = ListPushConfigsRequest {
        task_id: task.id.clone(),
        ..Default::default()
    };
    let listed = expect_ok(with_timeout(agent.session.client.list_push_configs(list)).await)?;
    let found = listed.configs.iter().find(|one| one.url == agent.webhook);
    let Some(found) = found else {
        return Err(violation("it is not listed"));
    };
    let id = found.id.clone().unwrap_or_else(|| ID.into());
    let delete = DeletePushConfigRequest {
        task_id: task.id.clone(),
        id,
        ..Default::default()
    };
    expect_ok(with_timeout(agent.session.client.delete_push_config(delete)).await).map(drop)
}

async fn unknown_task(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_push(agent)?;
    let request = ListPushConfigsRequest {
        task_id: unknown_task_id(),
        ..Default::default()
    };
    expect_error(
        with_timeout(agent.session.client.list_push_configs(request)).await,
        &[ErrorKind::TaskNotFound],
    )
}

async fn unknown_config(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_push(agent)?;
    let task_id = agent.first_task()?.id.clone();
    let request = GetPushConfigRequest {
        task_id,
        id: Some(super::UNKNOWN_TASK_ID.into()),
        ..Default::default()
    };
    expect_error(
        with_timeout(agent.session.client.get_push_config(request)).await,
        &[ErrorKind::TaskNotFound],
    )
}

async fn bad_url(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_push(agent)?;
    let task_id = agent.first_task()?.id.clone();
    let made = with_timeout(
        agent
            .session
            .client
            .create_push_config(config("no url", task_id)),
    )
    .await;
    expect_error(made, &[ErrorKind::InvalidParams])
}
