//! Scenarios with open streams: many streams of one task, or one stream per task.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use attache::Client;
use attache::EventStream;
use attache::model::{CancelTaskRequest, StreamResponse, SubscribeToTaskRequest, TaskId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::closed_loop::{StreamEnd, state};
use super::stats::{Progress, Samples, micros};
use super::{BenchFailure, BenchPlan, only_failure};

/// Time for readers to receive the end of a canceled task.
const GRACE: Duration = Duration::from_secs(5);

/// All connections read the events of one task. At the end the task is canceled, and all readers must receive that.
pub(super) async fn fan_out(
    plan: &BenchPlan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    end: &CancellationToken,
) -> Samples {
    let Some(first) = clients.first().cloned() else {
        return Samples::default();
    };
    let (id, first_stream) = match begin(&first, plan).await {
        Ok(begun) => begun,
        Err(fault) => return only_failure(fault),
    };
    // The stream of the call that started the task is not measured.
    drop(first_stream);
    let first_end = Arc::new(OnceLock::new());
    let expired = CancellationToken::new();
    let mut readers = JoinSet::new();
    for client in clients {
        let reader = follow(client, id.clone(), progress.clone(), first_end.clone());
        readers.spawn(with_expiry(reader, expired.clone()));
    }
    let stop = async {
        end.cancelled().await;
        cancel(&first, id.clone()).await;
        tokio::time::sleep(GRACE).await;
        expired.cancel();
        std::future::pending::<()>().await;
    };
    let mut samples = Samples::default();
    let all = async {
        while let Some(one) = readers.join_next().await {
            samples.add(one.unwrap_or_default());
        }
    };
    tokio::select! {
        () = all => {}
        () = stop => {}
    }
    samples
}

/// Each connection holds a stream of its own task until the end. The tasks are canceled then.
pub(super) async fn idle(
    plan: &BenchPlan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    end: &CancellationToken,
) -> Samples {
    let mut holders = JoinSet::new();
    for client in clients {
        if !progress.reserve() {
            break;
        }
        holders.spawn(hold(client, plan.clone(), progress.clone(), end.clone()));
    }
    let mut samples = Samples::default();
    while let Some(one) = holders.join_next().await {
        samples.add(one.unwrap_or_default());
    }
    samples
}

/// Starts a task, and returns its id and its stream.
async fn begin(client: &Client, plan: &BenchPlan) -> Result<(TaskId, EventStream), BenchFailure> {
    let mut events = client.send_streaming_message(plan.request()).await?;
    let first = events.next().await.transpose()?;
    let id = first.and_then(|(_, event)| match event {
        StreamResponse::Task(task) => Some(task.id),
        StreamResponse::StatusUpdate(update) => Some(update.task_id),
        StreamResponse::ArtifactUpdate(update) => Some(update.task_id),
        StreamResponse::Message(_) => None,
    });
    let id =
        id.ok_or_else(|| BenchFailure::Unexpected("the agent answers without a task".to_owned()))?;
    Ok((id, events))
}

/// Runs a reader until it ends or the grace period is over.
async fn with_expiry(reader: impl Future<Output = Samples>, expired: CancellationToken) -> Samples {
    tokio::select! {
        samples = reader => samples,
        () = expired.cancelled() => only_failure(BenchFailure::Unexpected("a reader did not receive the end of the task".to_owned())),
    }
}

/// Reads one task to its end. The latency is the delay behind the reader that received the end first.
async fn follow(
    client: Client,
    id: TaskId,
    progress: Arc<Progress>,
    first_end: Arc<OnceLock<Instant>>,
) -> Samples {
    let mut samples = Samples::default();
    let done = read_to_end(&client, id, &mut samples).await;
    progress.record(done.is_ok());
    match done {
        Ok(()) => samples
            .latencies
            .push(micros(first_end.get_or_init(Instant::now).elapsed())),
        Err(fault) => samples.add_failure(fault),
    }
    samples
}

async fn read_to_end(
    client: &Client,
    id: TaskId,
    samples: &mut Samples,
) -> Result<(), BenchFailure> {
    let began = Instant::now();
    let request = SubscribeToTaskRequest {
        id,
        ..SubscribeToTaskRequest::default()
    };
    let mut events = client.subscribe_to_task(request, None).await?;
    let mut last = None;
    while let Some(event) = events.next().await {
        let (_, event) = event?;
        if samples.events == 0 {
            samples.first.push(micros(began.elapsed()));
        }
        samples.events += 1;
        last = state(&event).or(last);
    }
    match last {
        Some(StreamEnd::State(state)) if state.is_terminal() || state.is_interrupted() => Ok(()),
        _ => Err(BenchFailure::Unexpected(
            "a stream ended before the task did".to_owned(),
        )),
    }
}

async fn hold(
    client: Client,
    plan: BenchPlan,
    progress: Arc<Progress>,
    end: CancellationToken,
) -> Samples {
    let mut samples = Samples::default();
    let began = Instant::now();
    let begun = tokio::select! {
        begun = begin(&client, &plan) => begun,
        () = end.cancelled() => Err(BenchFailure::Unexpected("a stream did not open in time".to_owned())),
    };
    progress.record(begun.is_ok());
    let (id, mut events) = match begun {
        Ok(begun) => begun,
        Err(fault) => {
            samples.add_failure(fault);
            return samples;
        }
    };
    samples.events += 1;
    let opened = micros(began.elapsed());
    let cut = loop {
        tokio::select! {
            () = end.cancelled() => break None,
            event = events.next() => match event {
                Some(Ok(_)) => samples.events += 1,
                Some(Err(error)) => break Some(BenchFailure::Refused(error)),
                None => break Some(BenchFailure::Unexpected("a stream ended early".to_owned())),
            },
        }
    };
    drop(events);
    match cut {
        Some(fault) => samples.add_failure(fault),
        None => samples.latencies.push(opened),
    }
    cancel(&client, id).await;
    samples
}

/// Cancels a task. Errors are ignored: the task may have ended.
async fn cancel(client: &Client, id: TaskId) {
    let request = CancelTaskRequest {
        id,
        ..CancelTaskRequest::default()
    };
    let _ = tokio::time::timeout(GRACE, client.cancel_task(request)).await;
}
