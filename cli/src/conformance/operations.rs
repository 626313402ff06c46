//! Checks of messages, tasks, cancellation and the extended card.

use attache::ErrorKind;
use attache::model::{
    CancelTaskRequest, ContextId, GetTaskRequest, Message, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse,
};

use super::{
    AgentUnderTest, CheckResult, ConformanceCheck, ensure, expect_error, expect_ok, skip,
    unknown_task_id, violation, with_timeout, without_waiting,
};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "operations/send",
        rule: "a message is answered with a task or a message",
        run: |agent| Box::pin(async { agent.first_response().map(drop) }),
    },
    ConformanceCheck {
        name: "operations/send-ids",
        rule: "a new task has an id and a context",
        run: |agent| Box::pin(send_ids(agent)),
    },
    ConformanceCheck {
        name: "operations/send-waits",
        rule: "by default the response arrives when the task has ended or is interrupted",
        run: |agent| Box::pin(send_waits(agent)),
    },
    ConformanceCheck {
        name: "operations/send-at-once",
        rule: "with returnImmediately the response arrives as soon as the task exists",
        run: |agent| Box::pin(send_at_once(agent)),
    },
    ConformanceCheck {
        name: "operations/send-context",
        rule: "a message in a context starts another task in that context",
        run: |agent| Box::pin(send_context(agent)),
    },
    ConformanceCheck {
        name: "operations/send-new-context",
        rule: "an unknown context id is used unchanged or refused, and never replaced",
        run: |agent| Box::pin(send_new_context(agent)),
    },
    ConformanceCheck {
        name: "operations/send-reference",
        rule: "a reference to an unknown task does not fail",
        run: |agent| Box::pin(send_reference(agent)),
    },
    ConformanceCheck {
        name: "operations/send-unknown-task",
        rule: "a message to an unknown task is TaskNotFound",
        run: |agent| {
            Box::pin(async {
                expect_error(
                    agent.send(|it| it.task_id = Some(unknown_task_id())).await,
                    &[ErrorKind::TaskNotFound],
                )
            })
        },
    },
    ConformanceCheck {
        name: "operations/send-ended-task",
        rule: "a message to an ended task is UnsupportedOperation",
        run: |agent| Box::pin(send_ended(agent)),
    },
    ConformanceCheck {
        name: "operations/send-context-mismatch",
        rule: "a task id with another context id than its own is refused",
        run: |agent| Box::pin(send_mismatch(agent)),
    },
    ConformanceCheck {
        name: "operations/send-no-parts",
        rule: "a message without parts is InvalidParams",
        run: |agent| {
            Box::pin(async {
                expect_error(
                    agent.send(|it| it.parts.clear()).await,
                    &[ErrorKind::InvalidParams],
                )
            })
        },
    },
    ConformanceCheck {
        name: "operations/get",
        rule: "GetTask returns the task of the response",
        run: |agent| Box::pin(get(agent)),
    },
    ConformanceCheck {
        name: "operations/get-unknown",
        rule: "GetTask of an unknown task is TaskNotFound",
        run: |agent| Box::pin(get_unknown(agent)),
    },
    ConformanceCheck {
        name: "operations/history-zero",
        rule: "with historyLength 0 a task has no history",
        run: |agent| Box::pin(history(agent, 0)),
    },
    ConformanceCheck {
        name: "operations/history-limit",
        rule: "with historyLength 1 a task has at most one history message",
        run: |agent| Box::pin(history(agent, 1)),
    },
    ConformanceCheck {
        name: "operations/history-negative",
        rule: "a negative historyLength is InvalidParams",
        run: |agent| Box::pin(history_negative(agent)),
    },
    ConformanceCheck {
        name: "operations/history-of-send",
        rule: "historyLength also applies to the response to a message",
        run: |agent| Box::pin(history_of_send(agent)),
    },
    ConformanceCheck {
        name: "operations/cancel-unknown",
        rule: "CancelTask of an unknown task is TaskNotFound",
        run: |agent| Box::pin(cancel_unknown(agent)),
    },
    ConformanceCheck {
        name: "operations/cancel-ended",
        rule: "CancelTask of an ended task is TaskNotCancelable",
        run: |agent| Box::pin(cancel_ended(agent)),
    },
    ConformanceCheck {
        name: "operations/extended-card",
        rule: "the extended card is available if declared, and refused if not",
        run: |agent| Box::pin(extended_card(agent)),
    },
];

