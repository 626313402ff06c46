//! Lists of a store that fails and forgets while it is read.

use super::*;
use crate::engine::Settings;
use crate::engine::tests::harness::{
    FaultTiming, FaultyStore, ManualClock, ScriptedAgent, call, engine_with, scope, send,
    within_deadline,
};
use crate::push::PushSettings;
use crate::store::{Store, TaskQuery};

struct Office {
    service: Service,
    store: Arc<FaultyStore>,
    /// Newest first.
    ids: Vec<TaskId>,
}

const TASKS: i64 = 13;

async fn office() -> Office {
    let (store, clock) = (
        Arc::new(FaultyStore::default()),
        ManualClock::starting_at(0),
    );
    // Nothing stays in memory: every page is read from the store.
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
        // Two at a time: what has the same time is told apart by its id.
        clock.advance_to(number / 2);
        ids.push(send(&engine, "done").await.0.id);
    }
    ids.reverse();
    let stream_limiter = StreamLimiter::new(StreamLimits {
        total: 10,
        per_task: 10,
        per_caller: 10,
    });
    let capabilities = Capabilities::default();
    let push = PushDispatcher::new(
        engine.clone(),
        PushSettings::default(),
        None,
        Default::default(),
    );
    let service = Service::new(
        engine,
        None,
        capabilities,
        Limits::default(),
        (stream_limiter, push),
        (None, None),
    );
    Office {
        service,
        store,
        ids,
    }
}

impl Office {
    async fn page(&self, token: &str) -> Result<ListTasksResponse> {
        let page_token = (!token.is_empty()).then(|| token.to_owned());
        let request = ListTasksRequest {
            page_size: Some(3),
            page_token,
            ..ListTasksRequest::default()
        };
        within_deadline(self.service.list_tasks(&call(), request)).await
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

/// Reads every page; where the store fails, the same page again.
async fn read(office: &Office) -> (Vec<TaskId>, u32) {
    let (mut all, mut token, mut failures) = (Vec::new(), String::new(), 0);
    loop {
        match office.page(&token).await {
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
async fn r25_a_list_read_from_a_store_that_fails_at_any_call_is_whole_in_the_end() {
    let office = office().await;
    let before = office.store.calls();
    assert_eq!(read(&office).await, (office.ids.clone(), 0));
    let calls = office.store.calls() - before;
    assert!(calls > 10, "{calls}");
    for fault in [FaultTiming::Before, FaultTiming::After] {
        for length in [1, 3] {
            for number in 1..=calls {
                let first = office.store.calls() + number;
                office.store.fail(first..first + length, fault);
                let (all, failures) = read(&office).await;
                office.store.stop_failing();
                assert_eq!(all, office.ids, "{fault:?} {number}+{length}");
                assert!(failures > 0, "{fault:?} {number}+{length}");
            }
        }
    }
}

#[tokio::test]
async fn a_page_token_survives_what_is_forgotten_between_the_pages() {
    // The task the token names; that and its neighbours; the whole next page; all before; all behind.
    for gone in [2..3, 1..5, 3..6, 0..3, 3..13] {
        let office = office().await;
        let first = office.page("").await.unwrap();
        assert_eq!(ids(&first), office.ids[..3]);
        office.remove(&office.ids[gone.clone()]).await;
        let (mut seen, mut token) = (Vec::new(), first.next_page_token);
        while !token.is_empty() {
            let page = office.page(&token).await.unwrap();
            assert_eq!(
                usize::try_from(page.total_size).unwrap(),
                office.ids.len() - gone.len()
            );
            seen.extend(ids(&page));
            token = page.next_page_token;
        }
        let left = (3..office.ids.len()).filter(|place| !gone.contains(place));
        assert_eq!(
            seen,
            left.map(|place| office.ids[place].clone())
                .collect::<Vec<_>>(),
            "{gone:?}"
        );
    }
}

#[tokio::test]
async fn a_task_that_is_forgotten_while_a_page_is_read_is_not_on_it() {
    let office = office().await;
    office.store.delete_listed();
    let (all, failures) = read(&office).await;
    assert_eq!(failures, 0);
    // One more than asked for is looked at, so the one that goes is the first of the next page, or the last of all.
    let kept = TaskQuery {
        limit: 100,
        ..TaskQuery::default()
    };
    office.store.stop_failing();
    let left: Vec<_> = office
        .store
        .list(&scope(), &kept)
        .await
        .unwrap()
        .tasks
        .into_iter()
        .map(|head| head.id)
        .collect();
    assert_eq!(all, left);
    assert!(all.len() < office.ids.len());
}

#[tokio::test]
async fn s62_a_page_that_would_be_too_heavy_ends_early_and_the_next_goes_on() {
    let mut office = office().await;
    office.service.limits.max_page_bytes = 1;
    let page = office.page("").await.unwrap();
    assert_eq!(
        (page.tasks.len(), page.page_size, page.total_size),
        (1, 3, 13)
    );
    assert_eq!(read(&office).await, (office.ids.clone(), 0));
}
