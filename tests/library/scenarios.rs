//! Protocol scenarios, written on `Client` and run over every binding and version.

mod access;
mod cancel;
mod cards;
mod conversations;
mod errors;
mod extensions;
mod hooks;
mod idempotency;
mod isolation;
mod large_content;
mod list;
mod push_configs;
mod reading;
mod send;
mod streams;
mod subscribe;
mod tenants;

use std::sync::Arc;

use attache::model::{
    Call, CancelTaskRequest, ErrorKind, GetTaskRequest, Message, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, Task, TaskId,
};
use attache::{Agent, Client, Failure, Outcome, Result, Turn};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::harness::everywhere::{Events, open};
use crate::harness::with_deadline;

/// Agent whose message text selects the outcome. It echoes any other text.
#[derive(Clone)]
struct TextCommandAgent;

impl Agent for TextCommandAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        match turn.text().as_str() {
            "ask" => Ok(Outcome::ask("which harbour?")),
            "auth" => Ok(Outcome::auth_required("log in first")),
            "reject" => Ok(Outcome::rejected("not today")),
            "fail" => Ok(Outcome::failed("the tide is out")),
            "hang" => std::future::pending().await,
            "panic" => panic!("hunter2"),
            "error" => Err(std::io::Error::other("hunter2"))?,
            text => {
                turn.write("echo", text).await;
                Ok(Outcome::Completed)
            }
        }
    }

    async fn reply(&self, message: &Message, _: &Call) -> Option<Message> {
        match message.text().as_str() {
            "ping" => Some(Message::agent("pong")),
            "ping panic" => panic!("hunter2"),
            _ => None,
        }
    }
}

/// Agent whose turns the test completes one by one.
#[derive(Clone)]
struct SteppedJobAgent {
    turns: mpsc::Sender<Job>,
    begun: Arc<Mutex<mpsc::Receiver<Job>>>,
}

/// Running turn that the test ends.
struct Job {
    turn: Turn,
    end: oneshot::Sender<Outcome>,
}

impl SteppedJobAgent {
    fn new() -> Self {
        let (turns, begun) = mpsc::channel(16);
        Self {
            turns,
            begun: Arc::new(Mutex::new(begun)),
        }
    }

    /// Waits for the next turn to start and returns it.
    async fn next(&self) -> Job {
        with_deadline(async { self.begun.lock().await.recv().await })
            .await
            .unwrap()
    }

    /// Whether no started turn is left to take with `next`.
    async fn is_idle(&self) -> bool {
        self.begun.lock().await.try_recv().is_err()
    }
}

impl Agent for SteppedJobAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let (end, ended) = oneshot::channel();
        self.turns
            .send(Job { turn, end })
            .await
            .map_err(|_| std::io::Error::other("the test is over"))?;
        Ok(ended.await?)
    }
}

impl Job {
    fn end(self, outcome: Outcome) {
        self.end.send(outcome).expect("the turn goes on");
    }

    fn complete(self) {
        self.end(Outcome::Completed);
    }
}

fn message(text: &str) -> SendMessageRequest {
    SendMessageRequest::new(Message::user(text))
}

fn message_to(task: &Task, text: &str) -> SendMessageRequest {
    SendMessageRequest::new(Message::user(text).in_task(task.id.clone()))
}

fn configured(
    request: SendMessageRequest,
    configuration: SendMessageConfiguration,
) -> SendMessageRequest {
    SendMessageRequest {
        configuration: Some(configuration),
        ..request
    }
}

fn return_immediately(request: SendMessageRequest) -> SendMessageRequest {
    configured(
        request,
        SendMessageConfiguration {
            return_immediately: true,
            ..Default::default()
        },
    )
}

/// Sends a message and returns the task. Panics if the response is a message.
async fn send(client: &Client, request: SendMessageRequest) -> Task {
    match client.send_message(request).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("{message:?}"),
    }
}

async fn send_text(client: &Client, text: &str) -> Task {
    send(client, message(text)).await
}

/// Sends a text with `return_immediately` and returns the new task.
async fn begin(client: &Client, text: &str) -> Task {
    send(client, return_immediately(message(text))).await
}

async fn stream(client: &Client, request: SendMessageRequest) -> Events {
    open(client.send_streaming_message(request)).await.unwrap()
}

async fn subscribe(client: &Client, id: &TaskId) -> Result<Events> {
    let request = SubscribeToTaskRequest {
        id: id.clone(),
        ..Default::default()
    };
    open(client.subscribe_to_task(request, None)).await
}

async fn get(client: &Client, task: &Task) -> Task {
    find(client, &task.id).await.unwrap()
}

async fn find(client: &Client, id: &TaskId) -> Result<Task> {
    client
        .get_task(GetTaskRequest {
            id: id.clone(),
            ..Default::default()
        })
        .await
}

async fn cancel(client: &Client, id: &TaskId) -> Result<Task> {
    client
        .cancel_task(CancelTaskRequest {
            id: id.clone(),
            ..Default::default()
        })
        .await
}

/// Polls the task until it has ended and returns it.
async fn wait_until_ended(client: &Client, task: &Task) -> Task {
    loop {
        let task = get(client, task).await;
        if task.is_ended() {
            return task;
        }
    }
}

/// Returns the error kind. Panics if the call succeeded.
fn error_kind<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("a refusal").kind()
}

/// Returns the texts of the history, oldest first.
fn history_texts(task: &Task) -> Vec<String> {
    task.history.iter().map(|message| message.text()).collect()
}
