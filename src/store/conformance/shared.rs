//! Rules of stores that several replicas share: holders, fencing, membership, takeover and jobs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    append, create, expect_eq, expect_ok, expect_true, key, new_task, note, registration, scope,
    status_batch,
};
use crate::model::{PushConfigId, Seq, TaskId, TaskState};
use crate::store::{
    Batch, CreateResult, DeliveryState, Error, Head, Heartbeat, Holder, NewTask, Result, Store,
    Webhook, WebhookFilter, WriterRole,
};

/// Number of tasks that replicas race for.
const RACED_TASKS: usize = 40;

/// Checks two handles on one shared store against the contract of [`Store`] for several processes.
///
/// `make` returns two handles on one empty store each time it is called. Neither has sent a heartbeat. The suite waits for
/// evictions, so a short lease or paused time makes it fast. It stops heartbeats for one lease, and gives up after ten.
///
/// ```
/// use std::time::Duration;
///
/// use attache::model::Timestamp;
/// use attache::store::{Memory, conformance_shared};
///
/// #[tokio::main]
/// async fn main() {
///     let lease = Duration::from_millis(50);
///     conformance_shared(async || {
///         let replica = Memory::shared(lease, Timestamp::default());
///         let other = replica.replica();
///         (replica, other)
///     })
///     .await;
/// }
/// ```
///
/// # Panics
/// A rule does not hold. The message names the rule.
pub async fn conformance_shared<S: Store>(make: impl AsyncFn() -> (S, S)) {
    holders_follow_the_commits(&join(&make).await).await;
    remote_appends_keep_the_holder(&join(&make).await).await;
    keys_and_positions_are_checked_before_the_holder(&join(&make).await).await;
    racing_keys_create_one_task(&join(&make).await).await;
    members_are_counted(&join(&make).await).await;
    an_evicted_replica_is_fenced(&join(&make).await).await;
    racing_takeovers_return_different_tasks(&join(&make).await).await;
    takeover_respects_agents(&join(&make).await).await;
    departure_releases_everything(&join(&make).await).await;
    replicas_are_listed(&join(&make).await).await;
    webhooks_have_one_holder(&join(&make).await).await;
    webhooks_of_an_evicted_replica_are_taken_over(&join(&make).await).await;
    jobs_run_once_per_period(&join(&make).await).await;
    several_logs_are_read_at_once(&join(&make).await).await;
}

/// Two replicas that have joined.
struct Pair<S> {
    one: S,
    other: S,
}

async fn join<S: Store>(make: &impl AsyncFn() -> (S, S)) -> Pair<S> {
    let (one, other) = make().await;
    for replica in [&one, &other] {
        beat(replica).await;
    }
    Pair { one, other }
}

async fn beat(store: &dyn Store) -> Heartbeat {
    expect_ok(store.heartbeat().await, "`heartbeat` succeeds")
}

/// Sends heartbeats of one replica until the other is evicted.
async fn evict_other<S: Store>(pair: &Pair<S>) {
    let lease = pair.one.lease().expect("a shared store has a lease");
    let started = Instant::now();
    loop {
        match beat(&pair.one).await {
            Heartbeat::Member { replicas: 1, .. } => break,
            Heartbeat::Member { .. } => {}
            result => panic!("rule broken: a replica with heartbeats stays a member: {result:?}"),
        }
        expect_true(
            started.elapsed() < lease * 10,
            "a replica without heartbeats is evicted",
        );
        sleep(lease / 6).await;
    }
    expect_true(
        started.elapsed() >= lease / 2,
        "a replica is not evicted before its lease has passed",
    );
}

async fn holder(store: &dyn Store, id: &str) -> Holder {
    let found = store.find(&scope("ann"), &TaskId::from(id)).await;
    let head = expect_ok(found, "`find` succeeds");
    head.expect("the task exists").holder
}

/// Checks the holder of a task as both replicas see it.
async fn expect_holder<S: Store>(pair: &Pair<S>, id: &str, seen: [Holder; 2], rule: &str) {
    let found = [holder(&pair.one, id).await, holder(&pair.other, id).await];
    expect_eq(found, seen, rule);
}

fn expect_fenced<T>(result: &Result<T>, rule: &str) {
    expect_true(matches!(result, Err(Error::Fenced)), rule);
}

fn work() -> Batch {
    status_batch(TaskState::Working, 2_000)
}

fn parked() -> Batch {
    Batch {
        parked: true,
        ..status_batch(TaskState::InputRequired, 3_000)
    }
}

fn completed() -> Batch {
    status_batch(TaskState::Completed, 4_000)
}

