//! Checks of event streams.

use std::collections::BTreeSet;

use attache::ErrorKind;
use attache::model::{
    GetTaskRequest, Message, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task,
    TaskId,
};

use super::{
    AgentUnderTest, CheckResult, ConformanceCheck, ensure, expect_error, expect_ok, skip,
    unknown_task_id, violation, with_timeout,
};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "streaming/undeclared",
        rule: "without declared streaming, a stream is UnsupportedOperation",
        run: |agent| Box::pin(undeclared(agent)),
    },
    ConformanceCheck {
        name: "streaming/task-first",
        rule: "a stream starts with the task, or is one message",
        run: |agent| Box::pin(task_first(agent)),
    },
    ConformanceCheck {
        name: "streaming/ids",
        rule: "all events of a stream have the same task and context",
        run: |agent| Box::pin(ids(agent)),
    },
    ConformanceCheck {
        name: "streaming/ends",
        rule: "a stream ends when its task ends or is interrupted, and not before",
        run: |agent| Box::pin(ends(agent)),
    },
    ConformanceCheck {
        name: "streaming/once",
        rule: "no event is repeated, and no chunk is appended to an unknown artifact",
        run: |agent| Box::pin(once(agent)),
    },
    ConformanceCheck {
        name: "streaming/whole",
        rule: "the fold of all events equals the task of GetTask",
        run: |agent| Box::pin(whole(agent)),
    },
    ConformanceCheck {
        name: "streaming/subscribe-unknown",
        rule: "SubscribeToTask of an unknown task is TaskNotFound",
        run: |agent| Box::pin(subscribe_unknown(agent)),
    },
    ConformanceCheck {
        name: "streaming/subscribe-ended",
        rule: "SubscribeToTask of an ended task is UnsupportedOperation",
        run: |agent| Box::pin(subscribe_ended(agent)),
    },
];

pub(super) fn require_streaming(agent: &AgentUnderTest<'_>) -> CheckResult {
    if agent.session.supports_streaming() {
        Ok(())
    } else {
        Err(skip("the agent declares no streams"))
    }
}

/// Reads all events of a stream. A lost connection is a violation.
async fn events(agent: &AgentUnderTest<'_>) -> CheckResult<Vec<StreamResponse>> {
    require_streaming(agent)?;
    let request = SendMessageRequest::new(Message::user("hello"));
    let mut stream =
        expect_ok(with_timeout(agent.session.client.send_streaming_message(request)).await)?;
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(expect_ok(event)?.1);
    }
    ensure(!events.is_empty(), || "the stream is empty".to_owned())?;
    Ok(events)
}

async fn undeclared(agent: &AgentUnderTest<'_>) -> CheckResult {
    if require_streaming(agent).is_ok() {
        return Err(skip("the agent declares streams"));
    }
    let request = SendMessageRequest::new(Message::user("hello"));
    let opened = with_timeout(agent.session.client.send_streaming_message(request)).await;
    match opened {
        // The error may be the first event.
        Ok(mut stream) => match stream.next().await {
            Some(item) => expect_error(item, &[ErrorKind::UnsupportedOperation]),
            None => Err(violation("not refused")),
        },
        Err(error) => expect_error(Err::<(), _>(error), &[ErrorKind::UnsupportedOperation]),
    }
}

async fn task_first(agent: &AgentUnderTest<'_>) -> CheckResult {
    let events = events(agent).await?;
    match &events[0] {
        StreamResponse::Task(_) => Ok(()),
        StreamResponse::Message(_) => {
            ensure(events.len() == 1, || "more than a message came".to_owned())
        }
        StreamResponse::StatusUpdate(_) => Err(violation("it begins with a status")),
        StreamResponse::ArtifactUpdate(_) => Err(violation("it begins with an artifact")),
    }
}

