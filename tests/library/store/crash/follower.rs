//! A client that follows tasks across every kill: it comes back with the last position it saw.

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

/// How far each task counts: on through several kills.
const NUMBERS: usize = 1_000;

/// The position of the entry that makes the task: behind it is everything that a reader is told of.
const BEGINNING: Seq = Seq(1);

/// A task that was followed to its end.
pub(super) struct Followed {
    pub(super) id: TaskId,
    /// Everything that was told, with its position.
    seen: Vec<(Seq, StreamResponse)>,
    /// How often the server was dead in the middle of it.
    cuts: usize,
}

impl Followed {
    /// No gap, no duplicate, and nothing that the log does not have.
    pub(super) fn assert_is(&self, log: &[Entry], context_id: &ContextId) {
        let told = log
            .iter()
            .filter_map(|entry| Some((entry.seq, entry.update(&self.id, context_id)?)));
        assert_eq!(self.seen, told.collect::<Vec<_>>());
        let numbers: String = self
            .seen
            .iter()
            .flat_map(|(_, event)| text(event))
            .collect();
        let expected: String = (0..NUMBERS).map(|number| format!("{number} ")).collect();
        assert_eq!(numbers, expected, "the agent goes on where the log ends");
    }
}

fn text(event: &StreamResponse) -> Option<&str> {
    match event {
        StreamResponse::ArtifactUpdate(update) => update.artifact.parts[0].as_text(),
        _ => None,
    }
}

/// One that is at work.
pub(super) struct Follower {
    /// Where the server is, and whether it stays: then nothing new is begun.
    addresses: watch::Sender<(Option<SocketAddr>, bool)>,
    work: JoinSet<Vec<Followed>>,
}

impl Follower {
    pub(super) fn start() -> Self {
        let (addresses, seen) = watch::channel((None, false));
        let mut work = JoinSet::new();
        work.spawn(
            Work {
                addresses: seen,
                address: None,
            }
            .run(),
        );
        Self { addresses, work }
    }

    /// The server runs again.
    pub(super) fn is_at(&self, address: SocketAddr) {
        self.addresses.send_replace((Some(address), false));
    }

    /// The server stays: what was begun comes to its end, and nothing new begins.
    pub(super) async fn finish(mut self, address: SocketAddr, kills: u64) -> Vec<Followed> {
        self.addresses.send_replace((Some(address), true));
        let followed = with_deadline(self.work.join_next())
            .await
            .expect("it works")
            .unwrap();
        let cuts: usize = followed.iter().map(|followed| followed.cuts).sum();
        assert!(cuts as u64 >= kills / 3, "it came back {cuts} times");
        assert!(
            followed.iter().any(|followed| followed.cuts > 1),
            "one task has lived through several kills"
        );
        followed
    }
}

struct Work {
    addresses: watch::Receiver<(Option<SocketAddr>, bool)>,
    /// The server that was known last.
    address: Option<SocketAddr>,
}

impl Work {
    async fn run(mut self) -> Vec<Followed> {
        let mut followed = Vec::new();
        self.next_server().await;
        while !self.addresses.borrow().1 {
            let id = self.open(followed.len()).await;
            followed.push(self.follow(id).await);
        }
        followed
    }

    /// Waits for the server that comes after the one that was known.
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
            self.address.expect("a server was there")
        );
        Client::new(&url, Binding::JsonRpc, Version::V1).unwrap()
    }

    /// Opens a task; the same one however often it takes.
    async fn open(&mut self, number: usize) -> TaskId {
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
                Ok(other) => panic!("no task: {other:?}"),
                Err(_) => self.next_server().await,
            }
        }
    }

    async fn follow(&mut self, id: TaskId) -> Followed {
        let mut followed = Followed {
            id,
            seen: Vec::new(),
            cuts: 0,
        };
        while !self.read(&mut followed).await {
            followed.cuts += usize::from(!followed.seen.is_empty());
            self.next_server().await;
        }
        followed
    }

    /// Reads on behind the last position; whether that came to the end of the task.
    async fn read(&self, followed: &mut Followed) -> bool {
        let request = SubscribeToTaskRequest {
            id: followed.id.clone(),
            ..Default::default()
        };
        let at = followed.seen.last().map_or(BEGINNING, |(at, _)| *at);
        let Ok(mut stream) =
            with_deadline(self.client().subscribe_to_task(request, Some(at))).await
        else {
            return false;
        };
        let mut over = false;
        while let Some(event) = with_deadline(stream.next()).await {
            let Ok((at, event)) = event else { return false };
            over = matches!(&event, StreamResponse::StatusUpdate(update) if update.status.state.is_terminal());
            followed.seen.push((at.expect("a position"), event));
        }
        assert!(
            over,
            "the server has ended the stream in good order, before the task: {:?}",
            followed.id
        );
        true
    }
}