/// Returns a message of a remote command. The task then has work left.
fn remote() -> Batch {
    Batch {
        events: vec![note("remote")],
        writer: WriterRole::Remote,
        ..status_batch(TaskState::Working, 2_000)
    }
}

async fn holders_follow_the_commits<S: Store>(pair: &Pair<S>) {
    let head = create(&pair.one, new_task("a")).await;
    expect_eq(
        head.holder,
        Holder::Local,
        "`create` makes its replica the holder",
    );
    let seen = [Holder::Local, Holder::Remote];
    expect_holder(
        pair,
        "a",
        seen,
        "the replica that created the task holds it",
    )
    .await;
    let refused = pair.other.append(&head, Seq(1), &work()).await;
    expect_fenced(
        &refused,
        "`append` of a replica that does not hold the task is `Fenced`",
    );
    append(&pair.one, &head, Seq(1), &work()).await;
    append(&pair.one, &head, Seq(2), &parked()).await;
    let nobody = [Holder::None, Holder::None];
    expect_holder(
        pair,
        "a",
        nobody,
        "the commit that parks a task clears the holder",
    )
    .await;
    append(&pair.other, &head, Seq(3), &work()).await;
    let seen = [Holder::Remote, Holder::Local];
    expect_holder(
        pair,
        "a",
        seen,
        "an append to a parked task makes its replica the holder",
    )
    .await;
    let refused = pair.one.append(&head, Seq(4), &work()).await;
    expect_fenced(&refused, "a former holder is `Fenced`");
    append(&pair.other, &head, Seq(4), &completed()).await;
    expect_holder(
        pair,
        "a",
        nobody,
        "the commit that ends a task clears the holder",
    )
    .await;
    for (id, batch) in [("b", parked()), ("c", completed())] {
        let task = NewTask {
            batch,
            ..new_task(id)
        };
        create(&pair.one, task).await;
        expect_holder(
            pair,
            id,
            nobody,
            "a task that is created parked or ended has no holder",
        )
        .await;
    }
}

async fn remote_appends_keep_the_holder<S: Store>(pair: &Pair<S>) {
    let head = create(&pair.one, new_task("a")).await;
    append(&pair.other, &head, Seq(1), &remote()).await;
    let seen = [Holder::Local, Holder::Remote];
    expect_holder(pair, "a", seen, "a remote append keeps the holder").await;
    append(&pair.one, &head, Seq(2), &parked()).await;
    append(&pair.other, &head, Seq(3), &remote()).await;
    let nobody = [Holder::None, Holder::None];
    expect_holder(
        pair,
        "a",
        nobody,
        "a remote append does not claim a task without a holder",
    )
    .await;
}

async fn keys_and_positions_are_checked_before_the_holder<S: Store>(pair: &Pair<S>) {
    let head = create(&pair.one, new_task("a")).await;
    let stale = pair.other.append(&head, Seq(0), &work()).await;
    expect_true(
        matches!(stale, Err(Error::Conflict)),
        "`append` at another position is `Conflict`, whatever replica holds the task",
    );
    let keyed = Batch {
        key: key("k", 1),
        ..remote()
    };
    append(&pair.other, &head, Seq(1), &keyed).await;
    let again = Batch {
        writer: WriterRole::Holder,
        ..keyed
    };
    let repeated = pair.other.append(&head, Seq(2), &again).await;
    expect_true(
        matches!(repeated, Err(Error::AlreadyApplied)),
        "`append` with a used key is `AlreadyApplied`, whatever replica holds the task",
    );
}

async fn racing_keys_create_one_task<S: Store>(pair: &Pair<S>) {
    for round in 0..RACED_TASKS {
        let keyed = |id: String| {
            let mut task = new_task(&id);
            task.batch.key = key(&format!("key {round}"), 1);
            task
        };
        let tasks = [keyed(format!("a{round}")), keyed(format!("b{round}"))];
        let (one, other) = tokio::join!(pair.one.create(&tasks[0]), pair.other.create(&tasks[1]));
        let results = [
            expect_ok(one, "`create` with a key succeeds"),
            expect_ok(other, "`create` with a key succeeds"),
        ];
        let is_created = |result: &&CreateResult| matches!(result, CreateResult::Created(_));
        expect_eq(
            results.iter().filter(is_created).count(),
            1,
            "two creations with one key on two replicas create one task",
        );
    }
}

async fn members_are_counted<S: Store>(pair: &Pair<S>) {
    let [one, other] = [beat(&pair.one).await, beat(&pair.other).await].map(|heartbeat| {
        let Heartbeat::Member {
            replica, replicas, ..
        } = heartbeat
        else {
            panic!("rule broken: a replica with heartbeats is a member: {heartbeat:?}")
        };
        expect_eq(replicas, 2, "`heartbeat` counts the live replicas");
        replica
    });
    expect_true(one != other, "each replica has its own id");
}

