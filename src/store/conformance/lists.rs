//! Lists and sweeps.

use super::{
    create, create_all, expect_eq, expect_ok, expect_true, find, ids, new_task, new_task_at, scope,
    status_batch, timestamp,
};
use crate::model::{Scope, Seq, TaskState, Timestamp};
use crate::store::{Batch, Head, NewTask, Store, TaskCounts, TaskPage, TaskQuery};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    lists_go_from_the_newest_status(&make().await).await;
    filters_hold_alone_and_together(&make().await).await;
    pages_join_without_gap_or_repeat(&make().await).await;
    a_cursor_outlives_what_happens_around_it(&make().await).await;
    unfinished_tasks_are_swept_by_id(&make().await).await;
    ended_tasks_are_swept_by_age(&make().await).await;
    parked_tasks_have_no_work(&make().await).await;
    tenants_are_tallied(&make().await).await;
    the_newest_time_is_known(&make().await).await;
}

async fn list(store: &dyn Store, query: &TaskQuery) -> TaskPage {
    expect_ok(
        store.list(&scope("ann"), query).await,
        "tasks can be listed",
    )
}

fn first(limit: usize) -> TaskQuery {
    TaskQuery {
        limit,
        ..TaskQuery::default()
    }
}

async fn lists_go_from_the_newest_status(store: &dyn Store) {
    expect_eq(
        list(store, &first(10)).await,
        TaskPage::default(),
        "a store without tasks has an empty list",
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
        "lists go from the newest status, ties by id from the last",
    );
    expect_eq(page.total, 5, "the total counts every task that matches");
    expect_eq(
        page.tasks.first(),
        heads.first(),
        "a list gives heads as they stand",
    );
    expect_ok(
        store
            .append(&heads[1], Seq(1), &status_batch(TaskState::Working, 9_000))
            .await,
        "a batch is added",
    );
    let page = list(store, &first(10)).await;
    expect_eq(
        ids(&page.tasks),
        vec!["b", "a", "d", "c", "e"],
        "a task with a new status moves to the front",
    );
    expect_eq(
        page.tasks.first(),
        find(store, "ann", "b").await.as_ref(),
        "a list gives heads as they stand",
    );
    let none = list(store, &first(0)).await;
    expect_eq(
        (none.tasks.len(), none.total),
        (0, 5),
        "a limit of zero still counts",
    );
}

async fn filters_hold_alone_and_together(store: &dyn Store) {
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
    // Somebody else's, in the same conversation.
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
                    "the total counts what matches, on whatever page",
                );
                expect_eq(
                    &page.tasks[..],
                    &expected[..expected.len().min(3)],
                    "a list holds to all of its filters",
                );
            }
        }
    }
}

/// What a list must give, in its order.
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

fn cursor_after(head: &Head) -> Option<(Timestamp, crate::model::TaskId)> {
    Some((head.status_time, head.id.clone()))
}

async fn pages_join_without_gap_or_repeat(store: &dyn Store) {
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
                let mut seen: Vec<Head> = Vec::new();
                loop {
                    let page = list(store, &query).await;
                    expect_eq(
                        page.total,
                        expected.len() as u64,
                        "the total is the same on every page",
                    );
                    query.after = page.tasks.last().and_then(cursor_after);
                    let is_last = page.tasks.len() < limit;
                    seen.extend(page.tasks);
                    if is_last {
                        break;
                    }
                }
                expect_eq(seen, expected, "pages join without gap or repeat");
            }
        }
    }
}

async fn a_cursor_outlives_what_happens_around_it(store: &dyn Store) {
    let heads = create_all(
        store,
        (1..=6).map(|number| new_task_at(&format!("t{number}"), number * 1_000)),
    )
    .await;
    let page = list(store, &first(2)).await;
    expect_eq(
        ids(&page.tasks),
        vec!["t6", "t5"],
        "a page has as many as were asked for",
    );
    let rest = TaskQuery {
        after: page.tasks.last().and_then(cursor_after),
        ..first(10)
    };
    create(store, new_task_at("newer", 9_000)).await;
    expect_eq(
        ids(&list(store, &rest).await.tasks),
        vec!["t4", "t3", "t2", "t1"],
        "a new task shifts no later page",
    );
    expect_ok(store.remove(&heads[4..5]).await, "a task is removed");
    expect_eq(
        ids(&list(store, &rest).await.tasks),
        vec!["t4", "t3", "t2", "t1"],
        "a cursor outlives its task",
    );
    expect_ok(
        store
            .append(
                &heads[2],
                Seq(1),
                &status_batch(TaskState::Completed, 9_500),
            )
            .await,
        "a batch is added",
    );
    let page = list(store, &rest).await;
    expect_eq(
        ids(&page.tasks),
        vec!["t4", "t2", "t1"],
        "a task that moved to the front is not behind the cursor",
    );
    expect_eq(
        page.total,
        6,
        "the total follows what was added and removed",
    );
}

