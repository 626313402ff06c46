//! Tasks that wait for somebody. `--ask` says which message makes one.

use attache::model::{
    CancelTaskRequest, GetTaskRequest, Message, SendMessageRequest, SendMessageResponse,
    StreamResponse, Task, TaskState,
};
use attache::{Error, ErrorKind};

use super::streaming::declared;
use super::{Agent, Check, Ruling, broken, fine, holds, moot, refused, within};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "operations/ask-waits",
        rule: "a call that waits is answered when its task waits for somebody, with what is asked",
        run: |agent| Box::pin(ask_waits(agent)),
    },
    Check {
        name: "operations/continue",
        rule: "a message to a task that waits goes on with that task, in the context that it has",
        run: |agent| Box::pin(goes_on(agent)),
    },
    Check {
        name: "operations/continue-history",
        rule: "history has all messages of a task, the oldest first",
        run: |agent| Box::pin(history(agent)),
    },
    Check {
        name: "operations/continue-mismatch",
        rule: "a task in another context than its own is InvalidParams, and goes on waiting",
        run: |agent| Box::pin(mismatch(agent)),
    },
    Check {
        name: "operations/cancel-waiting",
        rule: "a task that waits can be canceled",
        run: |agent| Box::pin(cancel(agent)),
    },
    Check {
        name: "streaming/ask",
        rule: "a stream tells that its task waits for somebody",
        run: |agent| Box::pin(streamed(agent)),
    },
];

const ANSWER: &str = "an answer of attache conformance";

/// A task that waits.
async fn asking(agent: &Agent<'_>) -> Ruling<Task> {
    let text = agent
        .ask
        .ok_or_else(|| moot("say which message makes the agent ask: --ask <TEXT>"))?;
    let request = SendMessageRequest::new(Message::user(text));
    match fine(within(agent.session.client.send_message(request)).await)? {
        SendMessageResponse::Task(task) if task.status.state.is_interrupted() => Ok(task),
        SendMessageResponse::Task(task) => Err(moot(format!(
            "{text:?} does not make the agent ask: the task is {}",
            task.status.state
        ))),
        SendMessageResponse::Message(_) => {
            Err(moot(format!("{text:?} is answered with a message")))
        }
    }
}

async fn answer(agent: &Agent<'_>, task: &Task) -> Result<SendMessageResponse, Error> {
    let mut message = Message::user(ANSWER);
    message.task_id = Some(task.id.clone());
    within(
        agent
            .session
            .client
            .send_message(SendMessageRequest::new(message)),
    )
    .await
}

async fn read(agent: &Agent<'_>, task: &Task) -> Ruling<Task> {
    let request = GetTaskRequest {
        id: task.id.clone(),
        ..GetTaskRequest::default()
    };
    fine(within(agent.session.client.get_task(request)).await)
}

/// Leaves nothing waiting behind.
async fn end(agent: &Agent<'_>, task: &Task) {
    let request = CancelTaskRequest {
        id: task.id.clone(),
        ..CancelTaskRequest::default()
    };
    // Whether it can be canceled is another rule.
    let _ = within(agent.session.client.cancel_task(request)).await;
}

async fn ask_waits(agent: &Agent<'_>) -> Ruling {
    let task = asking(agent).await?;
    end(agent, &task).await;
    let said = task
        .status
        .message
        .as_ref()
        .is_some_and(|message| !message.parts.is_empty());
    holds(said, || "the status does not say what is asked".to_owned())
}

async fn goes_on(agent: &Agent<'_>) -> Ruling {
    let task = asking(agent).await?;
    match fine(answer(agent, &task).await)? {
        SendMessageResponse::Task(next) => {
            holds(next.id == task.id, || {
                format!("the answer is task {}", next.id)
            })?;
            holds(next.context_id == task.context_id, || {
                format!("its context became {}", next.context_id)
            })?;
            holds(next.status != task.status, || {
                "nothing became of it".to_owned()
            })
        }
        SendMessageResponse::Message(message) => {
            holds(message.task_id.as_ref() == Some(&task.id), || {
                "the message is of no task".to_owned()
            })
        }
    }
}

async fn history(agent: &Agent<'_>) -> Ruling {
    let task = asking(agent).await?;
    fine(answer(agent, &task).await)?;
    let read = read(agent, &task).await?;
    if read.history.is_empty() {
        return Err(moot("the agent keeps no history"));
    }
    let texts: Vec<_> = read
        .history
        .iter()
        .map(|message| message.text().to_string())
        .collect();
    let place = |text: &str| texts.iter().position(|one| one == text);
    let (first, second) = (place(agent.ask.unwrap_or_default()), place(ANSWER));
    holds(first.is_some() && first < second, || {
        format!("it is {texts:?}")
    })
}

async fn mismatch(agent: &Agent<'_>) -> Ruling {
    let task = asking(agent).await?;
    let mut message = Message::user(ANSWER);
    (message.task_id, message.context_id) = (Some(task.id.clone()), Some(super::NOBODY.into()));
    let sent = within(
        agent
            .session
            .client
            .send_message(SendMessageRequest::new(message)),
    )
    .await;
    let ruling = refused(sent, &[ErrorKind::InvalidParams]);
    let state = read(agent, &task).await?.status.state;
    end(agent, &task).await;
    ruling?;
    holds(state == task.status.state, || {
        format!("the task became {state}")
    })
}

async fn cancel(agent: &Agent<'_>) -> Ruling {
    let task = asking(agent).await?;
    let request = CancelTaskRequest {
        id: task.id.clone(),
        ..CancelTaskRequest::default()
    };
    fine(within(agent.session.client.cancel_task(request)).await)?;
    let state = read(agent, &task).await?.status.state;
    holds(state == TaskState::Canceled, || {
        format!("it is {state} after it")
    })
}

async fn streamed(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    end(agent, &asking(agent).await?).await;
    let request = SendMessageRequest::new(Message::user(agent.ask.unwrap_or_default()));
    let mut stream = fine(within(agent.session.client.send_streaming_message(request)).await)?;
    while let Some(item) = stream.next().await {
        let (id, state) = match fine(item)?.1 {
            StreamResponse::Task(task) => (task.id, task.status.state),
            StreamResponse::StatusUpdate(update) => (update.task_id, update.status.state),
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => continue,
        };
        if state.is_interrupted() {
            end(
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
    Err(broken("the stream ends without a word of it"))
}
