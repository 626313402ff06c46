//! Delivery over failing webhooks and crashing processes: every notification arrives, in order.

mod harness;
mod replicas;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::harness::{
    CapturedLog, Received, Reply, TestProcess, Webhooks, plain_http_policy, registration,
};
use super::PushSettings;
use super::bodies::NotificationBodies;
use crate::egress::EgressPolicy;
use crate::engine::tests::harness::{FaultyStore, ScriptedAgent, call};
use crate::model::{Caller, CallerKey, Seq, Timestamp, Version};
use crate::rt::{ByteBudget, OutgoingLimits};
use crate::store::{DeliveryState, IdempotencyKey, Memory, Store};

const URL: &str = "http://a.example/hook?x=1";
const HOST: &str = "a.example";
/// Produces two status updates and three artifact chunks.
const WORK: &str = "say write chunk chunk";

fn store() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

fn positions(received: &[Received]) -> Vec<u64> {
    received
        .iter()
        .map(|one| one.header("a2a-event-sequence").parse().unwrap())
        .collect()
}

/// Asserts that all five notifications of a task were processed once, in order.
fn assert_complete(received: &[Received]) {
    let kinds: Vec<_> = received
        .iter()
        .map(|one| one.body.as_object().unwrap().keys().next().unwrap())
        .collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    let positions = positions(received);
    assert!(
        positions.is_sorted_by(|one, other| one < other),
        "{positions:?}"
    );
    let ids: HashSet<_> = received
        .iter()
        .map(|one| one.header("a2a-event-id").to_owned())
        .collect();
    assert_eq!(ids.len(), received.len());
    let last = &received.last().unwrap().body["statusUpdate"]["status"]["state"];
    assert_eq!(last, "TASK_STATE_COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn r51_a_1_0_webhook_receives_what_a_stream_receives() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    let head = process.send(WORK, URL, Version::V1).await;
    let got = webhooks.wait_for_requests(HOST, 5).await;
    assert_complete(&got);
    for one in &got {
        assert_eq!(one.header("content-type"), "application/a2a+json");
        assert_eq!(one.header("a2a-version"), "1.0");
        assert_eq!(one.header("authorization"), "Bearer hunter2");
        assert_eq!(one.header("x-a2a-notification-token"), "t-1");
        assert_eq!(one.header("a2a-notification-token"), "t-1");
        assert!(one.header("content-length").parse::<usize>().unwrap() > 0);
    }
    assert_eq!(got[0].body["statusUpdate"]["taskId"], head.id.as_str());
    process.idle().await;
    assert_eq!(process.delivery_state(&head).await, DeliveryState::Finished);
}

#[tokio::test(start_paused = true)]
async fn r51_a_0_3_webhook_receives_the_task_on_every_state_change() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    let head = process.send(WORK, URL, Version::V03).await;
    process.idle().await;
    let got = webhooks.all();
    let states: Vec<_> = got
        .iter()
        .map(|one| {
            (
                one.body["status"]["state"].as_str().unwrap(),
                one.body["artifacts"].as_array().map_or(0, Vec::len),
            )
        })
        .collect();
    assert_eq!(
        states,
        [("working", 0), ("completed", 2)],
        "each is a snapshot of that time"
    );
    for one in &got {
        assert_eq!(
            (&one.body["kind"], &one.body["id"]),
            (&"task".into(), &head.id.as_str().into())
        );
        assert_eq!(one.header("content-type"), "application/json");
        assert_eq!(one.header("a2a-version"), "0.3");
    }
}

#[tokio::test(start_paused = true)]
async fn r28_a_webhook_that_was_down_for_an_hour_receives_everything_in_order() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.set_default_reply(HOST, Some(Reply::Status(500)));
    let head = process.send(WORK, URL, Version::V1).await;
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    let attempts = webhooks.all();
    assert!(
        (15..=20).contains(&attempts.len()),
        "{} attempts in an hour",
        attempts.len()
    );
    assert!(
        attempts
            .iter()
            .all(|one| one.header("a2a-event-id") == attempts[0].header("a2a-event-id"))
    );
    webhooks.set_default_reply(HOST, None);
    process.idle().await;
    assert_complete(&webhooks.processed(HOST));
    assert_eq!(process.delivery_state(&head).await, DeliveryState::Finished);
}