async fn ids(agent: &AgentUnderTest<'_>) -> CheckResult {
    let events = events(agent).await?;
    let all: BTreeSet<_> = events
        .iter()
        .filter_map(|event| match event {
            StreamResponse::Task(task) => Some((task.id.as_str(), task.context_id.as_str())),
            StreamResponse::StatusUpdate(it) => Some((it.task_id.as_str(), it.context_id.as_str())),
            StreamResponse::ArtifactUpdate(it) => {
                Some((it.task_id.as_str(), it.context_id.as_str()))
            }
            StreamResponse::Message(_) => None,
        })
        .collect();
    ensure(all.len() <= 1, || {
        format!("there are {} of them", all.len())
    })
}

async fn ends(agent: &AgentUnderTest<'_>) -> CheckResult {
    let events = events(agent).await?;
    let settled = |event: &StreamResponse| match event {
        StreamResponse::Task(task) => {
            task.status.state.is_terminal() || task.status.state.is_interrupted()
        }
        StreamResponse::StatusUpdate(it) => {
            it.status.state.is_terminal() || it.status.state.is_interrupted()
        }
        StreamResponse::Message(_) => true,
        StreamResponse::ArtifactUpdate(_) => false,
    };
    let first = events.iter().position(settled);
    ensure(first.is_some(), || {
        "it ends while the task is running".to_owned()
    })?;
    ensure(events.last().is_some_and(settled), || {
        "there are events after the end".to_owned()
    })
}

async fn once(agent: &AgentUnderTest<'_>) -> CheckResult {
    let events = events(agent).await?;
    let twice = events.windows(2).any(|pair| {
        pair[0] == pair[1] && !matches!(&pair[0], StreamResponse::ArtifactUpdate(it) if it.append)
    });
    ensure(!twice, || "the same event comes twice".to_owned())?;
    folded(&events).map(drop)
}

/// Folds the events into a task.
fn folded(events: &[StreamResponse]) -> CheckResult<Option<Task>> {
    let mut task: Option<Task> = None;
    for event in events {
        match (&mut task, event) {
            (None, StreamResponse::Task(first)) => task = Some(first.clone()),
            (Some(task), event) => {
                task.apply_update(event)
                    .map_err(|why| violation(format!("an event cannot be applied: {why}")))?;
            }
            (None, _) => {}
        }
    }
    Ok(task)
}

async fn whole(agent: &AgentUnderTest<'_>) -> CheckResult {
    let events = events(agent).await?;
    let Some(folded) = folded(&events)? else {
        return Err(skip("the agent answers with messages"));
    };
    let request = GetTaskRequest {
        id: folded.id.clone(),
        ..GetTaskRequest::default()
    };
    let read = expect_ok(with_timeout(agent.session.client.get_task(request)).await)?;
    ensure(read.status.state == folded.status.state, || {
        format!(
            "the stream ends in {}, GetTask returns {}",
            folded.status.state, read.status.state
        )
    })?;
    let texts = |task: &Task| -> Vec<_> {
        task.artifacts
            .iter()
            .map(|one| (one.artifact_id.clone(), one.as_text().to_string()))
            .collect()
    };
    ensure(texts(&read) == texts(&folded), || {
        "the artifacts differ from those of the stream".to_owned()
    })
}

async fn subscribe(agent: &AgentUnderTest<'_>, id: TaskId, with: ErrorKind) -> CheckResult {
    let request = SubscribeToTaskRequest {
        id,
        ..SubscribeToTaskRequest::default()
    };
    match with_timeout(agent.session.client.subscribe_to_task(request, None)).await {
        Ok(mut stream) => match stream.next().await {
            Some(item) => expect_error(item, &[with]),
            None => Err(violation("not refused")),
        },
        Err(error) => expect_error(Err::<(), _>(error), &[with]),
    }
}

async fn subscribe_unknown(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_streaming(agent)?;
    subscribe(agent, unknown_task_id(), ErrorKind::TaskNotFound).await
}

async fn subscribe_ended(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_streaming(agent)?;
    if !agent.is_v1() {
        return Err(skip("0.3 does not specify it"));
    }
    subscribe(
        agent,
        agent.ended_task()?.id.clone(),
        ErrorKind::UnsupportedOperation,
    )
    .await
}
