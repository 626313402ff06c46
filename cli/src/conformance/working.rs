//! Tasks that are worked on: canceled and followed while they run. `--slow` says which message makes one.

use attache::model::{
    CancelTaskRequest, GetTaskRequest, Message, StreamResponse, SubscribeToTaskRequest, Task,
    TaskId, TaskState,
};
use attache::{ErrorKind, EventStream};

use super::streaming::declared;
use super::{Agent, Check, Ruling, at_once, broken, fine, holds, moot, within};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "operations/send-at-once-running",
        rule: "with returnImmediately the answer does not wait for the work",
        run: |agent| Box::pin(async { begin(agent).await?.end().await }),
    },
    Check {
        name: "operations/cancel-running",
        rule: "a task that is worked on is canceled when that is asked, and stays so",
        run: |agent| Box::pin(cancel_running(agent)),
    },
    Check {
        name: "operations/cancel-again",
        rule: "a second cancel changes nothing: TaskNotCancelable, or the canceled task",
        run: |agent| Box::pin(cancel_again(agent)),
    },
    Check {
        name: "streaming/subscribe",
        rule: "who subscribes to a running task is told the task first",
        run: |agent| Box::pin(subscribe_running(agent)),
    },
    Check {
        name: "streaming/cancel-told",
        rule: "a cancel is told to every stream of the task, which then closes",
        run: |agent| Box::pin(cancel_told(agent)),
    },
    Check {
        name: "streaming/closing-one",
        rule: "closing one stream ends neither the others nor the task",
        run: |agent| Box::pin(closing_one(agent)),
    },
];

/// A task that runs, and is canceled in the end.
struct Running<'a> {
    agent: &'a Agent<'a>,
    id: TaskId,
}

async fn begin<'a>(agent: &'a Agent<'a>) -> Ruling<Running<'a>> {
    let text = agent
        .slow
        .ok_or_else(|| moot("say which message keeps the agent busy: --slow <TEXT>"))?;
    let answer = fine(
        within(
            agent
                .session
                .client
                .send_message(at_once(Message::user(text))),
        )
        .await,
    )?;
    let task = answer
        .task()
        .ok_or_else(|| moot(format!("{text:?} is answered with a message")))?;
    let state = task.status.state;
    if state.is_terminal() || state.is_interrupted() {
        return Err(moot(format!(
            "{text:?} does not keep the agent busy: the task is {state} at once"
        )));
    }
    Ok(Running {
        agent,
        id: task.id.clone(),
    })
}

impl Running<'_> {
    async fn cancel(&self) -> Ruling<Task> {
        let request = CancelTaskRequest {
            id: self.id.clone(),
            ..CancelTaskRequest::default()
        };
        match within(self.agent.session.client.cancel_task(request)).await {
            Err(error) if error.kind() == ErrorKind::TaskNotCancelable => {
                Err(moot("the agent does not let it be canceled"))
            }
            answer => fine(answer),
        }
    }

    async fn read(&self) -> Ruling<Task> {
        let request = GetTaskRequest {
            id: self.id.clone(),
            ..GetTaskRequest::default()
        };
        fine(within(self.agent.session.client.get_task(request)).await)
    }

    /// Leaves nothing running behind.
    async fn end(self) -> Ruling {
        // Whether it can be canceled is another rule.
        let _ = self.cancel().await;
        Ok(())
    }

    async fn subscribe(&self) -> Ruling<EventStream> {
        declared(self.agent)?;
        let request = SubscribeToTaskRequest {
            id: self.id.clone(),
            ..SubscribeToTaskRequest::default()
        };
        fine(within(self.agent.session.client.subscribe_to_task(request, None)).await)
    }
}

async fn cancel_running(agent: &Agent<'_>) -> Ruling {
    let running = begin(agent).await?;
    let answer = running.cancel().await?;
    holds(answer.id == running.id, || {
        format!("the answer is task {}", answer.id)
    })?;
    // Some answer before the work has stopped; it has to stop all the same.
    let read = running.read().await?;
    let state = if answer.status.state == TaskState::Canceled {
        read.status.state
    } else {
        answer.status.state
    };
    holds(state == TaskState::Canceled, || {
        format!("it is {state} after it")
    })
}

async fn cancel_again(agent: &Agent<'_>) -> Ruling {
    let running = begin(agent).await?;
    running.cancel().await?;
    let request = CancelTaskRequest {
        id: running.id.clone(),
        ..CancelTaskRequest::default()
    };
    match within(agent.session.client.cancel_task(request)).await {
        Err(error) if error.kind() == ErrorKind::TaskNotCancelable => Ok(()),
        Ok(task) => holds(task.status.state == TaskState::Canceled, || {
            format!("it is {}", task.status.state)
        }),
        Err(error) => Err(broken(error.message().to_owned())),
    }
}

async fn next(stream: &mut EventStream) -> Ruling<Option<StreamResponse>> {
    stream
        .next()
        .await
        .map(|item| fine(item).map(|(_, event)| event))
        .transpose()
}

async fn subscribe_running(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    let running = begin(agent).await?;
    let first = next(&mut running.subscribe().await?).await?;
    let ruling = match first {
        Some(StreamResponse::Task(task)) => {
            holds(task.id == running.id, || format!("it is task {}", task.id))
        }
        Some(_) => Err(broken("the first event is not the task")),
        None => Err(broken("the stream ends at once")),
    };
    running.end().await?;
    ruling
}

/// Reads to the end; gives the last state that was told.
async fn last(stream: &mut EventStream) -> Ruling<TaskState> {
    let mut state = TaskState::Unspecified;
    while let Some(event) = next(stream).await? {
        state = match event {
            StreamResponse::Task(task) => task.status.state,
            StreamResponse::StatusUpdate(update) => update.status.state,
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => state,
        };
    }
    Ok(state)
}

async fn cancel_told(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    let running = begin(agent).await?;
    let (mut one, mut other) = (running.subscribe().await?, running.subscribe().await?);
    running.cancel().await?;
    for stream in [&mut one, &mut other] {
        let state = last(stream).await?;
        holds(state == TaskState::Canceled, || {
            format!("a stream ends with {state}")
        })?;
    }
    Ok(())
}

async fn closing_one(agent: &Agent<'_>) -> Ruling {
    declared(agent)?;
    let running = begin(agent).await?;
    let (mut one, mut other) = (running.subscribe().await?, running.subscribe().await?);
    next(&mut one).await?;
    drop(one);
    let state = running.read().await?.status.state;
    holds(!state.is_terminal(), || format!("the task became {state}"))?;
    running.cancel().await?;
    let state = last(&mut other).await?;
    holds(state == TaskState::Canceled, || {
        format!("the other stream ends with {state}")
    })
}
