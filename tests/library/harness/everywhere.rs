//! One scenario, everywhere: in process and over a socket, in every binding and version.
//!
//! What differs between versions is the protocol's doing and not the scenario's; it stands here, once.

use std::fmt;

use attache::model::{
    AgentCard, Binding, ErrorKind, ListTasksRequest, StreamResponse, SubscribeToTaskRequest, Task,
    TaskState, TaskStatus, Version,
};
use attache::{Agent, Client, EventStream, Result, Server};

use crate::harness::{run, with_deadline};

/// Every way to talk.
pub(crate) const MATRIX: &[(Binding, Version)] = &[
    (Binding::JsonRpc, Version::V1),
    (Binding::JsonRpc, Version::V03),
    (Binding::HttpJson, Version::V1),
    (Binding::HttpJson, Version::V03),
    #[cfg(feature = "grpc")]
    (Binding::Grpc, Version::V1),
    #[cfg(feature = "grpc")]
    (Binding::Grpc, Version::V03),
];

/// Runs a scenario with a client of each kind; each has a server to itself.
pub(crate) async fn everywhere<A: Agent>(agent: impl Fn() -> A, scenario: impl AsyncFn(Client)) {
    everywhere_on(|| Server::new(card(), agent()), scenario).await;
}

/// The same, for a server that is set up otherwise than by default.
pub(crate) async fn everywhere_on(server: impl Fn() -> Server, scenario: impl AsyncFn(Client)) {
    for &(binding, version) in MATRIX {
        let cell = Cell {
            binding,
            version,
            place: "in process",
        };
        let local = with_deadline(server().serve_in_process()).await.unwrap();
        with_deadline(scenario(local.client(binding, version).unwrap())).await;
        drop(cell);
        let cell = Cell {
            binding,
            version,
            place: "over a socket",
        };
        let running = run(server()).await;
        let client =
            Client::new(&format!("http://{}/", running.address), binding, version).unwrap();
        with_deadline(scenario(client)).await;
        drop(cell);
    }
}

/// The card of an agent that is nothing but served.
pub(crate) fn card() -> AgentCard {
    AgentCard::new("Echo", "Says it back").input_modes(["*/*"])
}

/// Where a scenario runs; says so if it fails.
struct Cell {
    binding: Binding,
    version: Version,
    place: &'static str,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.binding, self.version, self.place)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {self}");
        }
    }
}

/// The version that a client speaks.
pub(crate) fn version(client: &Client) -> Version {
    let spoken = client.interface().protocol_version;
    Version::ALL
        .into_iter()
        .find(|version| version.as_str() == spoken)
        .unwrap()
}

fn is_v1(client: &Client) -> bool {
    version(client) == Version::V1
}

/// 1.0 alone has tenants: 0.3 has no place for them.
pub(crate) fn has_tenants(client: &Client) -> bool {
    is_v1(client)
}

/// 06 §2: 1.0 alone promises details of an error; 0.3 has its kind and its words, and sometimes more.
pub(crate) fn has_details(client: &Client) -> bool {
    is_v1(client)
}

/// 06 §1, §2: HTTP says in a header when to come again, 1.0 gRPC in its details; 0.3 gRPC has no place for it.
pub(crate) fn has_retry_hint(client: &Client) -> bool {
    is_v1(client) || client.interface().binding() != Some(Binding::Grpc)
}

/// 05 §3: a position is the `id:` of a server-sent event, so gRPC has none.
pub(crate) fn has_positions(client: &Client) -> bool {
    client.interface().binding() != Some(Binding::Grpc)
}

/// 01 §8: the 0.3 proto that its REST and gRPC are written in has no place for references to tasks.
pub(crate) fn has_references(client: &Client) -> bool {
    is_v1(client) || client.interface().binding() == Some(Binding::JsonRpc)
}

/// 04 §3.2: how many messages come of `all` when so many are asked for. In 0.3 nobody can ask for none: 0 is all.
pub(crate) fn history(client: &Client, asked: usize, all: usize) -> usize {
    if asked == 0 && !is_v1(client) {
        all
    } else {
        asked.min(all)
    }
}

