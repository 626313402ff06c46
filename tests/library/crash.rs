//! A server that is killed at any moment, again and again: what it has acknowledged is there.
//!
//! `ATTACHE_CRASHES` says how often; `ATTACHE_SEED` repeats the choices of a run, though not its timing.

mod again;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use attache::model::{Entry, Event, Message, Seq, Task, Timestamp};
use attache::store::sqlite::Options;
use attache::store::{Head, Sqlite, Store};
use attache::{AgentCard, Failure, Outcome, Restart, Server, Settings, Turn};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use crate::harness::{message, request, soon};

/// Where the child keeps its file.
const CHILD: &str = "ATTACHE_CRASH_CHILD";
/// How often a turn that was cut off may run in all; once where nothing is said.
const ATTEMPTS: &str = "ATTACHE_CRASH_ATTEMPTS";
const FILE: &str = "tasks.db";
const ADDRESS: &str = "listening on ";

const CLIENTS: u64 = 6;
/// How often the server is killed, and how long that may take where nobody says how often.
const CRASHES: u64 = 120;
const PATIENCE: Duration = Duration::from_secs(20);

/// More tasks than a run makes.
const ALL: usize = 1_000_000;

const COMPLETED: &str = "TASK_STATE_COMPLETED";
const FAILED: &str = "TASK_STATE_FAILED";
const CANCELED: &str = "TASK_STATE_CANCELED";
const ASKS: &str = "TASK_STATE_INPUT_REQUIRED";

/// Does what the first word of the message says.
async fn obey(turn: Turn) -> Result<Outcome, Failure> {
    let text = turn.text();
    let mut words = text.split(' ');
    match words.next().unwrap_or_default() {
        "ask" => return Ok(Outcome::ask("which harbour?")),
        "wait" => {
            turn.say("waiting").await;
            return std::future::pending().await;
        }
        "stream" => {
            let mut writer = turn.writer("stream");
            for number in 0..words.next().unwrap_or_default().parse::<u32>()? {
                writer.write(format!("{number} ")).await;
                tokio::task::yield_now().await;
            }
            writer.finish().await;
        }
        _ => turn.write("echo", text).await,
    }
    Ok(Outcome::Completed)
}

/// What a task that was opened with this text has written when it is done.
fn result_of(text: &str) -> String {
    let mut words = text.split(' ');
    match words.next() {
        Some("stream") => {
            (0..words.next().unwrap().parse::<u32>().unwrap()).map(|number| format!("{number} ")).collect()
        }
        _ => text.to_owned(),
    }
}

/// The server, in a process of its own. Run by itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    // It never outlives the one who started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let store = Sqlite::open(Path::new(&folder).join(FILE), Options::default()).unwrap();
    let attempts = number(ATTEMPTS).map(|attempts| u32::try_from(attempts).unwrap());
    let on_restart = attempts.map_or(Restart::Fail, |attempts| Restart::RunAgain { attempts });
    let settings = Settings { on_restart, ..Settings::default() };
    let server = Server::new(AgentCard::new("Obeys", "Does as it is told"), obey);
    let bound = server.settings(settings).store(store).bind("127.0.0.1:0").await.unwrap();
    println!("\n{ADDRESS}{}", bound.local_addr());
    bound.serve().await.unwrap();
}

/// The child, from outside.
struct Process {
    child: Child,
    address: Option<oneshot::Receiver<SocketAddr>>,
}

impl Process {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, None)
    }

    fn start_with(folder: &Path, attempts: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crash::child", "--nocapture", "--test-threads", "1"]).env(CHILD, folder);
        command.envs(attempts.map(|attempts| (ATTEMPTS, attempts.to_string())));
        command.env_remove("RUST_LOG").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (found, address) = oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            let address = lines.find_map(|line| line.strip_prefix(ADDRESS)?.parse().ok());
            let _ = address.map(|address| found.send(address));
            lines.for_each(drop);
        });
        Self { child, address: Some(address) }
    }

    async fn address(&mut self) -> SocketAddr {
        soon(self.address.take().expect("asked once")).await.expect("the server starts")
    }

    /// SIGKILL: nothing is finished, nothing is tidied.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// SplitMix64: the same seed, the same choices.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn micros(&mut self, end: u64) -> Duration {
        Duration::from_micros(self.below(end))
    }
}