#[tokio::test(start_paused = true)]
async fn r28_a_webhook_fails_after_a_day_and_can_be_retried() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.set_default_reply(HOST, Some(Reply::Refuse));
    let head = process.send(WORK, URL, Version::V1).await;
    let began = Instant::now();
    process.idle().await;
    let hours = began.elapsed().as_secs() / 3600;
    assert!((24..27).contains(&hours), "{hours} hours");
    let dead_letters = process.push.dead_letters();
    let failed = dead_letters.failed_webhooks(None, 10).await.unwrap();
    let [one] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (&one.task, &*one.origin, one.delivered),
        (&head.id, "http://a.example", Seq(3))
    );
    assert_eq!(
        dead_letters
            .undelivered(one.number, 100)
            .await
            .unwrap()
            .len(),
        5
    );
    assert_eq!(
        dead_letters.undelivered(one.number, 2).await.unwrap().len(),
        2
    );
    assert!(dead_letters.retry(one.number + 1).await.is_err());
    webhooks.set_default_reply(HOST, None);
    let undelivered = dead_letters.undelivered(one.number, 100).await.unwrap();
    dead_letters.retry(one.number).await.unwrap();
    process.idle().await;
    let taken = webhooks.processed(HOST);
    assert_complete(&taken);
    let ids: Vec<_> = taken.iter().map(|one| one.header("a2a-event-id")).collect();
    assert_eq!(
        ids,
        undelivered
            .iter()
            .map(|notification| notification.event_id.as_str())
            .collect::<Vec<_>>()
    );
    assert_eq!(dead_letters.failed_webhooks(None, 10).await.unwrap(), []);
}

/// A body that the byte budget does not allow delays its webhook alone, and is no failed attempt.
#[tokio::test(start_paused = true)]
async fn d04_an_exhausted_budget_postpones_a_notification() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let budget = ByteBudget::new(OutgoingLimits {
        total: 1 << 20,
        per_caller: 1 << 20,
        timeout: Duration::from_secs(30),
    });
    let settings = PushSettings {
        egress: plain_http_policy(),
        max_deliveries_per_host: 1,
        ..PushSettings::default()
    };
    let bodies = NotificationBodies::new(Some(budget.clone()));
    let process = TestProcess::start_with_bodies(&store, &webhooks, &agent, settings, bodies);
    let owner = CallerKey::Caller(call().scope.owner.clone());
    let unread = budget.try_reserve(&owner, 1 << 20).unwrap();
    // Its task counts against the budget.
    let large = process
        .send("say say say say say say say say write", URL, Version::V03)
        .await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let small = process.send(WORK, URL, Version::V1).await;
    // The first notification of the other task has little content.
    let mut got = webhooks.wait_for_requests(HOST, 6).await;
    got.retain(|one| one.header("a2a-version") == "1.0");
    assert_complete(&got);
    assert_eq!(
        process.delivery_state(&small).await,
        DeliveryState::Finished
    );
    tokio::time::sleep(Duration::from_secs(48 * 60 * 60)).await;
    assert_eq!(process.delivery_state(&large).await, DeliveryState::Active);
    assert_eq!(webhooks.all().len(), 6);
    drop(unread);
    process.idle().await;
    assert_eq!(
        process.delivery_state(&large).await,
        DeliveryState::Finished
    );
    assert_eq!(budget.reserved_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn r29_temporary_failures_are_retried() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    let replies = [
        Reply::RetryAfter(429, "120"),
        Reply::Status(503),
        Reply::Hang,
        Reply::Refuse,
        Reply::Status(408),
    ];
    webhooks.queue_replies(HOST, &replies);
    process.send(WORK, URL, Version::V1).await;
    process.idle().await;
    assert_complete(&webhooks.processed(HOST));
    let got = webhooks.all();
    let waited: Vec<_> = got
        .windows(2)
        .take(5)
        .map(|pair| (pair[1].at - pair[0].at).as_secs())
        .collect();
    assert_eq!(waited[0], 120, "as `Retry-After` says");
    assert!((2..=3).contains(&waited[1]), "{waited:?}");
    assert!(
        (15 + 4..=15 + 5).contains(&waited[2]),
        "timeout plus backoff: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn r29_permanent_failures_are_not_retried() {
    for status in [410, 401, 403, 404, 301, 302, 307, 308] {
        let store = store();
        let webhooks = Webhooks::default();
        let agent = ScriptedAgent::default();
        let process = TestProcess::start(&store, &webhooks, &agent);
        webhooks.queue_replies(HOST, &[Reply::Status(204), Reply::Status(status)]);
        let head = process.send(WORK, URL, Version::V1).await;
        process.idle().await;
        assert_eq!(webhooks.all().len(), 2, "{status}");
        let DeliveryState::Failed(reason) = process.delivery_state(&head).await else {
            panic!("{status}")
        };
        assert!(reason.contains(&status.to_string()), "{reason}");
        // Registered again, it continues after the last delivered notification.
        process
            .engine
            .put_config(&head, &registration(URL, Version::V1))
            .await
            .unwrap();
        process.push.start_delivery(&head, &"hook".into());
        process.idle().await;
        let taken = webhooks.processed(HOST);
        assert_complete(&taken);
    }
}

#[tokio::test(start_paused = true)]
async fn r13_a_stored_end_without_notification_is_waited_for() {
    let store = Arc::new(FaultyStore::default());
    store.delay_acknowledgements();
    let store: Arc<dyn Store> = store;
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    let key = IdempotencyKey {
        text: "once".to_owned(),
        body: [0; 32],
        oldest_valid: Timestamp::default(),
    };
    let head = process.send_with(Some(key), WORK, URL, Version::V1).await;
    process.idle().await;
    assert_complete(&webhooks.processed(HOST));
    assert_eq!(process.delivery_state(&head).await, DeliveryState::Finished);
}

#[tokio::test(start_paused = true)]
async fn r30_a_lost_response_repeats_the_event_with_its_id() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.queue_replies(HOST, &[Reply::Status(204), Reply::Hang]);
    process.send(WORK, URL, Version::V1).await;
    process.idle().await;
    let got = webhooks.all();
    assert_eq!(got.len(), 6);
    for name in ["a2a-event-id", "a2a-event-sequence"] {
        assert_eq!(got[1].header(name), got[2].header(name));
    }
    assert_eq!(got[1].body, got[2].body);
    assert_complete(&webhooks.processed(HOST));
}

