//! The test matrix: runs one scenario in process and over a socket, in every binding and version.
//!
//! Differences between versions that the protocol prescribes are functions of this module, not of scenarios.

use std::fmt;

use attache::model::{
    AgentCard, Binding, ErrorKind, ListTasksRequest, StreamResponse, SubscribeToTaskRequest, Task,
    TaskState, TaskStatus, Version,
};
use attache::{Agent, Client, EventStream, Result, Server};

use crate::harness::{run, with_deadline};

/// Every combination of binding and version.
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

/// Runs a scenario once per combination, each time with a new server and client.
pub(crate) async fn everywhere<A: Agent>(agent: impl Fn() -> A, scenario: impl AsyncFn(Client)) {
    everywhere_on(|| Server::new(card(), agent()), scenario).await;
}

/// Like [`everywhere`], for a server with its own configuration.
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

/// A minimal agent card.
pub(crate) fn card() -> AgentCard {
    AgentCard::new("Echo", "Says it back").input_modes(["*/*"])
}

/// One cell of the matrix. Prints the cell if the scenario panics.
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

/// Returns the protocol version of the client.
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

/// Whether the version has tenants. Only 1.0 does.
pub(crate) fn has_tenants(client: &Client) -> bool {
    is_v1(client)
}

/// Whether errors carry details (06 §2). Only 1.0 guarantees them.
pub(crate) fn has_details(client: &Client) -> bool {
    is_v1(client)
}

/// Whether one method returns the extended card, or else the public one (03 §6). Only 0.3 gRPC has it.
pub(crate) fn has_one_card_method(client: &Client) -> bool {
    !is_v1(client) && client.interface().binding() == Some(Binding::Grpc)
}

/// Whether stream events carry positions (05 §3). A position is the `id:` of an SSE event, so gRPC has none.
pub(crate) fn has_positions(client: &Client) -> bool {
    client.interface().binding() != Some(Binding::Grpc)
}

/// Whether messages carry `referenceTaskIds` (01 §8). The 0.3 proto, used by 0.3 REST and gRPC, lacks the field.
pub(crate) fn has_references(client: &Client) -> bool {
    is_v1(client) || client.interface().binding() == Some(Binding::JsonRpc)
}

/// Returns the expected history length (04 §3.2). In 0.3 gRPC and REST, 0 means unlimited.
pub(crate) fn history(client: &Client, asked: usize, all: usize) -> usize {
    if asked == 0 && !is_v1(client) {
        all
    } else {
        asked.min(all)
    }
}

/// Whether the version has `ListTasks` (04 §1). 0.3 has not, and its client returns an error.
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

/// Asserts that a subscription to an ended task fails (05 §3). 0.3 gRPC returns the task and ends instead.
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

/// Opens a stream. An error may replace the stream or, in 0.3, be its first event (01 §6); both become `Err`.
pub(crate) async fn open(opening: impl Future<Output = Result<EventStream>>) -> Result<Events> {
    let mut rest = opening.await?;
    let first = rest
        .next()
        .await
        .transpose()?
        .map(|(at, event)| (at.map(|at| at.0), event));
    Ok(Events { first, rest })
}

/// A stream that opened without an error.
pub(crate) struct Events {
    first: Option<(Option<u64>, StreamResponse)>,
    rest: EventStream,
}

impl Events {
    /// Returns the next event with its position, `None` at the end. Skips `working` statuses: slow turns add them.
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

    /// Returns all remaining events.
    pub(crate) async fn all(mut self) -> Vec<StreamResponse> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Returns the summary of the next event, empty at the end.
    pub(crate) async fn event_text(&mut self) -> String {
        self.next()
            .await
            .as_ref()
            .map(event_text)
            .unwrap_or_default()
    }

    /// Returns the summaries of all remaining events.
    pub(crate) async fn event_texts(self) -> Vec<String> {
        self.all().await.iter().map(event_text).collect()
    }
}

/// Returns a one-line summary of an event: kind, state or artifact name, text. `submitted` and `working` are both
/// written as active (07 §1), because the speed of the turn decides which one occurs.
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
