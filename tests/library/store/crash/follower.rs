//! A client that follows tasks across kills: it resubscribes after the last position it received.

use std::net::SocketAddr;

use attache::Client;
use attache::model::{
    Binding, ContextId, Entry, Message, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, Seq, StreamResponse, SubscribeToTaskRequest, TaskId, Version,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::child::COUNTER;
use crate::harness::with_deadline;

/// Numbers that each task writes. It takes longer than several kills.
const NUMBERS: usize = 1_000;

/// Position of the `Created` entry. Subscribers receive the entries after it.
const CREATED: Seq = Seq(1);

/// Events of a task that was followed to its end.
pub(super) struct FollowedTask {
    pub(super) id: TaskId,
    /// Received events with their positions.
    events: Vec<(Seq, StreamResponse)>,
    /// Number of interrupted streams.
    cuts: usize,
}

impl FollowedTask {
    /// Asserts that the received events equal the log: no gap, no duplicate, no other event.
    pub(super) fn assert_equals_log(&self, log: &[Entry], context_id: &ContextId) {
        let expected = log
            .iter()
            .filter_map(|entry| Some((entry.seq, entry.update(&self.id, context_id)?)));
        assert_eq!(self.events, expected.collect::<Vec<_>>());
        let numbers: String = self
            .events
            .iter()
            .flat_map(|(_, event)| text(event))
            .collect();
        let expected: String = (0..NUMBERS).map(|number| format!("{number} ")).collect();
        assert_eq!(numbers, expected, "the agent continues where the log ends");
    }
}

fn text(event: &StreamResponse) -> Option<&str> {
    match event {
        StreamResponse::ArtifactUpdate(update) => update.artifact.parts[0].as_text(),
        _ => None,
    }
}

/// Handle of the following client.
pub(super) struct Follower {
    /// Address of the server, and whether the test ends: no further task is created then.
    addresses: watch::Sender<(Option<SocketAddr>, bool)>,
    work: JoinSet<Vec<FollowedTask>>,
}

impl Follower {
    pub(super) fn start() -> Self {
        let (addresses, receiver) = watch::channel((None, false));
        let mut work = JoinSet::new();
        work.spawn(
            FollowLoop {
                addresses: receiver,
                address: None,
            }
            .run(),
        );
        Self { addresses, work }
    }

    /// Announces a restarted server.
    pub(super) fn set_address(&self, address: SocketAddr) {
        self.addresses.send_replace((Some(address), false));
    }

    /// Announces the last server and waits until the current task has ended.
    pub(super) async fn finish(mut self, address: SocketAddr, kills: u64) -> Vec<FollowedTask> {
        self.addresses.send_replace((Some(address), true));
        let followed = with_deadline(self.work.join_next())
            .await
            .expect("the client runs")
            .unwrap();
        let cuts: usize = followed.iter().map(|followed| followed.cuts).sum();
        assert!(cuts as u64 >= kills / 3, "only {cuts} interrupted streams");
        assert!(
            followed.iter().any(|followed| followed.cuts > 1),
            "no task was followed across several kills"
        );
        followed
    }
}

/// State of the following client.
struct FollowLoop {
    addresses: watch::Receiver<(Option<SocketAddr>, bool)>,
    /// Address of the last server that was contacted.
    address: Option<SocketAddr>,
}

impl FollowLoop {
    async fn run(mut self) -> Vec<FollowedTask> {
        let mut followed = Vec::new();
        self.next_server().await;
        while !self.addresses.borrow().1 {
            let id = self.create(followed.len()).await;
            followed.push(self.follow(id).await);
        }
        followed
    }

    /// Waits for a server with another address.
    async fn next_server(&mut self) {
        let known = self.address;
        let next = with_deadline(self.addresses.wait_for(|(address, _)| *address != known))
            .await
            .unwrap();
        self.address = next.0;
    }

    fn client(&self) -> Client {
        let url = format!(
            "http://{}/agents/{COUNTER}",
            self.address.expect("a server was announced")
        );
        Client::new(&url, Binding::JsonRpc, Version::V1).unwrap()
    }

    /// Creates a task, with retries under one idempotency key.
    async fn create(&mut self, number: usize) -> TaskId {
        let key = format!("followed-{number}");
        let message = Message {
            message_id: key.as_str().into(),
            ..Message::user(NUMBERS.to_string())
        };
        let configuration = SendMessageConfiguration {
            return_immediately: true,
            ..Default::default()
        };
        let request = SendMessageRequest {
            configuration: Some(configuration),
            ..SendMessageRequest::new(message)
        };
        loop {
            let client = self.client().with_header("Idempotency-Key", &key).unwrap();
            match with_deadline(client.send_message(request.clone())).await {
                Ok(SendMessageResponse::Task(task)) => return task.id,
                Ok(other) => panic!("expected a task: {other:?}"),
                Err(_) => self.next_server().await,
            }
        }
    }

    async fn follow(&mut self, id: TaskId) -> FollowedTask {
        let mut followed = FollowedTask {
            id,
            events: Vec::new(),
            cuts: 0,
        };
        while !self.read(&mut followed).await {
            followed.cuts += usize::from(!followed.events.is_empty());
            self.next_server().await;
        }
        followed
    }

    /// Reads the stream after the last position; returns whether the task has ended.
    async fn read(&self, followed: &mut FollowedTask) -> bool {
        let request = SubscribeToTaskRequest {
            id: followed.id.clone(),
            ..Default::default()
        };
        let at = followed.events.last().map_or(CREATED, |(at, _)| *at);
        let Ok(mut stream) =
            with_deadline(self.client().subscribe_to_task(request, Some(at))).await
        else {
            return false;
        };
        let mut has_ended = false;
        while let Some(event) = with_deadline(stream.next()).await {
            let Ok((at, event)) = event else { return false };
            has_ended = matches!(&event, StreamResponse::StatusUpdate(update) if update.status.state.is_terminal());
            followed.events.push((at.expect("a position"), event));
        }
        assert!(
            has_ended,
            "the server has closed the stream before the task ended: {:?}",
            followed.id
        );
        true
    }
}
