//! A store that fails temporarily: errors of streams and calls, readiness, and resumption when it is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use attache::Outcome;
use attache::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use attache::store::{
    Batch, CreateResult, Error, Head, HealthProblem, IdempotencyKey, IdempotencyRecord, Memory,
    NewTask, PushRegistration, ReadLimit, Result, Snapshot, Store, TaskPage, TaskQuery, Webhook,
    WebhookFilter,
};
use serde_json::{Value, json};

use crate::harness::{
    Echo, Running, SseReader, StepController, SteppedAgent, WIRE_FORMATS, WireFormat, start_with,
    with_deadline,
};
use crate::server::streaming::{next, opening, rest};

/// Memory store that fails while `broken` is set.
#[derive(Clone, Default)]
struct Faulty {
    memory: Arc<Memory>,
    broken: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
}

impl Faulty {
    fn ready(&self) -> Result<&Memory> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Error::Failed(
                "hunter2: no space left on /var/lib/tasks.db".into(),
            ));
        }
        Ok(&self.memory)
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

    async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> Result<Vec<Entry>> {
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

    async fn remove_keys(&self, before: Timestamp, limit: usize) -> Result<usize> {
        self.ready()?.remove_keys(before, limit).await
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()> {
        self.ready()?.save_snapshot(task, at, snapshot).await
    }

    async fn load_snapshot(
        &self,
        task: &Head,
        max_bytes: usize,
    ) -> Result<Option<(Seq, Snapshot)>> {
        self.ready()?.load_snapshot(task, max_bytes).await
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
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        self.ready()?.list_webhooks(filter, after, limit).await
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>> {
        self.ready()?.find_webhook(task, id).await
    }

    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool> {
        self.ready()?.record_delivery(webhook).await
    }
}

/// Opens a stream and breaks the store in the middle of the turn.
async fn start_broken_stream(
    form: WireFormat,
) -> (Faulty, Running, StepController, SseReader, String) {
    let store = Faulty::default();
    let (agent, mut strings) = SteppedAgent::new();
    let server = start_with(agent, |server| server.store(store.clone())).await;
    let mut reader = server.read(&form.stream("go", json!({}))).await;
    let id = strings.next_task().await;
    strings.say("on it").await;
    for expected in opening(form) {
        assert_eq!(next(form, &mut reader).await, expected);
    }
    store.broken.store(true, Ordering::Relaxed);
    strings.say("lost").await;
    (store, server, strings, reader, id)
}

#[tokio::test]
async fn s81_a_failing_stream_ends_with_an_error_without_a_position() {
    for form in WIRE_FORMATS {
        let (_store, _server, _strings, mut reader, _) = start_broken_stream(form).await;
        let before = reader.text.len();
        let event = reader.one().await;
        assert_eq!(reader.next().await, None);
        // Clients of 0.3 may not know other event types.
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
async fn s81_calls_fail_as_unavailable_without_internal_details() {
    for form in WIRE_FORMATS {
        let (_store, server, _strings, _reader, id) = start_broken_stream(form).await;
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
async fn s81_server_errors_have_an_error_id() {
    for form in WIRE_FORMATS {
        let (_store, server, _strings, _reader, id) = start_broken_stream(form).await;
        let answer = server.ask(&form.ask("GetTask", json!({"id": id}))).await;
        let error = serde_json::from_str::<Value>(&answer.body).unwrap()["error"].clone();
        let metadata = match form {
            WireFormat::Rpc1 => &error["data"][0]["metadata"],
            WireFormat::Rpc03 => &error["data"],
            WireFormat::Rest1 | WireFormat::Rest03 => &error["details"][0]["metadata"],
        };
        assert!(
            metadata["errorId"]
                .as_str()
                .is_some_and(|id| id.len() == 36),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn r26_readiness_reports_store_failures_and_recovery() {
    let store = Faulty::default();
    let server = start_with(Echo, |server| server.store(store.clone())).await;
    let ready = async || {
        let answer = server.get("/readyz").await;
        (answer.status, answer.body)
    };
    let ok = (200, "ok\n".to_owned());
    assert_eq!(ready().await, ok);
    store.full.store(true, Ordering::Relaxed);
    let full = "not ready: the store cannot be written: the disk is full\n";
    assert_eq!(ready().await, (503, full.to_owned()));
    store.full.store(false, Ordering::Relaxed);
    assert_eq!(ready().await, ok);
    store.broken.store(true, Ordering::Relaxed);
    assert_eq!(
        ready().await,
        (503, "not ready: the store does not answer\n".to_owned())
    );
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_subscriber_resumes_when_the_store_is_back() {
    for form in WIRE_FORMATS {
        let (store, server, mut strings, mut reader, id) = start_broken_stream(form).await;
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
        // The turn could not be recorded: the task has failed, and subscribers receive that status.
        let events = again.rest().await;
        let last = events.last().expect("a final status");
        assert!(
            last.data.contains("Agent execution failed (interrupted)"),
            "{last:?}"
        );
        assert_eq!(
            form.decode_event(&last.data),
            form.status("failed", "Agent execution failed (interrupted)", true)
        );
        // The next task runs normally.
        let mut next_one = server.read(&form.stream("again", json!({}))).await;
        strings.next_task().await;
        strings.end(Outcome::Completed).await;
        assert_eq!(rest(form, &mut next_one).await.len(), 3);
    }
}
