//! A store that fails for a while: streams say so in the way of their version, and go on when it is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use attache::Outcome;
use attache::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use attache::store::{
    Batch, CreateResult, Error, Head, HealthProblem, IdempotencyKey, IdempotencyRecord, Memory,
    NewTask, PushRegistration, Result, Snapshot, Store, TaskPage, TaskQuery, Webhook,
    WebhookFilter,
};
use serde_json::{Value, json};

use crate::harness::{
    Echo, Running, SseReader, StepController, SteppedAgent, WIRE_FORMATS, WireFormat, start_with,
    with_deadline,
};
use crate::server::streaming::{next, opening, rest};

/// Keeps logs in memory, unless it is broken.
#[derive(Clone, Default)]
struct Faulty {
    memory: Arc<Memory>,
    broken: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
}

impl Faulty {
    fn ready(&self) -> Result<&Memory> {
        match self.broken.load(Ordering::Relaxed) {
            true => Err(Error::Failed(
                "hunter2: no space left on /var/lib/tasks.db".into(),
            )),
            false => Ok(&self.memory),
        }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn check_health(&self) -> Result<(), HealthProblem> {
        if self.full.load(Ordering::Relaxed) {
            Err(HealthProblem::Full)
        } else {
            Ok(())
        }
    }

    async fn create(&self, task: &NewTask) -> Result<CreateResult> {
        self.ready()?.create(task).await
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        self.ready()?.append(task, at, batch).await
    }

    async fn read(&self, task: &Head, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        self.ready()?.read(task, after, limit).await
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        self.ready()?.find(scope, task).await
    }

    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        self.ready()?.list(scope, query).await
    }

    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        self.ready()?.list_unfinished(after, limit).await
    }

    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        self.ready()?.list_ended(before, limit).await
    }

    async fn count_ended(&self) -> Result<u64> {
        self.ready()?.count_ended().await
    }

    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        self.ready()?.find_by_key(scope, key).await
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, folded: &Snapshot) -> Result<()> {
        self.ready()?.save_snapshot(task, at, folded).await
    }

    async fn load_snapshot(&self, task: &Head) -> Result<Option<(Seq, Snapshot)>> {
        self.ready()?.load_snapshot(task).await
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        self.ready()?.remove(tasks).await
    }

    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()> {
        self.ready()?.put_config(task, config).await
    }

    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>> {
        self.ready()?.list_configs(task).await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        self.ready()?.delete_config(task, id).await
    }

    async fn list_webhooks(
        &self,
        which: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        self.ready()?.list_webhooks(which, after, limit).await
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>> {
        self.ready()?.find_webhook(task, id).await
    }

    async fn record_delivery(&self, push: &Webhook) -> Result<bool> {
        self.ready()?.record_delivery(push).await
    }
}

/// A stream in whose middle the store fails.
async fn broken(form: WireFormat) -> (Faulty, Running, StepController, SseReader, String) {
    let store = Faulty::default();
    let (agent, mut strings) = SteppedAgent::new();
    let server = start_with(agent, |server| server.store(store.clone())).await;
    let mut reader = server.read(&form.stream("go", json!({}))).await;
    let id = strings.next_task().await;
    strings.say("on it").await;
    for told in opening(form) {
        assert_eq!(next(form, &mut reader).await, told);
    }
    store.broken.store(true, Ordering::Relaxed);
    strings.say("lost").await;
    (store, server, strings, reader, id)
}

