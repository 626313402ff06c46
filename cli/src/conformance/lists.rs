//! Checks of ListTasks, which 1.0 introduced.

use attache::ErrorKind;
use attache::model::{ListTasksRequest, ListTasksResponse, Task};

use super::{
    AgentUnderTest, CheckResult, ConformanceCheck, ensure, expect_error, expect_ok, skip,
    violation, with_timeout,
};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "operations/list",
        rule: "a started task is in the list of its context",
        run: |agent| Box::pin(list(agent)),
    },
    ConformanceCheck {
        name: "operations/list-status",
        rule: "a list by status contains only tasks in that state",
        run: |agent| Box::pin(list_status(agent)),
    },
    ConformanceCheck {
        name: "operations/list-sorted",
        rule: "lists are sorted by status time, newest first",
        run: |agent| Box::pin(list_sorted(agent)),
    },
    ConformanceCheck {
        name: "operations/list-pages",
        rule: "a page has the requested number of tasks, and the next page has others",
        run: |agent| Box::pin(list_pages(agent)),
    },
    ConformanceCheck {
        name: "operations/list-artifacts",
        rule: "lists contain artifacts only on request",
        run: |agent| Box::pin(list_artifacts(agent)),
    },
    ConformanceCheck {
        name: "operations/list-since",
        rule: "a list with statusTimestampAfter contains tasks from that time on, and no older ones",
        run: |agent| Box::pin(list_since(agent)),
    },
    ConformanceCheck {
        name: "operations/list-history",
        rule: "with historyLength 0 listed tasks have no history",
        run: |agent| Box::pin(list_history(agent)),
    },
    ConformanceCheck {
        name: "operations/list-page-size",
        rule: "a page size below 1, or of more than 100, is InvalidParams",
        run: |agent| Box::pin(list_page_size(agent)),
    },
    ConformanceCheck {
        name: "operations/list-page-token",
        rule: "an unknown page token is InvalidParams",
        run: |agent| Box::pin(list_page_token(agent)),
    },
];

async fn list_tasks(
    agent: &AgentUnderTest<'_>,
    request: ListTasksRequest,
) -> CheckResult<ListTasksResponse> {
    expect_ok(with_timeout(agent.session.client.list_tasks(request)).await)
}

/// Skips the check without lists, before 1.0, or without an ended task.
fn require_lists<'a>(agent: &'a AgentUnderTest<'_>) -> CheckResult<&'a Task> {
    if agent.is_v1() {
        agent.ended_task()
    } else {
        Err(skip("0.3 has no lists"))
    }
}

async fn list(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = require_lists(agent)?;
    let context_id = Some(task.context_id.clone());
    let page = list_tasks(
        agent,
        ListTasksRequest {
            context_id,
            ..ListTasksRequest::default()
        },
    )
    .await?;
    ensure(page.tasks.iter().any(|one| one.id == task.id), || {
        format!("{} is missing", task.id.as_str())
    })?;
    let strange = page
        .tasks
        .iter()
        .find(|one| one.context_id != task.context_id);
    ensure(strange.is_none(), || {
        "a task of another context is included".to_owned()
    })?;
    ensure(
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

async fn list_status(agent: &AgentUnderTest<'_>) -> CheckResult {
    let state = require_lists(agent)?.status.state;
    let page = list_tasks(
        agent,
        ListTasksRequest {
            status: Some(state),
            ..ListTasksRequest::default()
        },
    )
    .await?;
    ensure(!page.tasks.is_empty(), || format!("none is {state}"))?;
    match page.tasks.iter().find(|one| one.status.state != state) {
        Some(other) => Err(violation(format!("one is {}", other.status.state))),
        None => Ok(()),
    }
}

async fn list_sorted(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_lists(agent)?;
    let page = list_tasks(agent, ListTasksRequest::default()).await?;
    let times: Vec<_> = page.tasks.iter().map(|one| one.status.timestamp).collect();
    ensure(times.is_sorted_by(|first, second| first >= second), || {
        "an older status comes first".to_owned()
    })
}

async fn list_pages(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_lists(agent)?;
    let one = ListTasksRequest {
        page_size: Some(1),
        ..ListTasksRequest::default()
    };
    let first = list_tasks(agent, one.clone()).await?;
    ensure(first.tasks.len() == 1, || {
        format!("a page of one has {}", first.tasks.len())
    })?;
    if first.next_page_token.is_empty() {
        return ensure(first.total_size <= 1, || {
            format!("there are {} tasks, and no next page", first.total_size)
        });
    }
    let second = list_tasks(
        agent,
        ListTasksRequest {
            page_token: Some(first.next_page_token),
            ..one
        },
    )
    .await?;
    ensure(
        second.tasks.len() == 1 && second.tasks[0].id != first.tasks[0].id,
        || "the next page is not another one".to_owned(),
    )
}

async fn list_artifacts(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = require_lists(agent)?;
    let context_id = Some(task.context_id.clone());
    let without = ListTasksRequest {
        context_id,
        ..ListTasksRequest::default()
    };
    let page = list_tasks(agent, without.clone()).await?;
    ensure(
        page.tasks.iter().all(|one| one.artifacts.is_empty()),
        || "artifacts are included without a request".to_owned(),
    )?;
    let page = list_tasks(
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
    ensure(there == task.artifacts.len(), || {
        format!("{there} of {} are there", task.artifacts.len())
    })
}

async fn list_since(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = require_lists(agent)?;
    let Some(since) = task.status.timestamp else {
        return Err(skip("its tasks have no timestamp"));
    };
    let request = ListTasksRequest {
        status_timestamp_after: Some(since),
        ..ListTasksRequest::default()
    };
    let page = list_tasks(agent, request).await?;
    let older = page
        .tasks
        .iter()
        .find(|one| one.status.timestamp < Some(since));
    ensure(older.is_none(), || "an older task is included".to_owned())?;
    let there = page.tasks.iter().any(|one| one.id == task.id) || !page.next_page_token.is_empty();
    ensure(there, || {
        "a task of exactly that time is missing".to_owned()
    })
}

async fn list_history(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_lists(agent)?;
    let page = list_tasks(
        agent,
        ListTasksRequest {
            history_length: Some(0),
            ..ListTasksRequest::default()
        },
    )
    .await?;
    ensure(page.tasks.iter().all(|one| one.history.is_empty()), || {
        "one has a history".to_owned()
    })
}

async fn list_page_size(agent: &AgentUnderTest<'_>) -> CheckResult {
    if !agent.is_v1() {
        return Err(skip("0.3 has no lists"));
    }
    for size in [0, -1, 101] {
        let request = ListTasksRequest {
            page_size: Some(size),
            ..ListTasksRequest::default()
        };
        expect_error(
            with_timeout(agent.session.client.list_tasks(request)).await,
            &[ErrorKind::InvalidParams],
        )?;
    }
    Ok(())
}

async fn list_page_token(agent: &AgentUnderTest<'_>) -> CheckResult {
    if !agent.is_v1() {
        return Err(skip("0.3 has no lists"));
    }
    let page_token = Some("no-page-of-yours".to_owned());
    let request = ListTasksRequest {
        page_token,
        ..ListTasksRequest::default()
    };
    expect_error(
        with_timeout(agent.session.client.list_tasks(request)).await,
        &[ErrorKind::InvalidParams],
    )
}
