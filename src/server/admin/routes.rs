//! Endpoints of the admin interface, for the socket and the TCP address: the API ([`ApiRoutes`]), the files of the console,
//! and those outside the API, which [`AdminRoutes::new`] lists.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Body as HttpBody;
use serde_json::json;

use super::activity::activity;
use super::api::{self, ApiCaller, ApiRoutes};
use super::console_files;
use super::operator::Operator;
use super::state::AdminState;
use super::{AdminListeners, ReloadCallback, ReloadCallbacks};
use crate::auth::OperatorRole;
use crate::engine::Engine;
use crate::model::{Error, ErrorKind, Result};
use crate::push::{DeadLetters, FailedWebhook, UndeliveredNotification};
use crate::server::handle::ServerHandle;
use crate::server::reply::{self, Reply, full, method_not_allowed, text};
use crate::store::ReplicaInfo;
use crate::telemetry::metrics;

/// Health check, which needs no key.
const HEALTH_PATH: &str = "/healthz";
/// Maximum number of items in a list reply.
const PAGE_SIZE: usize = 100;

type AdminFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;
type AdminHandler = Box<dyn Fn(AdminQuery) -> AdminFuture + Send + Sync>;

/// Query parameters of an admin request.
pub(in crate::server) struct AdminQuery {
    query: String,
}

impl AdminQuery {
    /// Returns a numeric parameter, if present.
    ///
    /// # Errors
    /// Invalid: not a number.
    fn number(&self, name: &'static str) -> Result<Option<u64>> {
        let mut values =
            form_urlencoded::parse(self.query.as_bytes()).filter(|(key, _)| key == name);
        let number = values.next().map(|(_, value)| value.parse());
        number
            .transpose()
            .map_err(|_| Error::invalid(name, "must be a number"))
    }

    fn required_number(&self, name: &'static str) -> Result<u64> {
        self.number(name)?
            .ok_or_else(|| Error::invalid(name, "must be given"))
    }
}

/// Endpoint outside the API.
struct AdminRoute {
    method: Method,
    path: &'static str,
    /// Whether a role may call it.
    is_allowed: fn(OperatorRole) -> bool,
    handler: AdminHandler,
}

/// Routes of the admin interface.
pub(in crate::server) struct AdminRoutes {
    routes: Vec<AdminRoute>,
    api: ApiRoutes,
    state: Arc<AdminState>,
}

impl AdminRoutes {
    /// Creates the routes.
    pub(in crate::server) fn new(listeners: &AdminListeners, handle: ServerHandle) -> Self {
        let dead_letters = handle.push_dispatcher().dead_letters();
        let engine = handle.engine().clone();
        let replicas_engine = engine.clone();
        let reload = listeners.reload.clone();
        let state = AdminState::new(listeners.context.clone(), reload.clone(), handle);
        let mut routes = Self {
            routes: Vec::new(),
            api: ApiRoutes::new(),
            state: Arc::new(state),
        };
        routes.add(
            Method::GET,
            HEALTH_PATH,
            |_| true,
            |_| async { text(StatusCode::OK, "ok\n") },
        );
        let ReloadCallbacks { all, keys } = reload;
        let is_admin = |role| role == OperatorRole::Admin;
        routes.add(Method::POST, "/reload", is_admin, move |_| {
            reload_on_thread(all.clone())
        });
        routes.add(Method::POST, "/reload/keys", is_admin, move |_| {
            reload_on_thread(keys.clone())
        });
        routes.add(Method::GET, "/metrics", OperatorRole::can_view, |_| async {
            metrics_reply()
        });
        routes.add(
            Method::GET,
            "/activity",
            OperatorRole::can_view,
            move |_| {
                let engine = engine.clone();
                async move { json_reply(activity(&engine).await) }
            },
        );
        routes.add_push(&dead_letters);
        routes.add(
            Method::GET,
            "/replicas",
            OperatorRole::can_view,
            move |_| {
                let engine = replicas_engine.clone();
                async move { json_reply(list_replicas(&engine).await) }
            },
        );
        routes
    }

    fn add<F>(
        &mut self,
        method: Method,
        path: &'static str,
        is_allowed: fn(OperatorRole) -> bool,
        handler: impl Fn(AdminQuery) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.routes.push(AdminRoute {
            method,
            path,
            is_allowed,
            handler: Box::new(move |query| Box::pin(handler(query))),
        });
    }

    fn add_push(&mut self, dead_letters: &DeadLetters) {
        let shared = dead_letters.clone();
        let can_view = OperatorRole::can_view;
        self.add(Method::GET, "/push/deliveries", can_view, move |query| {
            let dead_letters = shared.clone();
            async move { json_reply(list_deliveries(&dead_letters, &query).await) }
        });
        let shared = dead_letters.clone();
        self.add(Method::GET, "/push/undelivered", can_view, move |query| {
            let dead_letters = shared.clone();
            async move { json_reply(list_undelivered(&dead_letters, &query).await) }
        });
        let shared = dead_letters.clone();
        let can_operate = OperatorRole::can_operate;
        self.add(Method::POST, "/push/retry", can_operate, move |query| {
            let dead_letters = shared.clone();
            async move { json_reply(retry_delivery(&dead_letters, &query).await) }
        });
    }

    /// Returns the shared state.
    pub(super) fn state(&self) -> &AdminState {
        &self.state
    }

    /// Whether a path outside the API needs no credential.
    pub(super) fn is_public(&self, path: &str) -> bool {
        path == HEALTH_PATH || self.state.console.files.is_some() && console_files::is_file(path)
    }