async fn send_ids(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = agent.first_task()?;
    ensure(
        !task.id.as_str().is_empty() && !task.context_id.as_str().is_empty(),
        || {
            format!(
                "id {:?}, contextId {:?}",
                task.id.as_str(),
                task.context_id.as_str()
            )
        },
    )
}

async fn send_waits(agent: &AgentUnderTest<'_>) -> CheckResult {
    let state = agent.first_task()?.status.state;
    ensure(state.is_terminal() || state.is_interrupted(), || {
        format!("the response arrived in state {state}")
    })
}

async fn send_at_once(agent: &AgentUnderTest<'_>) -> CheckResult {
    let answer = expect_ok(
        with_timeout(
            agent
                .session
                .client
                .send_message(without_waiting(Message::user("hello"))),
        )
        .await,
    )?;
    match answer {
        SendMessageResponse::Task(task) => ensure(
            !task.id.as_str().is_empty() && !task.context_id.as_str().is_empty(),
            || "the task has no ids".to_owned(),
        ),
        SendMessageResponse::Message(_) => Err(skip("the agent answers with messages")),
    }
}

async fn send_context(agent: &AgentUnderTest<'_>) -> CheckResult {
    let first = agent.ended_task()?;
    let context = first.context_id.clone();
    match expect_ok(agent.send(|it| it.context_id = Some(context.clone())).await)? {
        SendMessageResponse::Task(task) => {
            ensure(task.context_id == context, || {
                format!("the context became {}", task.context_id.as_str())
            })?;
            ensure(task.id != first.id, || "it is the same task".to_owned())
        }
        SendMessageResponse::Message(message) => {
            ensure(message.context_id.as_ref() == Some(&context), || {
                "the message has another context id".to_owned()
            })
        }
    }
}

async fn send_new_context(agent: &AgentUnderTest<'_>) -> CheckResult {
    agent.first_response()?;
    let context = ContextId::random();
    let sent = agent.send(|it| it.context_id = Some(context.clone())).await;
    let given = match sent {
        Ok(SendMessageResponse::Task(task)) => Some(task.context_id),
        Ok(SendMessageResponse::Message(message)) => message.context_id,
        Err(error) if error.kind() == ErrorKind::InvalidParams => return Ok(()),
        Err(error) => return Err(violation(error.message().to_owned())),
    };
    ensure(given.as_ref() == Some(&context), || {
        format!("it became {given:?}")
    })
}

async fn send_reference(agent: &AgentUnderTest<'_>) -> CheckResult {
    agent.first_response()?;
    expect_ok(
        agent
            .send(|it| it.reference_task_ids = vec![unknown_task_id()])
            .await,
    )
    .map(drop)
}

async fn send_ended(agent: &AgentUnderTest<'_>) -> CheckResult {
    let id = agent.ended_task()?.id.clone();
    expect_error(
        agent.send(|it| it.task_id = Some(id)).await,
        &[ErrorKind::UnsupportedOperation],
    )
}

async fn send_mismatch(agent: &AgentUnderTest<'_>) -> CheckResult {
    let id = agent.first_task()?.id.clone();
    let sent = agent
        .send(|it| {
            it.task_id = Some(id);
            it.context_id = Some(super::UNKNOWN_TASK_ID.into());
        })
        .await;
    // An ended task may be refused for that reason.
    expect_error(
        sent,
        &[ErrorKind::InvalidParams, ErrorKind::UnsupportedOperation],
    )
}

