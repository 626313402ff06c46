//! `attache task push-config`: webhook registrations of a task.

use attache::ErrorKind;
use attache::model::{
    AuthenticationInfo, DeletePushConfigRequest, GetPushConfigRequest, ListPushConfigsRequest,
    PushConfig, Secret, TaskId,
};

use super::task_id;
use crate::args::{self, PushConfigCreateArgs};
use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::session::Session;
use crate::settings::Settings;

pub(crate) async fn run(
    verb: args::PushConfigCommand,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let session = Session::open(settings, out).await?;
    if session.card.capabilities.push_notifications != Some(true) {
        let message = "the card does not declare push notifications";
        return Err(
            CliError::protocol(ErrorKind::PushNotificationNotSupported, message)
                .hint("follow the task instead: attache task subscribe"),
        );
    }
    match verb {
        args::PushConfigCommand::Create(args) => create(args, &session, out).await,
        args::PushConfigCommand::Get(args) => {
            let task_id = task_id(args.one.id, settings)?;
            let id = Some(args.config_id.as_str().into());
            let request = GetPushConfigRequest {
                task_id,
                id,
                ..GetPushConfigRequest::default()
            };
            let config = session
                .call(session.client.get_push_config(request))
                .await?;
            print_configs(&session, &[config], out).await
        }
        args::PushConfigCommand::List(args) => {
            list(task_id(args.id, settings)?, &session, out).await
        }
        args::PushConfigCommand::Delete(args) => {
            let task_id = task_id(args.one.id, settings)?;
            let id = args.config_id.as_str().into();
            let request = DeletePushConfigRequest {
                task_id: task_id.clone(),
                id,
                ..DeletePushConfigRequest::default()
            };
            session
                .call(session.client.delete_push_config(request))
                .await?;
            if out.is_json() {
                return out.print_json(&serde_json::json!({}));
            }
            let mut page = task_page(&session, &task_id).await;
            page.add_field("Deleted", &args.config_id);
            out.print_page(&page)
        }
    }
}

/// A variable of the environment, unless it is empty.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

async fn create(args: PushConfigCreateArgs, session: &Session<'_>, out: &mut Output) -> CliResult {
    let token = args
        .token
        .or_else(|| variable("ATTACHE_PUSH_TOKEN"))
        .map(Secret::from);
    let credentials = args
        .auth_credentials
        .or_else(|| variable("ATTACHE_PUSH_CREDENTIALS"))
        .map(Secret::from);
    token
        .iter()
        .chain(&credentials)
        .for_each(|secret| out.redact(secret));
    let config = PushConfig {
        id: args.config_id.as_deref().map(Into::into),
        task_id: Some(task_id(args.one.id, session.settings)?),
        token,
        authentication: args.auth_scheme.map(|scheme| AuthenticationInfo {
            scheme,
            credentials,
        }),
        ..PushConfig::new(args.url)
    };
    let config = session
        .call(session.client.create_push_config(config))
        .await?;
    print_configs(session, &[config], out).await
}

async fn list(task_id: TaskId, session: &Session<'_>, out: &mut Output) -> CliResult {
    let request = ListPushConfigsRequest {
        task_id: task_id.clone(),
        ..ListPushConfigsRequest::default()
    };
    let list = session
        .call(session.client.list_push_configs(request))
        .await?;
    match (out.is_json(), list.configs.is_empty()) {
        (true, _) => out.print_json(&list),
        (false, true) => out.print_page(&task_page(session, &task_id).await),
        (false, false) => print_configs(session, &list.configs, out).await,
    }
}

async fn print_configs(
    session: &Session<'_>,
    configs: &[PushConfig],
    out: &mut Output,
) -> CliResult {
    if let (true, [config]) = (out.is_json(), configs) {
        return out.print_json(config);
    }
    let Some(first) = configs.first() else {
        return Ok(());
    };
    let mut page = task_page(session, &first.task_id.clone().unwrap_or_default()).await;
    for config in configs {
        page.add_field("Webhook", config.id.as_ref().map_or("", |id| id.as_str()));
        page.add_field("Url", &config.url);
        if config.token.is_some() {
            page.add_field("Token", "***");
        }
        if let Some(info) = &config.authentication {
            page.add_field("Authentication", &format!("{} ***", info.scheme));
        }
    }
    out.print_page(&page)
}

/// A page with the ids and the state of the task; only the id if the task cannot be read.
async fn task_page(session: &Session<'_>, id: &TaskId) -> TextPage {
    let mut page = TextPage::new(false);
    match session.task(id, Some(0)).await {
        Ok(task) => {
            page.add_ids(task.id.as_str(), task.context_id.as_str());
            page.add_field("State", task.status.state.as_str());
        }
        Err(_) => page.add_field("Task", id.as_str()),
    }
    page
}
