//! `attache push listen`: receives push notifications, and prints them.

use attache::jws::PublishedKeys;
use attache::model::{
    AuthenticationInfo, DeletePushConfigRequest, MessageId, PushConfig, Secret, StreamResponse,
};
use attache::{
    ErrorKind, PushNotifications, PushReceiver, PushReceiverSettings, PushSignatureVerifier,
};

use super::push_config::variable;
use crate::args::PushListenArgs;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::session::Session;
use crate::settings::Settings;

pub(crate) async fn run(args: PushListenArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let token = args.token.or_else(|| variable("ATTACHE_PUSH_TOKEN"));
    // A registered webhook has a token: without it any process that finds the address could send notifications.
    let token = token.or_else(|| {
        let is_registered = settings.task_id.is_some();
        is_registered.then(|| MessageId::random().as_str().to_owned())
    });
    let token = token.map(Secret::from);
    let credentials = args
        .auth_credentials
        .or_else(|| variable("ATTACHE_PUSH_CREDENTIALS"))
        .map(Secret::from);
    token
        .iter()
        .chain(&credentials)
        .for_each(|secret| out.redact(secret));
    let authentication = args.auth_scheme.map(|scheme| AuthenticationInfo {
        scheme,
        credentials,
    });
    let unusable = |error| CliError::usage(format!("--listen {}: {error}", args.listen));
    let listener = tokio::net::TcpListener::bind(&args.listen)
        .await
        .map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let url = args.url.unwrap_or_else(|| format!("http://{address}/"));
    let (mut receiver, notifications) = PushReceiver::new(PushReceiverSettings {
        token: token.clone(),
        authentication: authentication.clone(),
        ..PushReceiverSettings::default()
    });
    if let Some(keys) = &args.key_set {
        let keys = PublishedKeys::from_url(keys)
            .map_err(|error| CliError::usage(format!("--key-set: {}", error.message())))?;
        receiver = receiver.with_verifier(PushSignatureVerifier::new(keys).audience(&url));
    }
    // Each notification is a result, so JSON has one line per notification.
    out.stream = true;
    out.note(&format!("listening on {url}"));
    let config = PushConfig {
        token,
        authentication,
        ..PushConfig::new(url)
    };
    tokio::select! {
        printed = register_and_print(config, notifications, args.count, settings, out) => printed,
        () = receiver.serve(listener) => Ok(()),
    }
}

/// Registers the webhook if `--task-id` is given, prints notifications, and removes the registration.
async fn register_and_print(
    config: PushConfig,
    mut notifications: PushNotifications,
    count: Option<u64>,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let registered = match &settings.task_id {
        Some(task) => Some(register(task, config, settings, out).await?),
        None => None,
    };
    let mut remaining = count;
    while remaining != Some(0) {
        let Some(notification) = notifications.next().await else {
            break;
        };
        out.print_event(&notification.event)?;
        remaining = remaining.map(|remaining| remaining - 1);
        if registered.is_some() && is_terminal_event(&notification.event) {
            break;
        }
    }
    if let Some((session, delete)) = registered {
        // A failure is harmless: the registration ends with its task.
        let _ = session
            .call(session.client.delete_push_config(delete))
            .await;
    }
    Ok(())
}

/// Registers this receiver for a task; returns the request that removes the registration.
async fn register<'a>(
    task: &str,
    config: PushConfig,
    settings: &'a Settings,
    out: &mut Output,
) -> CliResult<(Session<'a>, DeletePushConfigRequest)> {
    let session = Session::open(settings, out).await?;
    if session.card.capabilities.push_notifications != Some(true) {
        let message = "the card does not declare push notifications";
        return Err(
            CliError::protocol(ErrorKind::PushNotificationNotSupported, message)
                .hint("follow the task instead: attache task subscribe"),
        );
    }
    let config = PushConfig {
        task_id: Some(task.into()),
        ..config
    };
    let made = session
        .call(session.client.create_push_config(config))
        .await?;
    let id = made.id.unwrap_or_default();
    out.note(&format!("registered for task {task} as {}", id.as_str()));
    out.set_resume_command(session.resume.delete_push_config_command(task, id.as_str()));
    Ok((
        session,
        DeletePushConfigRequest {
            task_id: task.into(),
            id,
            ..Default::default()
        },
    ))
}

fn is_terminal_event(event: &StreamResponse) -> bool {
    match event {
        StreamResponse::Task(task) => task.status.state.is_terminal(),
        StreamResponse::StatusUpdate(update) => update.status.state.is_terminal(),
        StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => false,
    }
}
