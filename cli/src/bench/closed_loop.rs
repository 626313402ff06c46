//! Closed-loop scenarios: each connection sends its next request after the previous one has ended.

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

/// Pause of a worker after a failure, so that failing requests do not run in a busy loop.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);

/// The request that workers repeat.
#[derive(Clone)]
enum Workload {
    Send(Box<SendMessageRequest>),
    Get(TaskId),
    Stream(Box<SendMessageRequest>),
}

/// Measurements of one stream.
#[derive(Default)]
struct StreamSample {
    first: Option<Duration>,
    events: u64,
}

pub(super) async fn run(
    plan: &BenchPlan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    end: &CancellationToken,
) -> Samples {
    let work = match prepare(plan, clients.first()).await {
        Ok(work) => work,
        Err(fault) => return only_failure(fault),
    };
    let mut workers = JoinSet::new();
    for client in clients {
        workers.spawn(repeat(client, work.clone(), progress.clone(), end.clone()));
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
                "the agent answers without a task".to_owned(),
            )),
        },
        _ => Ok(Workload::Send(request)),
    }
}

async fn repeat(
    client: Client,
    work: Workload,
    progress: Arc<Progress>,
    end: CancellationToken,
) -> Samples {
    let mut samples = Samples::default();
    loop {
        let counts = progress.is_counting();
        if !progress.reserve() {
            return samples;
        }
        let began = Instant::now();
        let done = tokio::select! {
            biased;
            () = end.cancelled() => return samples,
            done = once(&client, &work) => done,
        };
        progress.record(done.is_ok());
        match done {
            // Requests that began during the warm-up do not count.
            _ if !counts => {}
            Ok(sample) => {
                samples.latencies.push(micros(began.elapsed()));
                samples.first.extend(sample.first.map(micros));
                samples.events += sample.events;
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
        // Each message has a new id: a repeated one may be answered by idempotency.
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
    let mut sample = StreamSample::default();
    let mut last = None;
    while let Some(event) = events.next().await {
        let (_, event) = event?;
        sample.first.get_or_insert_with(|| began.elapsed());
        sample.events += 1;
        last = state(&event).or(last);
    }
    match last {
        Some(StreamEnd::Message) => Ok(sample),
        Some(StreamEnd::State(state)) if state.is_terminal() || state.is_interrupted() => {
            check_state(state).map(|()| sample)
        }
        Some(StreamEnd::State(_)) | None => Err(BenchFailure::Unexpected(
            "the stream ended before the task did".to_owned(),
        )),
    }
}

/// State that an event of a stream reports.
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
