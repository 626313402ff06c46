//! Webhooks and delivery progress.

use super::{create, expect_eq, expect_ok, expect_true, new_task, registration, scope, timestamp};
use crate::model::Seq;
use crate::store::{
    DeliveryProgress, DeliveryState, Head, NewTask, PushRegistration, Store, Webhook, WebhookFilter,
};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    lists_configs_in_registration_order(&make().await).await;
    starts_delivery_at_registration(&make().await).await;
    records_delivery_progress(&make().await).await;
    replacing_a_webhook_keeps_its_position(&make().await).await;
    deleting_a_webhook_ends_its_delivery(&make().await).await;
    lists_webhooks_by_delivery_state(&make().await).await;
}

pub(super) async fn configs(store: &dyn Store, head: &Head) -> Vec<PushRegistration> {
    expect_ok(store.list_configs(head).await, "`list_configs` succeeds")
}

async fn lists_configs_in_registration_order(store: &dyn Store) {
    let first = registration("z", "https://example.org/1");
    let head = create(
        store,
        NewTask {
            config: Some(Box::new(first.clone())),
            ..new_task("t")
        },
    )
    .await;
    let other = create(store, new_task("u")).await;
    expect_eq(
        configs(store, &head).await,
        vec![first.clone()],
        "`create` registers the webhook of the task",
    );
    let second = registration("y", "https://example.org/2");
    let third = registration("x", "https://example.org/3");
    for config in [&second, &third] {
        expect_ok(
            store.put_config(&head, config).await,
            "`put_config` succeeds",
        );
    }
    expect_eq(
        configs(store, &head).await,
        vec![first, second.clone(), third.clone()],
        "`list_configs` orders by first registration",
    );
    let changed = registration("z", "https://example.org/4");
    expect_ok(
        store.put_config(&head, &changed).await,
        "`put_config` succeeds",
    );
    let expected = vec![changed.clone(), second, third.clone()];
    expect_eq(
        configs(store, &head).await,
        expected,
        "a replaced webhook keeps its place in the order",
    );
    for id in ["y", "y", "none"] {
        let deleted = store.delete_config(&head, &id.into()).await;
        expect_ok(deleted, "`delete_config` of an absent webhook succeeds");
    }
    expect_eq(
        configs(store, &head).await,
        vec![changed, third],
        "`delete_config` deletes one webhook",
    );
    expect_eq(
        configs(store, &other).await,
        Vec::new(),
        "a webhook belongs to one task",
    );
    expect_ok(
        store.delete_config(&other, &"z".into()).await,
        "`delete_config` of an absent webhook succeeds",
    );
    expect_eq(
        configs(store, &head).await.len(),
        2,
        "`delete_config` affects its own task only",
    );
}

async fn find_webhook(store: &dyn Store, head: &Head, id: &str) -> Option<Webhook> {
    expect_ok(
        store.find_webhook(head, &id.into()).await,
        "`find_webhook` succeeds",
    )
}

async fn record_delivery(store: &dyn Store, webhook: &Webhook) -> bool {
    expect_ok(
        store.record_delivery(webhook).await,
        "`record_delivery` succeeds for a current webhook",
    )
}

/// Creates a task with the webhook `first`.
async fn create_with_webhook(store: &dyn Store) -> Head {
    let config = Some(Box::new(registration("first", "https://example.org/1")));
    let task = NewTask {
        config,
        ..new_task("t")
    };
    create(store, task).await
}

/// Records a failed delivery for the webhook `first` and returns it with that progress.
async fn fail_delivery(store: &dyn Store, head: &Head) -> Webhook {
    let Some(mut webhook) = find_webhook(store, head, "first").await else {
        panic!("rule broken: `find_webhook` returns a webhook that was created with its task")
    };
    webhook.delivery = DeliveryProgress {
        position: Seq(7),
        attempts: 3,
        due: timestamp(9_000),
        state: DeliveryState::Failed("status 410".to_owned()),
    };
    expect_true(
        record_delivery(store, &webhook).await,
        "`record_delivery` succeeds for a current webhook",
    );
    webhook
}

async fn starts_delivery_at_registration(store: &dyn Store) {
    let first = registration("first", "https://example.org/1");
    let later = registration("later", "https://example.org/2");
    let head = create_with_webhook(store).await;
    expect_ok(
        store.put_config(&head, &later).await,
        "`put_config` succeeds",
    );
    let found = find_webhook(store, &head, "first").await;
    let found = found.unwrap_or_else(|| {
        panic!("rule broken: `find_webhook` returns a webhook that was created with its task")
    });
    expect_eq(
        &found.registration,
        &first,
        "`find_webhook` returns the registration unchanged",
    );
    expect_eq(
        &found.delivery,
        &DeliveryProgress::default(),
        "a webhook that was created with its task starts at the first entry",
    );
    let position = find_webhook(store, &head, "later")
        .await
        .map(|webhook| webhook.delivery.position);
    expect_eq(
        position,
        Some(Seq(1)),
        "a webhook that was registered later starts after the last entry",
    );
    expect_eq(
        find_webhook(store, &head, "none").await,
        None,
        "`find_webhook` returns nothing for an unknown id",
    );
    let stranger = Head {
        scope: scope("bob"),
        ..head.clone()
    };
    expect_eq(
        find_webhook(store, &stranger, "first").await,
        None,
        "`find_webhook` returns nothing for a task of another scope",
    );
}

