//! The same work again and again, over several connections at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use attache::Client;
use attache::model::{
    GetTaskRequest, SendMessageRequest, SendMessageResponse, StreamResponse, Task, TaskId,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::stats::{Progress, Samples, micros};
use super::{BenchFailure, BenchPlan, check_answer, check_state, only_failure};
use crate::args::Scenario;

/// A worker that fails pauses, so that an agent that refuses everything is not asked a million times.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone)]
enum Workload {
    Send(Box<SendMessageRequest>),
    Get(TaskId),
    Stream(Box<SendMessageRequest>),
}

/// What a stream brought.
#[derive(Default)]
struct StreamSample {
    first: Option<Duration>,
    events: u64,
}

pub(super) async fn run(
    plan: &BenchPlan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    over: &CancellationToken,
) -> Samples {
    let work = match prepare(plan, clients.first()).await {
        Ok(work) => work,
        Err(fault) => return only_failure(fault),
    };
    let mut workers = JoinSet::new();
    for client in clients {
        workers.spawn(repeat(client, work.clone(), progress.clone(), over.clone()));
    }
    let mut samples = Samples::default();
    while let Some(one) = workers.join_next().await {
        samples.add(one.unwrap_or_default());
    }
    samples
}

async fn prepare(plan: &BenchPlan, client: Option<&Client>) -> Result<Workload, BenchFailure> {
    let request = Box::new(plan.request());
    match (plan.scenario, client) {
        (Scenario::Stream, _) => Ok(Workload::Stream(request)),
        (Scenario::Get, Some(client)) => match client.send_message(*request).await? {
            SendMessageResponse::Task(task) => Ok(Workload::Get(task.id)),
            SendMessageResponse::Message(_) => Err(BenchFailure::Unexpected(
                "the agent answers without a task: there is nothing to get".to_owned(),
            )),
        },
        _ => Ok(Workload::Send(request)),
    }
}

async fn repeat(
    client: Client,
    work: Workload,
    progress: Arc<Progress>,
    over: CancellationToken,
) -> Samples {
    let mut samples = Samples::default();
    loop {
        let counts = progress.is_counting();
        if !progress.take() {
            return samples;
        }
        let began = Instant::now();
        let done = tokio::select! {
            biased;
            () = over.cancelled() => return samples,
            done = once(&client, &work) => done,
        };
        progress.record(done.is_ok());
        match done {
            // What began while warming up does not count, and neither do its failures.
            _ if !counts => {}
            Ok(seen) => {
                samples.latencies.push(micros(began.elapsed()));
                samples.first.extend(seen.first.map(micros));
                samples.events += seen.events;
            }
            Err(fault) => {
                samples.add_failure(fault);
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
        }
    }
}

async fn once(client: &Client, work: &Workload) -> Result<StreamSample, BenchFailure> {
    match work {
        // Every message has an id of its own: the second of two with the same may be answered from memory.
        Workload::Send(request) => check_answer(&client.send_message(fresh(request)).await?)?,
        Workload::Get(id) => {
            let request = GetTaskRequest {
                id: id.clone(),
                ..GetTaskRequest::default()
            };
            client.get_task(request).await?;
        }
        Workload::Stream(request) => return stream(client, fresh(request)).await,
    }
    Ok(StreamSample::default())
}

fn fresh(request: &SendMessageRequest) -> SendMessageRequest {
    let mut request = request.clone();
    request.message.message_id = attache::model::MessageId::random();
    request
}

async fn stream(
    client: &Client,
    request: SendMessageRequest,
) -> Result<StreamSample, BenchFailure> {
    let began = Instant::now();
    let mut events = client.send_streaming_message(request).await?;
    let (mut seen, mut last) = (StreamSample::default(), None);
    while let Some(event) = events.next().await {
        let (_, event) = event?;
        seen.first.get_or_insert_with(|| began.elapsed());
        seen.events += 1;
        last = state(&event).or(last);
    }
    match last {
        Some(StreamEnd::Message) => Ok(seen),
        Some(StreamEnd::State(state)) if state.is_terminal() || state.is_interrupted() => {
            check_state(state).map(|()| seen)
        }
        Some(StreamEnd::State(_)) | None => Err(BenchFailure::Unexpected(
            "the stream ended before the task did".to_owned(),
        )),
    }
}

/// What a stream says of how things stand.
pub(super) enum StreamEnd {
    Message,
    State(attache::model::TaskState),
}

pub(super) fn state(event: &StreamResponse) -> Option<StreamEnd> {
    match event {
        StreamResponse::Message(_) => Some(StreamEnd::Message),
        StreamResponse::Task(Task { status, .. }) => Some(StreamEnd::State(status.state)),
        StreamResponse::StatusUpdate(update) => Some(StreamEnd::State(update.status.state)),
        StreamResponse::ArtifactUpdate(_) => None,
    }
}
