//! Load on a cluster, and the ledger of its acknowledged operations.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use super::replicas::{Cluster, LIMIT, exchange, wait_for};

/// JSON-RPC code for a task that does not exist.
const TASK_NOT_FOUND: i64 = -32001;

/// JSON-RPC code for a task that has ended and cannot be canceled.
const NOT_CANCELABLE: i64 = -32002;

/// Result of a call.
enum Reply {
    Result(Value),
    Error(i64),
    /// Unavailable, or the connection failed: the call may have had an effect.
    Unknown,
}

/// Acknowledged facts about one task.
#[derive(Debug, Default, Clone)]
struct Record {
    /// Ids of the messages that replies have acknowledged.
    messages: Vec<String>,
    /// Terminal state that a reply has contained.
    ended: Option<String>,
    has_question: bool,
}

/// Acknowledged operations. A contradiction fails the test.
#[derive(Default)]
pub(crate) struct Ledger {
    records: Mutex<HashMap<String, Record>>,
    /// Task of each idempotency key.
    keys: Mutex<BTreeMap<String, String>>,
    errors: Mutex<Vec<String>>,
    acknowledged: Mutex<u64>,
    progress: Condvar,
}

impl Ledger {
    fn fail(&self, error: String) {
        self.errors.lock().unwrap().push(error);
    }

    /// Records the task of a reply. `message` is the message that the reply acknowledges.
    fn record(&self, key: Option<&str>, message: Option<&str>, task: &Value) {
        let Some(id) = task["id"].as_str() else {
            self.fail(format!("a reply without a task: {task}"));
            return;
        };
        if let Some(key) = key {
            let known = self
                .keys
                .lock()
                .unwrap()
                .insert(key.to_owned(), id.to_owned());
            if known.as_deref().is_some_and(|known| known != id) {
                self.fail(format!("key {key} names the tasks {known:?} and {id}"));
            }
        }
        let mut records = self.records.lock().unwrap();
        let record = records.entry(id.to_owned()).or_default();
        if let Some(message) = message
            && !record.messages.iter().any(|known| known == message)
        {
            record.messages.push(message.to_owned());
        }
        let state = task["status"]["state"].as_str().unwrap_or_default();
        match &record.ended {
            Some(ended) if ended != state => {
                self.fail(format!(
                    "task {id} ended as {ended}, and is {state} in a later reply"
                ));
            }
            None if is_terminal(state) => record.ended = Some(state.to_owned()),
            _ => {}
        }
        record.has_question |= state == "TASK_STATE_INPUT_REQUIRED";
        drop(records);
        *self.acknowledged.lock().unwrap() += 1;
        self.progress.notify_all();
    }

    /// Number of acknowledged operations.
    pub(crate) fn acknowledged(&self) -> u64 {
        *self.acknowledged.lock().unwrap()
    }

    /// Waits until this many further operations are acknowledged.
    pub(crate) fn wait_for_progress(&self, operations: u64) {
        let acknowledged = self.acknowledged.lock().unwrap();
        let goal = *acknowledged + operations;
        let waited = self
            .progress
            .wait_timeout_while(acknowledged, LIMIT, |acknowledged| *acknowledged < goal)
            .unwrap();
        assert!(!waited.1.timed_out(), "no progress");
    }
}

fn is_terminal(state: &str) -> bool {
    ["COMPLETED", "FAILED", "CANCELED", "REJECTED"]
        .iter()
        .any(|end| state.ends_with(end))
}

