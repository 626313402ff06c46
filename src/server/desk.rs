//! What operators may ask of a running server, whichever way they come: over its socket or, with a key, over HTTP.
//!
//! [`Desk::add`] is the one way to add something: everything below is added by it.

use std::pin::Pin;

use http::{HeaderValue, Method, Request, StatusCode};
use serde_json::json;

use super::admin::{Reload, Reloads};
use super::reply::{self, Reply, not_allowed, plain, whole};
use crate::metrics;
use crate::model::{Error, ErrorKind, Result};
use crate::push::{Deliveries, Letter, Stopped};

/// How many webhooks, or letters, are listed at once.
const PAGE: usize = 100;

type Answering = Pin<Box<dyn Future<Output = Reply> + Send>>;
type Handler = Box<dyn Fn(Asked) -> Answering + Send + Sync>;

/// What an operator asks, beside the path.
pub(super) struct Asked {
    query: String,
}

impl Asked {
    /// A number of the query.
    fn number(&self, name: &'static str) -> Result<Option<u64>> {
        let mut values =
            form_urlencoded::parse(self.query.as_bytes()).filter(|(key, _)| key == name);
        let number = values.next().map(|(_, value)| value.parse());
        number
            .transpose()
            .map_err(|_| Error::invalid(name, "must be a number"))
    }

    fn needed(&self, name: &'static str) -> Result<u64> {
        self.number(name)?
            .ok_or_else(|| Error::invalid(name, "must be given"))
    }
}

/// Everything that operators may ask.
#[derive(Default)]
pub(super) struct Desk {
    routes: Vec<(Method, &'static str, Handler)>,
}

impl Desk {
    /// The questions that every server answers.
    pub(super) fn new(reload: Reloads, deliveries: &Deliveries) -> Self {
        let mut desk = Self::default();
        desk.add(Method::GET, "/healthz", |_| async {
            plain(StatusCode::OK, "ok\n")
        });
        let Reloads { all, keys } = reload;
        desk.add(Method::POST, "/reload", move |_| {
            std::future::ready(reloaded(&all))
        });
        desk.add(Method::POST, "/reload/keys", move |_| {
            std::future::ready(reloaded(&keys))
        });
        desk.add(Method::GET, "/metrics", |_| async { counted() });
        desk.add_deliveries(deliveries);
        desk
    }

    /// Answers a question from now on.
    pub(super) fn add<F>(
        &mut self,
        method: Method,
        path: &'static str,
        answer: impl Fn(Asked) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.routes
            .push((method, path, Box::new(move |asked| Box::pin(answer(asked)))));
    }

    fn add_deliveries(&mut self, deliveries: &Deliveries) {
        let own = deliveries.clone();
        self.add(Method::GET, "/push/deliveries", move |asked| {
            let own = own.clone();
            async move { told(listed(&own, &asked).await) }
        });
        let own = deliveries.clone();
        self.add(Method::GET, "/push/letters", move |asked| {
            let own = own.clone();
            async move { told(letters(&own, &asked).await) }
        });
        let own = deliveries.clone();
        self.add(Method::POST, "/push/retry", move |asked| {
            let own = own.clone();
            async move { told(retried(&own, &asked).await) }
        });
    }

    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Reply {
        let path = request.uri().path();
        let Some((method, _, handler)) = self.routes.iter().find(|(_, own, _)| *own == path) else {
            return plain(StatusCode::NOT_FOUND, "no such thing\n");
        };
        if method != request.method() {
            return not_allowed(if method == Method::GET { "GET" } else { "POST" });
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        let mut reply = handler(Asked { query }).await;
        reply.headers_mut().insert(
            http::header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        );
        reply
    }
}

fn counted() -> Reply {
    match metrics::text() {
        Some(text) => whole(StatusCode::OK, metrics::MEDIA_TYPE, text.into()),
        None => plain(StatusCode::NOT_FOUND, "nothing is counted\n"),
    }
}

fn reloaded(reload: &Reload) -> Reply {
    match reload() {
        Ok(more) if more.is_empty() => plain(StatusCode::OK, "reloaded\n"),
        Ok(more) => {
            let text = format!("reloaded; {more}\n").into_bytes();
            whole(StatusCode::OK, "text/plain; charset=utf-8", text.into())
        }
        Err(error) => {
            tracing::error!(cause = &*error as &dyn std::error::Error, "cannot reload");
            let text = format!("{error}\n").into_bytes();
            whole(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain; charset=utf-8",
                text.into(),
            )
        }
    }
}

async fn listed(deliveries: &Deliveries, asked: &Asked) -> Result<serde_json::Value> {
    let stopped = deliveries.stopped(asked.number("after")?, PAGE).await?;
    let next = stopped.get(PAGE - 1).map(|last| last.number);
    Ok(json!({"deliveries": stopped.iter().map(shown).collect::<Vec<_>>(), "next": next}))
}

fn shown(stopped: &Stopped) -> serde_json::Value {
    json!({
        "number": stopped.number,
        "task": stopped.task,
        "agent": stopped.scope.agent,
        "tenant": stopped.scope.tenant,
        "caller": stopped.scope.owner.name(),
        "webhook": stopped.webhook,
        "origin": stopped.origin,
        "reason": stopped.reason,
        "delivered": stopped.delivered.0,
        "end": stopped.end.0,
    })
}

async fn letters(deliveries: &Deliveries, asked: &Asked) -> Result<serde_json::Value> {
    let letters = deliveries.letters(asked.needed("number")?, PAGE).await?;
    let shown = |letter: &Letter| json!({"id": letter.event_id, "sequence": letter.seq.0, "time": letter.time});
    Ok(json!({"letters": letters.iter().map(shown).collect::<Vec<_>>()}))
}

async fn retried(deliveries: &Deliveries, asked: &Asked) -> Result<serde_json::Value> {
    let number = asked.needed("number")?;
    deliveries.retry(number).await?;
    tracing::info!(number, "webhook is called again");
    Ok(json!({"number": number}))
}

fn told(answer: Result<serde_json::Value>) -> Reply {
    match answer {
        Ok(value) => reply::json(StatusCode::OK, value.to_string()),
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::InvalidParams => StatusCode::BAD_REQUEST,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            reply::json(
                status,
                json!({"error": reply::logged(error).to_string()}).to_string(),
            )
        }
    }
}