async fn unfinished_tasks_are_swept_by_id(store: &dyn Store) {
    let tasks = ["c", "a", "e", "b", "d"].map(|id| NewTask {
        scope: scope(id),
        ..new_task(id)
    });
    let heads = create_all(store, tasks).await;
    expect_ok(
        store
            .append(&heads[3], Seq(1), &status_batch(TaskState::Failed, 2_000))
            .await,
        "a batch is added",
    );
    expect_ok(
        store
            .append(
                &heads[4],
                Seq(1),
                &status_batch(TaskState::InputRequired, 2_000),
            )
            .await,
        "a batch is added",
    );
    let sweep = async |after: Option<&str>, limit| {
        let after = after.map(Into::into);
        expect_ok(
            store.list_unfinished(after.as_ref(), limit).await,
            "unfinished tasks can be swept",
        )
    };
    let all = sweep(None, 10).await;
    expect_eq(
        ids(&all),
        vec!["a", "c", "d", "e"],
        "a sweep has the unfinished tasks of every scope, by id",
    );
    expect_own_scopes(&all);
    expect_eq(
        ids(&sweep(None, 2).await),
        vec!["a", "c"],
        "a sweep has at most its limit",
    );
    expect_eq(
        ids(&sweep(Some("c"), 2).await),
        vec!["d", "e"],
        "a sweep goes on behind an id",
    );
    expect_eq(
        ids(&sweep(Some("b"), 1).await),
        vec!["c"],
        "a sweep goes on behind an id that is not there",
    );
    expect_eq(sweep(Some("e"), 2).await, Vec::new(), "a sweep ends");
    expect_eq(sweep(None, 0).await, Vec::new(), "a sweep of none is empty");
}

fn expect_own_scopes(heads: &[Head]) {
    for head in heads {
        expect_eq(
            &head.scope,
            &scope(head.id.as_str()),
            "a head of a sweep has its own scope",
        );
    }
}

async fn ended_tasks_are_swept_by_age(store: &dyn Store) {
    let tasks = ["c", "a", "e", "b", "d"].map(|id| NewTask {
        scope: scope(id),
        ..new_task(id)
    });
    let heads = create_all(store, tasks).await;
    let ends = [
        (0, TaskState::Completed, 3_000),
        (1, TaskState::Failed, 2_000),
        (2, TaskState::Canceled, 4_000),
        (3, TaskState::Rejected, 5_000),
        (4, TaskState::AuthRequired, 1_000),
    ];
    for (number, state, time) in ends {
        expect_ok(
            store
                .append(&heads[number], Seq(1), &status_batch(state, time))
                .await,
            "a batch is added",
        );
    }
    let sweep = async |before, limit| {
        expect_ok(
            store.list_ended(timestamp(before), limit).await,
            "ended tasks can be swept",
        )
    };
    let all = sweep(9_000, 10).await;
    expect_eq(
        ids(&all),
        vec!["a", "c", "e", "b"],
        "a sweep has the ended tasks of every scope, oldest first",
    );
    expect_own_scopes(&all);
    expect_eq(
        ids(&sweep(4_000, 10).await),
        vec!["a", "c"],
        "a sweep has what ended before a time, not at it",
    );
    expect_eq(
        ids(&sweep(9_000, 1).await),
        vec!["a"],
        "a sweep has at most its limit",
    );
    expect_eq(
        sweep(2_000, 10).await,
        Vec::new(),
        "a sweep before the first end is empty",
    );
    let count = async || expect_ok(store.count_ended().await, "ended tasks can be counted");
    expect_eq(
        count().await,
        4,
        "the count is of ended tasks of every scope",
    );
    expect_ok(store.remove(&all[..3]).await, "tasks are removed");
    expect_eq(
        ids(&sweep(9_000, 10).await),
        vec!["b"],
        "a removed task is swept no more",
    );
    expect_eq(count().await, 1, "the count follows what is removed");
    let left = expect_ok(
        store.list_unfinished(None, 10).await,
        "unfinished tasks can be swept",
    );
    expect_eq(ids(&left), vec!["d"], "an ended task is not unfinished");
}

