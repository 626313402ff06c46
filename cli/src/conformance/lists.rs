//! Lists of tasks, which are of 1.0.

use attache::ErrorKind;
use attache::model::{ListTasksRequest, ListTasksResponse, Task};

use super::{Agent, Check, Ruling, broken, fine, holds, moot, refused, within};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "operations/list",
        rule: "a task that was begun is in the list of its context",
        run: |agent| Box::pin(list(agent)),
    },
    Check {
        name: "operations/list-status",
        rule: "a list by status has tasks of that status alone",
        run: |agent| Box::pin(list_status(agent)),
    },
    Check {
        name: "operations/list-sorted",
        rule: "the newest status comes first",
        run: |agent| Box::pin(list_sorted(agent)),
    },
    Check {
        name: "operations/list-pages",
        rule: "a page has so many tasks as were asked for, and the next one has others",
        run: |agent| Box::pin(list_pages(agent)),
    },
    Check {
        name: "operations/list-artifacts",
        rule: "artifacts are in a list only if they are asked for",
        run: |agent| Box::pin(list_artifacts(agent)),
    },
    Check {
        name: "operations/list-since",
        rule: "a list of what changed since a time has that, and nothing older",
        run: |agent| Box::pin(list_since(agent)),
    },
    Check {
        name: "operations/list-history",
        rule: "with historyLength 0 no task of a list has a history",
        run: |agent| Box::pin(list_history(agent)),
    },
    Check {
        name: "operations/list-page-size",
        rule: "a page size below 1, or of more than 100, is InvalidParams",
        run: |agent| Box::pin(list_page_size(agent)),
    },
    Check {
        name: "operations/list-page-token",
        rule: "a page token that was not given out is InvalidParams",
        run: |agent| Box::pin(list_page_token(agent)),
    },
];

async fn listed(agent: &Agent<'_>, request: ListTasksRequest) -> Ruling<ListTasksResponse> {
    fine(within(agent.session.client.list_tasks(request)).await)
}

/// Lists are there from 1.0 on, and of use where there are tasks.
fn known<'a>(agent: &'a Agent<'_>) -> Ruling<&'a Task> {
    if agent.is_new() {
        agent.ended()
    } else {
        Err(moot("0.3 has no lists"))
    }
}

async fn list(agent: &Agent<'_>) -> Ruling {
    let task = known(agent)?;
    let context_id = Some(task.context_id.clone());
    let page = listed(
        agent,
        ListTasksRequest {
            context_id,
            ..ListTasksRequest::default()
        },
    )
    .await?;
    holds(page.tasks.iter().any(|one| one.id == task.id), || {
        format!("{} is not there", task.id.as_str())
    })?;
    let strange = page
        .tasks
        .iter()
        .find(|one| one.context_id != task.context_id);
    holds(strange.is_none(), || {
        "a task of another context is there".to_owned()
    })?;
    holds(
        usize::try_from(page.total_size).unwrap_or_default() >= page.tasks.len(),
        || {
            format!(
                "totalSize is {}, but there are {}",
                page.total_size,
                page.tasks.len()
            )
        },
    )
}

async fn list_status(agent: &Agent<'_>) -> Ruling {
    let state = known(agent)?.status.state;
    let page = listed(
        agent,
        ListTasksRequest {
            status: Some(state),
            ..ListTasksRequest::default()
        },
    )
    .await?;
    holds(!page.tasks.is_empty(), || format!("none is {state}"))?;
    match page.tasks.iter().find(|one| one.status.state != state) {
        Some(other) => Err(broken(format!("one is {}", other.status.state))),
        None => Ok(()),
    }
}

async fn list_sorted(agent: &Agent<'_>) -> Ruling {
    known(agent)?;
    let page = listed(agent, ListTasksRequest::default()).await?;
    let times: Vec<_> = page.tasks.iter().map(|one| one.status.timestamp).collect();
    holds(times.is_sorted_by(|first, second| first >= second), || {
        "an older status comes first".to_owned()
    })
}

async fn list_pages(agent: &Agent<'_>) -> Ruling {
    known(agent)?;
    let one = ListTasksRequest {
        page_size: Some(1),
        ..ListTasksRequest::default()
    };
    let first = listed(agent, one.clone()).await?;
    holds(first.tasks.len() == 1, || {
        format!("a page of one has {}", first.tasks.len())
    })?;
    if first.next_page_token.is_empty() {
        return holds(first.total_size <= 1, || {
            format!("there are {} tasks, and no next page", first.total_size)
        });
    }
    let second = listed(
        agent,
        ListTasksRequest {
            page_token: Some(first.next_page_token),
            ..one
        },
    )
    .await?;
    holds(
        second.tasks.len() == 1 && second.tasks[0].id != first.tasks[0].id,
        || "the next page is not another one".to_owned(),
    )
}

async fn list_artifacts(agent: &Agent<'_>) -> Ruling {
    let task = known(agent)?;
    let context_id = Some(task.context_id.clone());
    let without = ListTasksRequest {
        context_id,
        ..ListTasksRequest::default()
    };
    let page = listed(agent, without.clone()).await?;
    holds(
        page.tasks.iter().all(|one| one.artifacts.is_empty()),
        || "they are there unasked".to_owned(),
    )?;
    let page = listed(
        agent,
        ListTasksRequest {
            include_artifacts: Some(true),
            ..without
        },
    )
    .await?;
    let there = page
        .tasks
        .iter()
        .find(|one| one.id == task.id)
        .map_or(0, |one| one.artifacts.len());
    holds(there == task.artifacts.len(), || {
        format!("{there} of {} are there", task.artifacts.len())
    })
}

async fn list_since(agent: &Agent<'_>) -> Ruling {
    let task = known(agent)?;
    let Some(since) = task.status.timestamp else {
        return Err(moot("its tasks tell no time"));
    };
    let request = ListTasksRequest {
        status_timestamp_after: Some(since),
        ..ListTasksRequest::default()
    };
    let page = listed(agent, request).await?;
    let older = page
        .tasks
        .iter()
        .find(|one| one.status.timestamp < Some(since));
    holds(older.is_none(), || "an older one is there".to_owned())?;
    let there = page.tasks.iter().any(|one| one.id == task.id) || !page.next_page_token.is_empty();
    holds(there, || "one of that very time is not there".to_owned())
}

async fn list_history(agent: &Agent<'_>) -> Ruling {
    known(agent)?;
    let page = listed(
        agent,
        ListTasksRequest {
            history_length: Some(0),
            ..ListTasksRequest::default()
        },
    )
    .await?;
    holds(page.tasks.iter().all(|one| one.history.is_empty()), || {
        "one has a history".to_owned()
    })
}

async fn list_page_size(agent: &Agent<'_>) -> Ruling {
    if !agent.is_new() {
        return Err(moot("0.3 has no lists"));
    }
    for size in [0, -1, 101] {
        let request = ListTasksRequest {
            page_size: Some(size),
            ..ListTasksRequest::default()
        };
        refused(
            within(agent.session.client.list_tasks(request)).await,
            &[ErrorKind::InvalidParams],
        )?;
    }
    Ok(())
}

async fn list_page_token(agent: &Agent<'_>) -> Ruling {
    if !agent.is_new() {
        return Err(moot("0.3 has no lists"));
    }
    let page_token = Some("no-page-of-yours".to_owned());
    let request = ListTasksRequest {
        page_token,
        ..ListTasksRequest::default()
    };
    refused(
        within(agent.session.client.list_tasks(request)).await,
        &[ErrorKind::InvalidParams],
    )
}
