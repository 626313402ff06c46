//! An MCP server, connected when it is needed, by all who need it, and again when it has gone.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attache::Http;
use attache::model::Trace;
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

use super::asked::{Asked, Progress};
use super::catalog::{Catalog, Listed};
#[cfg(unix)]
use super::child::Child;
use super::door::{Door, Session};
use super::settings::McpServerSettings;

/// How long is waited before a server that has gone is tried again, for the first time; then twice as long each time.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest of these pauses.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How much of a pause is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Whoever stays connected for so long has not gone at once.
const STEADY: Duration = Duration::from_secs(10);
/// How many pages a list of tools may have.
const MAX_PAGES: usize = 64;
/// How much progress may wait to be told; what comes beyond that is left out.
const MAX_WAITING: usize = 64;

/// An MCP server.
pub(crate) struct Link {
    settings: McpServerSettings,
    way: Way,
    /// Held while connecting, so that one does it for all who wait.
    state: Mutex<State>,
    /// What runs beside: what servers write to stderr, and what is said about calls that nobody waits for.
    tasks: TaskTracker,
}

/// How it is reached.
enum Way {
    #[cfg(unix)]
    Program,
    Http {
        url: Arc<str>,
        headers: HashMap<HeaderName, HeaderValue>,
    },
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// The tools as they were first seen, with what has become of them.
    catalog: Option<Arc<Catalog>>,
    /// How often it has failed, or gone at once, without a break; why, the last time; and since when it is as it is.
    failures: u32,
    absent: Option<Absent>,
    since: Option<Instant>,
}

/// A connection.
pub(super) struct Live {
    pub(super) service: RunningService<RoleClient, Arc<Listener>>,
    pub(super) listener: Arc<Listener>,
    /// Over HTTP.
    session: Option<Arc<Session>>,
    // After the service, which says good-bye.
    #[cfg(unix)]
    _child: Option<Child>,
}

/// What a server says unasked. It is offered nothing, so all that it may ask of us is refused: it learns of our
/// conversations only what it is called with.
#[derive(Default)]
pub(super) struct Listener {
    /// Whether the tools are others now.
    changed: AtomicBool,
    /// Who waits to hear how a call goes.
    pub(super) waiting: Mutex<HashMap<ProgressToken, mpsc::Sender<Progress>>>,
}

/// Why a server is not there, in words that a caller may read, and for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) words: String,
    cause: String,
}

