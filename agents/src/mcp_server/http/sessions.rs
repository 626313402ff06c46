//! Sessions of MCP clients, limited in total and for each caller.
//!
//! A session takes about 80 kB. It ends by a `DELETE`, or after a time without messages.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use attache::model::CallerKey;
use attache::{FairPermit, FairSemaphore};
use futures::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};

use super::settings::McpHttpSettings;
use crate::lock::lock;

/// Sessions of all callers.
pub(super) struct McpSessions {
    local: LocalSessionManager,
    permits: FairSemaphore<CallerKey>,
    owners: Mutex<HashMap<SessionId, SessionOwner>>,
    limits: String,
}

struct SessionOwner {
    caller: CallerKey,
    /// Counts the session.
    _permit: FairPermit<CallerKey>,
}

/// Sessions as one request sees them: a session of another key does not exist.
pub(super) struct CallerSessions {
    all: Arc<McpSessions>,
    caller: CallerKey,
    /// Set when the request needed a session beyond the limits. The transport reports only an internal error.
    refusal: OnceLock<String>,
}

/// Failure of a session.
#[derive(Debug)]
pub(super) enum SessionError {
    /// The caller, or all callers, have the maximum number of sessions.
    TooMany(String),
    Local(LocalSessionManagerError),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(message) => f.write_str(message),
            Self::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<LocalSessionManagerError> for SessionError {
    fn from(error: LocalSessionManagerError) -> Self {
        Self::Local(error)
    }
}

impl McpSessions {
    pub(super) fn new(settings: &McpHttpSettings) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(settings.session_timeout);
        let total = settings.max_sessions;
        let per_caller = settings.sessions_per_caller();
        Arc::new(Self {
            local,
            permits: FairSemaphore::new(total, Some(per_caller)),
            owners: Mutex::default(),
            limits: format!(
                "limits: max_sessions = {total}, max_sessions_per_caller = {per_caller}"
            ),
        })
    }

    /// Returns the sessions that a request of this caller sees.
    pub(super) fn for_request(self: &Arc<Self>, caller: CallerKey) -> Arc<CallerSessions> {
        Arc::new(CallerSessions {
            all: self.clone(),
            caller,
            refusal: OnceLock::new(),
        })
    }
}

impl CallerSessions {
    /// Returns why the request got no session, if it needed one.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    /// Whether the caller may use a session. Clients without keys share theirs: their addresses may change.
    fn may_use(&self, id: &SessionId) -> bool {
        let owners = lock(&self.all.owners);
        owners.get(id).is_some_and(|owner| match &self.caller {
            CallerKey::Address(_) => true,
            CallerKey::Caller(_) => owner.caller == self.caller,
        })
    }
}

impl SessionManager for CallerSessions {
    type Error = SessionError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        let Some(permit) = self.all.permits.try_acquire(self.caller.clone()) else {
            let message = format!("too many sessions ({})\n", self.all.limits);
            let message = self.refusal.get_or_init(|| message).clone();
            return Err(SessionError::TooMany(message));
        };
        let (id, transport) = self.all.local.create_session().await?;
        let owner = SessionOwner {
            caller: self.caller.clone(),
            _permit: permit,
        };
        lock(&self.all.owners).insert(id.clone(), owner);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.all.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.may_use(id) && self.all.local.has_session(id).await?)
    }

    /// Also called when a session has ended by itself.
    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        if !self.may_use(id) {
            return Ok(());
        }
        let closed = self.all.local.close_session(id).await;
        lock(&self.all.owners).remove(id);
        Ok(closed?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.all.local.create_stream(id, message).await?)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        Ok(self.all.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.all.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.all.local.resume(id, last_event_id).await?)
    }
}

#[cfg(test)]
mod tests {
    use attache::model::Caller;

    use super::*;

    #[tokio::test]
    async fn d15_sessions_are_limited_and_belong_to_their_key() {
        let settings = McpHttpSettings {
            max_sessions: 3,
            max_sessions_per_caller: Some(2),
            ..McpHttpSettings::default()
        };
        let sessions = McpSessions::new(&settings);
        let caller = |name| CallerKey::Caller(Caller::new(name));
        let one = sessions.for_request(caller("one"));
        let two = sessions.for_request(caller("two"));
        let (first, _first) = one.create_session().await.unwrap();
        let (_, _second) = one.create_session().await.unwrap();
        let refused = one.create_session().await.err().unwrap().to_string();
        assert!(
            refused.contains("max_sessions_per_caller = 2") && one.refusal() == Some(&refused),
            "{refused}"
        );
        let (other, _other) = two.create_session().await.unwrap();
        assert!(two.create_session().await.is_err(), "three in total");
        assert!(one.has_session(&first).await.unwrap());
        assert!(!one.has_session(&other).await.unwrap());
        one.close_session(&other).await.unwrap();
        assert!(two.has_session(&other).await.unwrap(), "of another key");
        two.close_session(&other).await.unwrap();
        two.create_session().await.unwrap();
    }
}
