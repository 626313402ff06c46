//! Streams end with the credential that opened them.

use std::time::Duration;

use attache::auth::{Access, ApiKey, ApiKeys};
use attache::model::{
    Binding, ErrorKind, Message, Secret, SendMessageRequest, StreamResponse,
    SubscribeToTaskRequest, TaskId, Version,
};
use attache::{Agent, Client, EventStream, InProcessServer, Outcome, Server, Turn};
use tokio::sync::watch;

use crate::harness::everywhere::{MATRIX, card};
use crate::harness::with_deadline;

/// An agent that says each number that the test sends.
fn counting(numbers: &watch::Receiver<u32>) -> impl Agent + use<> {
    let numbers = numbers.clone();
    move |turn: Turn| {
        let mut numbers = numbers.clone();
        async move {
            loop {
                let number = *numbers.borrow_and_update();
                turn.say(number.to_string()).await;
                if numbers.changed().await.is_err() {
                    return Ok(Outcome::Completed);
                }
            }
        }
    }
}

async fn start(agent: impl Agent, keys: &ApiKeys) -> InProcessServer {
    let server = Server::new(card(), agent).access(Access::new(keys.clone()));
    with_deadline(server.serve_in_process()).await.unwrap()
}

/// Stream of a task, and the id of the task.
struct OpenStream {
    events: EventStream,
    task: TaskId,
}

impl OpenStream {
    async fn open(client: &Client) -> Self {
        let request = SendMessageRequest::new(Message::user("count"));
        let mut events = with_deadline(client.send_streaming_message(request))
            .await
            .unwrap();
        let (_, first) = with_deadline(events.next()).await.unwrap().unwrap();
        let StreamResponse::Task(task) = first else {
            panic!("{first:?}");
        };
        Self {
            events,
            task: task.id,
        }
    }

    /// Reads events until the agent says the text.
    async fn read_until(&mut self, text: &str) {
        loop {
            let (_, event) = with_deadline(self.events.next()).await.unwrap().unwrap();
            if let StreamResponse::StatusUpdate(update) = event
                && update
                    .status
                    .message
                    .is_some_and(|said| said.text() == text)
            {
                return;
            }
        }
    }
}

fn client(server: &InProcessServer, cell: (Binding, Version), key: &Secret) -> Client {
    let client = server.client(cell.0, cell.1).unwrap();
    client.with_bearer(key).unwrap()
}

#[tokio::test]
async fn d18_r48_a_revoked_key_ends_its_streams_and_a_rotation_ends_none() {
    for &cell in MATRIX {
        let (ann_key, ann) = ApiKey::generate("ann");
        let (new_key, ann_new) = ApiKey::generate("ann");
        let (bob_key, bob) = ApiKey::generate("bob");
        let keys = ApiKeys::new();
        keys.replace([&ann, &bob]);
        let (count, numbers) = watch::channel(0);
        let server = start(counting(&numbers), &keys).await;
        let mut of_ann = OpenStream::open(&client(&server, cell, &ann_key)).await;
        let mut of_bob = OpenStream::open(&client(&server, cell, &bob_key)).await;
        // A reload with another key of the caller.
        keys.replace([&ann, &ann_new, &bob]);
        count.send(1).unwrap();
        of_ann.read_until("1").await;
        of_bob.read_until("1").await;
        // The old key is revoked: an attacker who has it reads no more.
        keys.replace([&ann_new, &bob]);
        let ended = with_deadline(of_ann.events.next()).await.unwrap();
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{cell:?}");
        assert!(error.message().contains("revoked"), "{cell:?}: {error}");
        assert!(with_deadline(of_ann.events.next()).await.is_none());
        count.send(2).unwrap();
        of_bob.read_until("2").await;
        // The task goes on, and the caller follows it with the new key.
        let subscribe = SubscribeToTaskRequest {
            id: of_ann.task.clone(),
            ..Default::default()
        };
        let renewed = client(&server, cell, &new_key);
        let events = with_deadline(renewed.subscribe_to_task(subscribe, None)).await;
        of_ann.events = events.unwrap();
        count.send(3).unwrap();
        of_ann.read_until("3").await;
    }
}

#[tokio::test(start_paused = true)]
async fn d18_an_expired_key_ends_its_streams() {
    const LIFETIME: Duration = Duration::from_secs(600);
    let (secret, mut key) = ApiKey::generate("ann");
    key.expires_ms = Some(key.created_ms + i64::try_from(LIFETIME.as_millis()).unwrap());
    let keys = ApiKeys::new();
    keys.replace([&key]);
    let (_count, numbers) = watch::channel(0);
    let server = start(counting(&numbers), &keys).await;
    let cell = (Binding::JsonRpc, Version::V1);
    let mut open = OpenStream::open(&client(&server, cell, &secret)).await;
    open.read_until("0").await;
    // Paused time: the wait takes no real time.
    let ended = tokio::time::timeout(2 * LIFETIME, open.events.next()).await;
    let error = ended.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().contains("expired"), "{error}");
}