/// Calls a method. `None` when the answer did not come whole: the server is dead.
async fn call(address: SocketAddr, method: &str, params: &Value, key: Option<&str>) -> Option<Value> {
    let body = request(method, params);
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{key}Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut bytes = Vec::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all((head + &body).as_bytes()).await?;
        stream.read_to_end(&mut bytes).await
    };
    soon(exchange).await.ok()?;
    let (_, body) = std::str::from_utf8(&bytes).ok()?.split_once("\r\n\r\n")?;
    let answer: Value = serde_json::from_str(body).ok()?;
    assert_eq!(answer["error"], Value::Null, "{method} {params}: {answer}");
    Some(answer["result"].clone())
}

/// What a client knows of a task.
#[derive(Clone)]
struct Known {
    /// As the server told it last.
    task: Value,
    /// Whether something was asked since, and no answer came.
    unsure: bool,
}

/// A message under a key, sent and not answered: it is sent again.
struct Unanswered {
    key: String,
    params: Value,
}

/// Sends one message after the other until the server is dead.
struct Client {
    name: String,
    address: SocketAddr,
    random: Random,
    sent: u64,
    answers: mpsc::Sender<()>,
    known: HashMap<String, Known>,
    opened: Vec<String>,
    parked: Vec<String>,
    unanswered: Vec<Unanswered>,
}

impl Client {
    async fn run(mut self) -> Self {
        while self.step().await.is_some() {}
        self
    }

    async fn step(&mut self) -> Option<()> {
        match self.random.below(8) {
            0 | 1 => self.open("echo", false).await.map(drop),
            2 => {
                let count = self.random.below(200);
                self.open(&format!("stream {count}"), false).await.map(drop)
            }
            3 | 4 => self.watch().await,
            5 => self.open("ask", false).await.map(|id| self.parked.push(id)),
            6 => self.answer().await,
            _ => self.interfere().await,
        }
    }

    /// Reads a result while it is written: what is there grows.
    async fn watch(&mut self) -> Option<()> {
        let count = self.random.below(200);
        let id = self.open(&format!("stream {count}"), true).await?;
        while !is_settled(&self.known[&id].task) {
            let task = self.call("GetTask", json!({"id": id}), false).await?;
            assert_follows(&self.known[&id].task, &task);
            self.learn(task);
        }
        Some(())
    }

    /// Goes on with a task that asks.
    async fn answer(&mut self) -> Option<()> {
        if self.parked.is_empty() {
            return Some(());
        }
        let place = usize::try_from(self.random.next()).unwrap() % self.parked.len();
        let id = self.parked.swap_remove(place);
        let task = self.say(&id, "echo", false).await?;
        assert_eq!(task["status"]["state"], COMPLETED, "{task}");
        Some(())
    }

    /// Adds to a task that runs; cancels it, or leaves it.
    async fn interfere(&mut self) -> Option<()> {
        let id = self.open("wait", true).await?;
        self.say(&id, "echo", true).await?;
        if self.random.below(2) == 0 {
            self.known.get_mut(&id).unwrap().unsure = true;
            let task = self.call("CancelTask", json!({"id": id}), false).await?;
            assert_eq!(task["status"]["state"], CANCELED, "{task}");
            self.learn(task);
        }
        Some(())
    }

    /// Opens a task.
    async fn open(&mut self, text: &str, at_once: bool) -> Option<String> {
        let params = self.message(text, at_once, json!({}));
        let keyed = !at_once && self.random.below(2) == 0;
        let task = self.call("SendMessage", params, keyed).await?["task"].clone();
        let id = task["id"].as_str().unwrap().to_owned();
        self.opened.push(id.clone());
        self.learn(task);
        Some(id)
    }

