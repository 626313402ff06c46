//! Lists: order, filters, pages and cursors.

use super::{
    append, create, create_all, expect_eq, expect_ok, find, ids, new_task, new_task_at, scope,
    status_batch, timestamp,
};
use crate::model::{Seq, TaskId, TaskState, Timestamp};
use crate::store::{Head, NewTask, Store, TaskPage, TaskQuery};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    lists_by_status_time(&make().await).await;
    applies_filters(&make().await).await;
    pages_join_without_gap_or_repetition(&make().await).await;
    cursors_survive_changes(&make().await).await;
}

async fn list(store: &dyn Store, query: &TaskQuery) -> TaskPage {
    expect_ok(store.list(&scope("ann"), query).await, "`list` succeeds")
}

fn first(limit: usize) -> TaskQuery {
    TaskQuery {
        limit,
        ..TaskQuery::default()
    }
}

async fn lists_by_status_time(store: &dyn Store) {
    expect_eq(
        list(store, &first(10)).await,
        TaskPage::default(),
        "`list` of an empty store is empty",
    );
    let times = [
        ("a", 3_000),
        ("b", 1_000),
        ("d", 2_000),
        ("c", 2_000),
        ("e", -5),
    ];
    let heads = create_all(store, times.map(|(id, time)| new_task_at(id, time))).await;
    let page = list(store, &first(10)).await;
    expect_eq(
        ids(&page.tasks),
        vec!["a", "d", "c", "b", "e"],
        "`list` orders by status time descending, then id descending",
    );
    expect_eq(page.total, 5, "the total counts every match");
    expect_eq(
        page.tasks.first(),
        heads.first(),
        "`list` returns current heads",
    );
    append(
        store,
        &heads[1],
        Seq(1),
        &status_batch(TaskState::Working, 9_000),
    )
    .await;
    let page = list(store, &first(10)).await;
    expect_eq(
        ids(&page.tasks),
        vec!["b", "a", "d", "c", "e"],
        "a task with a new status moves to the front",
    );
    expect_eq(
        page.tasks.first(),
        find(store, "ann", "b").await.as_ref(),
        "`list` returns current heads",
    );
    let none = list(store, &first(0)).await;
    expect_eq(
        (none.tasks.len(), none.total),
        (0, 5),
        "a page with limit 0 has the total",
    );
}

async fn applies_filters(store: &dyn Store) {
    let states = [
        TaskState::Working,
        TaskState::Completed,
        TaskState::InputRequired,
    ];
    let mut tasks = Vec::new();
    for number in 0..24_i64 {
        let mut task = new_task_at(&format!("t{number:02}"), number / 2 * 100);
        task.context_id = format!("c{}", number % 2).into();
        task.batch.state = states[usize::try_from(number % 3).unwrap_or_default()];
        tasks.push(task);
    }
    // A task of another owner in the same context.
    create(
        store,
        NewTask {
            scope: scope("bob"),
            context_id: "c0".into(),
            ..new_task("bob's")
        },
    )
    .await;
    let heads = create_all(store, tasks).await;
    for context_id in [
        None,
        Some("c0".into()),
        Some("c1".into()),
        Some("none".into()),
    ] {
        for state in [None, Some(TaskState::Completed), Some(TaskState::Failed)] {
            for since in [
                None,
                Some(timestamp(500)),
                Some(timestamp(501)),
                Some(timestamp(99_999)),
            ] {
                let query = TaskQuery {
                    context_id: context_id.clone(),
                    state,
                    since,
                    ..first(3)
                };
                let expected = matching(&heads, &query);
                let page = list(store, &query).await;
                expect_eq(
                    page.total,
                    expected.len() as u64,
                    "the total counts the matches on all pages",
                );
                expect_eq(
                    &page.tasks[..],
                    &expected[..expected.len().min(3)],
                    "`list` applies all filters",
                );
            }
        }
    }
}

/// Returns the heads that a list must return, in its order.
fn matching(heads: &[Head], query: &TaskQuery) -> Vec<Head> {
    let mut matching: Vec<_> = heads
        .iter()
        .filter(|head| query.matches(head))
        .cloned()
        .collect();
    matching.sort_by(|a, b| order_key(b).cmp(&order_key(a)));
    matching
}

fn order_key(head: &Head) -> (Timestamp, &str) {
    (head.status_time, head.id.as_str())
}

fn cursor_after(head: &Head) -> Option<(Timestamp, TaskId)> {
    Some((head.status_time, head.id.clone()))
}

async fn pages_join_without_gap_or_repetition(store: &dyn Store) {
    let tasks = (0..25).map(|number| new_task_at(&format!("t{number:02}"), number / 4));
    let heads = create_all(store, tasks).await;
    for context_id in [None, Some("context".into())] {
        for since in [None, Some(timestamp(2))] {
            for limit in [1, 4, 7, 25, 30] {
                let mut query = TaskQuery {
                    context_id: context_id.clone(),
                    since,
                    ..first(limit)
                };
                let expected = matching(&heads, &query);
                let mut listed: Vec<Head> = Vec::new();
                loop {
                    let page = list(store, &query).await;
                    expect_eq(
                        page.total,
                        expected.len() as u64,
                        "the total is the same on every page",
                    );
                    query.after = page.tasks.last().and_then(cursor_after);
                    let is_last = page.tasks.len() < limit;
                    listed.extend(page.tasks);
                    if is_last {
                        break;
                    }
                }
                expect_eq(listed, expected, "pages join without gap or repetition");
            }
        }
    }
}

async fn cursors_survive_changes(store: &dyn Store) {
    let heads = create_all(
        store,
        (1..=6).map(|number| new_task_at(&format!("t{number}"), number * 1_000)),
    )
    .await;
    let page = list(store, &first(2)).await;
    expect_eq(
        ids(&page.tasks),
        vec!["t6", "t5"],
        "a page has `limit` tasks if there are that many",
    );
    let rest = TaskQuery {
        after: page.tasks.last().and_then(cursor_after),
        ..first(10)
    };
    create(store, new_task_at("newer", 9_000)).await;
    expect_eq(
        ids(&list(store, &rest).await.tasks),
        vec!["t4", "t3", "t2", "t1"],
        "a new task does not shift later pages",
    );
    expect_ok(store.remove(&heads[4..5]).await, "`remove` succeeds");
    expect_eq(
        ids(&list(store, &rest).await.tasks),
        vec!["t4", "t3", "t2", "t1"],
        "a cursor stays valid after its task is removed",
    );
    append(
        store,
        &heads[2],
        Seq(1),
        &status_batch(TaskState::Completed, 9_500),
    )
    .await;
    let page = list(store, &rest).await;
    expect_eq(
        ids(&page.tasks),
        vec!["t4", "t2", "t1"],
        "a task with a new status moves before the cursor",
    );
    expect_eq(page.total, 6, "the total follows creations and removals");
}
