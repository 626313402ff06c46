//! `ListTasks` over a store that fails, and that deletes tasks between and during reads. Expiry of idempotency keys.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::engine::tests::harness::{
    FaultTiming, FaultyStore, ManualClock, ScriptedAgent, call, engine_with, scope, send,
    within_deadline,
};
use crate::engine::{AgentRegistration, AgentSettings, Settings};
use crate::model::{
    ErrorKind, ListTasksRequest, ListTasksResponse, Message, SendMessageRequest,
    SendMessageResponse, TaskId, Timestamp,
};
use crate::push::PushSettings;
use crate::rt::{ByteBudget, OutgoingLimits};
use crate::store::{Store, TaskQuery};

struct ServiceFixture {
    service: Service,
    store: Arc<FaultyStore>,
    /// Newest first.
    ids: Vec<TaskId>,
}

const TASKS: i64 = 13;

async fn fixture() -> ServiceFixture {
    let store = Arc::new(FaultyStore::default());
    let clock = ManualClock::starting_at(0);
    // No cache: every page is read from the store.
    let settings = Settings {
        task_cache_bytes: 0,
        ..Settings::default()
    };
    let engine = engine_with(
        store.clone(),
        ScriptedAgent::default(),
        settings,
        clock.clone(),
    );
    let mut ids = Vec::new();
    for number in 0..TASKS {
        // Two tasks share a time, so that the id decides their order.
        clock.advance_to(number / 2);
        ids.push(send(&engine, "done").await.0.id);
    }
    ids.reverse();
    let service = service(engine);
    ServiceFixture {
        service,
        store,
        ids,
    }
}

fn service(engine: Engine) -> Service {
    let stream_limiter = StreamLimiter::new(StreamLimits {
        total: 10,
        per_task: 10,
        per_caller: 10,
    });
    let push = PushDispatcher::new(
        engine.clone(),
        PushSettings::default(),
        None,
        None,
        TaskTracker::new(),
        CancellationToken::new(),
    );
    let options = ServiceOptions {
        capabilities: Capabilities::default(),
        limits: Limits::default(),
        quota: TaskQuota::default(),
        stream_limiter,
        outgoing: ByteBudget::new(OutgoingLimits {
            total: 64 << 20,
            per_caller: 32 << 20,
            timeout: Duration::from_secs(30),
        }),
        waiting_stream_timeout: None,
        max_blocking_wait: None,
        hooks: HookChain::default(),
    };
    let agents = engine.prepare_agents([AgentRegistration {
        name: scope().agent,
        agent: Arc::new(ScriptedAgent::default()),
        settings: AgentSettings::default(),
        hooks: HookChain::default(),
    }]);
    let agent = agents.get(&scope().agent).cloned();
    engine.replace_agents(agents);
    Service::new(engine, agent, push, options)
}

impl ServiceFixture {
    async fn page(&self, token: &str) -> Result<ListTasksResponse> {
        let page_token = (!token.is_empty()).then(|| token.to_owned());
        let request = ListTasksRequest {
            page_size: Some(3),
            page_token,
            ..ListTasksRequest::default()
        };
        let listed = within_deadline(self.service.list_tasks(&call(), request)).await;
        listed.map(|(page, _)| page)
    }

    async fn remove(&self, ids: &[TaskId]) {
        for id in ids {
            let head = self.store.find(&scope(), id).await.unwrap().unwrap();
            self.store.remove(&[head]).await.unwrap();
        }
    }
}

fn ids(page: &ListTasksResponse) -> Vec<TaskId> {
    page.tasks.iter().map(|task| task.id.clone()).collect()
}

/// Reads every page and retries a page on which the store fails. Returns all ids and the number of failures.
async fn read_all(fixture: &ServiceFixture) -> (Vec<TaskId>, u32) {
    let mut all = Vec::new();
    let mut token = String::new();
    let mut failures = 0;
    loop {
        match fixture.page(&token).await {
            Ok(page) => {
                all.extend(ids(&page));
                token = page.next_page_token;
                if token.is_empty() {
                    return (all, failures);
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.retry_after().is_some());
                failures += 1;
            }
        }
    }
}

#[tokio::test]
async fn r25_a_listing_survives_a_store_failure_at_any_call() {
    let fixture = fixture().await;
    let before = fixture.store.calls();
    assert_eq!(read_all(&fixture).await, (fixture.ids.clone(), 0));
    let calls = fixture.store.calls() - before;
    assert!(calls > 10, "{calls}");
    for fault in [FaultTiming::Before, FaultTiming::After] {
        for length in [1, 3] {
            for number in 1..=calls {
                let first = fixture.store.calls() + number;
                fixture.store.fail(first..first + length, fault);
                let (all, failures) = read_all(&fixture).await;
                fixture.store.stop_failing();
                assert_eq!(all, fixture.ids, "{fault:?} {number}+{length}");
                assert!(failures > 0, "{fault:?} {number}+{length}");
            }
        }
    }
}

