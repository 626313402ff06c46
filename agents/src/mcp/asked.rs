//! A call of a tool under way.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolResult, ClientRequest, ErrorData, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use rmcp::{RoleClient, ServiceError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use super::door::FORGOTTEN;
use super::link::{Absent, Live};

/// How often is told how a call goes, at most: every word of it is in a log.
const PACE: Duration = Duration::from_millis(200);

/// A call that has been sent. Dropped before its end, the server is told that nobody waits for it.
pub(crate) struct Asked {
    handle: Option<RequestHandle<RoleClient>>,
    progress: mpsc::Receiver<Progress>,
    so_far: f64,
    told: Option<Instant>,
    deadline: Instant,
    limit: Duration,
    live: Arc<Live>,
    tasks: TaskTracker,
}

/// How a call goes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Progress {
    pub(crate) so_far: f64,
    pub(crate) total: Option<f64>,
    pub(crate) words: Option<String>,
}

/// What is heard of a call.
#[derive(Debug)]
pub(crate) enum Heard {
    Progress(Progress),
    Result(Box<CallToolResult>),
    Failed(CallFailed),
}

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum CallFailed {
    /// The server went away before it answered.
    Cut,
    /// The server had forgotten us before it was asked, and has not heard of it.
    Unheard,
    Late(Duration),
    /// The server says why not.
    Refused(Box<ErrorData>),
    /// The answer is none that we understand.
    Odd(&'static str),
}

impl Asked {
    pub(super) async fn new(
        live: Arc<Live>,
        request: ClientRequest,
        (tell, progress): (mpsc::Sender<Progress>, mpsc::Receiver<Progress>),
        limit: Duration,
        tasks: TaskTracker,
    ) -> Result<Self, Absent> {
        // Held until we know by which name the server tells of it: none that comes at once is missed.
        let mut waiting = live.listener.waiting.lock().await;
        let handle = live
            .service
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .await;
        let handle = handle.map_err(|error| Absent::new("has just gone", error))?;
        waiting.insert(handle.progress_token.clone(), tell);
        drop(waiting);
        let deadline = Instant::now() + limit;
        Ok(Self {
            handle: Some(handle),
            progress,
            so_far: f64::MIN,
            told: None,
            deadline,
            limit,
            live,
            tasks,
        })
    }

    /// What is heard next. After a result or a failure there is nothing more.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            let Some(handle) = &mut self.handle else {
                return Heard::Failed(CallFailed::Cut);
            };
            tokio::select! {
                biased;
                Some(progress) = self.progress.recv() => {
                    let is_due = self.told.is_none_or(|told| told.elapsed() >= PACE);
                    // They may overtake each other.
                    if is_due && progress.so_far > self.so_far {
                        self.so_far = progress.so_far;
                        self.told = Some(Instant::now());
                        return Heard::Progress(progress);
                    }
                }
                answer = &mut handle.rx => {
                    self.forget();
                    return match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                        Err(ServiceError::McpError(error))
                            if error.code == FORGOTTEN && self.live.is_forgotten() =>
                        {
                            Heard::Failed(CallFailed::Unheard)
                        }
                        answer => heard(answer),
                    };
                }
                () = sleep_until(self.deadline) => {
                    self.call_off("it took too long");
                    return Heard::Failed(CallFailed::Late(self.limit));
                }
            }
        }
    }

    fn call_off(&mut self, why: &str) {
        if let Some(handle) = self.forget() {
            let why = Some(why.to_owned());
            self.tasks.spawn(async move {
                // A server that has gone needs no word.
                let _ = handle.cancel(why).await;
            });
        }
    }

    /// Waits for nothing more.
    fn forget(&mut self) -> Option<RequestHandle<RoleClient>> {
        let handle = self.handle.take()?;
        let (live, token) = (self.live.clone(), handle.progress_token.clone());
        self.tasks.spawn(async move {
            live.listener.waiting.lock().await.remove(&token);
        });
        Some(handle)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.call_off("nobody waits for it any more");
    }
}

fn heard(answer: Result<ServerResult, ServiceError>) -> Heard {
    Heard::Failed(match answer {
        Ok(ServerResult::CallToolResult(result)) => return Heard::Result(Box::new(result)),
        Ok(ServerResult::InputRequiredResult(_)) => {
            CallFailed::Odd("it asks for more, which a tool may not")
        }
        Ok(_) => CallFailed::Odd("its answer is none of a tool"),
        Err(ServiceError::McpError(error)) => CallFailed::Refused(Box::new(error)),
        Err(_) => CallFailed::Cut,
    })
}
