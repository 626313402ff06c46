//! A call of a tool under way.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolResult, ClientRequest, ErrorData, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use rmcp::{RoleClient, ServiceError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use super::connection::{ActiveConnection, ServerUnavailable};
use super::http_transport::SESSION_EXPIRED;

/// How often is told how a call goes, at most: every word of it is in a log.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// A call that has been sent. Dropped before its end, the server is told that nobody waits for it.
pub(crate) struct PendingCall {
    handle: Option<RequestHandle<RoleClient>>,
    progress: mpsc::Receiver<CallProgress>,
    last_progress: f64,
    last_progress_at: Option<Instant>,
    deadline: Instant,
    limit: Duration,
    connection: Arc<ActiveConnection>,
    tasks: TaskTracker,
}

/// How a call goes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallProgress {
    pub(crate) progress: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: Option<String>,
}

/// What is heard of a call.
#[derive(Debug)]
pub(crate) enum CallEvent {
    Progress(CallProgress),
    Result(Box<CallToolResult>),
    Failed(CallError),
}

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The server went away before it answered.
    ConnectionLost,
    /// The server had forgotten us before it was asked, and has not heard of it.
    SessionExpired,
    TimedOut(Duration),
    /// The server says why not.
    Rejected(Box<ErrorData>),
    /// The answer is none that we understand.
    InvalidResponse(&'static str),
}

impl PendingCall {
    pub(super) async fn new(
        connection: Arc<ActiveConnection>,
        request: ClientRequest,
        (sender, progress): (mpsc::Sender<CallProgress>, mpsc::Receiver<CallProgress>),
        limit: Duration,
        tasks: TaskTracker,
    ) -> Result<Self, ServerUnavailable> {
        // Held until we know by which name the server tells of it: none that comes at once is missed.
        let mut progress_senders = connection.notifications.progress_senders.lock().await;
        let handle = connection
            .service
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .await;
        let handle = handle.map_err(|error| ServerUnavailable::new("has just gone", error))?;
        progress_senders.insert(handle.progress_token.clone(), sender);
        drop(progress_senders);
        let deadline = Instant::now() + limit;
        Ok(Self {
            handle: Some(handle),
            progress,
            last_progress: f64::MIN,
            last_progress_at: None,
            deadline,
            limit,
            connection,
            tasks,
        })
    }

    /// What is heard next. After a result or a failure there is nothing more.
    pub(crate) async fn next(&mut self) -> CallEvent {
        loop {
            let Some(handle) = &mut self.handle else {
                return CallEvent::Failed(CallError::ConnectionLost);
            };
            tokio::select! {
                biased;
                Some(progress) = self.progress.recv() => {
                    let is_due = self.last_progress_at.is_none_or(|last_progress_at| last_progress_at.elapsed() >= PROGRESS_INTERVAL);
                    // They may overtake each other.
                    if is_due && progress.progress > self.last_progress {
                        self.last_progress = progress.progress;
                        self.last_progress_at = Some(Instant::now());
                        return CallEvent::Progress(progress);
                    }
                }
                answer = &mut handle.rx => {
                    self.release();
                    return match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                        Err(ServiceError::McpError(error))
                            if error.code == SESSION_EXPIRED && self.connection.is_session_expired() =>
                        {
                            CallEvent::Failed(CallError::SessionExpired)
                        }
                        answer => into_event(answer),
                    };
                }
                () = sleep_until(self.deadline) => {
                    self.cancel_call("it took too long");
                    return CallEvent::Failed(CallError::TimedOut(self.limit));
                }
            }
        }
    }

    fn cancel_call(&mut self, why: &str) {
        if let Some(handle) = self.release() {
            let why = Some(why.to_owned());
            self.tasks.spawn(async move {
                // A server that has gone needs no word.
                let _ = handle.cancel(why).await;
            });
        }
    }

    /// Waits for nothing more.
    fn release(&mut self) -> Option<RequestHandle<RoleClient>> {
        let handle = self.handle.take()?;
        let (connection, token) = (self.connection.clone(), handle.progress_token.clone());
        self.tasks.spawn(async move {
            connection
                .notifications
                .progress_senders
                .lock()
                .await
                .remove(&token);
        });
        Some(handle)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.cancel_call("nobody waits for it any more");
    }
}

fn into_event(answer: Result<ServerResult, ServiceError>) -> CallEvent {
    CallEvent::Failed(match answer {
        Ok(ServerResult::CallToolResult(result)) => return CallEvent::Result(Box::new(result)),
        Ok(ServerResult::InputRequiredResult(_)) => {
            CallError::InvalidResponse("it asks for more, which a tool may not")
        }
        Ok(_) => CallError::InvalidResponse("its answer is none of a tool"),
        Err(ServiceError::McpError(error)) => CallError::Rejected(Box::new(error)),
        Err(_) => CallError::ConnectionLost,
    })
}
