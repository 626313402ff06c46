//! Endpoints of the server: state, reload, audit log.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use super::error::{ApiError, ApiResult, json_reply};
use super::request::ApiRequest;
use super::{ApiRoutes, RouteAccess};
use crate::model::Timestamp;
use crate::server::admin::audit::{AuditFilter, AuditRecord};
use crate::server::admin::state::{AdminState, ContentVisibility};

/// Page of a list.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// Cursor of the next page.
    pub(super) next: Option<String>,
    pub(super) total: Total,
}

/// Number of matches on all pages.
#[derive(Serialize, Clone, Copy)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Total {
    pub(super) value: u64,
    /// Whether there are not more.
    pub(super) exact: bool,
}

/// Reply of `GET /server`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ServerReply {
    name: String,
    version: &'static str,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    started_at: Timestamp,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    now: Timestamp,
    ready: bool,
    problems: Vec<Problem>,
    store: StoreInfo,
    listeners: Listeners,
    agents: usize,
    console: ConsoleInfo,
}

/// Reason why the server is not ready.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Problem {
    code: &'static str,
    message: String,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StoreInfo {
    kind: &'static str,
    durable: bool,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Listeners {
    agents: String,
    admin: Option<String>,
    tls: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ConsoleInfo {
    content: ContentVisibility,
    read_only: bool,
    sessions: usize,
}

pub(super) fn add_routes(routes: &mut ApiRoutes) {
    routes.get("/server", RouteAccess::View, server);
    routes.post(
        "/server/reload",
        RouteAccess::Admin,
        "server.reload",
        reload,
    );
    routes.get("/audit", RouteAccess::View, audit);
}

async fn server(state: Arc<AdminState>, request: ApiRequest) -> ApiResult {
    request.allow_parameters(&[])?;
    let routes = state.handle.current().get();
    let mut problems = Vec::new();
    if routes.shutting_down.is_cancelled() {
        problems.push(Problem {
            code: "shutdown",
            message: "the server is shutting down".to_owned(),
        });
    }
    let service = &routes.admission.directory.root().service;
    if let Err(error) = service.check_store().await {
        problems.push(Problem {
            code: "store",
            message: error.message().to_owned(),
        });
    }
    let store = state.handle.engine().store_info();
    json_reply(&ServerReply {
        name: state.console.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        started_at: state.started,
        now: state.now(),
        ready: problems.is_empty(),
        problems,
        store: StoreInfo {
            kind: store.kind,
            durable: store.is_durable,
        },
        listeners: Listeners {
            agents: state.handle.address().to_string(),
            admin: state.tcp.as_ref().map(|tcp| tcp.address.to_string()),
            tls: state.handle.uses_tls(),
        },
        agents: routes.admission.directory.names().count(),
        console: ConsoleInfo {
            content: state.content(),
            read_only: state.console.is_read_only,
            sessions: state.sessions.count(),
        },
    })
}

async fn reload(state: Arc<AdminState>, _: ApiRequest) -> ApiResult {
    let reload = state.reload.clone();
    let reloaded = tokio::task::spawn_blocking(move || reload.reload_all())
        .await
        .map_err(ApiError::internal)?;
    match reloaded {
        Ok(remark) => json_reply(&json!({"remark": remark})),
        // Only the operator sees the reason.
        Err(error) => Err(ApiError::not_possible(error.to_string())),
    }
}

async fn audit(state: Arc<AdminState>, request: ApiRequest) -> ApiResult {
    request.allow_parameters(&["operator", "action", "after", "limit"])?;
    let limit = request.limit()?;
    let filter = AuditFilter {
        operator: request.parameter("operator"),
        action: request.parameter("action"),
        before: request.number("after")?,
    };
    let (items, total) = state.audit_log().list(&filter, limit);
    let next = items.get(limit - 1).map(|last| last.number.to_string());
    json_reply(&Page::<AuditRecord> {
        items,
        next,
        total: Total {
            value: total as u64,
            exact: true,
        },
    })
}