/// Crashes at every request, and between any two.
#[tokio::test(start_paused = true)]
async fn r13_a_crash_at_any_request_loses_nothing() {
    for version in [Version::V1, Version::V03] {
        for stop_after in 0..6 {
            for reply in [
                Reply::Status(204),
                Reply::Hang,
                Reply::Status(500),
                Reply::Refuse,
            ] {
                let store = store();
                let webhooks = Webhooks::default();
                let agent = ScriptedAgent::default();
                let process = TestProcess::start(&store, &webhooks, &agent);
                webhooks.queue_replies(HOST, &vec![Reply::Status(204); stop_after]);
                webhooks.set_default_reply(HOST, Some(reply));
                process.send(WORK, URL, version).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
                process.kill().await;
                webhooks.set_default_reply(HOST, None);
                let process = TestProcess::start(&store, &webhooks, &agent);
                tokio::time::sleep(Duration::from_secs(1)).await;
                process.idle().await;
                let taken = webhooks.processed(HOST);
                if version == Version::V1 {
                    assert_complete(&taken);
                } else {
                    assert_eq!(taken.last().unwrap().body["status"]["state"], "completed");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r13_a_task_that_ends_without_a_dispatcher_is_delivered_later() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    webhooks.set_default_reply(HOST, Some(Reply::Status(503)));
    let process = TestProcess::start(&store, &webhooks, &agent);
    let head = process
        .send("gate say write chunk chunk", URL, Version::V1)
        .await;
    process.kill().await;
    // The engine of the test keeps running: the task ends while no dispatcher runs.
    agent.gate.add_permits(1);
    while !store
        .find(&head.scope, &head.id)
        .await
        .unwrap()
        .unwrap()
        .state
        .is_terminal()
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    webhooks.set_default_reply(HOST, None);
    let process = TestProcess::start(&store, &webhooks, &agent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    process.idle().await;
    // The first status was delivered before the gate.
    assert_complete(&webhooks.processed(HOST)[1..]);
}

#[tokio::test(start_paused = true)]
async fn r31_a_deleted_webhook_or_task_is_not_called_and_logged() {
    for remove_task in [false, true] {
        let log = CapturedLog::default();
        let _guard = tracing::subscriber::set_default(log.subscriber());
        let store = store();
        let webhooks = Webhooks::default();
        let agent = ScriptedAgent::default();
        let process = TestProcess::start(&store, &webhooks, &agent);
        webhooks.set_default_reply(HOST, Some(Reply::Status(500)));
        let head = process.send(WORK, URL, Version::V1).await;
        webhooks.wait_for_requests(HOST, 2).await;
        if remove_task {
            store.remove(std::slice::from_ref(&head)).await.unwrap();
        } else {
            process
                .engine
                .delete_config(&head, &"hook".into())
                .await
                .unwrap();
            process.push.stop_delivery(&head.id, &"hook".into());
        }
        let before = webhooks.all().len();
        process.idle().await;
        tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
        // A deleted task is noticed at the next attempt at the latest.
        assert!(
            webhooks.all().len() <= before + usize::from(remove_task),
            "{remove_task}"
        );
        assert_eq!(
            log.text().matches("pending notifications dropped").count(),
            1,
            "{}",
            log.text()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r28_a_dead_webhook_does_not_delay_others() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.set_default_reply("dead.example", Some(Reply::Hang));
    for _ in 0..40 {
        process
            .send(WORK, "http://dead.example/", Version::V1)
            .await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(webhooks.all().len(), 8, "max_deliveries_per_host");
    let began = Instant::now();
    process.send(WORK, URL, Version::V1).await;
    webhooks.wait_for_requests(HOST, 5).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_complete(&webhooks.processed(HOST));
}

#[tokio::test(start_paused = true)]
async fn more_webhooks_than_workers_take_turns() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let settings = PushSettings {
        egress: plain_http_policy(),
        max_webhooks: 2,
        ..PushSettings::default()
    };
    let process = TestProcess::start_with(&store, &webhooks, &agent, settings);
    // Two webhooks of tasks that wait for input hold both worker permits.
    for host in ["p", "q"] {
        process
            .send("ask", &format!("http://{host}.example/"), Version::V1)
            .await;
    }
    for host in ["r", "s", "t"] {
        process
            .send(WORK, &format!("http://{host}.example/"), Version::V1)
            .await;
    }
    for host in ["r", "s", "t"] {
        let host = format!("{host}.example");
        webhooks.wait_for_requests(&host, 5).await;
        assert_complete(&webhooks.processed(&host));
    }
}

#[tokio::test(start_paused = true)]
async fn s23_a_webhook_that_the_policy_forbids_now_fails() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    webhooks.set_default_reply("inside.example", Some(Reply::Status(503)));
    let allow = vec!["inside.example".parse().unwrap()];
    let egress = EgressPolicy {
        allow,
        ..EgressPolicy::default()
    };
    let settings = PushSettings {
        egress,
        ..PushSettings::default()
    };
    let process = TestProcess::start_with(&store, &webhooks, &agent, settings);
    assert!(
        process
            .push
            .check_url(
                CallerKey::Caller(Caller::anonymous()),
                "http://inside.example/",
                "url"
            )
            .await
            .is_ok()
    );
    process.kill().await;
    let process = TestProcess::start(&store, &webhooks, &agent);
    let error = process
        .push
        .check_url(
            CallerKey::Caller(Caller::anonymous()),
            "http://inside.example/",
            "url",
        )
        .await
        .unwrap_err();
    assert!(error.message().contains("public address"), "{error}");
    let head = process
        .send(WORK, "http://inside.example/", Version::V1)
        .await;
    process.idle().await;
    assert_eq!(webhooks.all().len(), 0);
    let DeliveryState::Failed(reason) = process.delivery_state(&head).await else {
        panic!("the webhook must fail")
    };
    assert_eq!(reason, "url must lead to a public address");
}

#[tokio::test(start_paused = true)]
async fn d18_r48_webhooks_end_when_all_keys_of_their_caller_are_revoked() {
    let store = store();
    let webhooks = Webhooks::default();
    let agent = ScriptedAgent::default();
    let process = TestProcess::start(&store, &webhooks, &agent);
    let revoked: Arc<std::sync::Mutex<Vec<Caller>>> = Arc::default();
    let list = revoked.clone();
    process
        .push
        .set_revocation_check(move |caller| crate::rt::lock(&list).contains(caller));
    // The first attempts fail, so that the key is revoked between two attempts.
    webhooks.set_default_reply(HOST, Some(Reply::Status(500)));
    let head = process.send(WORK, URL, Version::V1).await;
    webhooks.wait_for_requests(HOST, 2).await;
    assert_eq!(process.delivery_state(&head).await, DeliveryState::Active);
    crate::rt::lock(&revoked).push(head.scope.owner.clone());
    let before = webhooks.all().len();
    webhooks.set_default_reply(HOST, None);
    process.idle().await;
    let DeliveryState::Failed(reason) = process.delivery_state(&head).await else {
        panic!("the webhook goes on");
    };
    assert!(reason.contains("revoked"), "{reason}");
    assert_eq!(webhooks.all().len(), before);
    // A caller with a key has webhooks.
    crate::rt::lock(&revoked).clear();
    process.send(WORK, URL, Version::V1).await;
    process.idle().await;
    assert_eq!(webhooks.all().len(), before + 5);
    // A restart does not resume the one that has ended.
    process.kill().await;
    let process = TestProcess::start(&store, &webhooks, &agent);
    process.idle().await;
    assert_eq!(webhooks.all().len(), before + 5);
}
