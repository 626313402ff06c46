//! Sweeps over many scopes, counts, and parked tasks.

use super::{
    append, create_all, expect_eq, expect_ok, expect_true, ids, new_task, new_task_at, scope,
    status_batch, timestamp,
};
use crate::model::{Scope, Seq, TaskState};
use crate::store::{Batch, Head, NewTask, Store, TaskCounts};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    lists_unfinished_tasks(&make().await).await;
    lists_and_counts_ended_tasks(&make().await).await;
    lists_parked_and_runnable_tasks(&make().await).await;
    counts_tasks_of_a_tenant(&make().await).await;
    returns_the_latest_time(&make().await).await;
}

async fn lists_unfinished_tasks(store: &dyn Store) {
    let tasks = ["c", "a", "e", "b", "d"].map(|id| NewTask {
        scope: scope(id),
        ..new_task(id)
    });
    let heads = create_all(store, tasks).await;
    append(
        store,
        &heads[3],
        Seq(1),
        &status_batch(TaskState::Failed, 2_000),
    )
    .await;
    append(
        store,
        &heads[4],
        Seq(1),
        &status_batch(TaskState::InputRequired, 2_000),
    )
    .await;
    let sweep = async |after: Option<&str>, limit| {
        let after = after.map(Into::into);
        expect_ok(
            store.list_unfinished(after.as_ref(), limit).await,
            "`list_unfinished` succeeds",
        )
    };
    let all = sweep(None, 10).await;
    expect_eq(
        ids(&all),
        vec!["a", "c", "d", "e"],
        "`list_unfinished` covers every scope, ordered by id",
    );
    expect_own_scopes(&all);
    expect_eq(
        ids(&sweep(None, 2).await),
        vec!["a", "c"],
        "a sweep returns at most `limit` tasks",
    );
    expect_eq(
        ids(&sweep(Some("c"), 2).await),
        vec!["d", "e"],
        "a sweep continues after an id",
    );
    expect_eq(
        ids(&sweep(Some("b"), 1).await),
        vec!["c"],
        "a sweep continues after an id that does not exist",
    );
    expect_eq(
        sweep(Some("e"), 2).await,
        Vec::new(),
        "a sweep after the last id is empty",
    );
    expect_eq(
        sweep(None, 0).await,
        Vec::new(),
        "a sweep with limit 0 is empty",
    );
}

fn expect_own_scopes(heads: &[Head]) {
    for head in heads {
        expect_eq(
            &head.scope,
            &scope(head.id.as_str()),
            "a sweep returns each head with its own scope",
        );
    }
}

async fn lists_and_counts_ended_tasks(store: &dyn Store) {
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
        append(store, &heads[number], Seq(1), &status_batch(state, time)).await;
    }
    let sweep = async |before, limit| {
        expect_ok(
            store.list_ended(timestamp(before), limit).await,
            "`list_ended` succeeds",
        )
    };
    let all = sweep(9_000, 10).await;
    expect_eq(
        ids(&all),
        vec!["a", "c", "e", "b"],
        "`list_ended` covers every scope, oldest status first",
    );
    expect_own_scopes(&all);
    expect_eq(
        ids(&sweep(4_000, 10).await),
        vec!["a", "c"],
        "`list_ended` excludes tasks that ended exactly at the time",
    );
    expect_eq(
        ids(&sweep(9_000, 1).await),
        vec!["a"],
        "a sweep returns at most `limit` tasks",
    );
    expect_eq(
        sweep(2_000, 10).await,
        Vec::new(),
        "`list_ended` before the first end is empty",
    );
    let count = async || expect_ok(store.count_ended().await, "`count_ended` succeeds");
    expect_eq(count().await, 4, "`count_ended` covers every scope");
    expect_ok(store.remove(&all[..3]).await, "`remove` succeeds");
    expect_eq(
        ids(&sweep(9_000, 10).await),
        vec!["b"],
        "a removed task is not in a sweep",
    );
    expect_eq(count().await, 1, "`count_ended` follows removals");
    let left = expect_ok(
        store.list_unfinished(None, 10).await,
        "`list_unfinished` succeeds",
    );
    expect_eq(
        ids(&left),
        vec!["d"],
        "an ended task is not in `list_unfinished`",
    );
}