async fn an_evicted_replica_is_fenced<S: Store>(pair: &Pair<S>) {
    let held = create(&pair.other, new_task("held")).await;
    let waiting = create(&pair.other, new_task("parked")).await;
    append(&pair.other, &waiting, Seq(1), &parked()).await;
    let Heartbeat::Member {
        replica: former, ..
    } = beat(&pair.other).await
    else {
        panic!("rule broken: a replica with heartbeats is a member")
    };
    evict_other(pair).await;
    let is_orphaned = matches!(
        beat(&pair.one).await,
        Heartbeat::Member {
            has_orphans: true,
            ..
        }
    );
    expect_true(is_orphaned, "`has_orphans` follows an eviction");
    expect_fenced(
        &pair.other.append(&held, Seq(1), &work()).await,
        "an evicted replica cannot append to its task",
    );
    expect_fenced(
        &pair.other.append(&waiting, Seq(2), &work()).await,
        "an evicted replica cannot append to a parked task",
    );
    expect_fenced(
        &pair.other.append(&held, Seq(1), &remote()).await,
        "an evicted replica cannot append a remote command",
    );
    let late = pair.other.create(&new_task("late")).await;
    expect_true(
        matches!(late, Err(Error::Failed(_))),
        "`create` of an evicted replica fails",
    );
    let found = pair.one.find(&scope("ann"), &"late".into()).await;
    expect_true(
        expect_ok(found, "`find` succeeds").is_none(),
        "`create` of an evicted replica creates nothing",
    );
    let taken = take_over(&pair.one, 10).await;
    expect_eq(
        taken
            .iter()
            .map(|head| head.id.as_str())
            .collect::<Vec<_>>(),
        vec!["held"],
        "`take_over` returns the tasks with work left of an evicted replica",
    );
    expect_true(
        taken.iter().all(|head| head.holder == Holder::Local),
        "`take_over` makes its replica the holder",
    );
    expect_true(
        take_over(&pair.one, 10).await.is_empty(),
        "a task is taken over once",
    );
    expect_eq(
        beat(&pair.other).await,
        Heartbeat::Evicted,
        "`heartbeat` reports the eviction",
    );
    let Heartbeat::Member { replica, .. } = beat(&pair.other).await else {
        panic!("rule broken: the heartbeat after an eviction joins again")
    };
    expect_true(replica > former, "a replica id is not used again");
    expect_fenced(
        &pair.other.append(&held, Seq(1), &work()).await,
        "the former holder is `Fenced` at the old position",
    );
    append(&pair.one, &held, Seq(1), &work()).await;
    append(&pair.other, &waiting, Seq(2), &work()).await;
}

async fn take_over(store: &dyn Store, limit: usize) -> Vec<Head> {
    let agents = [Arc::from("agent")];
    expect_ok(
        store.take_over(&agents, limit).await,
        "`take_over` succeeds",
    )
}

async fn racing_takeovers_return_different_tasks<S: Store>(pair: &Pair<S>) {
    for number in 0..RACED_TASKS {
        let task = NewTask {
            batch: parked(),
            ..new_task(&format!("{number:02}"))
        };
        let head = create(&pair.one, task).await;
        append(&pair.one, &head, Seq(1), &remote()).await;
    }
    let drain = async |store: &S| {
        let mut ids = Vec::new();
        loop {
            let heads = take_over(store, 7).await;
            if heads.is_empty() {
                return ids;
            }
            expect_true(heads.len() <= 7, "`take_over` respects its limit");
            ids.extend(heads.into_iter().map(|head| head.id));
        }
    };
    let (mut ids, others) = tokio::join!(drain(&pair.one), drain(&pair.other));
    for (store, held) in [(&pair.one, &ids), (&pair.other, &others)] {
        let all = store.list_held(&HashSet::new()).await;
        let listed: HashSet<_> = expect_ok(all, "`list_held` succeeds")
            .into_iter()
            .map(|head| head.id)
            .collect();
        expect_eq(
            listed,
            held.iter().cloned().collect(),
            "`list_held` returns the tasks of its replica",
        );
        let known = held.iter().skip(1).cloned().collect();
        let unknown = expect_ok(store.list_held(&known).await, "`list_held` succeeds");
        expect_eq(
            unknown.len(),
            held.len().min(1),
            "`list_held` omits known tasks",
        );
    }
    ids.extend(others);
    expect_eq(
        ids.len(),
        RACED_TASKS,
        "every task without a holder is taken over",
    );
    expect_eq(
        ids.iter().collect::<HashSet<_>>().len(),
        RACED_TASKS,
        "no task is taken over twice",
    );
}