    /// Handles a request. `operator` is `None` before sign-in.
    pub(super) async fn handle<B>(
        &self,
        request: Request<B>,
        operator: Option<Operator>,
        address: Option<IpAddr>,
    ) -> Reply
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path();
        if path.starts_with(api::PREFIX) {
            let caller = ApiCaller { operator, address };
            return self.api.handle(&self.state, request, caller).await;
        }
        if let Some(files) = &self.state.console.files
            && console_files::is_file(path)
        {
            return console_files::serve(&**files, &request);
        }
        self.handle_other(&request, operator.as_ref()).await
    }

    /// Handles a request outside the API. Replies are not cached.
    async fn handle_other<B>(&self, request: &Request<B>, operator: Option<&Operator>) -> Reply {
        let path = request.uri().path();
        let Some(route) = self.routes.iter().find(|route| route.path == path) else {
            return text(StatusCode::NOT_FOUND, "not found\n");
        };
        if route.method != request.method() {
            let is_get = route.method == Method::GET;
            return method_not_allowed(if is_get { "GET" } else { "POST" });
        }
        let is_allowed = |operator: &Operator| (route.is_allowed)(operator.role);
        if path != HEALTH_PATH && !operator.is_some_and(is_allowed) {
            let message = "the role of this operator does not allow this\n";
            return text(StatusCode::FORBIDDEN, message);
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        let mut reply = (route.handler)(AdminQuery { query }).await;
        reply.headers_mut().insert(
            http::header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        );
        reply
    }
}

fn metrics_reply() -> Reply {
    match metrics::text() {
        Some(metrics) => full(StatusCode::OK, metrics::MEDIA_TYPE, metrics.into()),
        None => text(StatusCode::NOT_FOUND, "metrics are not enabled\n"),
    }
}

/// Runs a reload on a thread of its own. A reload may wait for another one or for an agent to start, which needs the workers
/// of the runtime.
async fn reload_on_thread(reload: ReloadCallback) -> Reply {
    let running = tokio::task::spawn_blocking(move || run_reload(&reload));
    running.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the reload ended early");
        text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the reload ended early\n",
        )
    })
}

fn run_reload(reload: &ReloadCallback) -> Reply {
    match reload() {
        Ok(remark) if remark.is_empty() => text(StatusCode::OK, "reloaded\n"),
        Ok(remark) => text(StatusCode::OK, format!("reloaded; {remark}\n")),
        Err(error) => {
            tracing::error!(cause = &*error as &dyn std::error::Error, "cannot reload");
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
        }
    }
}

/// Returns the replicas of a shared store. Empty for a store of one process.
async fn list_replicas(engine: &Engine) -> Result<serde_json::Value> {
    let replicas = engine.list_replicas().await?;
    let replicas: Vec<_> = replicas.iter().map(replica_json).collect();
    Ok(json!({ "replicas": replicas }))
}

fn replica_json(replica: &ReplicaInfo) -> serde_json::Value {
    json!({
        "id": replica.id,
        "name": replica.name,
        "programVersion": replica.program_version,
        "formatLevel": replica.format_level,
        "joined": replica.joined.to_string(),
        "heartbeat": replica.heartbeat,
        "removed": replica.removed.map(|time| time.to_string()),
        "tasks": replica.tasks,
        "webhooks": replica.webhooks,
        "isLocal": replica.is_local,
    })
}

async fn list_deliveries(
    dead_letters: &DeadLetters,
    query: &AdminQuery,
) -> Result<serde_json::Value> {
    let failed = dead_letters
        .failed_webhooks(query.number("after")?, PAGE_SIZE)
        .await?;
    let next = failed.get(PAGE_SIZE - 1).map(|last| last.number);
    Ok(json!({"deliveries": failed.iter().map(webhook_json).collect::<Vec<_>>(), "next": next}))
}

fn webhook_json(failed: &FailedWebhook) -> serde_json::Value {
    json!({
        "number": failed.number,
        "task": failed.task,
        "agent": failed.scope.agent,
        "tenant": failed.scope.tenant,
        "caller": failed.scope.owner.name(),
        "webhook": failed.webhook,
        "origin": failed.origin,
        "reason": failed.reason,
        "delivered": failed.delivered.0,
        "end": failed.end.0,
    })
}

async fn list_undelivered(
    dead_letters: &DeadLetters,
    query: &AdminQuery,
) -> Result<serde_json::Value> {
    let undelivered = dead_letters
        .undelivered(query.required_number("number")?, PAGE_SIZE)
        .await?;
    let notification_json = |notification: &UndeliveredNotification| json!({"id": notification.event_id, "sequence": notification.seq.0, "time": notification.time});
    Ok(json!({"undelivered": undelivered.iter().map(notification_json).collect::<Vec<_>>()}))
}

async fn retry_delivery(
    dead_letters: &DeadLetters,
    query: &AdminQuery,
) -> Result<serde_json::Value> {
    let number = query.required_number("number")?;
    dead_letters.retry(number).await?;
    tracing::info!(number, "webhook delivery resumed");
    Ok(json!({"number": number}))
}

fn json_reply(result: Result<serde_json::Value>) -> Reply {
    match result {
        Ok(value) => reply::json(StatusCode::OK, value.to_string()),
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::InvalidParams => StatusCode::BAD_REQUEST,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            reply::json(
                status,
                json!({"error": reply::log_failure(error).to_string()}).to_string(),
            )
        }
    }
}
