//! What operators may ask of a running server, whichever way they come: over its socket or, with a key, over HTTP.
//!
//! [`AdminRoutes::add`] is the one way to add something: everything below is added by it.

use std::pin::Pin;

use http::{HeaderValue, Method, Request, StatusCode};
use serde_json::json;

use super::{ReloadCallback, ReloadCallbacks};
use crate::model::{Error, ErrorKind, Result};
use crate::push::{DeadLetters, FailedWebhook, UndeliveredNotification};
use crate::server::reply::{self, Reply, full, method_not_allowed, text};
use crate::telemetry::metrics;

/// How many webhooks, or letters, are listed at once.
const PAGE_SIZE: usize = 100;

type AdminFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;
type AdminHandler = Box<dyn Fn(AdminQuery) -> AdminFuture + Send + Sync>;

/// What an operator asks, beside the path.
pub(in crate::server) struct AdminQuery {
    query: String,
}

impl AdminQuery {
    /// A number of the query.
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

/// Everything that operators may ask.
#[derive(Default)]
pub(in crate::server) struct AdminRoutes {
    routes: Vec<(Method, &'static str, AdminHandler)>,
}

impl AdminRoutes {
    /// The questions that every server answers.
    pub(in crate::server) fn new(reload: ReloadCallbacks, deliveries: &DeadLetters) -> Self {
        let mut routes = Self::default();
        routes.add(Method::GET, "/healthz", |_| async {
            text(StatusCode::OK, "ok\n")
        });
        let ReloadCallbacks { all, keys } = reload;
        routes.add(Method::POST, "/reload", move |_| {
            std::future::ready(run_reload(&all))
        });
        routes.add(Method::POST, "/reload/keys", move |_| {
            std::future::ready(run_reload(&keys))
        });
        routes.add(Method::GET, "/metrics", |_| async { metrics_reply() });
        routes.add_deliveries(deliveries);
        routes
    }

    /// Answers a question from now on.
    pub(in crate::server) fn add<F>(
        &mut self,
        method: Method,
        path: &'static str,
        handler: impl Fn(AdminQuery) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.routes.push((
            method,
            path,
            Box::new(move |query| Box::pin(handler(query))),
        ));
    }

    fn add_deliveries(&mut self, deliveries: &DeadLetters) {
        let own = deliveries.clone();
        self.add(Method::GET, "/push/deliveries", move |query| {
            let own = own.clone();
            async move { json_reply(list_deliveries(&own, &query).await) }
        });
        let own = deliveries.clone();
        self.add(Method::GET, "/push/undelivered", move |query| {
            let own = own.clone();
            async move { json_reply(list_undelivered(&own, &query).await) }
        });
        let own = deliveries.clone();
        self.add(Method::POST, "/push/retry", move |query| {
            let own = own.clone();
            async move { json_reply(retry_delivery(&own, &query).await) }
        });
    }

    pub(in crate::server) async fn handle<B>(&self, request: &Request<B>) -> Reply {
        let path = request.uri().path();
        let Some((method, _, handler)) = self.routes.iter().find(|(_, own, _)| *own == path) else {
            return text(StatusCode::NOT_FOUND, "no such thing\n");
        };
        if method != request.method() {
            return method_not_allowed(if method == Method::GET { "GET" } else { "POST" });
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        let mut reply = handler(AdminQuery { query }).await;
        reply.headers_mut().insert(
            http::header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        );
        reply
    }
}

fn metrics_reply() -> Reply {
    match metrics::text() {
        Some(text) => full(StatusCode::OK, metrics::MEDIA_TYPE, text.into()),
        None => text(StatusCode::NOT_FOUND, "nothing is counted\n"),
    }
}

fn run_reload(reload: &ReloadCallback) -> Reply {
    match reload() {
        Ok(more) if more.is_empty() => text(StatusCode::OK, "reloaded\n"),
        Ok(more) => {
            let text = format!("reloaded; {more}\n").into_bytes();
            full(StatusCode::OK, "text/plain; charset=utf-8", text.into())
        }
        Err(error) => {
            tracing::error!(cause = &*error as &dyn std::error::Error, "cannot reload");
            let text = format!("{error}\n").into_bytes();
            full(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain; charset=utf-8",
                text.into(),
            )
        }
    }
}

async fn list_deliveries(
    deliveries: &DeadLetters,
    query: &AdminQuery,
) -> Result<serde_json::Value> {
    let failed = deliveries
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
    deliveries: &DeadLetters,
    query: &AdminQuery,
) -> Result<serde_json::Value> {
    let undelivered = deliveries
        .undelivered(query.required_number("number")?, PAGE_SIZE)
        .await?;
    let notification_json = |notification: &UndeliveredNotification| json!({"id": notification.event_id, "sequence": notification.seq.0, "time": notification.time});
    Ok(json!({"undelivered": undelivered.iter().map(notification_json).collect::<Vec<_>>()}))
}

async fn retry_delivery(deliveries: &DeadLetters, query: &AdminQuery) -> Result<serde_json::Value> {
    let number = query.required_number("number")?;
    deliveries.retry(number).await?;
    tracing::info!(number, "webhook is called again");
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