async fn takeover_respects_agents<S: Store>(pair: &Pair<S>) {
    let rare = [Arc::from("rare")];
    let common = [Arc::from("agent")];
    expect_ok(pair.one.set_agents(&common).await, "`set_agents` succeeds");
    expect_ok(pair.other.set_agents(&rare).await, "`set_agents` succeeds");
    let mut task = new_task("a");
    task.scope.agent = rare[0].clone();
    task.batch = parked();
    let head = create(&pair.one, task).await;
    append(&pair.one, &head, Seq(1), &remote()).await;
    expect_true(
        take_over(&pair.one, 10).await.is_empty(),
        "a task is not taken over by a replica without its agent if another one serves it",
    );
    expect_ok(
        pair.other.set_agents(&common).await,
        "`set_agents` succeeds",
    );
    expect_eq(
        take_over(&pair.one, 10).await.len(),
        1,
        "a task whose agent no live replica serves is taken over",
    );
}

async fn departure_releases_everything<S: Store>(pair: &Pair<S>) {
    let task = NewTask {
        config: Some(Box::new(registration("hook", "https://example.com"))),
        ..new_task("a")
    };
    create(&pair.other, task).await;
    expect_ok(pair.other.leave_cluster().await, "`leave_cluster` succeeds");
    let alone = beat(&pair.one).await;
    let is_seen = matches!(
        alone,
        Heartbeat::Member {
            replicas: 1,
            has_orphans: true,
            ..
        }
    );
    expect_true(is_seen, "the other replicas see a departure");
    expect_eq(
        take_over(&pair.one, 10).await.len(),
        1,
        "the tasks of a replica that has left are taken over",
    );
    expect_eq(
        take_over_webhooks(&pair.one).await.len(),
        1,
        "the webhooks of a replica that has left are taken over",
    );
}

async fn replicas_are_listed<S: Store>(pair: &Pair<S>) {
    let head = create(&pair.one, new_task("listed")).await;
    let listed = expect_ok(pair.one.list_replicas().await, "`list_replicas` succeeds");
    if listed.is_empty() {
        // The store does not list them.
        return;
    }
    let live: Vec<_> = listed.iter().filter(|one| one.removed.is_none()).collect();
    expect_eq(live.len(), 2, "live replicas are listed");
    let local: Vec<_> = live.iter().filter(|one| one.is_local).collect();
    expect_eq(local.len(), 1, "one replica of the list is the reader");
    expect_eq(
        local.first().map(|local| local.tasks),
        Some(u64::from(!head.state.is_terminal())),
        "held tasks are counted",
    );
}

async fn take_over_webhooks(store: &dyn Store) -> Vec<Webhook> {
    expect_ok(
        store.take_over_webhooks(10).await,
        "`take_over_webhooks` succeeds",
    )
}

async fn webhook(store: &dyn Store, head: &Head) -> Webhook {
    let id = PushConfigId::from("hook");
    let found = expect_ok(
        store.find_webhook(head, &id).await,
        "`find_webhook` succeeds",
    );
    found.expect("the webhook exists")
}

async fn record(store: &dyn Store, webhook: &Webhook) -> bool {
    expect_ok(
        store.record_delivery(webhook).await,
        "`record_delivery` succeeds",
    )
}

async fn webhooks_have_one_holder<S: Store>(pair: &Pair<S>) {
    let task = NewTask {
        config: Some(Box::new(registration("hook", "https://example.com"))),
        ..new_task("a")
    };
    let head = create(&pair.one, task).await;
    let created = webhook(&pair.one, &head).await;
    expect_eq(
        created.holder,
        Holder::Local,
        "the holder of a webhook finds itself",
    );
    expect_eq(
        webhook(&pair.other, &head).await.holder,
        Holder::Remote,
        "other replicas find a remote holder of the webhook",
    );
    expect_true(
        !record(&pair.other, &created).await,
        "`record_delivery` of a replica that does not hold the webhook is refused",
    );
    expect_true(
        record(&pair.one, &created).await,
        "`create` makes its replica the holder of the webhook",
    );
    expect_true(
        take_over_webhooks(&pair.other).await.is_empty(),
        "webhooks of a live replica are not taken over",
    );
    let config = registration("hook", "https://example.org");
    expect_ok(
        pair.other.put_config(&head, &config).await,
        "`put_config` succeeds",
    );
    let mut replaced = webhook(&pair.other, &head).await;
    expect_true(
        !record(&pair.one, &replaced).await && record(&pair.other, &replaced).await,
        "`put_config` makes its replica the holder of the webhook",
    );
    let counted = pair.one.count_open_webhooks(&head.scope.owner).await;
    expect_true(
        expect_ok(counted, "`count_open_webhooks` succeeds").is_none_or(|count| count == 1),
        "`count_open_webhooks` counts the webhooks of all replicas",
    );
    replaced.delivery.state = DeliveryState::Failed("refused".into());
    expect_true(
        record(&pair.other, &replaced).await,
        "the holder records the end of the deliveries",
    );
    expect_true(
        take_over_webhooks(&pair.one).await.is_empty(),
        "only active webhooks are taken over",
    );
    replaced.delivery.state = DeliveryState::Active;
    expect_true(
        record(&pair.one, &replaced).await && !record(&pair.other, &replaced).await,
        "`record_delivery` claims a webhook without a holder",
    );
}

