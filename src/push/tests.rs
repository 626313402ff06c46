//! Webhooks that fail in every way, and processes that end in the middle of it: everything arrives, in order.

mod harness;

use std::collections::HashSet;

use tokio::time::Instant;

use self::harness::{Log, Received, Reply, TestProcess, Webhooks, open, registered};
use super::*;
use crate::egress::EgressPolicy;
use crate::engine::tests::harness::{FaultyStore, ScriptedAgent};
use crate::model::{Seq, Version};
use crate::store::{DeliveryState, IdempotencyKey, Memory, Store};

const URL: &str = "http://a.example/hook?x=1";
const HOST: &str = "a.example";
/// Two statuses and three pieces of artifacts.
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

/// Everything that is told of a task was taken once, and in order.
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
async fn r51_a_webhook_of_1_0_gets_what_a_stream_gets() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    let process = TestProcess::start(&store, &webhooks, &agent);
    let head = process.send(WORK, URL, Version::V1).await;
    let got = webhooks.got(HOST, 5).await;
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
async fn r51_a_webhook_of_0_3_gets_the_task_whenever_its_state_changes() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
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
        "each as the task was then"
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
async fn r28_a_webhook_that_was_down_for_an_hour_gets_everything_in_order() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.always(HOST, Some(Reply::Status(500)));
    let head = process.send(WORK, URL, Version::V1).await;
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    let tried = webhooks.all();
    assert!(
        (15..=20).contains(&tried.len()),
        "{} attempts in an hour",
        tried.len()
    );
    assert!(
        tried
            .iter()
            .all(|one| one.header("a2a-event-id") == tried[0].header("a2a-event-id"))
    );
    webhooks.always(HOST, None);
    process.idle().await;
    assert_complete(&webhooks.taken(HOST));
    assert_eq!(process.delivery_state(&head).await, DeliveryState::Finished);
}

#[tokio::test(start_paused = true)]
async fn r28_after_a_day_it_is_given_up_and_can_be_tried_again() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.always(HOST, Some(Reply::Refuse));
    let (head, began) = (process.send(WORK, URL, Version::V1).await, Instant::now());
    process.idle().await;
    let hours = began.elapsed().as_secs() / 3600;
    assert!((24..27).contains(&hours), "{hours} hours");
    let dead_letters = process.push.dead_letters();
    let stopped = dead_letters.failed_webhooks(None, 10).await.unwrap();
    let [one] = &stopped[..] else {
        panic!("{stopped:?}")
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
    webhooks.always(HOST, None);
    let undelivered = dead_letters.undelivered(one.number, 100).await.unwrap();
    dead_letters.retry(one.number).await.unwrap();
    process.idle().await;
    let taken = webhooks.taken(HOST);
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

#[tokio::test(start_paused = true)]
async fn r29_answers_that_pass_are_waited_out() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    let process = TestProcess::start(&store, &webhooks, &agent);
    let replies = [
        Reply::RetryAfter(429, "120"),
        Reply::Status(503),
        Reply::Hang,
        Reply::Refuse,
        Reply::Status(408),
    ];
    webhooks.next(HOST, &replies);
    process.send(WORK, URL, Version::V1).await;
    process.idle().await;
    assert_complete(&webhooks.taken(HOST));
    let got = webhooks.all();
    let waited: Vec<_> = got
        .windows(2)
        .take(5)
        .map(|pair| (pair[1].at - pair[0].at).as_secs())
        .collect();
    assert_eq!(waited[0], 120, "as it asked");
    assert!((2..=3).contains(&waited[1]), "{waited:?}");
    assert!(
        (15 + 4..=15 + 5).contains(&waited[2]),
        "as long as it hung, and then: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn r29_answers_that_do_not_pass_end_it() {
    for status in [410, 401, 403, 404, 301, 302, 307, 308] {
        let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
        let process = TestProcess::start(&store, &webhooks, &agent);
        webhooks.next(HOST, &[Reply::Status(204), Reply::Status(status)]);
        let head = process.send(WORK, URL, Version::V1).await;
        process.idle().await;
        assert_eq!(webhooks.all().len(), 2, "{status}");
        let DeliveryState::Failed(why) = process.delivery_state(&head).await else {
            panic!("{status}")
        };
        assert!(why.contains(&status.to_string()), "{why}");
        // Registered anew, it goes on behind what it has.
        process
            .engine
            .put_config(&head, &registered(URL, Version::V1))
            .await
            .unwrap();
        process.push.start_delivery(&head, &"hook".into());
        process.idle().await;
        let taken = webhooks.taken(HOST);
        assert_complete(&taken);
    }
}

#[tokio::test(start_paused = true)]
async fn r13_an_end_that_is_stored_and_not_yet_seen_is_waited_for() {
    let store = Arc::new(FaultyStore::default());
    store.delay_acknowledgements();
    let (store, webhooks, agent): (Arc<dyn Store>, _, _) =
        (store, Webhooks::default(), ScriptedAgent::default());
    let process = TestProcess::start(&store, &webhooks, &agent);
    let key = IdempotencyKey {
        text: "once".to_owned(),
        body: [0; 32],
    };
    let head = process.send_with(Some(key), WORK, URL, Version::V1).await;
    process.idle().await;
    assert_complete(&webhooks.taken(HOST));
    assert_eq!(process.delivery_state(&head).await, DeliveryState::Finished);
}

#[tokio::test(start_paused = true)]
async fn r30_a_lost_answer_repeats_the_event_under_its_id() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.next(HOST, &[Reply::Status(204), Reply::Hang]);
    process.send(WORK, URL, Version::V1).await;
    process.idle().await;
    let got = webhooks.all();
    assert_eq!(got.len(), 6);
    for name in ["a2a-event-id", "a2a-event-sequence"] {
        assert_eq!(got[1].header(name), got[2].header(name));
    }
    assert_eq!(got[1].body, got[2].body);
    assert_complete(&webhooks.taken(HOST));
}