async fn tenants_are_tallied(store: &dyn Store) {
    let of = |tenant: &str, owner| Scope {
        tenant: tenant.into(),
        ..scope(owner)
    };
    let tasks = [
        ("a", of("blue", "ann")),
        ("b", of("blue", "bob")),
        ("c", of("blue", "bob")),
        ("d", of("", "ann")),
    ];
    let heads = create_all(
        store,
        tasks.map(|(id, scope)| NewTask {
            scope,
            ..new_task(id)
        }),
    )
    .await;
    let agent = &heads[0].scope.agent;
    let count = async |tenant| {
        expect_ok(
            store.count_tasks(agent, tenant).await,
            "the tasks of a tenant can be counted",
        )
    };
    // A store that does not tell has none of anybody.
    let Some(blue) = count("blue").await else {
        return;
    };
    expect_eq(
        blue,
        TaskCounts { open: 3, total: 3 },
        "a tally is of all callers of a tenant",
    );
    expect_eq(
        count("").await,
        Some(TaskCounts { open: 1, total: 1 }),
        "those of no tenant are by themselves",
    );
    expect_eq(
        count("red").await,
        Some(TaskCounts::default()),
        "a tenant without tasks has none",
    );
    let elsewhere = expect_ok(
        store.count_tasks("another agent", "blue").await,
        "any agent can be asked about",
    );
    expect_eq(
        elsewhere,
        Some(TaskCounts::default()),
        "a tally is of one agent",
    );
    expect_ok(
        store
            .append(&heads[1], Seq(1), &status_batch(TaskState::Failed, 2_000))
            .await,
        "a batch is added",
    );
    expect_eq(
        count("blue").await,
        Some(TaskCounts { open: 2, total: 3 }),
        "what has ended is kept and not open",
    );
    expect_ok(store.remove(&heads[1..2]).await, "tasks are removed");
    expect_eq(
        count("blue").await,
        Some(TaskCounts { open: 2, total: 2 }),
        "a removed task does not count",
    );
}

async fn parked_tasks_have_no_work(store: &dyn Store) {
    let ids_of = async |after: Option<&str>| {
        let after = after.map(Into::into);
        let heads = expect_ok(
            store.list_runnable(after.as_ref(), 10).await,
            "tasks with work can be swept",
        );
        heads
            .iter()
            .map(|head| head.id.to_string())
            .collect::<Vec<_>>()
    };
    let parked = async |owner, limit| {
        let heads = expect_ok(
            store.list_parked(&scope(owner), limit).await,
            "parked tasks can be asked for",
        );
        heads
            .iter()
            .map(|head| head.id.to_string())
            .collect::<Vec<_>>()
    };
    let heads = create_all(store, ["c", "a", "e", "b", "d"].map(new_task)).await;
    let parks = |time| Batch {
        parked: true,
        ..status_batch(TaskState::InputRequired, time)
    };
    for (head, batch) in heads.iter().zip([parks(3_000), parks(2_000), parks(4_000)]) {
        expect_ok(store.append(head, Seq(1), &batch).await, "a batch is added");
    }
    // A store that does not tell has all that are unfinished, and none that are parked.
    let all = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    if ids_of(None).await == all {
        return expect_eq(
            parked("ann", 10).await,
            Vec::new(),
            "what is parked has no work",
        );
    }
    expect_eq(
        ids_of(None).await,
        vec!["b".to_owned(), "d".to_owned()],
        "what is parked has no work",
    );
    expect_eq(
        ids_of(Some("b")).await,
        vec!["d".to_owned()],
        "a sweep goes on behind an id",
    );
    expect_eq(
        parked("ann", 2).await,
        vec!["a".to_owned(), "c".to_owned()],
        "parked tasks come oldest first",
    );
    expect_eq(
        parked("bob", 10).await,
        Vec::new(),
        "parked tasks of another scope are not there",
    );
    expect_ok(
        store
            .append(&heads[1], Seq(2), &status_batch(TaskState::Working, 5_000))
            .await,
        "a batch is added",
    );
    expect_ok(
        store
            .append(&heads[2], Seq(2), &status_batch(TaskState::Failed, 5_000))
            .await,
        "a batch is added",
    );
    expect_eq(ids_of(None).await.len(), 3, "a task that goes on has work");
    expect_eq(
        parked("ann", 10).await,
        vec!["c".to_owned()],
        "what goes on or has ended is not parked",
    );
}

async fn the_newest_time_is_known(store: &dyn Store) {
    let latest_time = async || {
        expect_ok(
            store.latest_time().await,
            "the newest time can be asked for",
        )
    };
    expect_eq(
        latest_time().await,
        None,
        "where nothing is recorded there is no time",
    );
    let heads = create_all(store, [new_task_at("a", 1_000), new_task_at("b", 2_000)]).await;
    expect_ok(
        store
            .append(
                &heads[0],
                Seq(1),
                &status_batch(TaskState::Completed, 5_000),
            )
            .await,
        "a batch is added",
    );
    let latest = latest_time().await;
    expect_true(
        latest.is_none_or(|time| time == timestamp(5_000)),
        "the newest time is that of what was recorded last",
    );
}