#[tokio::test]
async fn a_page_token_survives_deletions_between_pages() {
    // The task of the token; this and its neighbours; the whole next page; all before it; all after it.
    for deleted in [2..3, 1..5, 3..6, 0..3, 3..13] {
        let fixture = fixture().await;
        let first = fixture.page("").await.unwrap();
        assert_eq!(ids(&first), fixture.ids[..3]);
        fixture.remove(&fixture.ids[deleted.clone()]).await;
        let mut seen = Vec::new();
        let mut token = first.next_page_token;
        while !token.is_empty() {
            let page = fixture.page(&token).await.unwrap();
            assert_eq!(
                usize::try_from(page.total_size).unwrap(),
                fixture.ids.len() - deleted.len()
            );
            seen.extend(ids(&page));
            token = page.next_page_token;
        }
        let left = (3..fixture.ids.len()).filter(|index| !deleted.contains(index));
        assert_eq!(
            seen,
            left.map(|index| fixture.ids[index].clone())
                .collect::<Vec<_>>(),
            "{deleted:?}"
        );
    }
}

#[tokio::test]
async fn a_task_deleted_while_a_page_is_read_is_not_listed() {
    let fixture = fixture().await;
    fixture.store.delete_listed();
    let (all, failures) = read_all(&fixture).await;
    assert_eq!(failures, 0);
    // A page queries one more task than it returns; the store deletes the last one queried.
    let query = TaskQuery {
        limit: 100,
        ..TaskQuery::default()
    };
    fixture.store.stop_failing();
    let left: Vec<_> = fixture
        .store
        .list(&scope(), &query)
        .await
        .unwrap()
        .tasks
        .into_iter()
        .map(|head| head.id)
        .collect();
    assert_eq!(all, left);
    assert!(all.len() < fixture.ids.len());
}

#[tokio::test]
async fn s62_a_page_over_max_page_bytes_ends_early_and_the_next_continues() {
    let mut fixture = fixture().await;
    fixture.service.options.limits.max_page_bytes = 1;
    let page = fixture.page("").await.unwrap();
    assert_eq!(
        (page.tasks.len(), page.page_size, page.total_size),
        (1, 3, 13)
    );
    assert_eq!(read_all(&fixture).await, (fixture.ids.clone(), 0));
}

#[cfg(feature = "sqlite")]
/// Sends a message with the key `k` and returns the id of its task.
async fn send_with_key(service: &Service, text: &str) -> Result<TaskId> {
    let call = Call {
        idempotency_key: Some("k".into()),
        ..call()
    };
    let message = Message {
        message_id: "m".into(),
        ..Message::user(text)
    };
    let request = Box::new(SendMessageRequest::new(message));
    match within_deadline(service.send_message(&call, request, None)).await? {
        ServiceResponse::Single(response, _) => match *response {
            Response::SendMessage(SendMessageResponse::Task(task)) => Ok(task.id),
            _ => panic!("the agent replies with a task"),
        },
        _ => panic!("the agent replies with a task"),
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn an_expired_idempotency_key_is_unused_in_every_store() {
    use crate::store::sqlite::Options;
    use crate::store::{Memory, Sqlite};

    const DAY: i64 = 24 * 60 * 60 * 1000;
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Sqlite::open(folder.path().join("a.db"), Options::default()).unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(Memory::new()), Arc::new(sqlite)];
    for store in stores {
        let clock = ManualClock::starting_at(0);
        let engine = engine_with(
            store.clone(),
            ScriptedAgent::default(),
            Settings::default(),
            clock.clone(),
        );
        let service = service(engine.clone());
        let first = send_with_key(&service, "done").await.unwrap();
        // By default a key is valid for 7 days.
        clock.advance_to(7 * DAY);
        within_deadline(engine.sweep()).await.unwrap();
        assert_eq!(send_with_key(&service, "done").await.unwrap(), first);
        let reused = send_with_key(&service, "say").await.unwrap_err();
        assert_eq!(reused.kind(), ErrorKind::InvalidParams);
        clock.advance_to(7 * DAY + 1);
        let second = send_with_key(&service, "say").await.unwrap();
        assert_ne!(second, first, "an expired key starts a new task");
        assert_eq!(send_with_key(&service, "say").await.unwrap(), second);
        // The sweep removes expired keys, and no others.
        within_deadline(engine.sweep()).await.unwrap();
        assert_eq!(send_with_key(&service, "say").await.unwrap(), second);
        clock.advance_to(15 * DAY);
        within_deadline(engine.sweep()).await.unwrap();
        let later = Timestamp::from_millis(99 * DAY).unwrap();
        assert_eq!(store.remove_keys(later, 9).await.unwrap(), 0);
        let query = TaskQuery {
            limit: 9,
            ..TaskQuery::default()
        };
        assert_eq!(store.list(&scope(), &query).await.unwrap().total, 2);
    }
}
