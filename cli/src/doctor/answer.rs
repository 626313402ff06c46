//! A message to the agent: whether it answers, streams, and whether events arrive when they are sent.

use std::time::{Duration, Instant};

use attache::Client;
use attache::model::{
    CancelTaskRequest, Message, SendMessageRequest, StreamResponse, TaskId, TaskState,
};

use super::DiagnosticStep::{Answer, Streaming};
use super::buffering::{self, Arrival};
use super::{Diagnostic, Examination};
use crate::error::{CliError, CliResult};
use crate::output::line;
use crate::session::Session;

/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit of canceling the task that did not end in time.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// What arrived after a message.
#[derive(Debug, Default)]
struct Observation {
    task: Option<TaskId>,
    state: Option<TaskState>,
    /// Text of the last status.
    status_text: Option<String>,
    /// Whether the agent answered with a message instead of a task.
    has_reply: bool,
    arrivals: Vec<Arrival>,
    error: Option<CliError>,
}

impl Observation {
    fn add(&mut self, event: &StreamResponse, elapsed: Duration) {
        let status = match event {
            StreamResponse::Task(task) => {
                self.task = Some(task.id.clone());
                Some(&task.status)
            }
            StreamResponse::StatusUpdate(update) => {
                self.task = Some(update.task_id.clone());
                Some(&update.status)
            }
            StreamResponse::ArtifactUpdate(_) => None,
            StreamResponse::Message(_) => {
                self.has_reply = true;
                None
            }
        };
        if let Some(status) = status {
            self.state = Some(status.state);
            let text = status.message.as_ref().map(|message| message.text());
            self.status_text = text.filter(|text| !text.is_empty());
        }
        self.arrivals.push(Arrival {
            elapsed,
            sent_ms: status
                .and_then(|status| status.timestamp)
                .map(|at| at.as_millis()),
        });
    }

    fn is_settled(&self) -> bool {
        self.has_reply
            || self
                .state
                .is_some_and(|state| state.is_terminal() || state.is_interrupted())
    }
}

/// Sends the message and reports what happens. Without a message the steps are skipped.
pub(super) async fn examine(
    examination: &mut Examination<'_>,
    session: &Session<'_>,
    message: Option<&str>,
) -> CliResult {
    let Some(text) = message else {
        return examination.add(Diagnostic::skipped(Answer, "no message is sent"));
    };
    let start = Instant::now();
    let mut seen = Observation::default();
    let followed = tokio::time::timeout(ANSWER_TIMEOUT, follow(session, text, start, &mut seen));
    let is_in_time = followed.await.is_ok();
    let elapsed = start.elapsed();
    if let (false, false, Some(task)) = (is_in_time, seen.is_settled(), &seen.task) {
        cancel(&session.client, task).await;
    }
    examination.add(answer(&seen, elapsed))?;
    if !session.supports_streaming() {
        let message = "the card does not offer it; clients poll";
        return examination.add(Diagnostic::skipped(Streaming, message));
    }
    examination.add(streaming(&seen))?;
    if seen.error.is_none() {
        examination.add(buffering::judge(&seen.arrivals, elapsed))?;
    }
    Ok(())
}

/// Reads the events of the message until the task is settled.
async fn follow(session: &Session<'_>, text: &str, start: Instant, seen: &mut Observation) {
    let request = SendMessageRequest {
        metadata: session.settings.metadata.clone(),
        ..SendMessageRequest::new(Message::user(text))
    };
    let result = if session.supports_streaming() {
        follow_stream(&session.client, request, start, seen).await
    } else {
        poll(&session.client, request, start, seen).await
    };
    seen.error = result.err().map(|error| session.error(&error));
}

async fn follow_stream(
    client: &Client,
    request: SendMessageRequest,
    start: Instant,
    seen: &mut Observation,
) -> attache::Result<()> {
    let mut events = client.send_streaming_message(request).await?;
    while let Some(event) = events.next().await {
        let (_, event) = event?;
        seen.add(&event, start.elapsed());
        if seen.is_settled() {
            break;
        }
    }
    Ok(())
}

async fn poll(
    client: &Client,
    request: SendMessageRequest,
    start: Instant,
    seen: &mut Observation,
) -> attache::Result<()> {
    let mut events = client.stream(request).await?;
    while let Some(event) = events.next().await {
        seen.add(&event?, start.elapsed());
        if seen.is_settled() {
            break;
        }
    }
    Ok(())
}

/// Cancels the task, which nobody waits for. Best effort.
async fn cancel(client: &Client, task: &TaskId) {
    let request = CancelTaskRequest {
        id: task.clone(),
        ..CancelTaskRequest::default()
    };
    let _ = tokio::time::timeout(CANCEL_TIMEOUT, client.cancel_task(request)).await;
}

/// Whether the agent answers.
fn answer(seen: &Observation, elapsed: Duration) -> Diagnostic {
    let time = buffering::seconds(elapsed);
    if let Some(error) = &seen.error {
        let hint = error.hint.clone();
        return Diagnostic {
            hint,
            ..Diagnostic::failed(Answer, error.message.clone())
        };
    }
    let reason = seen.status_text.as_deref().map(line);
    let reason = reason.map(|text| format!(": {text}")).unwrap_or_default();
    match seen.state {
        _ if seen.has_reply => Diagnostic::ok(Answer, format!("a message after {time}")),
        Some(TaskState::Completed) => Diagnostic::ok(Answer, format!("completed after {time}")),
        Some(state) if state.is_interrupted() => {
            Diagnostic::ok(Answer, format!("asks back after {time}{reason}"))
        }
        Some(state) if state.is_terminal() => {
            Diagnostic::warning(Answer, format!("{state} after {time}{reason}"))
                .hint("the connection works; the agent itself failed, so see its log")
        }
        Some(state) => Diagnostic::warning(
            Answer,
            format!("{state} after {time}{reason}; the task was canceled"),
        )
        .hint("the agent is slow; send with --async, and wait with attache task get --wait"),
        None => Diagnostic::failed(Answer, format!("nothing within {time}"))
            .hint("the agent accepts the message, but sends no event; see its log"),
    }
}

/// Whether events arrive.
fn streaming(seen: &Observation) -> Diagnostic {
    if let Some(error) = &seen.error {
        return Diagnostic::failed(Streaming, error.message.clone())
            .hint("the card offers streaming; a proxy may block it. Without: send --async, then task get --wait");
    }
    let count = seen.arrivals.len();
    match seen.arrivals.first() {
        None => Diagnostic::failed(Streaming, "the stream has no events")
            .hint("without streaming: send --async, then task get --wait"),
        Some(first) => Diagnostic::ok(
            Streaming,
            format!(
                "{count} events, the first after {}",
                buffering::seconds(first.elapsed)
            ),
        ),
    }
}