impl Link {
    /// A server that need not be there yet.
    pub(crate) fn new(settings: McpServerSettings) -> Result<Self, String> {
        let way = match (&settings.url, settings.command.is_empty()) {
            (Some(url), true) => http_way(url, &settings)?,
            (None, false) => program(&settings)?,
            _ => return Err("an MCP server must have exactly one of command and url".to_owned()),
        };
        Ok(Self {
            settings,
            way,
            state: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    pub(crate) fn settings(&self) -> &McpServerSettings {
        &self.settings
    }

    /// Its tools. Those that are known are given although it is not there at the moment.
    pub(crate) async fn catalog(&self) -> Result<Arc<Catalog>, Absent> {
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.as_ref().filter(|live| live.must_be_asked()) {
            live.listener.changed.store(true, Ordering::Release);
        }
        match (self.connect(&mut state).await, &state.catalog) {
            (_, Some(catalog)) => Ok(catalog.clone()),
            (Err(absent), None) => Err(absent),
            (Ok(_), None) => Err(Absent::new("has no tools", "no catalog")),
        }
    }

    /// Begins a call of a tool, as long as it is what whoever calls takes it for.
    pub(crate) async fn ask(
        &self,
        tool: &Listed,
        arguments: Map<String, Value>,
        limit: Duration,
        trace: Option<&Trace>,
    ) -> Result<Asked, Absent> {
        let live = {
            let mut state = self.state.lock().await;
            let live = self.connect(&mut state).await?;
            let now = state
                .catalog
                .as_ref()
                .and_then(|catalog| catalog.tool(&tool.name));
            if now.is_none_or(|now| **now != *tool) {
                let what = "has just said something else of this tool, which was not called";
                return Err(Absent::new(what, &tool.name));
            }
            live
        };
        let (tell, progress) = mpsc::channel(MAX_WAITING);
        let request = request(&tool.name, arguments, trace);
        Asked::new(live, request, (tell, progress), limit, self.tasks.clone()).await
    }

    /// The connection: the one that there is, or a new one.
    async fn connect(&self, state: &mut State) -> Result<Arc<Live>, Absent> {
        if let Some(live) = state.live.clone().filter(|live| !live.is_closed()) {
            if live.listener.changed.swap(false, Ordering::AcqRel) {
                let listed = self
                    .within(self.list(&live))
                    .await
                    .and_then(|list| self.keep(state, list));
                if listed.is_err() {
                    // What is not known cannot be called: whoever comes next asks again.
                    live.listener.changed.store(true, Ordering::Release);
                }
                listed?;
            }
            return Ok(live);
        }
        if state.live.take().is_some() {
            let steady = state.since.is_some_and(|since| since.elapsed() >= STEADY);
            state.failures = if steady {
                1
            } else {
                state.failures.saturating_add(1)
            };
            tracing::warn!(server = %self, "mcp server has gone");
        }
        pause(state).await?;
        match self
            .within(self.open())
            .await
            .and_then(|(live, list)| self.keep(state, list).map(|()| live))
        {
            Ok(live) => {
                state.since = Some(Instant::now());
                Ok(state.live.insert(live).clone())
            }
            Err(absent) => {
                state.failures = state.failures.saturating_add(1);
                state.since = Some(Instant::now());
                tracing::warn!(server = %self, cause = absent.cause, "{}", absent.words);
                Err(state.absent.insert(absent).clone())
            }
        }
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Absent>>) -> Result<T, Absent> {
        let limit = self.settings.connect_timeout;
        let late = || {
            Absent::new(
                &format!("was not ready within {limit:?} (connect_timeout)"),
                "timeout",
            )
        };
        timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
    }

    async fn open(&self) -> Result<(Arc<Live>, Vec<Tool>), Absent> {
        let listener = Arc::new(Listener::default());
        let live = match &self.way {
            #[cfg(unix)]
            Way::Program => {
                let started = Child::start(&self.settings, &self.tasks);
                let (child, stdout, stdin) =
                    started.map_err(|error| Absent::new("cannot be started", error))?;
                let pipes = rmcp::transport::async_rw::AsyncRwTransport::new(stdout, stdin)
                    .with_max_line_length(self.settings.max_message);
                let service = listener.clone().serve(pipes).await;
                let service = service.map_err(|error| Absent::new("does not speak MCP", error))?;
                Live {
                    service,
                    listener,
                    session: None,
                    _child: Some(child),
                }
            }
            Way::Http { url, headers } => {
                let config = StreamableHttpClientTransportConfig::with_uri(url.clone())
                    .custom_headers(headers.clone())
                    .reinit_on_expired_session(false)
                    .max_sse_event_size(self.settings.max_message);
                let session = Arc::new(Session::default());
                let door = Door::new(self.settings.max_message, session.clone());
                let transport = StreamableHttpClientTransport::with_client(door, config);
                let service = listener.clone().serve(transport).await;
                let service = service.map_err(|error| Absent::new("cannot be reached", error))?;
                Live {
                    service,
                    listener,
                    session: Some(session),
                    #[cfg(unix)]
                    _child: None,
                }
            }
        };
        let live = Arc::new(live);
        let list = self.list(&live).await?;
        Ok((live, list))
    }

    async fn list(&self, live: &Live) -> Result<Vec<Tool>, Absent> {
        let (mut tools, mut page) = (Vec::new(), PaginatedRequestParams::default());
        for _ in 0..MAX_PAGES {
            let list = live.service.list_tools(Some(page)).await;
            let list =
                list.map_err(|error| Absent::new("does not say what tools it has", error))?;
            tools.extend(list.tools);
            match list.next_cursor {
                None => return Ok(tools),
                cursor => page = PaginatedRequestParams::default().with_cursor(cursor),
            }
        }
        Err(Absent::new("has a list of tools without an end", MAX_PAGES))
    }

    fn keep(&self, state: &mut State, list: Vec<Tool>) -> Result<(), Absent> {
        let renewed = match &state.catalog {
            Some(catalog) => catalog.renewed(list, &self.settings),
            None => Catalog::first(list, &self.settings),
        };
        let catalog =
            renewed.map_err(|why| Absent::new(&format!("is not used: {why}"), "its tools"))?;
        let missing: Vec<_> = self
            .settings
            .tools
            .iter()
            .filter(|name| catalog.tool(name).is_none())
            .collect();
        let pin = catalog.pin();
        tracing::info!(server = %self, tools = catalog.tools.len(), pin, ?missing, newcomers = ?catalog.newcomers, "tools of an mcp server");
        state.failures = 0;
        state.catalog = Some(Arc::new(catalog));
        Ok(())
    }
}

/// Waits before somebody who has just failed is tried again; where that would be long, they are still not there.
async fn pause(state: &State) -> Result<(), Absent> {
    let Some((tries, since)) = state.failures.checked_sub(1).zip(state.since) else {
        return Ok(());
    };
    let pause = PAUSE
        .saturating_mul(2_u32.saturating_pow(tries))
        .min(MAX_PAUSE);
    match &state.absent {
        Some(absent) if since.elapsed() + PATIENCE < pause => Err(absent.clone()),
        _ => {
            sleep_until(since + pause).await;
            Ok(())
        }
    }
}

impl Live {
    fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed() || self.is_forgotten()
    }

    /// Whether the server does not know us any more.
    pub(super) fn is_forgotten(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.is_over())
    }

    /// Whether nobody would hear of it if the tools were others.
    fn must_be_asked(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| !session.is_named())
    }
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("attache", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Release);
    }

    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(waiting) = self.waiting.lock().await.get(&told.progress_token) {
            // Whoever does not keep up hears of what comes later.
            let _ = waiting.try_send(Progress {
                so_far: told.progress,
                total: told.total,
                words: told.message,
            });
        }
    }
}

