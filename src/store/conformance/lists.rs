//! Lists and sweeps.

use super::{
    at, ending, find, given, ids, new_task, new_task_at, open, open_all, rule, same, scope,
};
use crate::model::{Scope, Seq, TaskState, Timestamp};
use crate::store::{Batch, Head, NewTask, Page, Query, Store, Tally};

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

async fn list(store: &dyn Store, query: &Query) -> Page {
    given(
        store.list(&scope("ann"), query).await,
        "tasks can be listed",
    )
}

fn first(limit: usize) -> Query {
    Query {
        limit,
        ..Query::default()
    }
}

async fn lists_go_from_the_newest_status(store: &dyn Store) {
    same(
        list(store, &first(10)).await,
        Page::default(),
        "a store without tasks has an empty list",
    );
    let times = [
        ("a", 3_000),
        ("b", 1_000),
        ("d", 2_000),
        ("c", 2_000),
        ("e", -5),
    ];
    let heads = open_all(store, times.map(|(id, time)| new_task_at(id, time))).await;
    let page = list(store, &first(10)).await;
    same(
        ids(&page.tasks),
        vec!["a", "d", "c", "b", "e"],
        "lists go from the newest status, ties by id from the last",
    );
    same(page.total, 5, "the total counts every task that matches");
    same(
        page.tasks.first(),
        heads.first(),
        "a list gives heads as they stand",
    );
    given(
        store
            .append(&heads[1], Seq(1), &ending(TaskState::Working, 9_000))
            .await,
        "a batch is added",
    );
    let page = list(store, &first(10)).await;
    same(
        ids(&page.tasks),
        vec!["b", "a", "d", "c", "e"],
        "a task with a new status moves to the front",
    );
    same(
        page.tasks.first(),
        find(store, "ann", "b").await.as_ref(),
        "a list gives heads as they stand",
    );
    let none = list(store, &first(0)).await;
    same(
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
    open(
        store,
        NewTask {
            scope: scope("bob"),
            context_id: "c0".into(),
            ..new_task("bob's")
        },
    )
    .await;
    let heads = open_all(store, tasks).await;
    for context_id in [
        None,
        Some("c0".into()),
        Some("c1".into()),
        Some("none".into()),
    ] {
        for state in [None, Some(TaskState::Completed), Some(TaskState::Failed)] {
            for since in [None, Some(at(500)), Some(at(501)), Some(at(99_999))] {
                let query = Query {
                    context_id: context_id.clone(),
                    state,
                    since,
                    ..first(3)
                };
                let expected = matching(&heads, &query);
                let page = list(store, &query).await;
                same(
                    page.total,
                    expected.len() as u64,
                    "the total counts what matches, on whatever page",
                );
                same(
                    &page.tasks[..],
                    &expected[..expected.len().min(3)],
                    "a list holds to all of its filters",
                );
            }
        }
    }
}

/// What a list must give, in its order.
fn matching(heads: &[Head], query: &Query) -> Vec<Head> {
    let mut matching: Vec<_> = heads
        .iter()
        .filter(|head| query.matches(head))
        .cloned()
        .collect();
    matching.sort_by(|a, b| place(b).cmp(&place(a)));
    matching
}

fn place(head: &Head) -> (Timestamp, &str) {
    (head.status_time, head.id.as_str())
}

fn behind(head: &Head) -> Option<(Timestamp, crate::model::TaskId)> {
    Some((head.status_time, head.id.clone()))
}

async fn pages_join_without_gap_or_repeat(store: &dyn Store) {
    let tasks = (0..25).map(|number| new_task_at(&format!("t{number:02}"), number / 4));
    let heads = open_all(store, tasks).await;
    for context_id in [None, Some("context".into())] {
        for since in [None, Some(at(2))] {
            for limit in [1, 4, 7, 25, 30] {
                let mut query = Query {
                    context_id: context_id.clone(),
                    since,
                    ..first(limit)
                };
                let expected = matching(&heads, &query);
                let mut seen: Vec<Head> = Vec::new();
                loop {
                    let page = list(store, &query).await;
                    same(
                        page.total,
                        expected.len() as u64,
                        "the total is the same on every page",
                    );
                    query.after = page.tasks.last().and_then(behind);
                    let is_last = page.tasks.len() < limit;
                    seen.extend(page.tasks);
                    if is_last {
                        break;
                    }
                }
                same(seen, expected, "pages join without gap or repeat");
            }
        }
    }
}

async fn a_cursor_outlives_what_happens_around_it(store: &dyn Store) {
    let heads = open_all(
        store,
        (1..=6).map(|number| new_task_at(&format!("t{number}"), number * 1_000)),
    )
    .await;
    let page = list(store, &first(2)).await;
    same(
        ids(&page.tasks),
        vec!["t6", "t5"],
        "a page has as many as were asked for",
    );
    let rest = Query {
        after: page.tasks.last().and_then(behind),
        ..first(10)
    };
    open(store, new_task_at("newer", 9_000)).await;
    same(
        ids(&list(store, &rest).await.tasks),
        vec!["t4", "t3", "t2", "t1"],
        "a new task shifts no later page",
    );
    given(store.remove(&heads[4..5]).await, "a task is removed");
    same(
        ids(&list(store, &rest).await.tasks),
        vec!["t4", "t3", "t2", "t1"],
        "a cursor outlives its task",
    );
    given(
        store
            .append(&heads[2], Seq(1), &ending(TaskState::Completed, 9_500))
            .await,
        "a batch is added",
    );
    let page = list(store, &rest).await;
    same(
        ids(&page.tasks),
        vec!["t4", "t2", "t1"],
        "a task that moved to the front is not behind the cursor",
    );
    same(
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
    let heads = open_all(store, tasks).await;
    given(
        store
            .append(&heads[3], Seq(1), &ending(TaskState::Failed, 2_000))
            .await,
        "a batch is added",
    );
    given(
        store
            .append(&heads[4], Seq(1), &ending(TaskState::InputRequired, 2_000))
            .await,
        "a batch is added",
    );
    let sweep = async |after: Option<&str>, limit| {
        let after = after.map(Into::into);
        given(
            store.unfinished(after.as_ref(), limit).await,
            "unfinished tasks can be swept",
        )
    };
    let all = sweep(None, 10).await;
    same(
        ids(&all),
        vec!["a", "c", "d", "e"],
        "a sweep has the unfinished tasks of every scope, by id",
    );
    rule_scopes(&all);
    same(
        ids(&sweep(None, 2).await),
        vec!["a", "c"],
        "a sweep has at most its limit",
    );
    same(
        ids(&sweep(Some("c"), 2).await),
        vec!["d", "e"],
        "a sweep goes on behind an id",
    );
    same(
        ids(&sweep(Some("b"), 1).await),
        vec!["c"],
        "a sweep goes on behind an id that is not there",
    );
    same(sweep(Some("e"), 2).await, Vec::new(), "a sweep ends");
    same(sweep(None, 0).await, Vec::new(), "a sweep of none is empty");
}

fn rule_scopes(heads: &[Head]) {
    for head in heads {
        same(
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
    let heads = open_all(store, tasks).await;
    let ends = [
        (0, TaskState::Completed, 3_000),
        (1, TaskState::Failed, 2_000),
        (2, TaskState::Canceled, 4_000),
        (3, TaskState::Rejected, 5_000),
        (4, TaskState::AuthRequired, 1_000),
    ];
    for (number, state, time) in ends {
        given(
            store
                .append(&heads[number], Seq(1), &ending(state, time))
                .await,
            "a batch is added",
        );
    }
    let sweep = async |before, limit| {
        given(
            store.ended(at(before), limit).await,
            "ended tasks can be swept",
        )
    };
    let all = sweep(9_000, 10).await;
    same(
        ids(&all),
        vec!["a", "c", "e", "b"],
        "a sweep has the ended tasks of every scope, oldest first",
    );
    rule_scopes(&all);
    same(
        ids(&sweep(4_000, 10).await),
        vec!["a", "c"],
        "a sweep has what ended before a time, not at it",
    );
    same(
        ids(&sweep(9_000, 1).await),
        vec!["a"],
        "a sweep has at most its limit",
    );
    same(
        sweep(2_000, 10).await,
        Vec::new(),
        "a sweep before the first end is empty",
    );
    let count = async || given(store.count_ended().await, "ended tasks can be counted");
    same(
        count().await,
        4,
        "the count is of ended tasks of every scope",
    );
    given(store.remove(&all[..3]).await, "tasks are removed");
    same(
        ids(&sweep(9_000, 10).await),
        vec!["b"],
        "a removed task is swept no more",
    );
    same(count().await, 1, "the count follows what is removed");
    let left = given(
        store.unfinished(None, 10).await,
        "unfinished tasks can be swept",
    );
    same(ids(&left), vec!["d"], "an ended task is not unfinished");
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
    let heads = open_all(
        store,
        tasks.map(|(id, scope)| NewTask {
            scope,
            ..new_task(id)
        }),
    )
    .await;
    let agent = &heads[0].scope.agent;
    let tally = async |tenant| {
        given(
            store.tally(agent, tenant).await,
            "the tasks of a tenant can be counted",
        )
    };
    // A store that does not tell has none of anybody.
    let Some(blue) = tally("blue").await else {
        return;
    };
    same(
        blue,
        Tally { open: 3, kept: 3 },
        "a tally is of all callers of a tenant",
    );
    same(
        tally("").await,
        Some(Tally { open: 1, kept: 1 }),
        "those of no tenant are by themselves",
    );
    same(
        tally("red").await,
        Some(Tally::default()),
        "a tenant without tasks has none",
    );
    let elsewhere = given(
        store.tally("another agent", "blue").await,
        "any agent can be asked about",
    );
    same(elsewhere, Some(Tally::default()), "a tally is of one agent");
    given(
        store
            .append(&heads[1], Seq(1), &ending(TaskState::Failed, 2_000))
            .await,
        "a batch is added",
    );
    same(
        tally("blue").await,
        Some(Tally { open: 2, kept: 3 }),
        "what has ended is kept and not open",
    );
    given(store.remove(&heads[1..2]).await, "tasks are removed");
    same(
        tally("blue").await,
        Some(Tally { open: 2, kept: 2 }),
        "a removed task does not count",
    );
}

async fn parked_tasks_have_no_work(store: &dyn Store) {
    let ids_of = async |after: Option<&str>| {
        let after = after.map(Into::into);
        let heads = given(
            store.with_work(after.as_ref(), 10).await,
            "tasks with work can be swept",
        );
        heads
            .iter()
            .map(|head| head.id.to_string())
            .collect::<Vec<_>>()
    };
    let parked = async |owner, limit| {
        let heads = given(
            store.parked(&scope(owner), limit).await,
            "parked tasks can be asked for",
        );
        heads
            .iter()
            .map(|head| head.id.to_string())
            .collect::<Vec<_>>()
    };
    let heads = open_all(store, ["c", "a", "e", "b", "d"].map(new_task)).await;
    let parks = |time| Batch {
        parked: true,
        ..ending(TaskState::InputRequired, time)
    };
    for (head, batch) in heads.iter().zip([parks(3_000), parks(2_000), parks(4_000)]) {
        given(store.append(head, Seq(1), &batch).await, "a batch is added");
    }
    // A store that does not tell has all that are unfinished, and none that are parked.
    let all = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    if ids_of(None).await == all {
        return same(
            parked("ann", 10).await,
            Vec::new(),
            "what is parked has no work",
        );
    }
    same(
        ids_of(None).await,
        vec!["b".to_owned(), "d".to_owned()],
        "what is parked has no work",
    );
    same(
        ids_of(Some("b")).await,
        vec!["d".to_owned()],
        "a sweep goes on behind an id",
    );
    same(
        parked("ann", 2).await,
        vec!["a".to_owned(), "c".to_owned()],
        "parked tasks come oldest first",
    );
    same(
        parked("bob", 10).await,
        Vec::new(),
        "parked tasks of another scope are not there",
    );
    given(
        store
            .append(&heads[1], Seq(2), &ending(TaskState::Working, 5_000))
            .await,
        "a batch is added",
    );
    given(
        store
            .append(&heads[2], Seq(2), &ending(TaskState::Failed, 5_000))
            .await,
        "a batch is added",
    );
    same(ids_of(None).await.len(), 3, "a task that goes on has work");
    same(
        parked("ann", 10).await,
        vec!["c".to_owned()],
        "what goes on or has ended is not parked",
    );
}

async fn the_newest_time_is_known(store: &dyn Store) {
    let newest = async || given(store.newest().await, "the newest time can be asked for");
    same(
        newest().await,
        None,
        "where nothing is recorded there is no time",
    );
    let heads = open_all(store, [new_task_at("a", 1_000), new_task_at("b", 2_000)]).await;
    given(
        store
            .append(&heads[0], Seq(1), &ending(TaskState::Completed, 5_000))
            .await,
        "a batch is added",
    );
    let told = newest().await;
    rule(
        told.is_none_or(|time| time == at(5_000)),
        "the newest time is that of what was recorded last",
    );
}