/// 04 §1: whether there is a call that lists tasks; 0.3 has none, and its client says so.
pub(crate) async fn can_list(client: &Client) -> bool {
    if is_v1(client) {
        return true;
    }
    let refused = client
        .list_tasks(ListTasksRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UnsupportedOperation);
    false
}

/// 05 §3: a subscription to a task that has ended is refused, but for 0.3 gRPC, which gives the task and ends.
pub(crate) async fn assert_nothing_to_subscribe(client: &Client, task: &Task) {
    let request = SubscribeToTaskRequest {
        id: task.id.clone(),
        ..Default::default()
    };
    let opened = open(client.subscribe_to_task(request, None)).await;
    if is_v1(client) || has_positions(client) {
        assert_eq!(
            opened.err().map(|error| error.kind()),
            Some(ErrorKind::UnsupportedOperation)
        );
    } else {
        assert_eq!(
            opened.unwrap().all().await,
            [StreamResponse::Task(task.clone())]
        );
    }
}

/// 01 §6: a refusal comes instead of a stream, or in 0.3 as its first event. Either way it is a refusal.
pub(crate) async fn open(opening: impl Future<Output = Result<EventStream>>) -> Result<Events> {
    let mut rest = opening.await?;
    let first = rest
        .next()
        .await
        .transpose()?
        .map(|(at, event)| (at.map(|at| at.0), event));
    Ok(Events { first, rest })
}

/// A stream that was not refused.
pub(crate) struct Events {
    first: Option<(Option<u64>, StreamResponse)>,
    rest: EventStream,
}

impl Events {
    /// The next event with its position; `None` at the end. That a task is at work may be told whenever a turn takes
    /// its time, and no scenario is about that.
    pub(crate) async fn next_at(&mut self) -> Option<(Option<u64>, StreamResponse)> {
        loop {
            let (at, event) = match self.first.take() {
                Some(first) => first,
                None => self
                    .rest
                    .next()
                    .await
                    .map(|item| item.unwrap())
                    .map(|(at, it)| (at.map(|at| at.0), it))?,
            };
            if event_text(&event) != "status active" {
                return Some((at, event));
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Option<StreamResponse> {
        self.next_at().await.map(|(_, event)| event)
    }

    /// Everything up to the end.
    pub(crate) async fn all(mut self) -> Vec<StreamResponse> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// What comes next, in short; empty at the end.
    pub(crate) async fn event_text(&mut self) -> String {
        self.next()
            .await
            .as_ref()
            .map(event_text)
            .unwrap_or_default()
    }

    /// Everything up to the end, in short.
    pub(crate) async fn event_texts(self) -> Vec<String> {
        self.all().await.iter().map(event_text).collect()
    }
}

/// An event in short: what it is, the state or the name, and the words. 07 §1: submitted and at work are both active,
/// and which of them it is depends on how quick the turn is.
pub(crate) fn event_text(event: &StreamResponse) -> String {
    let state = |status: &TaskStatus| match (&status.message, status.state) {
        (None, TaskState::Submitted | TaskState::Working) => "active".to_owned(),
        (None, state) => short(state),
        (Some(message), state) => format!("{}: {}", short(state), message.text()),
    };
    match event {
        StreamResponse::Task(task) => format!("task {}", state(&task.status)),
        StreamResponse::Message(message) => format!("message {}", message.text()),
        StreamResponse::StatusUpdate(event) => format!("status {}", state(&event.status)),
        StreamResponse::ArtifactUpdate(event) => {
            let texts: Vec<_> = event
                .artifact
                .parts
                .iter()
                .filter_map(|part| part.as_text())
                .collect();
            let chunk = if event.append { "chunk" } else { "artifact" };
            let end = if event.last_chunk { "." } else { "" };
            format!("{chunk} {}{end}", texts.join("|"))
        }
    }
}

fn short(state: TaskState) -> String {
    state
        .as_str()
        .trim_start_matches("TASK_STATE_")
        .to_lowercase()
}