async fn counts_tasks_of_a_tenant(store: &dyn Store) {
    let tenant_scope = |tenant: &str, owner| Scope {
        tenant: tenant.into(),
        ..scope(owner)
    };
    let tasks = [
        ("a", tenant_scope("blue", "ann")),
        ("b", tenant_scope("blue", "bob")),
        ("c", tenant_scope("blue", "bob")),
        ("d", tenant_scope("", "ann")),
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
            "`count_tasks` succeeds",
        )
    };
    // A store that does not count returns `None` for every tenant.
    let Some(blue) = count("blue").await else {
        return;
    };
    expect_eq(
        blue,
        TaskCounts { open: 3, total: 3 },
        "`count_tasks` covers all owners of a tenant",
    );
    expect_eq(
        count("").await,
        Some(TaskCounts { open: 1, total: 1 }),
        "tasks without a tenant are counted separately",
    );
    expect_eq(
        count("red").await,
        Some(TaskCounts::default()),
        "`count_tasks` of a tenant without tasks is zero",
    );
    let elsewhere = expect_ok(
        store.count_tasks("another agent", "blue").await,
        "`count_tasks` of an unknown agent succeeds",
    );
    expect_eq(
        elsewhere,
        Some(TaskCounts::default()),
        "`count_tasks` covers one agent",
    );
    append(
        store,
        &heads[1],
        Seq(1),
        &status_batch(TaskState::Failed, 2_000),
    )
    .await;
    expect_eq(
        count("blue").await,
        Some(TaskCounts { open: 2, total: 3 }),
        "an ended task counts in `total` but not in `open`",
    );
    expect_ok(store.remove(&heads[1..2]).await, "`remove` succeeds");
    expect_eq(
        count("blue").await,
        Some(TaskCounts { open: 2, total: 2 }),
        "a removed task is not counted",
    );
}

async fn runnable(store: &dyn Store, after: Option<&str>) -> Vec<String> {
    let after = after.map(Into::into);
    let heads = expect_ok(
        store.list_runnable(after.as_ref(), 10).await,
        "`list_runnable` succeeds",
    );
    heads.iter().map(|head| head.id.to_string()).collect()
}

async fn parked(store: &dyn Store, owner: &str, limit: usize) -> Vec<String> {
    let heads = expect_ok(
        store.list_parked(&scope(owner), limit).await,
        "`list_parked` succeeds",
    );
    heads.iter().map(|head| head.id.to_string()).collect()
}

async fn lists_parked_and_runnable_tasks(store: &dyn Store) {
    let heads = create_all(store, ["c", "a", "e", "b", "d"].map(new_task)).await;
    let park = |time| Batch {
        parked: true,
        ..status_batch(TaskState::InputRequired, time)
    };
    for (head, batch) in heads.iter().zip([park(3_000), park(2_000), park(4_000)]) {
        expect_ok(
            store.append(head, Seq(1), &batch).await,
            "`append` at the end of the log succeeds",
        );
    }
    // A store that does not record `parked` lists every unfinished task as runnable, and none as parked.
    let all = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    if runnable(store, None).await == all {
        return expect_eq(
            parked(store, "ann", 10).await,
            Vec::new(),
            "a parked task is not runnable",
        );
    }
    expect_eq(
        runnable(store, None).await,
        vec!["b".to_owned(), "d".to_owned()],
        "a parked task is not runnable",
    );
    expect_eq(
        runnable(store, Some("b")).await,
        vec!["d".to_owned()],
        "a sweep continues after an id",
    );
    expect_eq(
        parked(store, "ann", 2).await,
        vec!["a".to_owned(), "c".to_owned()],
        "`list_parked` orders by status time",
    );
    expect_eq(
        parked(store, "bob", 10).await,
        Vec::new(),
        "`list_parked` returns tasks of its scope only",
    );
    append(
        store,
        &heads[1],
        Seq(2),
        &status_batch(TaskState::Working, 5_000),
    )
    .await;
    append(
        store,
        &heads[2],
        Seq(2),
        &status_batch(TaskState::Failed, 5_000),
    )
    .await;
    expect_eq(
        runnable(store, None).await.len(),
        3,
        "a task that continues is runnable",
    );
    expect_eq(
        parked(store, "ann", 10).await,
        vec!["c".to_owned()],
        "a task that continues or has ended is not parked",
    );
}

async fn returns_the_latest_time(store: &dyn Store) {
    let latest_time = async || expect_ok(store.latest_time().await, "`latest_time` succeeds");
    expect_eq(
        latest_time().await,
        None,
        "`latest_time` of an empty store is `None`",
    );
    let heads = create_all(store, [new_task_at("a", 1_000), new_task_at("b", 2_000)]).await;
    append(
        store,
        &heads[0],
        Seq(1),
        &status_batch(TaskState::Completed, 5_000),
    )
    .await;
    let latest = latest_time().await;
    expect_true(
        latest.is_none_or(|time| time == timestamp(5_000)),
        "`latest_time` is the status time recorded last",
    );
}
