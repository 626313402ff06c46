//! An MCP server, connected when it is needed, by all who need it, and again when it has gone.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attache::HttpClient;
use attache::model::TraceContext;
use http::{HeaderName, HeaderValue, Uri};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, PaginatedRequestParams, ProgressNotificationParam, ProgressToken,
    RequestParamsMeta, Tool,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Map, Value};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use super::http_transport::{HttpSession, HttpTransport};
use super::pending_call::{CallProgress, PendingCall};
use super::settings::McpServerSettings;
#[cfg(unix)]
use super::stdio_process::StdioProcess;
use super::tool_catalog::{CatalogTool, ToolCatalog};

/// How long is waited before a server that has gone is tried again, for the first time; then twice as long each time.
const INITIAL_RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// The longest of these pauses.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(30);
/// How much of a pause is waited for.
const MAX_CALLER_WAIT: Duration = Duration::from_secs(2);
/// Whoever stays connected for so long has not gone at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// How many pages a list of tools may have.
const MAX_PAGES: usize = 64;
/// How much progress may wait to be told; what comes beyond that is left out.
const PROGRESS_QUEUE: usize = 64;

/// An MCP server.
pub(crate) struct McpConnection {
    settings: McpServerSettings,
    transport: TransportKind,
    /// Held while connecting, so that one does it for all who wait.
    state: Mutex<ConnectionState>,
    /// What runs beside: what servers write to stderr, and what is said about calls that nobody waits for.
    tasks: TaskTracker,
}

/// How it is reached.
enum TransportKind {
    #[cfg(unix)]
    Stdio,
    Http {
        url: Arc<str>,
        headers: HashMap<HeaderName, HeaderValue>,
    },
}

#[derive(Default)]
struct ConnectionState {
    active: Option<Arc<ActiveConnection>>,
    /// The tools as they were first seen, with what has become of them.
    catalog: Option<Arc<ToolCatalog>>,
    /// How often it has failed, or gone at once, without a break; why, the last time; and since when it is as it is.
    failures: u32,
    unavailable: Option<ServerUnavailable>,
    changed_at: Option<Instant>,
}

/// A connection.
pub(super) struct ActiveConnection {
    pub(super) service: RunningService<RoleClient, Arc<NotificationHandler>>,
    pub(super) notifications: Arc<NotificationHandler>,
    /// Over HTTP.
    session: Option<Arc<HttpSession>>,
    // After the service, which says good-bye.
    #[cfg(unix)]
    _child: Option<StdioProcess>,
}

/// What a server says unasked. It is offered nothing, so all that it may ask of us is refused: it learns of our
/// conversations only what it is called with.
#[derive(Default)]
pub(super) struct NotificationHandler {
    /// Whether the tools are others now.
    tools_changed: AtomicBool,
    /// Who waits to hear how a call goes.
    pub(super) progress_senders: Mutex<HashMap<ProgressToken, mpsc::Sender<CallProgress>>>,
}

/// Why a server is not there, in words that a caller may read, and for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUnavailable {
    pub(crate) message: String,
    cause: String,
}

impl McpConnection {
    /// A server that need not be there yet.
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

    /// Its tools. Those that are known are given although it is not there at the moment.
    pub(crate) async fn catalog(&self) -> Result<Arc<ToolCatalog>, ServerUnavailable> {
        let mut state = self.state.lock().await;
        if let Some(active) = state
            .active
            .as_ref()
            .filter(|active| active.lacks_change_notifications())
        {
            active
                .notifications
                .tools_changed
                .store(true, Ordering::Release);
        }
        match (self.ensure_connected(&mut state).await, &state.catalog) {
            (_, Some(catalog)) => Ok(catalog.clone()),
            (Err(unavailable), None) => Err(unavailable),
            (Ok(_), None) => Err(ServerUnavailable::new("has no tools", "no catalog")),
        }
    }