async fn get(agent: &AgentUnderTest<'_>) -> CheckResult {
    let known = agent.ended_task()?;
    let request = GetTaskRequest {
        id: known.id.clone(),
        ..GetTaskRequest::default()
    };
    let task = expect_ok(with_timeout(agent.session.client.get_task(request)).await)?;
    ensure(
        task.id == known.id && task.context_id == known.context_id,
        || "it has other ids".to_owned(),
    )?;
    ensure(task.status.state == known.status.state, || {
        format!("it is {} now", task.status.state)
    })?;
    ensure(task.artifacts.len() == known.artifacts.len(), || {
        format!(
            "{} artifacts were answered, {} are read",
            known.artifacts.len(),
            task.artifacts.len()
        )
    })
}

async fn get_unknown(agent: &AgentUnderTest<'_>) -> CheckResult {
    let request = GetTaskRequest {
        id: unknown_task_id(),
        ..GetTaskRequest::default()
    };
    expect_error(
        with_timeout(agent.session.client.get_task(request)).await,
        &[ErrorKind::TaskNotFound],
    )
}

async fn history(agent: &AgentUnderTest<'_>, length: i32) -> CheckResult {
    if !agent.is_v1() {
        return Err(skip("0.3 has a different rule"));
    }
    let id = agent.first_task()?.id.clone();
    let request = GetTaskRequest {
        id,
        history_length: Some(length),
        ..GetTaskRequest::default()
    };
    let task = expect_ok(with_timeout(agent.session.client.get_task(request)).await)?;
    let limit = usize::try_from(length).unwrap_or_default();
    ensure(task.history.len() <= limit, || {
        format!("it has {} messages", task.history.len())
    })
}

async fn history_negative(agent: &AgentUnderTest<'_>) -> CheckResult {
    let id = agent.first_task()?.id.clone();
    let request = GetTaskRequest {
        id,
        history_length: Some(-1),
        ..GetTaskRequest::default()
    };
    expect_error(
        with_timeout(agent.session.client.get_task(request)).await,
        &[ErrorKind::InvalidParams],
    )
}

async fn history_of_send(agent: &AgentUnderTest<'_>) -> CheckResult {
    if !agent.is_v1() {
        return Err(skip("0.3 has a different rule"));
    }
    agent.first_task()?;
    let configuration = SendMessageConfiguration {
        history_length: Some(0),
        ..SendMessageConfiguration::default()
    };
    let request = SendMessageRequest {
        configuration: Some(configuration),
        ..SendMessageRequest::new(Message::user("hello"))
    };
    match expect_ok(with_timeout(agent.session.client.send_message(request)).await)? {
        SendMessageResponse::Task(task) => ensure(task.history.is_empty(), || {
            format!("it has {} messages", task.history.len())
        }),
        SendMessageResponse::Message(_) => Err(skip("the agent answered with a message")),
    }
}

async fn cancel_unknown(agent: &AgentUnderTest<'_>) -> CheckResult {
    let request = CancelTaskRequest {
        id: unknown_task_id(),
        ..CancelTaskRequest::default()
    };
    expect_error(
        with_timeout(agent.session.client.cancel_task(request)).await,
        &[ErrorKind::TaskNotFound],
    )
}

async fn cancel_ended(agent: &AgentUnderTest<'_>) -> CheckResult {
    let id = agent.ended_task()?.id.clone();
    let request = CancelTaskRequest {
        id,
        ..CancelTaskRequest::default()
    };
    expect_error(
        with_timeout(agent.session.client.cancel_task(request)).await,
        &[ErrorKind::TaskNotCancelable],
    )
}

async fn extended_card(agent: &AgentUnderTest<'_>) -> CheckResult {
    let answer = with_timeout(agent.session.client.get_extended_agent_card()).await;
    let declared = agent.session.card.capabilities.extended_agent_card == Some(true);
    match answer {
        Ok(card) if declared => ensure(!card.name.is_empty(), || "it has no name".to_owned()),
        Err(error) if declared && error.kind() == ErrorKind::Unauthenticated => {
            Err(skip("only for authenticated callers"))
        }
        Err(error) if declared && error.kind() != ErrorKind::ExtendedAgentCardNotConfigured => {
            Err(violation(error.message().to_owned()))
        }
        Err(_) if declared => Ok(()),
        other => expect_error(
            other,
            &[
                ErrorKind::UnsupportedOperation,
                ErrorKind::ExtendedAgentCardNotConfigured,
            ],
        ),
    }
}
