//! One established connection to an MCP server, over stdio or streamable HTTP.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt};
use tokio_util::task::TaskTracker;

use super::connection::ServerUnavailable;
use super::http_transport::{HttpSession, HttpTransport};
use super::notifications::NotificationHandler;
use super::settings::McpServerSettings;
#[cfg(unix)]
use super::stdio_process::StdioProcess;

/// Maximum number of pages of a tool list.
const MAX_PAGES: usize = 64;

/// Transport of a server.
pub(super) enum TransportKind {
    /// A child process.
    #[cfg(unix)]
    Stdio,
    Http {
        url: Arc<str>,
        headers: HashMap<HeaderName, HeaderValue>,
    },
}

/// Established connection.
pub(super) struct ActiveConnection {
    pub(super) service: RunningService<RoleClient, Arc<NotificationHandler>>,
    pub(super) notifications: Arc<NotificationHandler>,
    /// Session state, over HTTP only.
    session: Option<Arc<HttpSession>>,
    // Declared after `service`, so it is dropped later: the service closes the connection first.
    #[cfg(unix)]
    _process: Option<StdioProcess>,
}

impl ActiveConnection {
    /// Starts the server or connects to it, and performs the MCP handshake.
    #[cfg_attr(
        not(unix),
        expect(
            unused_variables,
            reason = "only child processes have background tasks"
        )
    )]
    pub(super) async fn open(
        transport: &TransportKind,
        settings: &McpServerSettings,
        tasks: &TaskTracker,
    ) -> Result<Self, ServerUnavailable> {
        match transport {
            #[cfg(unix)]
            TransportKind::Stdio => Self::open_stdio(settings, tasks).await,
            TransportKind::Http { url, headers } => Self::open_http(url, headers, settings).await,
        }
    }

    #[cfg(unix)]
    async fn open_stdio(
        settings: &McpServerSettings,
        tasks: &TaskTracker,
    ) -> Result<Self, ServerUnavailable> {
        let started = StdioProcess::start(settings, tasks);
        let (process, stdout, stdin) =
            started.map_err(|error| ServerUnavailable::new("cannot be started", error))?;
        let transport = rmcp::transport::async_rw::AsyncRwTransport::new(stdout, stdin)
            .with_max_line_length(settings.max_message);
        let notifications = Arc::new(NotificationHandler::default());
        let service = notifications.clone().serve(transport).await;
        let service =
            service.map_err(|error| ServerUnavailable::new("does not speak MCP", error))?;
        Ok(Self {
            service,
            notifications,
            session: None,
            _process: Some(process),
        })
    }

    async fn open_http(
        url: &Arc<str>,
        headers: &HashMap<HeaderName, HeaderValue>,
        settings: &McpServerSettings,
    ) -> Result<Self, ServerUnavailable> {
        let config = StreamableHttpClientTransportConfig::with_uri(url.clone())
            .custom_headers(headers.clone())
            .reinit_on_expired_session(false)
            .max_sse_event_size(settings.max_message);
        let session = Arc::new(HttpSession::default());
        let client = HttpTransport::new(settings.max_message, session.clone());
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let notifications = Arc::new(NotificationHandler::default());
        let service = notifications.clone().serve(transport).await;
        let service =
            service.map_err(|error| ServerUnavailable::new("cannot be reached", error))?;
        Ok(Self {
            service,
            notifications,
            session: Some(session),
            #[cfg(unix)]
            _process: None,
        })
    }

    /// Lists the tools of the server, over all pages.
    pub(super) async fn list_tools(&self) -> Result<Vec<Tool>, ServerUnavailable> {
        let mut tools = Vec::new();
        let mut page = PaginatedRequestParams::default();
        for _ in 0..MAX_PAGES {
            let list = self.service.list_tools(Some(page)).await;
            let list =
                list.map_err(|error| ServerUnavailable::new("does not list its tools", error))?;
            tools.extend(list.tools);
            match list.next_cursor {
                None => return Ok(tools),
                cursor => page = PaginatedRequestParams::default().with_cursor(cursor),
            }
        }
        let message = format!("has a tool list of more than {MAX_PAGES} pages");
        Err(ServerUnavailable::new(&message, MAX_PAGES))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed() || self.is_session_expired()
    }

    /// Returns whether the server no longer has our session.
    pub(super) fn is_session_expired(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.is_expired())
    }

    /// Returns whether the server cannot notify us of changes: over HTTP that needs a session.
    pub(super) fn lacks_change_notifications(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| !session.has_id())
    }
}