/// Threads that call random replicas.
pub(crate) struct Load {
    pub(crate) ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let ledger = Arc::new(Ledger::default());
        let stop = Arc::new(AtomicBool::new(false));
        let urls = cluster.urls();
        let threads = (0..4)
            .map(|number| {
                let caller = LoadCaller {
                    urls: urls.clone(),
                    ledger: Arc::clone(&ledger),
                    stop: Arc::clone(&stop),
                    random: Random::new(number + 1),
                };
                thread::spawn(move || caller.run())
            })
            .collect();
        Self {
            ledger,
            stop,
            threads,
        }
    }

    /// Ends the load, waits until every task has ended or asks, and checks the ledger against the database and all replicas.
    /// Returns the number of acknowledged operations.
    pub(crate) fn check(self, cluster: &Cluster) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let schema = &cluster.database.schema;
        let open = format!("SELECT id FROM {schema}.task WHERE NOT ended AND NOT parked");
        wait_for("the end of all tasks", || {
            cluster.database.query(&open).is_empty()
        });
        check_tables(cluster, &self.ledger);
        let records = self.ledger.records.lock().unwrap().clone();
        for (id, record) in &records {
            check_task(cluster, &self.ledger, id, record);
        }
        let errors = self.ledger.errors.lock().unwrap();
        assert!(
            errors.is_empty(),
            "{} errors:\n{}\n{}",
            errors.len(),
            errors[..errors.len().min(10)].join("\n"),
            cluster.logs()
        );
        self.ledger.acknowledged()
    }
}

/// Checks that logs are contiguous and end at their heads, that holders exist, and that counters are right.
fn check_tables(cluster: &Cluster, ledger: &Ledger) {
    let s = &cluster.database.schema;
    for (what, sql) in [
        (
            "a log with a gap",
            format!(
                "SELECT task, at FROM (SELECT task, at, lag(last, 1, 0::bigint) OVER (PARTITION BY task ORDER BY at) AS before \
                 FROM {s}.batch) rows WHERE at <> before"
            ),
        ),
        (
            "a log that does not end at its head",
            format!(
                "SELECT t.id, t.position FROM {s}.task t WHERE t.position <> (SELECT max(last) FROM {s}.batch WHERE task = t.number)"
            ),
        ),
        (
            "an ended task with a holder",
            format!("SELECT id FROM {s}.task WHERE ended AND holder IS NOT NULL"),
        ),
        (
            "a wrong counter of ended tasks",
            format!(
                "SELECT counted, ended FROM (SELECT (SELECT coalesce(sum(tasks), 0) FROM {s}.ended_task_counter WHERE scope = 0) \
                 AS counted, (SELECT count(*) FROM {s}.task WHERE ended) AS ended) sums WHERE counted <> ended"
            ),
        ),
        (
            "two tasks of one key",
            format!("SELECT key FROM {s}.idempotency_key GROUP BY scope, key HAVING count(*) > 1"),
        ),
    ] {
        for row in cluster.database.query(&sql) {
            ledger.fail(format!("{what}: {row:?}"));
        }
    }
}

/// Checks that every replica returns an acknowledged task with its messages, each once, and its end.
fn check_task(cluster: &Cluster, ledger: &Ledger, id: &str, record: &Record) {
    let mut answers = Vec::new();
    for url in cluster.urls() {
        let mut found = None;
        wait_for("an answer", || {
            match call(&url, "GetTask", &json!({"id": id}), None) {
                Reply::Unknown => false,
                reply => {
                    found = Some(reply);
                    true
                }
            }
        });
        match found {
            Some(Reply::Result(task)) => answers.push(task),
            Some(Reply::Error(code)) => {
                ledger.fail(format!("GetTask of {id} at {url}: error {code}"))
            }
            Some(Reply::Unknown) | None => {}
        }
    }
    let Some(task) = answers.first() else {
        return;
    };
    if answers.iter().any(|answer| answer != task) {
        ledger.fail(format!("replicas differ: {answers:?}"));
    }
    let state = task["status"]["state"].as_str().unwrap_or_default();
    match &record.ended {
        Some(ended) if ended != state => {
            ledger.fail(format!("task {id} ended as {ended}, and is {state} now"));
        }
        _ => {}
    }
    // Restarted turns run again, so no task fails.
    if state.ends_with("FAILED") || state.ends_with("REJECTED") {
        ledger.fail(format!("task {id} failed: {task}"));
    }
    let history = task["history"].as_array().cloned().unwrap_or_default();
    for message in &record.messages {
        let count = history
            .iter()
            .filter(|known| known["messageId"] == message.as_str())
            .count();
        if count != 1 {
            ledger.fail(format!(
                "task {id} has the acknowledged message {message} {count} times"
            ));
        }
    }
}

/// One thread of the load.
struct LoadCaller {
    urls: Vec<String>,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    random: Random,
}