    /// Begins a call of a tool, as long as it is what whoever calls takes it for.
    pub(crate) async fn start_call(
        &self,
        tool: &CatalogTool,
        arguments: Map<String, Value>,
        limit: Duration,
        trace: Option<&TraceContext>,
    ) -> Result<PendingCall, ServerUnavailable> {
        let active = {
            let mut state = self.state.lock().await;
            let active = self.ensure_connected(&mut state).await?;
            let now = state
                .catalog
                .as_ref()
                .and_then(|catalog| catalog.tool(&tool.name));
            if now.is_none_or(|now| **now != *tool) {
                let what = "has just said something else of this tool, which was not called";
                return Err(ServerUnavailable::new(what, &tool.name));
            }
            active
        };
        let (sender, progress) = mpsc::channel(PROGRESS_QUEUE);
        let request = request(&tool.name, arguments, trace);
        PendingCall::new(
            active,
            request,
            (sender, progress),
            limit,
            self.tasks.clone(),
        )
        .await
    }

    /// The connection: the one that there is, or a new one.
    async fn ensure_connected(
        &self,
        state: &mut ConnectionState,
    ) -> Result<Arc<ActiveConnection>, ServerUnavailable> {
        if let Some(active) = state.active.clone().filter(|active| !active.is_closed()) {
            if active
                .notifications
                .tools_changed
                .swap(false, Ordering::AcqRel)
            {
                let listed = self
                    .with_connect_timeout(self.list_tools(&active))
                    .await
                    .and_then(|list| self.update_catalog(state, list));
                if listed.is_err() {
                    // What is not known cannot be called: whoever comes next asks again.
                    active
                        .notifications
                        .tools_changed
                        .store(true, Ordering::Release);
                }
                listed?;
            }
            return Ok(active);
        }
        if state.active.take().is_some() {
            let steady = state
                .changed_at
                .is_some_and(|changed_at| changed_at.elapsed() >= STABLE_AFTER);
            state.failures = if steady {
                1
            } else {
                state.failures.saturating_add(1)
            };
            tracing::warn!(server = %self, "mcp server has gone");
        }
        reconnect_delay(state).await?;
        match self
            .with_connect_timeout(self.connect())
            .await
            .and_then(|(active, list)| self.update_catalog(state, list).map(|()| active))
        {
            Ok(active) => {
                state.changed_at = Some(Instant::now());
                Ok(state.active.insert(active).clone())
            }
            Err(unavailable) => {
                state.failures = state.failures.saturating_add(1);
                state.changed_at = Some(Instant::now());
                tracing::warn!(server = %self, cause = unavailable.cause, "{}", unavailable.message);
                Err(state.unavailable.insert(unavailable).clone())
            }
        }
    }

