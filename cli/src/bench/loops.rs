//! The same work again and again, over several connections at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use attache::Client;
use attache::model::{
    GetTaskRequest, SendMessageRequest, SendMessageResponse, StreamResponse, Task, TaskId,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::tally::{Progress, Sheet, micros};
use super::{Fault, Plan, answered, nothing, well};
use crate::args::Scenario;

/// A worker that fails pauses, so that an agent that refuses everything is not asked a million times.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone)]
enum Work {
    Send(Box<SendMessageRequest>),
    Get(TaskId),
    Stream(Box<SendMessageRequest>),
}

/// What a stream brought.
#[derive(Default)]
struct Seen {
    first: Option<Duration>,
    events: u64,
}

pub(super) async fn run(
    plan: &Plan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    over: &CancellationToken,
) -> Sheet {
    let work = match prepare(plan, clients.first()).await {
        Ok(work) => work,
        Err(fault) => return nothing(fault),
    };
    let mut workers = JoinSet::new();
    for client in clients {
        workers.spawn(repeat(client, work.clone(), progress.clone(), over.clone()));
    }
    let mut sheet = Sheet::default();
    while let Some(one) = workers.join_next().await {
        sheet.add(one.unwrap_or_default());
    }
    sheet
}

async fn prepare(plan: &Plan, client: Option<&Client>) -> Result<Work, Fault> {
    let request = Box::new(plan.request());
    match (plan.scenario, client) {
        (Scenario::Stream, _) => Ok(Work::Stream(request)),
        (Scenario::Get, Some(client)) => match client.send_message(*request).await? {
            SendMessageResponse::Task(task) => Ok(Work::Get(task.id)),
            SendMessageResponse::Message(_) => Err(Fault::Ended(
                "the agent answers without a task: there is nothing to get".to_owned(),
            )),
        },
        _ => Ok(Work::Send(request)),
    }
}

async fn repeat(
    client: Client,
    work: Work,
    progress: Arc<Progress>,
    over: CancellationToken,
) -> Sheet {
    let mut sheet = Sheet::default();
    loop {
        let counts = progress.counts();
        if !progress.take() {
            return sheet;
        }
        let began = Instant::now();
        let done = tokio::select! {
            biased;
            () = over.cancelled() => return sheet,
            done = once(&client, &work) => done,
        };
        progress.did(done.is_ok());
        match done {
            // What began while warming up does not count, and neither do its failures.
            _ if !counts => {}
            Ok(seen) => {
                sheet.latencies.push(micros(began.elapsed()));
                sheet.first.extend(seen.first.map(micros));
                sheet.events += seen.events;
            }
            Err(fault) => {
                sheet.fault(fault);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn once(client: &Client, work: &Work) -> Result<Seen, Fault> {
    match work {
        // Every message has an id of its own: the second of two with the same may be answered from memory.
        Work::Send(request) => answered(&client.send_message(fresh(request)).await?)?,
        Work::Get(id) => {
            let request = GetTaskRequest {
                id: id.clone(),
                ..GetTaskRequest::default()
            };
            client.get_task(request).await?;
        }
        Work::Stream(request) => return stream(client, fresh(request)).await,
    }
    Ok(Seen::default())
}

fn fresh(request: &SendMessageRequest) -> SendMessageRequest {
    let mut request = request.clone();
    request.message.message_id = attache::model::MessageId::random();
    request
}

async fn stream(client: &Client, request: SendMessageRequest) -> Result<Seen, Fault> {
    let began = Instant::now();
    let mut events = client.send_streaming_message(request).await?;
    let (mut seen, mut last) = (Seen::default(), None);
    while let Some(event) = events.next().await {
        let (_, event) = event?;
        seen.first.get_or_insert_with(|| began.elapsed());
        seen.events += 1;
        last = state(&event).or(last);
    }
    match last {
        Some(Rest::Message) => Ok(seen),
        Some(Rest::State(state)) if state.is_terminal() || state.is_interrupted() => {
            well(state).map(|()| seen)
        }
        Some(Rest::State(_)) | None => Err(Fault::Ended(
            "the stream ended before the task did".to_owned(),
        )),
    }
}

/// What a stream says of how things stand.
pub(super) enum Rest {
    Message,
    State(attache::model::TaskState),
}

pub(super) fn state(event: &StreamResponse) -> Option<Rest> {
    match event {
        StreamResponse::Message(_) => Some(Rest::Message),
        StreamResponse::Task(Task { status, .. }) => Some(Rest::State(status.state)),
        StreamResponse::StatusUpdate(update) => Some(Rest::State(update.status.state)),
        StreamResponse::ArtifactUpdate(_) => None,
    }
}
