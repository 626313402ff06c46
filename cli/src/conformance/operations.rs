//! Messages, tasks, cancels and the extended card.

use attache::ErrorKind;
use attache::model::{
    CancelTaskRequest, ContextId, GetTaskRequest, Message, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse,
};

use super::{Agent, Check, Ruling, at_once, broken, fine, holds, moot, nobody, refused, within};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "operations/send",
        rule: "a message is answered with a task or a message",
        run: |agent| Box::pin(async { agent.answer().map(drop) }),
    },
    Check {
        name: "operations/send-ids",
        rule: "a new task has an id and a context",
        run: |agent| Box::pin(send_ids(agent)),
    },
    Check {
        name: "operations/send-waits",
        rule: "unless told otherwise, the answer comes when the task has ended or waits for somebody",
        run: |agent| Box::pin(send_waits(agent)),
    },
    Check {
        name: "operations/send-at-once",
        rule: "with returnImmediately the answer comes as soon as there is a task",
        run: |agent| Box::pin(send_at_once(agent)),
    },
    Check {
        name: "operations/send-context",
        rule: "a message in a context begins another task in that context",
        run: |agent| Box::pin(send_context(agent)),
    },
    Check {
        name: "operations/send-new-context",
        rule: "a context that the agent does not know is kept as it is, or refused, and never replaced",
        run: |agent| Box::pin(send_new_context(agent)),
    },
    Check {
        name: "operations/send-reference",
        rule: "a reference to a task that is not there does no harm",
        run: |agent| Box::pin(send_reference(agent)),
    },
    Check {
        name: "operations/send-unknown-task",
        rule: "a message to a task that is not there is TaskNotFound",
        run: |agent| {
            Box::pin(async {
                refused(
                    agent.send(|it| it.task_id = Some(nobody())).await,
                    &[ErrorKind::TaskNotFound],
                )
            })
        },
    },
    Check {
        name: "operations/send-ended-task",
        rule: "a message to a task that has ended is UnsupportedOperation",
        run: |agent| Box::pin(send_ended(agent)),
    },
    Check {
        name: "operations/send-context-mismatch",
        rule: "a task in another context than its own is refused",
        run: |agent| Box::pin(send_mismatch(agent)),
    },
    Check {
        name: "operations/send-no-parts",
        rule: "a message without parts is InvalidParams",
        run: |agent| {
            Box::pin(async {
                refused(
                    agent.send(|it| it.parts.clear()).await,
                    &[ErrorKind::InvalidParams],
                )
            })
        },
    },
    Check {
        name: "operations/get",
        rule: "a task can be read as it was answered",
        run: |agent| Box::pin(get(agent)),
    },
    Check {
        name: "operations/get-unknown",
        rule: "a task that is not there is TaskNotFound",
        run: |agent| Box::pin(get_unknown(agent)),
    },
    Check {
        name: "operations/history-zero",
        rule: "with historyLength 0 a task has no history",
        run: |agent| Box::pin(history(agent, 0)),
    },
    Check {
        name: "operations/history-limit",
        rule: "with historyLength 1 a task has one message of history at most",
        run: |agent| Box::pin(history(agent, 1)),
    },
    Check {
        name: "operations/history-negative",
        rule: "a negative historyLength is InvalidParams",
        run: |agent| Box::pin(history_negative(agent)),
    },
    Check {
        name: "operations/history-of-send",
        rule: "historyLength holds for the answer to a message, too",
        run: |agent| Box::pin(history_of_send(agent)),
    },
    Check {
        name: "operations/cancel-unknown",
        rule: "a cancel of a task that is not there is TaskNotFound",
        run: |agent| Box::pin(cancel_unknown(agent)),
    },
    Check {
        name: "operations/cancel-ended",
        rule: "a cancel of a task that has ended is TaskNotCancelable",
        run: |agent| Box::pin(cancel_ended(agent)),
    },
    Check {
        name: "operations/extended-card",
        rule: "an extended card is there if it is declared, and refused if not",
        run: |agent| Box::pin(extended_card(agent)),
    },
];