    /// Sends a message to a task.
    async fn say(&mut self, id: &str, text: &str, at_once: bool) -> Option<Value> {
        let params = self.message(text, at_once, json!({"taskId": id}));
        self.known.get_mut(id).unwrap().unsure = true;
        let said = params["message"]["messageId"].clone();
        let keyed = !at_once && self.random.below(2) == 0;
        let task = self.call("SendMessage", params, keyed).await?["task"].clone();
        assert!(ids_said(&task).contains(&&said), "{said} {task}");
        self.learn(task.clone());
        Some(task)
    }

    fn message(&mut self, text: &str, at_once: bool, more: Value) -> Value {
        self.sent += 1;
        let id = format!("{}-{}", self.name, self.sent);
        let mut message = message(&format!("{text} {id}"), more);
        message["messageId"] = json!(id);
        json!({"message": message, "configuration": {"returnImmediately": at_once}})
    }

    async fn call(&mut self, method: &str, params: Value, keyed: bool) -> Option<Value> {
        let key = keyed.then(|| format!("key-{}-{}", self.name, self.sent));
        let answer = call(self.address, method, &params, key.as_deref()).await;
        match (&answer, key) {
            // Whoever counts has enough when there is no room.
            (Some(_), _) => self.answers.try_send(()).unwrap_or(()),
            (None, Some(key)) => self.unanswered.push(Unanswered { key, params }),
            (None, None) => {}
        }
        answer
    }

    fn learn(&mut self, task: Value) {
        let id = task["id"].as_str().unwrap().to_owned();
        self.known.insert(id, Known { task, unsure: false });
    }
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

fn is_terminal(task: &Value) -> bool {
    [COMPLETED, FAILED, CANCELED].contains(&state(task))
}

fn is_settled(task: &Value) -> bool {
    is_terminal(task) || state(task) == ASKS
}

/// Everything that was said, in order.
fn said(task: &Value) -> Vec<&Value> {
    let history = task["history"].as_array().into_iter().flatten();
    history.chain(task["status"].get("message")).collect()
}

fn ids_said(task: &Value) -> Vec<&Value> {
    said(task).into_iter().map(|message| &message["messageId"]).collect()
}

/// The artifacts, each with its id and its text.
fn written(task: &Value) -> Vec<(&Value, String)> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let text = |artifact: &Value| {
        let parts = artifact["parts"].as_array().into_iter().flatten();
        parts.map(|part| part["text"].as_str().unwrap()).collect()
    };
    artifacts.map(|artifact| (&artifact["artifactId"], text(artifact))).collect()
}

/// A later reading has everything of an earlier one, in its place.
fn assert_follows(before: &Value, after: &Value) {
    if is_terminal(before) {
        return assert_eq!(before, after);
    }
    assert_eq!((&before["id"], &before["contextId"]), (&after["id"], &after["contextId"]));
    assert!(said(after).starts_with(&said(before)), "{before} {after}");
    let (old, new) = (written(before), written(after));
    assert!(old.len() <= new.len(), "{before} {after}");
    for ((old_id, old), (new_id, new)) in old.iter().zip(&new) {
        assert!(old_id == new_id && new.starts_with(old), "{before} {after}");
    }
}

/// A task is right in itself: nothing twice, nothing left out, and a failure says why.
fn assert_whole(task: &Value) {
    let ids = ids_said(task);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "{task}");
    if state(task) == FAILED {
        assert_eq!(task["metadata"]["attache.reason"], "interrupted", "{task}");
    }
    let texts = said(task).into_iter().filter(|message| message["role"] == "ROLE_USER");
    let texts = texts.map(|message| message["parts"][0]["text"].as_str().unwrap());
    // A question is answered by an echo; a task that waits writes nothing.
    let results: Vec<_> =
        texts.filter(|text| !text.starts_with("ask") && !text.starts_with("wait")).map(result_of).collect();
    let written = written(task);
    match state(task) {
        COMPLETED => {
            let written: Vec<_> = written.iter().map(|(_, text)| text.clone()).collect();
            assert_eq!(written, results, "{task}");
        }
        _ => {
            assert!(written.len() <= results.len(), "{task}");
            let mut pairs = written.iter().zip(&results);
            assert!(pairs.all(|((_, written), result)| result.starts_with(written)), "{task}");
        }
    }
}

