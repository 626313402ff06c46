//! A store that fails for a while: streams say so in the way of their version, and go on when it is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use attache::Outcome;
use attache::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use attache::store::{
    Batch, Error, Folded, Head, Key, Memory, NewTask, Opened, Page, Push, Query, Registered,
    Result, Seen, Store, Unwritable, Which,
};
use serde_json::{Value, json};

use crate::harness::{Echo, FORMS, Form, Puppet, Reader, Running, Strings, soon, start_with};
use crate::streaming::{next, opening, rest};

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
    async fn check(&self) -> Result<(), Unwritable> {
        if self.full.load(Ordering::Relaxed) {
            Err(Unwritable::Full)
        } else {
            Ok(())
        }
    }

    async fn create(&self, task: &NewTask) -> Result<Opened> {
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

    async fn list(&self, scope: &Scope, query: &Query) -> Result<Page> {
        self.ready()?.list(scope, query).await
    }

    async fn unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        self.ready()?.unfinished(after, limit).await
    }

    async fn ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        self.ready()?.ended(before, limit).await
    }

    async fn count_ended(&self) -> Result<u64> {
        self.ready()?.count_ended().await
    }

    async fn seen(&self, scope: &Scope, key: &Key) -> Result<Option<Seen>> {
        self.ready()?.seen(scope, key).await
    }

    async fn keep(&self, task: &Head, at: Seq, folded: &Folded) -> Result<()> {
        self.ready()?.keep(task, at, folded).await
    }

    async fn kept(&self, task: &Head) -> Result<Option<(Seq, Folded)>> {
        self.ready()?.kept(task).await
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        self.ready()?.remove(tasks).await
    }

    async fn put_config(&self, task: &Head, config: &Registered) -> Result<()> {
        self.ready()?.put_config(task, config).await
    }

    async fn configs(&self, task: &Head) -> Result<Vec<Registered>> {
        self.ready()?.configs(task).await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        self.ready()?.delete_config(task, id).await
    }

    async fn pushes(&self, which: Which, after: Option<u64>, limit: usize) -> Result<Vec<Push>> {
        self.ready()?.pushes(which, after, limit).await
    }

    async fn push(&self, task: &Head, id: &PushConfigId) -> Result<Option<Push>> {
        self.ready()?.push(task, id).await
    }

    async fn record_delivery(&self, push: &Push) -> Result<bool> {
        self.ready()?.record_delivery(push).await
    }
}

/// A stream in whose middle the store fails.
async fn broken(form: Form) -> (Faulty, Running, Strings, Reader, String) {
    let store = Faulty::default();
    let (agent, mut strings) = Puppet::new();
    let server = start_with(agent, |server| server.store(store.clone())).await;
    let mut reader = server.read(&form.stream("go", json!({}))).await;
    let id = strings.began().await;
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
    for form in FORMS {
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
    for form in FORMS {
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
    for form in FORMS {
        let (_store, server, _strings, _reader, id) = broken(form).await;
        let answer = server.ask(&form.ask("GetTask", json!({"id": id}))).await;
        let error = serde_json::from_str::<Value>(&answer.body).unwrap()["error"].clone();
        let place = match form {
            Form::Rpc1 => &error["data"][0]["metadata"],
            Form::Rpc03 => &error["data"],
            Form::Rest1 | Form::Rest03 => &error["details"][0]["metadata"],
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
    for form in FORMS {
        let (store, server, mut strings, mut reader, id) = broken(form).await;
        reader.rest().await;
        store.broken.store(false, Ordering::Relaxed);
        let mut again = soon(async {
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
            form.seen(&last.data),
            form.status("failed", "Agent execution failed (interrupted)", true)
        );
        // And the next one is served as if nothing had been.
        let mut next_one = server.read(&form.stream("again", json!({}))).await;
        strings.began().await;
        strings.end(Outcome::Completed).await;
        assert_eq!(rest(form, &mut next_one).await.len(), 3);
    }
}
