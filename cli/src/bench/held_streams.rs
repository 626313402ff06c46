//! Streams that are held: many of one task, or one each.

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

/// How long readers may take to see the end of a task that was canceled.
const GRACE: Duration = Duration::from_secs(5);

/// One task, and all connections read its events. When the time is over it is canceled: all of them should see that.
pub(super) async fn fan_out(
    plan: &BenchPlan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    over: &CancellationToken,
) -> Samples {
    let Some(first) = clients.first().cloned() else {
        return Samples::default();
    };
    let (id, lead) = match begin(&first, plan).await {
        Ok(begun) => begun,
        Err(fault) => return only_failure(fault),
    };
    // The call that began the task is left at once: its stream is none of those that count.
    drop(lead);
    let (end, gone) = (Arc::new(OnceLock::new()), CancellationToken::new());
    let mut readers = JoinSet::new();
    for client in clients {
        let reader = follow(client, id.clone(), progress.clone(), end.clone());
        readers.spawn(stopped(reader, gone.clone()));
    }
    let stop = async {
        over.cancelled().await;
        cancel(&first, id.clone()).await;
        tokio::time::sleep(GRACE).await;
        gone.cancel();
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

/// A stream for each connection, of a task of its own, held until the time is over. Their tasks are canceled then.
pub(super) async fn idle(
    plan: &BenchPlan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    over: &CancellationToken,
) -> Samples {
    let mut holders = JoinSet::new();
    for client in clients {
        if !progress.take() {
            break;
        }
        holders.spawn(hold(client, plan.clone(), progress.clone(), over.clone()));
    }
    let mut samples = Samples::default();
    while let Some(one) = holders.join_next().await {
        samples.add(one.unwrap_or_default());
    }
    samples
}

/// Begins a task; its id, and the stream it came by.
async fn begin(client: &Client, plan: &BenchPlan) -> Result<(TaskId, EventStream), BenchFailure> {
    let mut events = client.send_streaming_message(plan.request()).await?;
    let first = events.next().await.transpose()?;
    let id = first.and_then(|(_, event)| match event {
        StreamResponse::Task(task) => Some(task.id),
        StreamResponse::StatusUpdate(update) => Some(update.task_id),
        StreamResponse::ArtifactUpdate(update) => Some(update.task_id),
        StreamResponse::Message(_) => None,
    });
    let id = id.ok_or_else(|| {
        BenchFailure::Unexpected(
            "the agent answers without a task: there is nothing to follow".to_owned(),
        )
    })?;
    Ok((id, events))
}

async fn stopped(reader: impl Future<Output = Samples>, gone: CancellationToken) -> Samples {
    tokio::select! {
        samples = reader => samples,
        () = gone.cancelled() => only_failure(BenchFailure::Unexpected("a reader never saw the end of the task".to_owned())),
    }
}

/// Reads one task to its end. What is late is told against the reader who saw the end first.
async fn follow(
    client: Client,
    id: TaskId,
    progress: Arc<Progress>,
    end: Arc<OnceLock<Instant>>,
) -> Samples {
    let mut samples = Samples::default();
    let done = read_to_end(&client, id, &mut samples).await;
    progress.record(done.is_ok());
    match done {
        Ok(()) => samples
            .latencies
            .push(micros(end.get_or_init(Instant::now).elapsed())),
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
    over: CancellationToken,
) -> Samples {
    let mut samples = Samples::default();
    let began = Instant::now();
    let begun = tokio::select! {
        begun = begin(&client, &plan) => begun,
        () = over.cancelled() => Err(BenchFailure::Unexpected("a stream was not open when the time was over".to_owned())),
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
            () = over.cancelled() => break None,
            event = events.next() => match event {
                Some(Ok(_)) => samples.events += 1,
                Some(Err(error)) => break Some(BenchFailure::Refused(error)),
                None => break Some(BenchFailure::Unexpected("a stream ended before the time was over".to_owned())),
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

/// Nobody waits for it any more. Whether it could be canceled is its own affair: it may have ended.
async fn cancel(client: &Client, id: TaskId) {
    let request = CancelTaskRequest {
        id,
        ..CancelTaskRequest::default()
    };
    let _ = tokio::time::timeout(GRACE, client.cancel_task(request)).await;
}
