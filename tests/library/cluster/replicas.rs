//! Two servers in one process: events, commands and the start without a database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attache::model::{
    Binding, CancelTaskRequest, ErrorKind, Message, SendMessageConfiguration, SendMessageRequest,
    StreamResponse, SubscribeToTaskRequest, TaskState, Version,
};
use attache::store::Postgres;
use attache::{Agent, Client, Failure, Outcome, Server, Turn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::database::TestSchema;
use crate::harness::everywhere::card;
use crate::harness::{Echo, Running, run, with_deadline};

/// Number of events of a stream. Polling every 2 s would exceed the deadline of the test.
const EVENTS: usize = 40;

/// Writes one chunk per permit.
struct Gated {
    permits: Arc<Semaphore>,
}

impl Agent for Gated {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let mut writer = turn.writer("result");
        for number in 0..EVENTS {
            let permit = self.permits.acquire().await;
            permit.expect("never closed").forget();
            writer.write(format!("{number} ")).await;
        }
        Ok(Outcome::Completed)
    }
}

fn client(server: &Running) -> Client {
    let url = format!("http://{}/", server.address);
    Client::new(&url, Binding::JsonRpc, Version::V1).unwrap()
}

/// Sends a message without waiting for its turn, and returns the task id.
async fn start_task(client: &Client) -> attache::model::TaskId {
    let mut request = SendMessageRequest::new(Message::user("go"));
    request.configuration = Some(SendMessageConfiguration {
        return_immediately: true,
        ..SendMessageConfiguration::default()
    });
    let sent = client.send_message(request).await.unwrap();
    sent.task().unwrap().id.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn r21_streams_and_cancels_of_another_replica_need_no_polling() {
    let Some(schema) = TestSchema::new() else {
        return;
    };
    let permits = Arc::new(Semaphore::new(0));
    let agent = || Gated {
        permits: permits.clone(),
    };
    let holder = run(Server::new(card(), agent()).store(schema.open().await)).await;
    let other = run(Server::new(card(), agent()).store(schema.open().await)).await;
    with_deadline(async {
        let id = start_task(&client(&holder)).await;
        let request = SubscribeToTaskRequest {
            id: id.clone(),
            ..SubscribeToTaskRequest::default()
        };
        let other = client(&other);
        let mut stream = other.subscribe_to_task(request, None).await.unwrap();
        let mut text = String::new();
        let mut ended = None;
        permits.add_permits(1);
        while let Some(event) = stream.next().await {
            match event.unwrap().1 {
                StreamResponse::ArtifactUpdate(update) => {
                    text.extend(
                        update
                            .artifact
                            .parts
                            .iter()
                            .filter_map(|part| part.as_text()),
                    );
                    // The next event follows the arrival of this one.
                    permits.add_permits(1);
                }
                StreamResponse::StatusUpdate(update) => ended = Some(update.status.state),
                StreamResponse::Task(_) | StreamResponse::Message(_) => {}
            }
        }
        let all: String = (0..EVENTS).map(|number| format!("{number} ")).collect();
        assert_eq!(text, all);
        assert_eq!(ended, Some(TaskState::Completed));
        for _ in 0..10 {
            let id = start_task(&client(&holder)).await;
            let request = CancelTaskRequest {
                id,
                ..CancelTaskRequest::default()
            };
            let canceled = other.cancel_task(request).await.unwrap();
            assert_eq!(canceled.status.state, TaskState::Canceled);
        }
    })
    .await;
    drop((holder, other));
    schema.drop().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn operators_list_the_replicas() {
    let Some(schema) = TestSchema::new() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let admin = attache::Admin::new(folder.path());
    let socket = admin.socket();
    let _one = run(Server::new(card(), Echo)
        .store(schema.open().await)
        .admin(admin))
    .await;
    let _other = run(Server::new(card(), Echo).store(schema.open().await)).await;
    let mut stream = with_deadline(tokio::net::UnixStream::connect(&socket))
        .await
        .unwrap();
    let request = "GET /replicas HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n";
    let mut reply = String::new();
    with_deadline(async {
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_to_string(&mut reply).await.unwrap();
    })
    .await;
    let reply = crate::harness::Answer::read(&reply).json();
    let replicas = reply["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 2, "{reply}");
    assert_eq!(replicas[0]["isLocal"], true);
    assert_eq!(replicas[1]["isLocal"], false);
    assert_eq!(replicas[1]["removed"], serde_json::Value::Null);
    schema.drop().await;
}

/// Passes connections on to the database, from now on.
async fn start_database(address: SocketAddr, database: SocketAddr) -> JoinSet<()> {
    let listener = TcpListener::bind(address).await.unwrap();
    let mut proxy = JoinSet::new();
    proxy.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut server = TcpStream::connect(database).await.unwrap();
                // Ends with either side.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    proxy
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_a_server_starts_before_its_database() {
    let Some(schema) = TestSchema::new() else {
        return;
    };
    let reserved = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let mut options = schema.options_through(address);
    options.start_unreachable = true;
    let store = Postgres::open(options).await.unwrap();
    let mut server = run(Server::new(card(), Echo).store(store)).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    let readiness = server.get("/readyz").await;
    assert_eq!(readiness.status, 503);
    assert_eq!(readiness.body, "not ready: the store cannot be reached\n");
    let request = || SendMessageRequest::new(Message::user("hi"));
    let refused = with_deadline(client(&server).send_message(request())).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    let database = start_database(address, schema.address()).await;
    with_deadline(async {
        while server.get("/readyz").await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let sent = with_deadline(client(&server).send_message(request())).await;
    let state = sent.unwrap().task().unwrap().status.state;
    assert_eq!(state, TaskState::Completed);
    server.stop().await;
    drop(database);
    schema.drop().await;
}