async fn send_ids(agent: &Agent<'_>) -> Ruling {
    let task = agent.task()?;
    holds(
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

async fn send_waits(agent: &Agent<'_>) -> Ruling {
    let state = agent.task()?.status.state;
    holds(state.is_terminal() || state.is_interrupted(), || {
        format!("the answer came while it is {state}")
    })
}

async fn send_at_once(agent: &Agent<'_>) -> Ruling {
    let answer = fine(
        within(
            agent
                .session
                .client
                .send_message(at_once(Message::user("hello"))),
        )
        .await,
    )?;
    match answer {
        SendMessageResponse::Task(task) => holds(
            !task.id.as_str().is_empty() && !task.context_id.as_str().is_empty(),
            || "the task has no ids".to_owned(),
        ),
        SendMessageResponse::Message(_) => Err(moot("the agent answers with messages")),
    }
}

async fn send_context(agent: &Agent<'_>) -> Ruling {
    let first = agent.ended()?;
    let context = first.context_id.clone();
    match fine(agent.send(|it| it.context_id = Some(context.clone())).await)? {
        SendMessageResponse::Task(task) => {
            holds(task.context_id == context, || {
                format!("the context became {}", task.context_id.as_str())
            })?;
            holds(task.id != first.id, || "it is the same task".to_owned())
        }
        SendMessageResponse::Message(message) => {
            holds(message.context_id.as_ref() == Some(&context), || {
                "the message is not in the context".to_owned()
            })
        }
    }
}

async fn send_new_context(agent: &Agent<'_>) -> Ruling {
    agent.answer()?;
    let context = ContextId::random();
    let sent = agent.send(|it| it.context_id = Some(context.clone())).await;
    let given = match sent {
        Ok(SendMessageResponse::Task(task)) => Some(task.context_id),
        Ok(SendMessageResponse::Message(message)) => message.context_id,
        Err(error) if error.kind() == ErrorKind::InvalidParams => return Ok(()),
        Err(error) => return Err(broken(error.message().to_owned())),
    };
    holds(given.as_ref() == Some(&context), || {
        format!("it became {given:?}")
    })
}

async fn send_reference(agent: &Agent<'_>) -> Ruling {
    agent.answer()?;
    fine(
        agent
            .send(|it| it.reference_task_ids = vec![nobody()])
            .await,
    )
    .map(drop)
}

async fn send_ended(agent: &Agent<'_>) -> Ruling {
    let id = agent.ended()?.id.clone();
    refused(
        agent.send(|it| it.task_id = Some(id)).await,
        &[ErrorKind::UnsupportedOperation],
    )
}

async fn send_mismatch(agent: &Agent<'_>) -> Ruling {
    let id = agent.task()?.id.clone();
    let sent = agent
        .send(|it| (it.task_id, it.context_id) = (Some(id), Some(super::NOBODY.into())))
        .await;
    // A task that has ended may be refused for that.
    refused(
        sent,
        &[ErrorKind::InvalidParams, ErrorKind::UnsupportedOperation],
    )
}

async fn get(agent: &Agent<'_>) -> Ruling {
    let known = agent.ended()?;
    let request = GetTaskRequest {
        id: known.id.clone(),
        ..GetTaskRequest::default()
    };
    let task = fine(within(agent.session.client.get_task(request)).await)?;
    holds(
        task.id == known.id && task.context_id == known.context_id,
        || "it has other ids".to_owned(),
    )?;
    holds(task.status.state == known.status.state, || {
        format!("it is {} now", task.status.state)
    })?;
    holds(task.artifacts.len() == known.artifacts.len(), || {
        format!(
            "{} artifacts were answered, {} are read",
            known.artifacts.len(),
            task.artifacts.len()
        )
    })
}

async fn get_unknown(agent: &Agent<'_>) -> Ruling {
    let request = GetTaskRequest {
        id: nobody(),
        ..GetTaskRequest::default()
    };
    refused(
        within(agent.session.client.get_task(request)).await,
        &[ErrorKind::TaskNotFound],
    )
}

async fn history(agent: &Agent<'_>, length: i32) -> Ruling {
    if !agent.is_new() {
        return Err(moot("0.3 has another rule"));
    }
    let id = agent.task()?.id.clone();
    let request = GetTaskRequest {
        id,
        history_length: Some(length),
        ..GetTaskRequest::default()
    };
    let task = fine(within(agent.session.client.get_task(request)).await)?;
    let limit = usize::try_from(length).unwrap_or_default();
    holds(task.history.len() <= limit, || {
        format!("it has {} messages", task.history.len())
    })
}

async fn history_negative(agent: &Agent<'_>) -> Ruling {
    let id = agent.task()?.id.clone();
    let request = GetTaskRequest {
        id,
        history_length: Some(-1),
        ..GetTaskRequest::default()
    };
    refused(
        within(agent.session.client.get_task(request)).await,
        &[ErrorKind::InvalidParams],
    )
}

async fn history_of_send(agent: &Agent<'_>) -> Ruling {
    if !agent.is_new() {
        return Err(moot("0.3 has another rule"));
    }
    agent.task()?;
    let configuration = SendMessageConfiguration {
        history_length: Some(0),
        ..SendMessageConfiguration::default()
    };
    let request = SendMessageRequest {
        configuration: Some(configuration),
        ..SendMessageRequest::new(Message::user("hello"))
    };
    match fine(within(agent.session.client.send_message(request)).await)? {
        SendMessageResponse::Task(task) => holds(task.history.is_empty(), || {
            format!("it has {} messages", task.history.len())
        }),
        SendMessageResponse::Message(_) => Err(moot("the agent answered with a message")),
    }
}

async fn cancel_unknown(agent: &Agent<'_>) -> Ruling {
    let request = CancelTaskRequest {
        id: nobody(),
        ..CancelTaskRequest::default()
    };
    refused(
        within(agent.session.client.cancel_task(request)).await,
        &[ErrorKind::TaskNotFound],
    )
}

async fn cancel_ended(agent: &Agent<'_>) -> Ruling {
    let id = agent.ended()?.id.clone();
    let request = CancelTaskRequest {
        id,
        ..CancelTaskRequest::default()
    };
    refused(
        within(agent.session.client.cancel_task(request)).await,
        &[ErrorKind::TaskNotCancelable],
    )
}

async fn extended_card(agent: &Agent<'_>) -> Ruling {
    let answer = within(agent.session.client.get_extended_agent_card()).await;
    let declared = agent.session.card.capabilities.extended_agent_card == Some(true);
    match answer {
        Ok(card) if declared => holds(!card.name.is_empty(), || "it has no name".to_owned()),
        Err(error) if declared && error.kind() == ErrorKind::Unauthenticated => {
            Err(moot("it is for authenticated callers"))
        }
        Err(error) if declared && error.kind() != ErrorKind::ExtendedAgentCardNotConfigured => {
            Err(broken(error.message().to_owned()))
        }
        Err(_) if declared => Ok(()),
        other => refused(
            other,
            &[
                ErrorKind::UnsupportedOperation,
                ErrorKind::ExtendedAgentCardNotConfigured,
            ],
        ),
    }
}
