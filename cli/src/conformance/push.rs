//! Webhook registrations.

use attache::ErrorKind;
use attache::model::{
    DeletePushConfigRequest, GetPushConfigRequest, ListPushConfigsRequest, PushConfig, TaskId,
};

use super::{Agent, Check, Ruling, fine, holds, moot, nobody, refused, within};

const ID: &str = "attache-conformance";

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "push/undeclared",
        rule: "an agent without push notifications says PushNotificationNotSupported, whatever the task",
        run: |agent| Box::pin(undeclared(agent)),
    },
    Check {
        name: "push/configs",
        rule: "a registration can be made, read, listed and removed, also twice",
        run: |agent| Box::pin(configs(agent)),
    },
    Check {
        name: "push/unknown-task",
        rule: "a registration for a task that is not there is TaskNotFound",
        run: |agent| Box::pin(unknown_task(agent)),
    },
    Check {
        name: "push/unknown-config",
        rule: "a registration that is not there is TaskNotFound",
        run: |agent| Box::pin(unknown_config(agent)),
    },
    Check {
        name: "push/bad-url",
        rule: "a webhook that is no url is InvalidParams",
        run: |agent| Box::pin(bad_url(agent)),
    },
];

fn config(url: &str, task: TaskId) -> PushConfig {
    PushConfig { id: Some(ID.into()), task_id: Some(task), ..PushConfig::new(url.to_owned()) }
}

fn declared(agent: &Agent<'_>) -> Ruling {
    match agent.session.card.capabilities.push_notifications {
        Some(true) => Ok(()),
        _ => Err(moot("the agent declares no push notifications")),
    }
}

async fn undeclared(agent: &Agent<'_>) -> Ruling {
    if declared(agent).is_ok() {
        return Err(moot("the agent declares push notifications"));
    }
    let created = within(agent.session.client.create_push_config(config(agent.webhook, nobody()))).await;
    refused(created, &[ErrorKind::PushNotificationNotSupported])
}

async fn configs(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    let (client, task_id) = (&agent.session.client, agent.task()?.id.clone());
    let made = within(client.create_push_config(config(agent.webhook, task_id.clone()))).await;
    if made.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidParams) {
        return Err(moot(format!("the agent does not call {}; name another with --webhook", agent.webhook)));
    }
    let made = fine(made)?;
    holds(made.url == agent.webhook, || format!("it is for {}", made.url))?;
    let id = made.id.unwrap_or_else(|| ID.into());
    let get = GetPushConfigRequest { task_id: task_id.clone(), id: Some(id.clone()), ..Default::default() };
    let read = fine(within(client.get_push_config(get)).await)?;
    holds(read.url == agent.webhook, || format!("it is read as {}", read.url))?;
    let list = ListPushConfigsRequest { task_id: task_id.clone(), ..Default::default() };
    let listed = fine(within(client.list_push_configs(list.clone())).await)?;
    holds(listed.configs.iter().any(|one| one.id.as_ref() == Some(&id)), || "it is not listed".to_owned())?;
    let delete = DeletePushConfigRequest { task_id, id: id.clone(), ..Default::default() };
    fine(within(client.delete_push_config(delete.clone())).await)?;
    fine(within(client.delete_push_config(delete)).await)?;
    let listed = fine(within(client.list_push_configs(list)).await)?;
    holds(!listed.configs.iter().any(|one| one.id.as_ref() == Some(&id)), || "it is still there".to_owned())
}

async fn unknown_task(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    let request = ListPushConfigsRequest { task_id: nobody(), ..Default::default() };
    refused(within(agent.session.client.list_push_configs(request)).await, &[ErrorKind::TaskNotFound])
}

async fn unknown_config(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    let task_id = agent.task()?.id.clone();
    let request = GetPushConfigRequest { task_id, id: Some(super::NOBODY.into()), ..Default::default() };
    refused(within(agent.session.client.get_push_config(request)).await, &[ErrorKind::TaskNotFound])
}

async fn bad_url(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    let task_id = agent.task()?.id.clone();
    let made = within(agent.session.client.create_push_config(config("no url", task_id))).await;
    refused(made, &[ErrorKind::InvalidParams])
}
