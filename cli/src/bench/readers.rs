//! Streams that are held: many of one task, or one each.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use attache::Client;
use attache::EventStream;
use attache::model::{CancelTaskRequest, StreamResponse, SubscribeToTaskRequest, TaskId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::loops::{Rest, state};
use super::tally::{Progress, Sheet, micros};
use super::{Fault, Plan, nothing};

/// How long readers may take to see the end of a task that was canceled.
const GRACE: Duration = Duration::from_secs(5);

/// One task, and all connections read its events. When the time is over it is canceled: all of them should see that.
pub(super) async fn fan_out(
    plan: &Plan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    over: &CancellationToken,
) -> Sheet {
    let Some(first) = clients.first().cloned() else {
        return Sheet::default();
    };
    let (id, lead) = match begin(&first, plan).await {
        Ok(begun) => begun,
        Err(fault) => return nothing(fault),
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
    let mut sheet = Sheet::default();
    let all = async {
        while let Some(one) = readers.join_next().await {
            sheet.add(one.unwrap_or_default());
        }
    };
    tokio::select! {
        () = all => {}
        () = stop => {}
    }
    sheet
}

/// A stream for each connection, of a task of its own, held until the time is over. Their tasks are canceled then.
pub(super) async fn idle(
    plan: &Plan,
    clients: Vec<Client>,
    progress: &Arc<Progress>,
    over: &CancellationToken,
) -> Sheet {
    let mut holders = JoinSet::new();
    for client in clients {
        if !progress.take() {
            break;
        }
        holders.spawn(hold(client, plan.clone(), progress.clone(), over.clone()));
    }
    let mut sheet = Sheet::default();
    while let Some(one) = holders.join_next().await {
        sheet.add(one.unwrap_or_default());
    }
    sheet
}

/// Begins a task; its id, and the stream it came by.
async fn begin(client: &Client, plan: &Plan) -> Result<(TaskId, EventStream), Fault> {
    let mut events = client.send_streaming_message(plan.request()).await?;
    let first = events.next().await.transpose()?;
    let id = first.and_then(|(_, event)| match event {
        StreamResponse::Task(task) => Some(task.id),
        StreamResponse::StatusUpdate(update) => Some(update.task_id),
        StreamResponse::ArtifactUpdate(update) => Some(update.task_id),
        StreamResponse::Message(_) => None,
    });
    let id = id.ok_or_else(|| {
        Fault::Ended("the agent answers without a task: there is nothing to follow".to_owned())
    })?;
    Ok((id, events))
}

async fn stopped(reader: impl Future<Output = Sheet>, gone: CancellationToken) -> Sheet {
    tokio::select! {
        sheet = reader => sheet,
        () = gone.cancelled() => nothing(Fault::Ended("a reader never saw the end of the task".to_owned())),
    }
}

/// Reads one task to its end. What is late is told against the reader who saw the end first.
async fn follow(
    client: Client,
    id: TaskId,
    progress: Arc<Progress>,
    end: Arc<OnceLock<Instant>>,
) -> Sheet {
    let mut sheet = Sheet::default();
    let done = read_to_end(&client, id, &mut sheet).await;
    progress.did(done.is_ok());
    match done {
        Ok(()) => sheet
            .latencies
            .push(micros(end.get_or_init(Instant::now).elapsed())),
        Err(fault) => sheet.fault(fault),
    }
    sheet
}

async fn read_to_end(client: &Client, id: TaskId, sheet: &mut Sheet) -> Result<(), Fault> {
    let began = Instant::now();
    let request = SubscribeToTaskRequest {
        id,
        ..SubscribeToTaskRequest::default()
    };
    let mut events = client.subscribe_to_task(request, None).await?;
    let mut last = None;
    while let Some(event) = events.next().await {
        let (_, event) = event?;
        if sheet.events == 0 {
            sheet.first.push(micros(began.elapsed()));
        }
        sheet.events += 1;
        last = state(&event).or(last);
    }
    match last {
        Some(Rest::State(state)) if state.is_terminal() || state.is_interrupted() => Ok(()),
        _ => Err(Fault::Ended(
            "a stream ended before the task did".to_owned(),
        )),
    }
}

async fn hold(
    client: Client,
    plan: Plan,
    progress: Arc<Progress>,
    over: CancellationToken,
) -> Sheet {
    let mut sheet = Sheet::default();
    let began = Instant::now();
    let begun = tokio::select! {
        begun = begin(&client, &plan) => begun,
        () = over.cancelled() => Err(Fault::Ended("a stream was not open when the time was over".to_owned())),
    };
    progress.did(begun.is_ok());
    let (id, mut events) = match begun {
        Ok(begun) => begun,
        Err(fault) => {
            sheet.fault(fault);
            return sheet;
        }
    };
    sheet.events += 1;
    let opened = micros(began.elapsed());
    let cut = loop {
        tokio::select! {
            () = over.cancelled() => break None,
            event = events.next() => match event {
                Some(Ok(_)) => sheet.events += 1,
                Some(Err(error)) => break Some(Fault::Refused(error)),
                None => break Some(Fault::Ended("a stream ended before the time was over".to_owned())),
            },
        }
    };
    drop(events);
    match cut {
        Some(fault) => sheet.fault(fault),
        None => sheet.latencies.push(opened),
    }
    cancel(&client, id).await;
    sheet
}

/// Nobody waits for it any more. Whether it could be canceled is its own affair: it may have ended.
async fn cancel(client: &Client, id: TaskId) {
    let request = CancelTaskRequest {
        id,
        ..CancelTaskRequest::default()
    };
    let _ = tokio::time::timeout(GRACE, client.cancel_task(request)).await;
}