    async fn with_connect_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, ServerUnavailable>>,
    ) -> Result<T, ServerUnavailable> {
        let limit = self.settings.connect_timeout;
        let late = || {
            ServerUnavailable::new(
                &format!("was not ready within {limit:?} (connect_timeout)"),
                "timeout",
            )
        };
        timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
    }

    async fn connect(&self) -> Result<(Arc<ActiveConnection>, Vec<Tool>), ServerUnavailable> {
        let notifications = Arc::new(NotificationHandler::default());
        let active = match &self.transport {
            #[cfg(unix)]
            TransportKind::Stdio => {
                let started = StdioProcess::start(&self.settings, &self.tasks);
                let (child, stdout, stdin) =
                    started.map_err(|error| ServerUnavailable::new("cannot be started", error))?;
                let pipes = rmcp::transport::async_rw::AsyncRwTransport::new(stdout, stdin)
                    .with_max_line_length(self.settings.max_message);
                let service = notifications.clone().serve(pipes).await;
                let service =
                    service.map_err(|error| ServerUnavailable::new("does not speak MCP", error))?;
                ActiveConnection {
                    service,
                    notifications,
                    session: None,
                    _child: Some(child),
                }
            }
            TransportKind::Http { url, headers } => {
                let config = StreamableHttpClientTransportConfig::with_uri(url.clone())
                    .custom_headers(headers.clone())
                    .reinit_on_expired_session(false)
                    .max_sse_event_size(self.settings.max_message);
                let session = Arc::new(HttpSession::default());
                let client = HttpTransport::new(self.settings.max_message, session.clone());
                let transport = StreamableHttpClientTransport::with_client(client, config);
                let service = notifications.clone().serve(transport).await;
                let service =
                    service.map_err(|error| ServerUnavailable::new("cannot be reached", error))?;
                ActiveConnection {
                    service,
                    notifications,
                    session: Some(session),
                    #[cfg(unix)]
                    _child: None,
                }
            }
        };
        let active = Arc::new(active);
        let list = self.list_tools(&active).await?;
        Ok((active, list))
    }

    async fn list_tools(&self, active: &ActiveConnection) -> Result<Vec<Tool>, ServerUnavailable> {
        let (mut tools, mut page) = (Vec::new(), PaginatedRequestParams::default());
        for _ in 0..MAX_PAGES {
            let list = active.service.list_tools(Some(page)).await;
            let list = list
                .map_err(|error| ServerUnavailable::new("does not say what tools it has", error))?;
            tools.extend(list.tools);
            match list.next_cursor {
                None => return Ok(tools),
                cursor => page = PaginatedRequestParams::default().with_cursor(cursor),
            }
        }
        Err(ServerUnavailable::new(
            "has a list of tools without an end",
            MAX_PAGES,
        ))
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
        let catalog = updated
            .map_err(|why| ServerUnavailable::new(&format!("is not used: {why}"), "its tools"))?;
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

/// Waits before somebody who has just failed is tried again; where that would be long, they are still not there.
async fn reconnect_delay(state: &ConnectionState) -> Result<(), ServerUnavailable> {
    let Some((tries, changed_at)) = state.failures.checked_sub(1).zip(state.changed_at) else {
        return Ok(());
    };
    let reconnect_delay = INITIAL_RECONNECT_DELAY
        .saturating_mul(2_u32.saturating_pow(tries))
        .min(MAX_RECONNECT_DELAY);
    match &state.unavailable {
        Some(unavailable) if changed_at.elapsed() + MAX_CALLER_WAIT < reconnect_delay => {
            Err(unavailable.clone())
        }
        _ => {
            sleep_until(changed_at + reconnect_delay).await;
            Ok(())
        }
    }
}

impl ActiveConnection {
    fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed() || self.is_session_expired()
    }

    /// Whether the server does not know us any more.
    pub(super) fn is_session_expired(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.is_expired())
    }

    /// Whether nobody would hear of it if the tools were others.
    fn lacks_change_notifications(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| !session.has_id())
    }
}

impl ClientHandler for NotificationHandler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("attache", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.store(true, Ordering::Release);
    }

    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(progress_senders) = self.progress_senders.lock().await.get(&told.progress_token)
        {
            // Whoever does not keep up hears of what comes later.
            let _ = progress_senders.try_send(CallProgress {
                progress: told.progress,
                total: told.total,
                message: told.message,
            });
        }
    }
}

/// The call of a tool, and where it is in a trace, as MCP has it.
fn request(
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
    let wrong = || "url must begin with http:// or https:// and name a host".to_owned();
    let parsed: Uri = url.parse().map_err(|_| wrong())?;
    HttpClient::check(&parsed).map_err(|_| wrong())?;
    let headers = settings.headers.iter().map(|(name, value)| {
        let sent = HeaderName::try_from(name.as_str())
            .ok()
            .zip(HeaderValue::try_from(value.expose()).ok());
        let (name, mut value) =
            sent.ok_or_else(|| format!("`{name}` cannot be sent as a header"))?;
        value.set_sensitive(true);
        Ok((name, value))
    });
    Ok(TransportKind::Http {
        url: url.into(),
        headers: headers.collect::<Result<_, String>>()?,
    })
}

#[cfg(unix)]
fn stdio_transport(settings: &McpServerSettings) -> Result<TransportKind, String> {
    match settings.headers.is_empty() {
        true => Ok(TransportKind::Stdio),
        false => Err("headers are for a url; a program takes env".to_owned()),
    }
}

#[cfg(not(unix))]
fn stdio_transport(_: &McpServerSettings) -> Result<TransportKind, String> {
    Err("programs need a Unix system; name the url of the server".to_owned())
}

impl ServerUnavailable {
    pub(super) fn new(what: &str, cause: impl fmt::Display) -> Self {
        Self {
            message: format!("the MCP server {what}"),
            cause: cause.to_string(),
        }
    }
}

impl fmt::Display for McpConnection {
    /// For the log of whoever runs it.
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
        write!(f, "Link({self})")
    }
}