async fn records_delivery_progress(store: &dyn Store) {
    let head = create_with_webhook(store).await;
    let failed = fail_delivery(store, &head).await;
    expect_eq(
        find_webhook(store, &head, "first").await,
        Some(failed),
        "`find_webhook` returns the recorded progress",
    );
}

async fn replacing_a_webhook_keeps_its_position(store: &dyn Store) {
    let head = create_with_webhook(store).await;
    let failed = fail_delivery(store, &head).await;
    expect_ok(
        store.put_config(&head, &failed.registration).await,
        "`put_config` replaces a webhook",
    );
    expect_true(
        !record_delivery(store, &failed).await,
        "`record_delivery` for an older generation returns `false`",
    );
    let replaced = find_webhook(store, &head, "first").await;
    let expected = DeliveryProgress {
        position: Seq(7),
        ..DeliveryProgress::default()
    };
    expect_eq(
        replaced.map(|webhook| webhook.delivery),
        Some(expected),
        "a replaced webhook keeps its position and is active again",
    );
}

async fn deleting_a_webhook_ends_its_delivery(store: &dyn Store) {
    let head = create_with_webhook(store).await;
    let failed = fail_delivery(store, &head).await;
    expect_ok(
        store.delete_config(&head, &"first".into()).await,
        "`delete_config` succeeds",
    );
    expect_true(
        !record_delivery(store, &failed).await,
        "`record_delivery` for a deleted webhook returns `false`",
    );
    expect_eq(
        find_webhook(store, &head, "first").await,
        None,
        "`find_webhook` returns nothing for a deleted webhook",
    );
    let config = registration("first", "https://example.org/again");
    expect_ok(
        store.put_config(&head, &config).await,
        "`put_config` succeeds",
    );
    expect_true(
        !record_delivery(store, &failed).await,
        "`record_delivery` for a deleted webhook does not affect a new one with its id",
    );
}

async fn lists_webhooks_by_delivery_state(store: &dyn Store) {
    let listed = async |filter, after, limit| {
        let webhooks = expect_ok(
            store.list_webhooks(filter, after, limit).await,
            "`list_webhooks` succeeds",
        );
        webhooks
            .into_iter()
            .map(|webhook| (webhook.task.id.to_string(), webhook.number))
            .collect::<Vec<_>>()
    };
    let mut heads = Vec::new();
    for (owner, id) in [("ann", "t0"), ("bob", "t1"), ("ann", "t2"), ("bob", "t3")] {
        let config = Some(Box::new(registration("hook", "https://example.org")));
        heads.push(
            create(
                store,
                NewTask {
                    scope: scope(owner),
                    config,
                    ..new_task(id)
                },
            )
            .await,
        );
    }
    let active = listed(WebhookFilter::Active, None, 10).await;
    let ids: Vec<_> = active.iter().map(|(id, _)| id.as_str()).collect();
    expect_eq(
        ids,
        vec!["t0", "t1", "t2", "t3"],
        "`list_webhooks` covers every scope, ordered by number",
    );
    let next = listed(WebhookFilter::Active, Some(active[0].1), 2).await;
    expect_eq(
        next,
        active[1..3].to_vec(),
        "`list_webhooks` continues after a number",
    );
    for (head, state) in heads.iter().zip([
        DeliveryState::Finished,
        DeliveryState::Failed("gone".to_owned()),
        DeliveryState::Failed("lost".to_owned()),
    ]) {
        let Some(mut webhook) = find_webhook(store, head, "hook").await else {
            panic!("rule broken: `find_webhook` returns an existing webhook")
        };
        webhook.delivery.state = state;
        expect_true(
            record_delivery(store, &webhook).await,
            "`record_delivery` records the delivery state",
        );
    }
    expect_eq(
        listed(WebhookFilter::Active, None, 10).await,
        active[3..].to_vec(),
        "finished and failed webhooks are not active",
    );
    expect_eq(
        listed(WebhookFilter::Failed, None, 10).await,
        active[1..3].to_vec(),
        "`list_webhooks` returns failed webhooks",
    );
    expect_ok(store.remove(&heads[1..2]).await, "`remove` succeeds");
    expect_eq(
        listed(WebhookFilter::Failed, None, 10).await,
        active[2..3].to_vec(),
        "`remove` removes the webhooks",
    );
}
