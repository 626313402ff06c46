//! Delivery by several replicas: one sender per webhook, taken over with its progress (R28 to R31).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::harness::{Reply, TestProcess, Webhooks, registration};
use super::*;
use crate::store::{Holder, MemoryReplica};

const LEASE: Duration = Duration::from_secs(3);

/// Time after which a silent replica is evicted and its webhooks are taken over.
const TAKEOVER: Duration = Duration::from_secs(6);

/// A replica with its dispatcher.
struct Replica {
    process: TestProcess,
    heartbeats: CancellationToken,
}

impl Replica {
    async fn join(store: MemoryReplica, webhooks: &Webhooks) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        let agent = ScriptedAgent::default();
        let process = TestProcess::start(&store, webhooks, &agent);
        let heartbeats = process.join_cluster().await;
        Self {
            process,
            heartbeats,
        }
    }

    async fn pair(webhooks: &Webhooks) -> (Self, Self) {
        let store = Memory::shared(LEASE, Timestamp::from_millis(1_000).unwrap());
        let other = store.replica();
        (
            Self::join(store, webhooks).await,
            Self::join(other, webhooks).await,
        )
    }

    async fn webhook_holder(&self, head: &crate::store::Head) -> Holder {
        let found = self.process.engine.find_webhook(head, &"hook".into()).await;
        found.unwrap().unwrap().holder
    }
}

#[tokio::test(start_paused = true)]
async fn r30_one_replica_delivers_each_notification() {
    let webhooks = Webhooks::default();
    let (one, other) = Replica::pair(&webhooks).await;
    let head = one.process.send(WORK, URL, Version::V1).await;
    assert_eq!(one.webhook_holder(&head).await, Holder::Local);
    assert_eq!(other.webhook_holder(&head).await, Holder::Remote);
    sleep(Duration::from_secs(300)).await;
    assert_complete(&webhooks.all());
    let state = other.process.delivery_state(&head).await;
    assert_eq!(state, DeliveryState::Finished);
}

#[tokio::test(start_paused = true)]
async fn r28_webhooks_of_a_killed_replica_are_taken_over_with_their_progress() {
    let webhooks = Webhooks::default();
    let (killed, other) = Replica::pair(&webhooks).await;
    // Two notifications arrive, the third is refused.
    webhooks.queue_replies(HOST, &[Reply::Status(204), Reply::Status(204)]);
    webhooks.set_default_reply(HOST, Some(Reply::Status(503)));
    let head = killed.process.send(WORK, URL, Version::V1).await;
    let before = webhooks.wait_for_requests(HOST, 3).await;
    killed.process.kill().await;
    webhooks.set_default_reply(HOST, None);
    sleep(TAKEOVER).await;
    other.process.idle().await;
    assert_complete(&webhooks.processed(HOST));
    let all = webhooks.all();
    let repeated = &all[before.len()];
    assert_eq!(
        repeated.header("a2a-event-id"),
        before[2].header("a2a-event-id"),
        "the repeated notification has the same id"
    );
    let state = other.process.delivery_state(&head).await;
    assert_eq!(state, DeliveryState::Finished);
}

#[tokio::test(start_paused = true)]
async fn r31_a_replica_without_a_lease_sends_nothing_and_stops_after_a_takeover() {
    let webhooks = Webhooks::default();
    let (silent, other) = Replica::pair(&webhooks).await;
    webhooks.set_default_reply(HOST, Some(Reply::Status(503)));
    let head = silent.process.send(WORK, URL, Version::V1).await;
    webhooks.wait_for_requests(HOST, 1).await;
    silent.heartbeats.cancel();
    sleep(TAKEOVER).await;
    webhooks.set_default_reply(HOST, None);
    other.process.idle().await;
    assert_complete(&webhooks.processed(HOST));
    // It joins under a new id, and its worker finds the new holder.
    silent.process.join_cluster().await;
    silent.process.idle().await;
    let state = silent.process.delivery_state(&head).await;
    assert_eq!(state, DeliveryState::Finished);
    let delivered = webhooks.all();
    let delivered = delivered.iter().filter(|one| one.is_processed);
    assert_eq!(delivered.count(), 5, "no notification is repeated");
}

#[tokio::test(start_paused = true)]
async fn r29_a_webhook_deleted_or_replaced_on_another_replica_is_not_called_again() {
    let webhooks = Webhooks::default();
    let (holder, other) = Replica::pair(&webhooks).await;
    webhooks.set_default_reply(HOST, Some(Reply::Status(503)));
    let deleted = holder.process.send(WORK, URL, Version::V1).await;
    let replaced = holder.process.send(WORK, URL, Version::V1).await;
    webhooks.wait_for_requests(HOST, 2).await;
    let engine = &other.process.engine;
    engine
        .delete_config(&deleted, &"hook".into())
        .await
        .unwrap();
    let elsewhere = registration("http://b.example/hook", Version::V1);
    engine.put_config(&replaced, &elsewhere).await.unwrap();
    other.process.push.start_delivery(&replaced, &"hook".into());
    let before = webhooks.all().iter().filter(|one| one.host == HOST).count();
    other.process.idle().await;
    holder.process.idle().await;
    let after = webhooks.all().iter().filter(|one| one.host == HOST).count();
    assert_eq!(after, before);
    assert_complete(&webhooks.processed("b.example"));
}

#[tokio::test(start_paused = true)]
async fn s26_webhooks_of_a_caller_are_counted_on_all_replicas() {
    let webhooks = Webhooks::default();
    let (one, other) = Replica::pair(&webhooks).await;
    webhooks.set_default_reply(HOST, Some(Reply::Status(503)));
    let task = one.process.send(WORK, URL, Version::V1).await;
    let caller = task.scope.owner.clone();
    let counted = other.process.engine.count_open_webhooks(&caller).await;
    assert_eq!(counted.unwrap(), Some(1));
}