/// All that was ever acknowledged.
#[derive(Default)]
struct Ledger {
    known: HashMap<String, Known>,
    opened: HashSet<String>,
    parked: Vec<String>,
    unanswered: Vec<Unanswered>,
}

impl Ledger {
    fn take_in(&mut self, client: Client) -> Vec<String> {
        let touched = client.known.keys().cloned().collect();
        for id in client.opened {
            assert!(self.opened.insert(id.clone()), "{id} was given twice");
        }
        self.known.extend(client.known);
        self.unanswered.extend(client.unanswered);
        touched
    }

    /// Waits until the server is done with what was cut off.
    async fn recovered(&self, address: SocketAddr) {
        for state in ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"] {
            let rests = async {
                let params = json!({"status": state, "pageSize": 1});
                while call(address, "ListTasks", &params, None).await.unwrap()["totalSize"] != 0 {}
            };
            soon(rests).await;
        }
        let all = call(address, "ListTasks", &json!({"pageSize": 1}), None).await.unwrap();
        assert!(all["totalSize"].as_u64().unwrap() >= self.opened.len() as u64, "{all}");
    }

    /// Sends again what was not answered: what comes of it is there once.
    async fn send_again(&mut self, address: SocketAddr) {
        for Unanswered { key, params } in std::mem::take(&mut self.unanswered) {
            let task = call(address, "SendMessage", &params, Some(&key)).await.unwrap()["task"].clone();
            assert!(ids_said(&task).contains(&&params["message"]["messageId"]), "{task}");
            let id = task["id"].as_str().unwrap().to_owned();
            if let Some(known) = self.known.get(&id) {
                assert_follows(&known.task, &task);
            }
            self.opened.insert(id.clone());
            self.learn(id, task);
        }
    }

    fn learn(&mut self, id: String, task: Value) {
        self.parked.retain(|parked| *parked != id);
        if state(&task) == ASKS {
            self.parked.push(id.clone());
        }
        self.known.insert(id, Known { task, unsure: false });
    }

    /// Reads tasks again after a restart.
    async fn check(&mut self, address: SocketAddr, ids: impl IntoIterator<Item = String>) {
        for id in ids {
            let before = self.known[&id].clone();
            let read = async {
                loop {
                    let task = call(address, "GetTask", &json!({"id": id}), None).await.unwrap();
                    assert_follows(&before.task, &task);
                    // A question that was answered as the server died is worked on, or was never answered.
                    let rests = is_terminal(&task) || task == before.task || !before.unsure;
                    if is_settled(&task) && rests {
                        return task;
                    }
                }
            };
            let task = soon(read).await;
            if is_settled(&before.task) && !before.unsure {
                assert_eq!(task, before.task);
            }
            assert_whole(&task);
            self.learn(id, task);
        }
    }
}

/// Says how to do it again when the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("ATTACHE_SEED={}", self.0);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap())
}

