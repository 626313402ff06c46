//! Checks of interrupted tasks, which the message of `--ask` creates.

use attache::model::{
    CancelTaskRequest, GetTaskRequest, Message, SendMessageRequest, SendMessageResponse,
    StreamResponse, Task, TaskState,
};
use attache::{Error, ErrorKind};

use super::streaming::require_streaming;
use super::{
    AgentUnderTest, CheckResult, ConformanceCheck, ensure, expect_error, expect_ok, skip,
    violation, with_timeout,
};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "operations/ask-waits",
        rule: "a blocking call returns when its task is interrupted, with the question",
        run: |agent| Box::pin(ask_waits(agent)),
    },
    ConformanceCheck {
        name: "operations/continue",
        rule: "a message to an interrupted task continues it in its context",
        run: |agent| Box::pin(continue_task(agent)),
    },
    ConformanceCheck {
        name: "operations/continue-history",
        rule: "the history has all messages of a task, oldest first",
        run: |agent| Box::pin(history(agent)),
    },
    ConformanceCheck {
        name: "operations/continue-mismatch",
        rule: "a task id with another context id is InvalidParams, and the task stays interrupted",
        run: |agent| Box::pin(mismatch(agent)),
    },
    ConformanceCheck {
        name: "operations/cancel-waiting",
        rule: "an interrupted task can be canceled",
        run: |agent| Box::pin(cancel(agent)),
    },
    ConformanceCheck {
        name: "streaming/ask",
        rule: "a stream reports that its task is interrupted",
        run: |agent| Box::pin(streamed(agent)),
    },
];

const ANSWER: &str = "an answer of attache conformance";

/// Creates an interrupted task.
async fn interrupted_task(agent: &AgentUnderTest<'_>) -> CheckResult<Task> {
    let text = agent
        .ask
        .ok_or_else(|| skip("give a message that makes the agent ask: --ask <TEXT>"))?;
    let request = SendMessageRequest::new(Message::user(text));
    match expect_ok(with_timeout(agent.session.client.send_message(request)).await)? {
        SendMessageResponse::Task(task) if task.status.state.is_interrupted() => Ok(task),
        SendMessageResponse::Task(task) => Err(skip(format!(
            "{text:?} does not make the agent ask: the task is {}",
            task.status.state
        ))),
        SendMessageResponse::Message(_) => {
            Err(skip(format!("{text:?} is answered with a message")))
        }
    }
}

async fn answer(agent: &AgentUnderTest<'_>, task: &Task) -> Result<SendMessageResponse, Error> {
    let mut message = Message::user(ANSWER);
    message.task_id = Some(task.id.clone());
    with_timeout(
        agent
            .session
            .client
            .send_message(SendMessageRequest::new(message)),
    )
    .await
}

async fn read(agent: &AgentUnderTest<'_>, task: &Task) -> CheckResult<Task> {
    let request = GetTaskRequest {
        id: task.id.clone(),
        ..GetTaskRequest::default()
    };
    expect_ok(with_timeout(agent.session.client.get_task(request)).await)
}

/// Cancels a task, to leave none behind. Errors are ignored.
async fn cancel_quietly(agent: &AgentUnderTest<'_>, task: &Task) {
    let request = CancelTaskRequest {
        id: task.id.clone(),
        ..CancelTaskRequest::default()
    };
    let _ = with_timeout(agent.session.client.cancel_task(request)).await;
}

async fn ask_waits(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = interrupted_task(agent).await?;
    cancel_quietly(agent, &task).await;
    let said = task
        .status
        .message
        .as_ref()
        .is_some_and(|message| !message.parts.is_empty());
    ensure(said, || "the status message is empty".to_owned())
}

async fn continue_task(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = interrupted_task(agent).await?;
    match expect_ok(answer(agent, &task).await)? {
        SendMessageResponse::Task(next) => {
            ensure(next.id == task.id, || {
                format!("the answer is task {}", next.id)
            })?;
            ensure(next.context_id == task.context_id, || {
                format!("its context became {}", next.context_id)
            })?;
            ensure(next.status != task.status, || {
                "the status did not change".to_owned()
            })
        }
        SendMessageResponse::Message(message) => {
            ensure(message.task_id.as_ref() == Some(&task.id), || {
                "the message has no task id".to_owned()
            })
        }
    }
}

async fn history(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = interrupted_task(agent).await?;
    expect_ok(answer(agent, &task).await)?;
    let read = read(agent, &task).await?;
    if read.history.is_empty() {
        return Err(skip("the agent returns no history"));
    }
    let texts: Vec<_> = read
        .history
        .iter()
        .map(|message| message.text().to_string())
        .collect();
    let position = |text: &str| texts.iter().position(|one| one == text);
    let first = position(agent.ask.unwrap_or_default());
    let second = position(ANSWER);
    ensure(first.is_some() && first < second, || {
        format!("it is {texts:?}")
    })
}

async fn mismatch(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = interrupted_task(agent).await?;
    let mut message = Message::user(ANSWER);
    message.task_id = Some(task.id.clone());
    message.context_id = Some(super::UNKNOWN_TASK_ID.into());
    let sent = with_timeout(
        agent
            .session
            .client
            .send_message(SendMessageRequest::new(message)),
    )
    .await;
    let ruling = expect_error(sent, &[ErrorKind::InvalidParams]);
    let state = read(agent, &task).await?.status.state;
    cancel_quietly(agent, &task).await;
    ruling?;
    ensure(state == task.status.state, || {
        format!("the task became {state}")
    })
}

async fn cancel(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = interrupted_task(agent).await?;
    let request = CancelTaskRequest {
        id: task.id.clone(),
        ..CancelTaskRequest::default()
    };
    expect_ok(with_timeout(agent.session.client.cancel_task(request)).await)?;
    let state = read(agent, &task).await?.status.state;
    ensure(state == TaskState::Canceled, || {
        format!("the state is {state} after the cancel")
    })
}

async fn streamed(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_streaming(agent)?;
    cancel_quietly(agent, &interrupted_task(agent).await?).await;
    let request = SendMessageRequest::new(Message::user(agent.ask.unwrap_or_default()));
    let mut stream =
        expect_ok(with_timeout(agent.session.client.send_streaming_message(request)).await)?;
    while let Some(item) = stream.next().await {
        let (id, state) = match expect_ok(item)?.1 {
            StreamResponse::Task(task) => (task.id, task.status.state),
            StreamResponse::StatusUpdate(update) => (update.task_id, update.status.state),
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => continue,
        };
        if state.is_interrupted() {
            cancel_quietly(
                agent,
                &Task {
                    id,
                    ..Task::default()
                },
            )
            .await;
            return Ok(());
        }
    }
    Err(violation("the stream ends without an interrupted state"))
}
