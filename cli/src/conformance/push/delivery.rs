//! Check of webhook delivery with a local receiver.

use std::time::Duration;

use attache::model::{
    Message, PushConfig, Secret, SendMessageConfiguration, SendMessageRequest, StreamResponse,
    TaskState,
};
use attache::{ErrorKind, PushNotifications, PushReceiver, PushReceiverSettings};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{config, require_push};
use crate::conformance::{
    AgentUnderTest, CheckResult, UNKNOWN_TASK_ID, ensure, expect_ok, skip, unknown_task_id,
    violation, with_timeout,
};
use crate::reference::{is_loopback, url_host};

/// Time for a notification to arrive.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks delivery to a listener on loopback, so only for an agent on loopback.
pub(super) async fn delivery(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_push(agent)?;
    agent.ended_task()?;
    if !is_loopback(&url_host(&agent.session.client.interface().url)) {
        return Err(skip("the agent is on another machine"));
    }
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(|error| skip(error.to_string()))?;
    let port = listener
        .local_addr()
        .map_err(|error| skip(error.to_string()))?
        .port();
    let token = Secret::from(UNKNOWN_TASK_ID);
    let settings = PushReceiverSettings {
        token: Some(token.clone()),
        ..PushReceiverSettings::default()
    };
    let (receiver, mut taken) = PushReceiver::new(settings);
    tokio::select! {
        () = receiver.serve(listener) => Err(skip("cannot listen on loopback")),
        ruling = exchange(agent, port, token, &mut taken) => ruling,
    }
}

async fn exchange(
    agent: &AgentUnderTest<'_>,
    port: u16,
    token: Secret,
    taken: &mut PushNotifications,
) -> CheckResult {
    let url = format!("http://127.0.0.1:{port}/");
    let hook = PushConfig {
        task_id: None,
        token: Some(token),
        ..config(&url, unknown_task_id())
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
    let answer = match with_timeout(agent.session.client.send_message(request)).await {
        Err(error) if error.kind() == ErrorKind::InvalidParams => {
            return Err(skip("the agent refuses webhooks on loopback"));
        }
        answer => expect_ok(answer)?,
    };
    let Some(task) = answer.task() else {
        return Err(skip("the agent answered with a message"));
    };
    let wanted = task.status.state;
    loop {
        let next = timeout(DELIVERY_TIMEOUT, taken.next()).await;
        let Ok(Some(notification)) = next else {
            return Err(violation(format!(
                "no notification with state {wanted} within 10s"
            )));
        };
        ensure(notification.task_id() == Some(&task.id), || {
            "a notification has another task".to_owned()
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
