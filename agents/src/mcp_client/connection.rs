//! Shared connection to an MCP server: opened at its first use, and opened again with backoff after it closed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use attache::model::TraceContext;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestParamsMeta, Tool};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use super::active_connection::{ActiveConnection, TransportKind};
use super::pending_call::PendingCall;
use super::settings::McpServerSettings;
use super::tool_catalog::{CatalogTool, ToolCatalog};
use crate::backoff::Backoff;
use crate::outgoing::{URL_RULE, parse_headers, parse_url};

/// Delays between attempts to connect.
const RECONNECT_BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(250),
    max: Duration::from_secs(30),
};
/// Maximum remaining delay that a call waits for. With a longer one it fails at once.
const MAX_CALLER_WAIT: Duration = Duration::from_secs(2);
/// Time after which a connection counts as stable: closing later does not increase the delay.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// MCP server, with its connection and its tools.
pub(crate) struct McpConnection {
    settings: McpServerSettings,
    transport: TransportKind,
    /// Held while connecting, so that concurrent calls share one attempt.
    state: Mutex<ConnectionState>,
    /// Background tasks: logs of stderr, and cancellations of calls.
    tasks: TaskTracker,
}

#[derive(Default)]
struct ConnectionState {
    active: Option<Arc<ActiveConnection>>,
    /// Tools of the first list, with their current status.
    catalog: Option<Arc<ToolCatalog>>,
    /// Number of consecutive failures. A connection that closes before [`STABLE_AFTER`] is one.
    failures: u32,
    last_error: Option<ServerUnavailable>,
    /// Time of the last attempt to connect.
    attempted_at: Option<Instant>,
}

/// Reason why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUnavailable {
    /// Message for callers.
    pub(crate) message: String,
    /// Cause, for the log.
    cause: String,
}