/// The call of a tool, and where it is in a trace, as MCP has it.
fn request(tool: &str, arguments: Map<String, Value>, trace: Option<&Trace>) -> ClientRequest {
    let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    if let Some(trace) = trace {
        params.set_traceparent(trace.parent());
        if let Some(state) = trace.state() {
            params.set_tracestate(state);
        }
    }
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}

fn http_way(url: &str, settings: &McpServerSettings) -> Result<Way, String> {
    let wrong = || "url must begin with http:// or https:// and name a host".to_owned();
    let parsed: Uri = url.parse().map_err(|_| wrong())?;
    Http::check(&parsed).map_err(|_| wrong())?;
    let headers = settings.headers.iter().map(|(name, value)| {
        let sent = HeaderName::try_from(name.as_str())
            .ok()
            .zip(HeaderValue::try_from(value.expose()).ok());
        let (name, mut value) =
            sent.ok_or_else(|| format!("`{name}` cannot be sent as a header"))?;
        value.set_sensitive(true);
        Ok((name, value))
    });
    Ok(Way::Http {
        url: url.into(),
        headers: headers.collect::<Result<_, String>>()?,
    })
}

#[cfg(unix)]
fn program(settings: &McpServerSettings) -> Result<Way, String> {
    match settings.headers.is_empty() {
        true => Ok(Way::Program),
        false => Err("headers are for a url; a program takes env".to_owned()),
    }
}

#[cfg(not(unix))]
fn program(_: &McpServerSettings) -> Result<Way, String> {
    Err("programs need a Unix system; name the url of the server".to_owned())
}

impl Absent {
    pub(super) fn new(what: &str, cause: impl fmt::Display) -> Self {
        Self {
            words: format!("the MCP server {what}"),
            cause: cause.to_string(),
        }
    }
}

impl fmt::Display for Link {
    /// For the log of whoever runs it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            #[cfg(unix)]
            Way::Program => f.write_str(self.settings.command.first().map_or("", String::as_str)),
            Way::Http { url, .. } => f.write_str(url),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({self})")
    }
}
