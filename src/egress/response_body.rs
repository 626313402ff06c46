//! Body of a response, with an idle timeout and a size limit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use tokio::time::timeout;
use tokio_util::sync::DropGuard;

use super::traffic::BodyObserver;
use super::{CONNECTION_LOST, unavailable};
use crate::model::{Error, ErrorKind, Result};

/// Body of a response. Keeps the connections of its [`Egress`](super::Egress) open.
pub(crate) struct ResponseBody {
    incoming: Incoming,
    idle_timeout: Option<Duration>,
    _connection_guard: Arc<DropGuard>,
    observer: Option<BodyObserver>,
}

impl ResponseBody {
    pub(super) fn new(
        incoming: Incoming,
        connection_guard: Arc<DropGuard>,
        observer: Option<BodyObserver>,
    ) -> Self {
        Self {
            incoming,
            idle_timeout: None,
            _connection_guard: connection_guard,
            observer,
        }
    }

    /// Counts the connection as lost after this time without data.
    pub(crate) fn with_idle(self, limit: Duration) -> Self {
        Self {
            idle_timeout: Some(limit),
            ..self
        }
    }

    /// Returns the next chunk, or the trailers.
    ///
    /// # Errors
    /// The connection was lost.
    pub(crate) async fn next(&mut self) -> Option<Result<Frame<Bytes>>> {
        let frame = match self.idle_timeout {
            None => self.incoming.frame().await?,
            Some(limit) => match timeout(limit, self.incoming.frame()).await {
                Ok(frame) => frame?,
                Err(elapsed) => {
                    let message = format!("the agent sent no data for {limit:?}");
                    return Some(Err(unavailable(message, elapsed)));
                }
            },
        };
        if let (Some(observer), Ok(frame)) = (&mut self.observer, &frame)
            && let Some(data) = frame.data_ref()
        {
            observer.push(data);
        }
        Some(frame.map_err(|cause| unavailable(CONNECTION_LOST, cause)))
    }

    /// Reads the whole body, up to a limit in bytes.
    ///
    /// # Errors
    /// The connection was lost, or the body is larger.
    pub(crate) async fn read(mut self, limit: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(frame) = self.next().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > limit {
                return Err(too_large(limit));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

/// Returns the error for a response that exceeds a size limit.
pub(crate) fn too_large(limit: usize) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message(format!("Invalid agent response: larger than {limit} bytes"))
}