#[tokio::test]
async fn s81_a_stream_that_fails_says_so_without_a_position_and_ends() {
    for form in WIRE_FORMATS {
        let (_store, _server, _strings, mut reader, _) = broken(form).await;
        let before = reader.text.len();
        let event = reader.one().await;
        assert_eq!(reader.next().await, None);
        // Readers of 0.3 may know no other kind of event.
        let begin = if form.is_v1() {
            "event: error\ndata: {"
        } else {
            "data: {"
        };
        assert!(reader.text[before..].starts_with(begin), "{}", reader.text);
        let value: Value = serde_json::from_str(&event.data).unwrap();
        let code = if form.is_rpc() {
            json!(-32000)
        } else {
            json!(503)
        };
        assert_eq!(value["error"]["code"], code, "{value}");
        assert_eq!(value.get("id").is_some(), form.is_rpc());
        assert!(
            !reader.text.contains("hunter2") && !reader.text.contains("/var"),
            "{}",
            reader.text
        );
    }
}

#[tokio::test]
async fn s81_calls_are_refused_for_now_without_a_word_of_why() {
    for form in WIRE_FORMATS {
        let (_store, server, _strings, _reader, id) = broken(form).await;
        let send = json!({"message": form.message("hi", json!({}))});
        for ask in [
            form.ask("SendMessage", send),
            form.stream("hi", json!({})),
            form.ask("GetTask", json!({"id": id})),
            form.subscribe(&id),
        ] {
            let answer = server.ask(&ask).await;
            assert_eq!(
                (form.refusal(&answer).0, answer.status),
                (-32000, 503),
                "{answer:?}"
            );
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(
                !answer.body.contains("hunter2") && !answer.body.contains("/var"),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn s81_what_is_our_fault_has_an_id_to_ask_us_by() {
    for form in WIRE_FORMATS {
        let (_store, server, _strings, _reader, id) = broken(form).await;
        let answer = server.ask(&form.ask("GetTask", json!({"id": id}))).await;
        let error = serde_json::from_str::<Value>(&answer.body).unwrap()["error"].clone();
        let place = match form {
            WireFormat::Rpc1 => &error["data"][0]["metadata"],
            WireFormat::Rpc03 => &error["data"],
            WireFormat::Rest1 | WireFormat::Rest03 => &error["details"][0]["metadata"],
        };
        assert!(
            place["errorId"].as_str().is_some_and(|id| id.len() == 36),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn r26_health_says_that_the_store_is_down_or_full_and_that_it_is_well_again() {
    let store = Faulty::default();
    let server = start_with(Echo, |server| server.store(store.clone())).await;
    let ready = async || {
        let answer = server.get("/readyz").await;
        (answer.status, answer.body)
    };
    let well = (200, "ok\n".to_owned());
    assert_eq!(ready().await, well);
    store.full.store(true, Ordering::Relaxed);
    let full = "not ready: the store cannot be written: no room is left\n";
    assert_eq!(ready().await, (503, full.to_owned()));
    store.full.store(false, Ordering::Relaxed);
    assert_eq!(ready().await, well);
    store.broken.store(true, Ordering::Relaxed);
    assert_eq!(
        ready().await,
        (503, "not ready: the store does not answer\n".to_owned())
    );
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_reader_goes_on_where_it_was_when_the_store_is_back() {
    for form in WIRE_FORMATS {
        let (store, server, mut strings, mut reader, id) = broken(form).await;
        reader.rest().await;
        store.broken.store(false, Ordering::Relaxed);
        let mut again = with_deadline(async {
            loop {
                let reader = server.read(&form.subscribe(&id).resuming(5)).await;
                if reader.status == 200 {
                    return reader;
                }
            }
        })
        .await;
        // The turn could not go on without a record: the task has failed, and its readers hear of it.
        let events = again.rest().await;
        let last = events.last().expect("an end");
        assert!(
            last.data.contains("Agent execution failed (interrupted)"),
            "{last:?}"
        );
        assert_eq!(
            form.decode_event(&last.data),
            form.status("failed", "Agent execution failed (interrupted)", true)
        );
        // And the next one is served as if nothing had been.
        let mut next_one = server.read(&form.stream("again", json!({}))).await;
        strings.next_task().await;
        strings.end(Outcome::Completed).await;
        assert_eq!(rest(form, &mut next_one).await.len(), 3);
    }
}