/// At every request, and between any two.
#[tokio::test(start_paused = true)]
async fn r13_a_process_that_ends_in_the_middle_loses_nothing() {
    for version in [Version::V1, Version::V03] {
        for stop_after in 0..6 {
            for reply in [
                Reply::Status(204),
                Reply::Hang,
                Reply::Status(500),
                Reply::Refuse,
            ] {
                let (store, webhooks, agent) =
                    (store(), Webhooks::default(), ScriptedAgent::default());
                let process = TestProcess::start(&store, &webhooks, &agent);
                webhooks.next(HOST, &vec![Reply::Status(204); stop_after]);
                webhooks.always(HOST, Some(reply));
                process.send(WORK, URL, version).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
                process.kill().await;
                webhooks.always(HOST, None);
                let process = TestProcess::start(&store, &webhooks, &agent);
                tokio::time::sleep(Duration::from_secs(1)).await;
                process.idle().await;
                let taken = webhooks.taken(HOST);
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
async fn r13_what_ends_while_nobody_runs_is_delivered_later() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    webhooks.always(HOST, Some(Reply::Status(503)));
    let process = TestProcess::start(&store, &webhooks, &agent);
    let head = process
        .send("gate say write chunk chunk", URL, Version::V1)
        .await;
    process.kill().await;
    // The engine of the test goes on: the task ends with nobody who delivers.
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
    webhooks.always(HOST, None);
    let process = TestProcess::start(&store, &webhooks, &agent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    process.idle().await;
    // That it works was said before it waited.
    assert_complete(&webhooks.taken(HOST)[1..]);
}

#[tokio::test(start_paused = true)]
async fn r31_what_was_removed_is_not_called_and_the_log_says_so() {
    for remove_task in [false, true] {
        let log = Log::default();
        let _logs = tracing::subscriber::set_default(log.subscriber());
        let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
        let process = TestProcess::start(&store, &webhooks, &agent);
        webhooks.always(HOST, Some(Reply::Status(500)));
        let head = process.send(WORK, URL, Version::V1).await;
        webhooks.got(HOST, 2).await;
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
        // A task that a sweep removes is noticed at the next attempt at the latest.
        assert!(
            webhooks.all().len() <= before + usize::from(remove_task),
            "{remove_task}"
        );
        assert_eq!(
            log.text().matches("deliveries dropped").count(),
            1,
            "{}",
            log.text()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r28_a_dead_webhook_slows_nobody() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    let process = TestProcess::start(&store, &webhooks, &agent);
    webhooks.always("dead.example", Some(Reply::Hang));
    for _ in 0..40 {
        process
            .send(WORK, "http://dead.example/", Version::V1)
            .await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        webhooks.all().len(),
        8,
        "one host has only so many deliveries at a time"
    );
    let began = Instant::now();
    process.send(WORK, URL, Version::V1).await;
    webhooks.got(HOST, 5).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_complete(&webhooks.taken(HOST));
}

#[tokio::test(start_paused = true)]
async fn more_webhooks_than_places_take_turns() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    let settings = PushSettings {
        egress: open(),
        max_webhooks: 2,
        ..PushSettings::default()
    };
    let process = TestProcess::start_with(&store, &webhooks, &agent, settings);
    // Two that wait for somebody outside hold both places.
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
        webhooks.got(&host, 5).await;
        assert_complete(&webhooks.taken(&host));
    }
}

#[tokio::test(start_paused = true)]
async fn s23_a_webhook_that_is_not_allowed_any_more_is_given_up() {
    let (store, webhooks, agent) = (store(), Webhooks::default(), ScriptedAgent::default());
    webhooks.always("inside.example", Some(Reply::Status(503)));
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
            .check_url("http://inside.example/", "url")
            .await
            .is_ok()
    );
    process.kill().await;
    let process = TestProcess::start(&store, &webhooks, &agent);
    let error = process
        .push
        .check_url("http://inside.example/", "url")
        .await
        .unwrap_err();
    assert!(error.message().contains("public address"), "{error}");
    let head = process
        .send(WORK, "http://inside.example/", Version::V1)
        .await;
    process.idle().await;
    assert_eq!(webhooks.all().len(), 0);
    let DeliveryState::Failed(why) = process.delivery_state(&head).await else {
        panic!("it is not called")
    };
    assert_eq!(why, "its url must lead to a public address");
}
