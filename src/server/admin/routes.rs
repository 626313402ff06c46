//! Endpoints of the admin interface, for the socket and the TCP address. [`AdminRoutes::new`] lists
//! them.

use std::pin::Pin;

use http::{HeaderValue, Method, Request, StatusCode};
use serde_json::json;

use super::{ReloadCallback, ReloadCallbacks};
use crate::model::{Error, ErrorKind, Result};
use crate::push::{DeadLetters, FailedWebhook, UndeliveredNotification};
use crate::server::reply::{self, Reply, full, method_not_allowed, text};
use crate::telemetry::metrics;

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

/// Endpoint of the admin interface.
struct AdminRoute {
    method: Method,
    path: &'static str,
    handler: AdminHandler,
}

/// Routes of the admin interface.
#[derive(Default)]
pub(in crate::server) struct AdminRoutes {
    routes: Vec<AdminRoute>,
}

impl AdminRoutes {
    /// Creates the routes.
    pub(in crate::server) fn new(reload: ReloadCallbacks, dead_letters: &DeadLetters) -> Self {
        let mut routes = Self::default();
        routes.add(Method::GET, "/healthz", |_| async {
            text(StatusCode::OK, "ok\n")
        });
        let ReloadCallbacks { all, keys } = reload;
        routes.add(Method::POST, "/reload", move |_| {
            reload_on_thread(all.clone())
        });
        routes.add(Method::POST, "/reload/keys", move |_| {
            reload_on_thread(keys.clone())
        });
        routes.add(Method::GET, "/metrics", |_| async { metrics_reply() });
        routes.add_push(dead_letters);
        routes
    }

    fn add<F>(
        &mut self,
        method: Method,
        path: &'static str,
        handler: impl Fn(AdminQuery) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.routes.push(AdminRoute {
            method,
            path,
            handler: Box::new(move |query| Box::pin(handler(query))),
        });
    }

    fn add_push(&mut self, dead_letters: &DeadLetters) {
        let shared = dead_letters.clone();
        self.add(Method::GET, "/push/deliveries", move |query| {
            let dead_letters = shared.clone();
            async move { json_reply(list_deliveries(&dead_letters, &query).await) }
        });
        let shared = dead_letters.clone();
        self.add(Method::GET, "/push/undelivered", move |query| {
            let dead_letters = shared.clone();
            async move { json_reply(list_undelivered(&dead_letters, &query).await) }
        });
        let shared = dead_letters.clone();
        self.add(Method::POST, "/push/retry", move |query| {
            let dead_letters = shared.clone();
            async move { json_reply(retry_delivery(&dead_letters, &query).await) }
        });
    }

    /// Handles a request. Replies are not cached.
    pub(in crate::server) async fn handle<B>(&self, request: &Request<B>) -> Reply {
        let path = request.uri().path();
        let Some(route) = self.routes.iter().find(|route| route.path == path) else {
            return text(StatusCode::NOT_FOUND, "not found\n");
        };
        if route.method != request.method() {
            let is_get = route.method == Method::GET;
            return method_not_allowed(if is_get { "GET" } else { "POST" });
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