impl McpConnection {
    /// Creates a connection. Does not connect.
    pub(crate) fn new(settings: McpServerSettings) -> Result<Self, String> {
        let transport = match (&settings.url, settings.command.is_empty()) {
            (Some(url), true) => http_transport(url, &settings)?,
            (None, false) => stdio_transport(&settings)?,
            _ => return Err("an MCP server must have exactly one of command and url".to_owned()),
        };
        Ok(Self {
            settings,
            transport,
            state: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    pub(crate) fn settings(&self) -> &McpServerSettings {
        &self.settings
    }

    /// Returns the tools of the server. If it is not available, returns the tools that were listed before.
    pub(crate) async fn catalog(&self) -> Result<Arc<ToolCatalog>, ServerUnavailable> {
        let mut state = self.state.lock().await;
        if let Some(active) = &state.active
            && active.lacks_change_notifications()
        {
            active.notifications.mark_tools_changed();
        }
        let connected = self.ensure_connected(&mut state).await;
        match (connected, &state.catalog) {
            (_, Some(catalog)) => Ok(catalog.clone()),
            (Err(unavailable), None) => Err(unavailable),
            (Ok(_), None) => Err(ServerUnavailable::new("has no tools", "no catalog")),
        }
    }

    /// Starts a call of a tool, unless its definition differs from `tool`.
    pub(crate) async fn start_call(
        &self,
        tool: &CatalogTool,
        arguments: Map<String, Value>,
        timeout: Duration,
        trace: Option<&TraceContext>,
    ) -> Result<PendingCall, ServerUnavailable> {
        let active = {
            let mut state = self.state.lock().await;
            let active = self.ensure_connected(&mut state).await?;
            let current = state
                .catalog
                .as_ref()
                .and_then(|catalog| catalog.tool(&tool.name));
            if current.is_none_or(|current| **current != *tool) {
                let message = "has just changed the definition of this tool, which was not called";
                return Err(ServerUnavailable::new(message, &tool.name));
            }
            active
        };
        let request = call_request(&tool.name, arguments, trace);
        PendingCall::new(active, request, timeout, self.tasks.clone()).await
    }

    /// Returns the open connection with a current tool list, or opens a new one.
    async fn ensure_connected(
        &self,
        state: &mut ConnectionState,
    ) -> Result<Arc<ActiveConnection>, ServerUnavailable> {
        if let Some(active) = state.active.clone().filter(|active| !active.is_closed()) {
            self.refresh_tools(state, &active).await?;
            return Ok(active);
        }
        if state.active.take().is_some() {
            state.record_close();
            tracing::warn!(server = %self, "mcp server closed the connection");
        }
        state.wait_for_reconnect().await?;
        let opened = self.with_connect_timeout(self.open()).await;
        let opened =
            opened.and_then(|(active, list)| self.update_catalog(state, list).map(|()| active));
        state.attempted_at = Some(Instant::now());
        match opened {
            Ok(active) => Ok(state.active.insert(active).clone()),
            Err(unavailable) => {
                state.failures = state.failures.saturating_add(1);
                tracing::warn!(server = %self, cause = unavailable.cause, "{}", unavailable.message);
                Err(state.last_error.insert(unavailable).clone())
            }
        }
    }

    /// Lists the tools again if they changed.
    async fn refresh_tools(
        &self,
        state: &mut ConnectionState,
        active: &ActiveConnection,
    ) -> Result<(), ServerUnavailable> {
        if !active.notifications.take_tools_changed() {
            return Ok(());
        }
        let list = self.with_connect_timeout(active.list_tools()).await;
        let updated = list.and_then(|list| self.update_catalog(state, list));
        if updated.is_err() {
            // The next call tries again.
            active.notifications.mark_tools_changed();
        }
        updated
    }

    async fn with_connect_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, ServerUnavailable>>,
    ) -> Result<T, ServerUnavailable> {
        let limit = self.settings.connect_timeout;
        timeout(limit, work).await.unwrap_or_else(|_| {
            let message = format!("was not ready within {limit:?} (connect_timeout)");
            Err(ServerUnavailable::new(&message, "timeout"))
        })
    }

    async fn open(&self) -> Result<(Arc<ActiveConnection>, Vec<Tool>), ServerUnavailable> {
        let active = ActiveConnection::open(&self.transport, &self.settings, &self.tasks).await?;
        let list = active.list_tools().await?;
        Ok((Arc::new(active), list))
    }

    fn update_catalog(
        &self,
        state: &mut ConnectionState,
        list: Vec<Tool>,
    ) -> Result<(), ServerUnavailable> {
        let updated = match &state.catalog {
            Some(catalog) => catalog.updated(list, &self.settings),
            None => ToolCatalog::from_list(list, &self.settings),
        };
        let catalog = updated.map_err(|reason| {
            ServerUnavailable::new(&format!("is not used: {reason}"), "its tools")
        })?;
        let missing: Vec<_> = self
            .settings
            .tools
            .iter()
            .filter(|name| catalog.tool(name).is_none())
            .collect();
        let pin = catalog.pin();
        tracing::info!(server = %self, tools = catalog.tools.len(), pin, ?missing, new_tools = ?catalog.new_tools, "tools of an mcp server");
        state.failures = 0;
        state.catalog = Some(Arc::new(catalog));
        Ok(())
    }
}

impl ConnectionState {
    /// Records that an established connection closed.
    fn record_close(&mut self) {
        let was_stable = self
            .attempted_at
            .is_some_and(|opened_at| opened_at.elapsed() >= STABLE_AFTER);
        self.failures = if was_stable {
            1
        } else {
            self.failures.saturating_add(1)
        };
    }

    /// Waits for the end of the backoff delay.
    ///
    /// # Errors
    /// The remaining delay is longer than [`MAX_CALLER_WAIT`]. The error is that of the last attempt.
    async fn wait_for_reconnect(&self) -> Result<(), ServerUnavailable> {
        let retries = self.failures.checked_sub(1);
        let Some((retries, attempted_at)) = retries.zip(self.attempted_at) else {
            return Ok(());
        };
        let delay = RECONNECT_BACKOFF.delay(retries);
        match &self.last_error {
            Some(error) if attempted_at.elapsed() + MAX_CALLER_WAIT < delay => Err(error.clone()),
            _ => {
                sleep_until(attempted_at + delay).await;
                Ok(())
            }
        }
    }
}

/// Returns the request for a tool call. The trace context is in its `_meta`, as MCP defines it.
fn call_request(
    tool: &str,
    arguments: Map<String, Value>,
    trace: Option<&TraceContext>,
) -> ClientRequest {
    let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    if let Some(trace) = trace {
        params.set_traceparent(trace.parent());
        if let Some(state) = trace.state() {
            params.set_tracestate(state);
        }
    }
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}

fn http_transport(url: &str, settings: &McpServerSettings) -> Result<TransportKind, String> {
    parse_url(url).map_err(|_| format!("url {URL_RULE}"))?;
    Ok(TransportKind::Http {
        url: url.into(),
        headers: parse_headers(&settings.headers)?,
    })
}

#[cfg(unix)]
fn stdio_transport(settings: &McpServerSettings) -> Result<TransportKind, String> {
    if settings.headers.is_empty() {
        Ok(TransportKind::Stdio)
    } else {
        Err("headers need a url; use env for a command".to_owned())
    }
}

#[cfg(not(unix))]
fn stdio_transport(_: &McpServerSettings) -> Result<TransportKind, String> {
    Err("a command needs a Unix system; set the url of the server".to_owned())
}

impl ServerUnavailable {
    pub(super) fn new(what: &str, cause: impl fmt::Display) -> Self {
        Self {
            message: format!("the MCP server {what}"),
            cause: cause.to_string(),
        }
    }
}

/// Program or URL of the server, for the log.
impl fmt::Display for McpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            #[cfg(unix)]
            TransportKind::Stdio => {
                f.write_str(self.settings.command.first().map_or("", String::as_str))
            }
            TransportKind::Http { url, .. } => f.write_str(url),
        }
    }
}

impl fmt::Debug for McpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpConnection({self})")
    }
}