impl LoadCaller {
    fn run(mut self) {
        while !self.is_stopped() {
            match self.random.below(10) {
                0..5 => self.send_quick(),
                5..7 => self.ask_and_continue(),
                7..9 => self.cancel_slow(),
                _ => self.send_slow(),
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn url(&mut self) -> String {
        let index = self.random.below(self.urls.len() as u64);
        self.urls[usize::try_from(index).unwrap()].clone()
    }

    /// Sends a message until it is acknowledged, each time to another replica with the same key. Returns the task.
    fn send(&mut self, text: &str, task: Option<&str>, is_async: bool) -> Option<Value> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = format!("m{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
        if let Some(task) = task {
            message["taskId"] = task.into();
        }
        let params = json!({"message": message, "configuration": {"returnImmediately": is_async}});
        loop {
            let url = self.url();
            match call(&url, "SendMessage", &params, Some(&id)) {
                Reply::Result(result) => {
                    let task = result["task"].clone();
                    self.ledger.record(Some(&id), Some(&id), &task);
                    return Some(task);
                }
                Reply::Error(code) => {
                    // A task that another turn has ended refuses the message: only then.
                    self.ledger
                        .fail(format!("send of {text:?} to {task:?}: error {code}"));
                    return None;
                }
                Reply::Unknown if self.is_stopped() => return None,
                Reply::Unknown => {}
            }
        }
    }

    fn send_quick(&mut self) {
        if let Some(task) = self.send("hello", None, false) {
            self.read(&task["id"]);
        }
    }

    fn send_slow(&mut self) {
        if let Some(task) = self.send("slow 2", None, true) {
            self.read(&task["id"]);
        }
    }

    fn ask_and_continue(&mut self) {
        let Some(task) = self.send("ask", None, false) else {
            return;
        };
        let id = task["id"].as_str().unwrap_or_default().to_owned();
        self.send("Ann", Some(&id), false);
        self.read(&task["id"]);
    }

    fn cancel_slow(&mut self) {
        let Some(task) = self.send("slow 60", None, true) else {
            return;
        };
        let id = &task["id"];
        // A slow task has to be canceled, also when the load ends.
        wait_for("a cancel", || {
            let url = self.url();
            match call(&url, "CancelTask", &json!({"id": id}), None) {
                Reply::Result(task) => {
                    self.ledger.record(None, None, &task);
                    true
                }
                // An earlier attempt whose answer was lost has canceled it.
                Reply::Error(NOT_CANCELABLE) => true,
                Reply::Error(code) => {
                    self.ledger.fail(format!("cancel of {id}: error {code}"));
                    true
                }
                Reply::Unknown => false,
            }
        });
        self.read(id);
    }

    /// Reads a task on a random replica.
    fn read(&mut self, id: &Value) {
        let url = self.url();
        match call(&url, "GetTask", &json!({"id": id}), None) {
            Reply::Result(task) => self.ledger.record(None, None, &task),
            Reply::Error(TASK_NOT_FOUND) => {
                self.ledger
                    .fail(format!("the acknowledged task {id} is not found at {url}"));
            }
            Reply::Error(code) => self.ledger.fail(format!("GetTask of {id}: error {code}")),
            Reply::Unknown => {}
        }
    }
}

/// Calls a JSON-RPC method. Unavailable servers count as an unknown result.
fn call(url: &str, method: &str, params: &Value, key: Option<&str>) -> Reply {
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let key = key.map_or_else(String::new, |key| format!("Idempotency-Key: {key}\r\n"));
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n{key}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let Some(answer) = exchange(address, &request) else {
        return Reply::Unknown;
    };
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    let Some(reply) = body.and_then(|body| serde_json::from_str::<Value>(body).ok()) else {
        return Reply::Unknown;
    };
    if reply["result"].is_object() {
        return Reply::Result(reply["result"].clone());
    }
    match reply["error"]["code"].as_i64() {
        Some(code) if !is_unavailable(&reply["error"]) => Reply::Error(code),
        _ => Reply::Unknown,
    }
}

fn is_unavailable(error: &Value) -> bool {
    error["message"]
        .as_str()
        .is_some_and(|message| message.starts_with("Service unavailable"))
}

/// Deterministic random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