async fn webhooks_of_an_evicted_replica_are_taken_over<S: Store>(pair: &Pair<S>) {
    let task = NewTask {
        config: Some(Box::new(registration("hook", "https://example.com"))),
        ..new_task("a")
    };
    let head = create(&pair.other, task).await;
    let mut held = webhook(&pair.other, &head).await;
    held.delivery.attempts = 3;
    expect_true(
        record(&pair.other, &held).await,
        "the holder records progress",
    );
    evict_other(pair).await;
    let taken = take_over_webhooks(&pair.one).await;
    expect_true(
        taken.iter().all(|taken| taken.holder == Holder::Local),
        "webhooks that were taken over name their new holder",
    );
    expect_eq(
        taken
            .iter()
            .map(|webhook| webhook.delivery.attempts)
            .collect(),
        vec![3],
        "the webhooks of an evicted replica are taken over with their progress",
    );
    expect_true(
        take_over_webhooks(&pair.one).await.is_empty(),
        "a webhook is taken over once",
    );
    expect_eq(
        beat(&pair.other).await,
        Heartbeat::Evicted,
        "`heartbeat` reports the eviction",
    );
    beat(&pair.other).await;
    expect_true(
        !record(&pair.other, &held).await && record(&pair.one, &held).await,
        "the former holder of a webhook is refused",
    );
    let active = pair
        .other
        .list_webhooks(WebhookFilter::Active, None, 10)
        .await;
    expect_eq(
        expect_ok(active, "`list_webhooks` succeeds").len(),
        1,
        "`list_webhooks` covers all replicas",
    );
}

async fn jobs_run_once_per_period<S: Store>(pair: &Pair<S>) {
    let claim = async |store: &S, job, period| {
        expect_ok(store.claim_job(job, period).await, "`claim_job` succeeds")
    };
    let hour = Duration::from_secs(3_600);
    let (one, other) = tokio::join!(
        claim(&pair.one, "sweep", hour),
        claim(&pair.other, "sweep", hour)
    );
    expect_true(one != other, "one replica runs a job that is due");
    expect_true(
        !claim(&pair.one, "sweep", hour).await && !claim(&pair.other, "sweep", hour).await,
        "a job does not run again within its period",
    );
    expect_true(
        claim(&pair.one, "size", Duration::ZERO).await,
        "jobs are independent",
    );
    expect_true(
        claim(&pair.other, "size", hour).await,
        "a job runs again after its period",
    );
}

async fn several_logs_are_read_at_once<S: Store>(pair: &Pair<S>) {
    let first = create(&pair.one, new_task("a")).await;
    let second = create(&pair.other, new_task("b")).await;
    append(&pair.other, &second, Seq(1), &work()).await;
    let removed = create(&pair.one, new_task("c")).await;
    expect_ok(
        pair.one.remove(std::slice::from_ref(&removed)).await,
        "`remove` succeeds",
    );
    let heads = [second, removed, first];
    let positions = expect_ok(pair.one.positions(&heads).await, "`positions` succeeds");
    expect_eq(
        positions,
        vec![Some(Seq(2)), None, Some(Seq(1))],
        "`positions` returns the ends of the logs in order",
    );
    let logs = expect_ok(
        pair.one.read_many(&heads, usize::MAX).await,
        "`read_many` succeeds",
    );
    expect_eq(
        logs.iter().map(Vec::len).collect(),
        vec![2, 0, 1],
        "`read_many` returns the logs in order",
    );
    let limited = expect_ok(pair.one.read_many(&heads, 1).await, "`read_many` succeeds");
    expect_true(
        limited.len() == 3 && limited[0].len() == 1 && limited[2].is_empty(),
        "`read_many` ends when it reaches its limit",
    );
}
