//! A tool call in progress.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolResult, ClientRequest, ErrorData, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use rmcp::{RoleClient, ServiceError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use super::active_connection::ActiveConnection;
use super::connection::ServerUnavailable;
use super::http_transport::SESSION_EXPIRED;
use crate::llm::sanitize;

/// Minimum interval between progress events. Each of them is stored in the log of the task.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Capacity of the queue of progress notifications. Further ones are dropped.
const PROGRESS_QUEUE: usize = 64;
/// Maximum size of an error message of the server.
const MAX_ERROR_MESSAGE: usize = 4 << 10;

/// Tool call that has been sent. Dropping it cancels the call.
pub(crate) struct PendingCall {
    /// Request, until it has ended.
    handle: Option<RequestHandle<RoleClient>>,
    progress: mpsc::Receiver<CallProgress>,
    last_progress: f64,
    last_progress_at: Option<Instant>,
    deadline: Instant,
    timeout: Duration,
    connection: Arc<ActiveConnection>,
    tasks: TaskTracker,
}

/// Progress of a call, as the server reports it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallProgress {
    pub(crate) progress: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: Option<String>,
}

/// Event of a call.
#[derive(Debug)]
pub(crate) enum CallEvent {
    Progress(CallProgress),
    Result(Box<CallToolResult>),
    Failed(CallError),
}

/// Failure of a call.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The connection closed before the response. Whether the call had an effect is unknown.
    ConnectionLost,
    /// The session had expired before the request, so the server did not execute the call.
    SessionExpired,
    TimedOut(Duration),
    /// The server returned an error.
    Rejected(Box<ErrorData>),
    /// The response is not one to a tool call.
    InvalidResponse(&'static str),
}

impl PendingCall {
    /// Sends a call.
    pub(super) async fn new(
        connection: Arc<ActiveConnection>,
        request: ClientRequest,
        timeout: Duration,
        tasks: TaskTracker,
    ) -> Result<Self, ServerUnavailable> {
        let (sender, progress) = mpsc::channel(PROGRESS_QUEUE);
        // Locked until the sender is registered, so that no progress notification is missed.
        let mut senders = connection.notifications.progress_senders.lock().await;
        let handle = connection
            .service
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .await;
        let handle =
            handle.map_err(|error| ServerUnavailable::new("has just disconnected", error))?;
        senders.insert(handle.progress_token.clone(), sender);
        drop(senders);
        Ok(Self {
            handle: Some(handle),
            progress,
            last_progress: f64::MIN,
            last_progress_at: None,
            deadline: Instant::now() + timeout,
            timeout,
            connection,
            tasks,
        })
    }

    /// Returns the next event. A result or a failure is the last one.
    pub(crate) async fn next(&mut self) -> CallEvent {
        loop {
            let Some(handle) = &mut self.handle else {
                return CallEvent::Failed(CallError::ConnectionLost);
            };
            tokio::select! {
                biased;
                Some(progress) = self.progress.recv() => {
                    if self.is_reported(&progress) {
                        return CallEvent::Progress(progress);
                    }
                }
                response = &mut handle.rx => {
                    self.release();
                    let response = response.unwrap_or(Err(ServiceError::TransportClosed));
                    return self.response_event(response);
                }
                () = sleep_until(self.deadline) => {
                    self.cancel("timeout");
                    return CallEvent::Failed(CallError::TimedOut(self.timeout));
                }
            }
        }
    }

    /// Returns whether a progress notification is reported: not too often, and only if it increases.
    fn is_reported(&mut self, progress: &CallProgress) -> bool {
        let is_due = self
            .last_progress_at
            .is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL);
        // Notifications may arrive out of order.
        if !is_due || progress.progress <= self.last_progress {
            return false;
        }
        self.last_progress = progress.progress;
        self.last_progress_at = Some(Instant::now());
        true
    }

    fn response_event(&self, response: Result<ServerResult, ServiceError>) -> CallEvent {
        CallEvent::Failed(match response {
            Ok(ServerResult::CallToolResult(result)) => return CallEvent::Result(Box::new(result)),
            Ok(ServerResult::InputRequiredResult(_)) => {
                CallError::InvalidResponse("it asks for input, which is not supported")
            }
            Ok(_) => CallError::InvalidResponse("its response is not the result of a tool"),
            Err(ServiceError::McpError(error))
                if error.code == SESSION_EXPIRED && self.connection.is_session_expired() =>
            {
                CallError::SessionExpired
            }
            Err(ServiceError::McpError(error)) => CallError::Rejected(Box::new(error)),
            Err(_) => CallError::ConnectionLost,
        })
    }

    /// Sends a cancel notification, if the call has not ended.
    fn cancel(&mut self, reason: &str) {
        if let Some(handle) = self.release() {
            let reason = Some(reason.to_owned());
            self.tasks.spawn(async move {
                // Fails only if the connection is closed, which cancels the call too.
                let _ = handle.cancel(reason).await;
            });
        }
    }

    /// Unregisters the progress sender, and returns the handle if the call has not ended.
    fn release(&mut self) -> Option<RequestHandle<RoleClient>> {
        let handle = self.handle.take()?;
        let connection = self.connection.clone();
        let token = handle.progress_token.clone();
        self.tasks.spawn(async move {
            let mut senders = connection.notifications.progress_senders.lock().await;
            senders.remove(&token);
        });
        Some(handle)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.cancel("the result is no longer needed");
    }
}

impl CallError {
    /// Returns the message for callers and models.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::SessionExpired => {
                "the session of the MCP server expired; the call was not executed".to_owned()
            }
            Self::ConnectionLost => {
                "the MCP server disconnected during the call; whether it had an effect is unknown"
                    .to_owned()
            }
            Self::TimedOut(timeout) => format!("the tool took longer than {timeout:?}"),
            Self::Rejected(error) => {
                let message = sanitize(&error.message, MAX_ERROR_MESSAGE);
                format!("the tool refuses: {message}")
            }
            Self::InvalidResponse(reason) => format!("the tool cannot be used: {reason}"),
        }
    }
}
