//! Checks of running tasks, which the message of `--slow` creates.

use attache::model::{
    CancelTaskRequest, GetTaskRequest, Message, StreamResponse, SubscribeToTaskRequest, Task,
    TaskId, TaskState,
};
use attache::{ErrorKind, EventStream};

use super::streaming::require_streaming;
use super::{
    AgentUnderTest, CheckResult, ConformanceCheck, ensure, expect_ok, skip, violation,
    with_timeout, without_waiting,
};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "operations/send-at-once-running",
        rule: "with returnImmediately the response does not wait for the task",
        run: |agent| Box::pin(async { start_task(agent).await?.cancel_quietly().await }),
    },
    ConformanceCheck {
        name: "operations/cancel-running",
        rule: "CancelTask cancels a running task, and it stays canceled",
        run: |agent| Box::pin(cancel_running(agent)),
    },
    ConformanceCheck {
        name: "operations/cancel-again",
        rule: "a second CancelTask is TaskNotCancelable, or returns the canceled task",
        run: |agent| Box::pin(cancel_again(agent)),
    },
    ConformanceCheck {
        name: "streaming/subscribe",
        rule: "SubscribeToTask of a running task starts with the task",
        run: |agent| Box::pin(subscribe_running(agent)),
    },
    ConformanceCheck {
        name: "streaming/cancel-told",
        rule: "a cancel is sent to every stream of the task, which then closes",
        run: |agent| Box::pin(cancel_told(agent)),
    },
    ConformanceCheck {
        name: "streaming/closing-one",
        rule: "closing one stream ends neither the others nor the task",
        run: |agent| Box::pin(closing_one(agent)),
    },
];

/// A running task of the agent.
struct RunningTask<'a> {
    agent: &'a AgentUnderTest<'a>,
    id: TaskId,
}

async fn start_task<'a>(agent: &'a AgentUnderTest<'a>) -> CheckResult<RunningTask<'a>> {
    let text = agent
        .slow
        .ok_or_else(|| skip("give a message that keeps the agent busy: --slow <TEXT>"))?;
    let answer = expect_ok(
        with_timeout(
            agent
                .session
                .client
                .send_message(without_waiting(Message::user(text))),
        )
        .await,
    )?;
    let task = answer
        .task()
        .ok_or_else(|| skip(format!("{text:?} is answered with a message")))?;
    let state = task.status.state;
    if state.is_terminal() || state.is_interrupted() {
        return Err(skip(format!(
            "{text:?} does not keep the agent busy: the task is {state} at once"
        )));
    }
    Ok(RunningTask {
        agent,
        id: task.id.clone(),
    })
}

impl RunningTask<'_> {
    async fn cancel(&self) -> CheckResult<Task> {
        let request = CancelTaskRequest {
            id: self.id.clone(),
            ..CancelTaskRequest::default()
        };
        match with_timeout(self.agent.session.client.cancel_task(request)).await {
            Err(error) if error.kind() == ErrorKind::TaskNotCancelable => {
                Err(skip("the agent does not support cancellation"))
            }
            answer => expect_ok(answer),
        }
    }

    async fn read(&self) -> CheckResult<Task> {
        let request = GetTaskRequest {
            id: self.id.clone(),
            ..GetTaskRequest::default()
        };
        expect_ok(with_timeout(self.agent.session.client.get_task(request)).await)
    }

    /// Cancels the task, to leave none running. Errors are ignored.
    async fn cancel_quietly(self) -> CheckResult {
        let _ = self.cancel().await;
        Ok(())
    }

    async fn subscribe(&self) -> CheckResult<EventStream> {
        require_streaming(self.agent)?;
        let request = SubscribeToTaskRequest {
            id: self.id.clone(),
            ..SubscribeToTaskRequest::default()
        };
        expect_ok(with_timeout(self.agent.session.client.subscribe_to_task(request, None)).await)
    }
}

async fn cancel_running(agent: &AgentUnderTest<'_>) -> CheckResult {
    let running = start_task(agent).await?;
    let answer = running.cancel().await?;
    ensure(answer.id == running.id, || {
        format!("the answer is task {}", answer.id)
    })?;
    // Some agents respond before the work has stopped; it must stop all the same.
    let read = running.read().await?;
    let state = if answer.status.state == TaskState::Canceled {
        read.status.state
    } else {
        answer.status.state
    };
    ensure(state == TaskState::Canceled, || {
        format!("the state is {state} after the cancel")
    })
}

async fn cancel_again(agent: &AgentUnderTest<'_>) -> CheckResult {
    let running = start_task(agent).await?;
    running.cancel().await?;
    let request = CancelTaskRequest {
        id: running.id.clone(),
        ..CancelTaskRequest::default()
    };
    match with_timeout(agent.session.client.cancel_task(request)).await {
        Err(error) if error.kind() == ErrorKind::TaskNotCancelable => Ok(()),
        Ok(task) => ensure(task.status.state == TaskState::Canceled, || {
            format!("it is {}", task.status.state)
        }),
        Err(error) => Err(violation(error.message().to_owned())),
    }
}

async fn next_event(stream: &mut EventStream) -> CheckResult<Option<StreamResponse>> {
    stream
        .next()
        .await
        .map(|item| expect_ok(item).map(|(_, event)| event))
        .transpose()
}

async fn subscribe_running(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_streaming(agent)?;
    let running = start_task(agent).await?;
    let first = next_event(&mut running.subscribe().await?).await?;
    let ruling = match first {
        Some(StreamResponse::Task(task)) => {
            ensure(task.id == running.id, || format!("it is task {}", task.id))
        }
        Some(_) => Err(violation("the first event is not the task")),
        None => Err(violation("the stream is empty")),
    };
    running.cancel_quietly().await?;
    ruling
}

/// Reads a stream to its end, and returns the last state.
async fn last_state(stream: &mut EventStream) -> CheckResult<TaskState> {
    let mut state = TaskState::Unspecified;
    while let Some(event) = next_event(stream).await? {
        state = match event {
            StreamResponse::Task(task) => task.status.state,
            StreamResponse::StatusUpdate(update) => update.status.state,
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => state,
        };
    }
    Ok(state)
}

async fn cancel_told(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_streaming(agent)?;
    let running = start_task(agent).await?;
    let mut one = running.subscribe().await?;
    let mut other = running.subscribe().await?;
    running.cancel().await?;
    for stream in [&mut one, &mut other] {
        let state = last_state(stream).await?;
        ensure(state == TaskState::Canceled, || {
            format!("a stream ends with {state}")
        })?;
    }
    Ok(())
}

async fn closing_one(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_streaming(agent)?;
    let running = start_task(agent).await?;
    let mut one = running.subscribe().await?;
    let mut other = running.subscribe().await?;
    next_event(&mut one).await?;
    drop(one);
    let state = running.read().await?.status.state;
    ensure(!state.is_terminal(), || format!("the task became {state}"))?;
    running.cancel().await?;
    let state = last_state(&mut other).await?;
    ensure(state == TaskState::Canceled, || {
        format!("the other stream ends with {state}")
    })
}