/// Waits for a moment to kill: after so many answers, or at any time.
async fn moment(random: &mut Random, answers: &mut mpsc::Receiver<()>) {
    if random.below(2) == 0 {
        for _ in 0..=random.below(60) {
            soon(answers.recv()).await;
        }
    } else {
        let end = tokio::time::Instant::now() + random.micros(80_000);
        let _ = timeout_at(end, async { while answers.recv().await.is_some() {} }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let seed = Seed(number("ATTACHE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0)));
    let asked = number("ATTACHE_CRASHES");
    let mut random = Random(seed.0);
    let folder = TempDir::new().unwrap();
    let (mut ledger, mut touched) = (Ledger::default(), Vec::new());
    let (began, mut crashes) = (Instant::now(), 0);
    while crashes < asked.unwrap_or(CRASHES) && (asked.is_some() || began.elapsed() < PATIENCE) {
        let mut process = Process::start(folder.path());
        crashes += 1;
        if random.below(6) == 0 {
            // While it opens the file and recovers.
            let _ = timeout(random.micros(60_000), process.address.take().unwrap()).await;
            process.kill();
            continue;
        }
        let address = process.address().await;
        ledger.recovered(address).await;
        ledger.check(address, std::mem::take(&mut touched)).await;
        ledger.send_again(address).await;
        let (answers, mut answered) = mpsc::channel(64);
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let parked: Vec<_> = ledger.parked.pop().into_iter().collect();
            let known = parked.iter().map(|id| (id.clone(), ledger.known[id].clone())).collect();
            let client = Client {
                name: format!("{crashes}-{client}"),
                address,
                random: Random(random.next()),
                sent: 0,
                answers: answers.clone(),
                known,
                opened: Vec::new(),
                parked,
                unanswered: Vec::new(),
            };
            clients.spawn(client.run());
        }
        drop(answers);
        moment(&mut random, &mut answered).await;
        process.kill();
        while let Some(client) = soon(clients.join_next()).await {
            touched.extend(ledger.take_in(client.unwrap()));
        }
    }
    let mut process = Process::start(folder.path());
    let address = process.address().await;
    ledger.recovered(address).await;
    ledger.check(address, std::mem::take(&mut touched)).await;
    ledger.send_again(address).await;
    let all: Vec<_> = ledger.known.keys().cloned().collect();
    ledger.check(address, all).await;
    process.kill();
    let killed = began.elapsed();
    let logs = check_file(&folder.path().join(FILE), &ledger).await;
    let cut = ledger.known.values().filter(|known| state(&known.task) == FAILED).count();
    println!("{crashes} kills in {killed:?}; {logs} tasks, {cut} of them cut off");
}

/// Reads the file itself: every log is whole, and says what the server said.
async fn check_file(path: &Path, ledger: &Ledger) -> usize {
    let store = Sqlite::open(path, Options::default()).unwrap();
    let mut heads = store.ended(Timestamp::MAX, ALL).await.unwrap();
    heads.extend(store.unfinished(None, ALL).await.unwrap());
    let ids: HashSet<_> = heads.iter().map(|head| head.id.as_str()).collect();
    assert_eq!(ids.len(), heads.len());
    assert!(ledger.known.keys().all(|id| ids.contains(id.as_str())));
    let mut messages = HashSet::new();
    for head in &heads {
        let entries = resumed(&store, head).await;
        let task = Task::fold(&entries).unwrap().expect("a log begins with the task");
        assert_eq!((&task.id, task.status.state), (&head.id, head.state));
        assert!(head.state.is_terminal() || head.state.is_interrupted(), "{head:?}");
        let ends = entries.iter().filter(
            |entry| matches!(&entry.event, Event::Status { status, .. } if status.state.is_terminal()),
        );
        assert_eq!(ends.count(), usize::from(head.state.is_terminal()), "{entries:?}");
        for message in entries.iter().filter_map(message_of) {
            assert!(messages.insert(message.message_id.clone()), "{message:?} is there twice");
        }
        if let Some(known) = ledger.known.get(head.id.as_str()) {
            assert_eq!(serde_json::to_value(&task).unwrap(), known.task);
        }
    }
    heads.len()
}

/// A log as a reader sees it who comes back where it stopped, a few entries at a time.
async fn resumed(store: &Sqlite, head: &Head) -> Vec<Entry> {
    let mut entries = Vec::<Entry>::new();
    loop {
        let at = entries.last().map_or(Seq(0), |entry| entry.seq);
        let more = store.read(head, at, 50).await.unwrap();
        if more.is_empty() {
            assert_eq!(at, head.position);
            assert!(entries.iter().zip(1..).all(|(entry, place)| entry.seq == Seq(place)), "{entries:?}");
            return entries;
        }
        entries.extend(more);
    }
}

fn message_of(entry: &Entry) -> Option<&Message> {
    match &entry.event {
        Event::Message(message) => Some(message),
        _ => None,
    }
}
