//! Notifications that arrive.

use std::time::Duration;

use attache::model::{
    Message, PushConfig, Secret, SendMessageConfiguration, SendMessageRequest, StreamResponse,
    TaskState,
};
use attache::{ErrorKind, PushNotifications, PushReceiver, PushReceiverSettings};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{config, declared};
use crate::conformance::{Agent, NOBODY, Ruling, broken, fine, holds, moot, nobody, within};
use crate::reference::{host_of_url, is_loopback};

/// How long a notification may be on its way.
const PATIENCE: Duration = Duration::from_secs(10);

/// Listens on this machine, so only an agent on this machine can be looked into.
pub(super) async fn delivery(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    agent.ended()?;
    if !is_loopback(&host_of_url(&agent.session.client.interface().url)) {
        return Err(moot(
            "the agent is on another machine, which cannot call this one",
        ));
    }
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(|error| moot(error.to_string()))?;
    let port = listener
        .local_addr()
        .map_err(|error| moot(error.to_string()))?
        .port();
    let token = Secret::from(NOBODY);
    let settings = PushReceiverSettings {
        token: Some(token.clone()),
        ..PushReceiverSettings::default()
    };
    let (receiver, mut taken) = PushReceiver::new(settings);
    tokio::select! {
        () = receiver.serve(listener) => Err(moot("cannot listen on this machine")),
        ruling = exchange(agent, port, token, &mut taken) => ruling,
    }
}

async fn exchange(
    agent: &Agent<'_>,
    port: u16,
    token: Secret,
    taken: &mut PushNotifications,
) -> Ruling {
    let url = format!("http://127.0.0.1:{port}/");
    let hook = PushConfig {
        task_id: None,
        token: Some(token),
        ..config(&url, nobody())
    };
    let configuration = SendMessageConfiguration {
        task_push_notification_config: Some(hook),
        ..Default::default()
    };
    let request = SendMessageRequest::new(Message::user("hello"));
    let request = SendMessageRequest {
        configuration: Some(configuration),
        ..request
    };
    let answer = match within(agent.session.client.send_message(request)).await {
        Err(error) if error.kind() == ErrorKind::InvalidParams => {
            return Err(moot("the agent does not call this machine"));
        }
        answer => fine(answer)?,
    };
    let Some(task) = answer.task() else {
        return Err(moot("the agent answered with a message"));
    };
    let wanted = task.status.state;
    loop {
        let next = timeout(PATIENCE, taken.next()).await;
        let Ok(Some(notification)) = next else {
            return Err(broken(format!(
                "no notification told within 10s that the task is {wanted}"
            )));
        };
        holds(notification.task_id() == Some(&task.id), || {
            "one is of another task".to_owned()
        })?;
        if state(&notification.event) == Some(wanted) {
            return Ok(());
        }
    }
}

fn state(event: &StreamResponse) -> Option<TaskState> {
    match event {
        StreamResponse::Task(task) => Some(task.status.state),
        StreamResponse::StatusUpdate(update) => Some(update.status.state),
        StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => None,
    }
}
