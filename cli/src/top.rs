//! State of a running server for `attache top`: open tasks, rates and failed webhooks, from its admin API.

#[cfg(unix)]
mod live;
mod metrics;
mod screen;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use attache::HttpClient;
use attache::model::{Secret, Timestamp};
use serde::{Deserialize, Serialize};

use crate::admin;
#[cfg(unix)]
pub(crate) use live::show;
use metrics::MetricValues;
pub(crate) use screen::{ScreenSize, lines};

/// Time limit of a request to an address.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a reply, in bytes.
const MAX_REPLY_BYTES: usize = 8 << 20;

/// Way to the admin API.
#[derive(Debug, Clone)]
pub(crate) enum AdminEndpoint {
    /// The socket in a data directory.
    Socket(PathBuf),
    /// The address of `--admin-listen`, with an operator key.
    Address { url: String, key: Secret },
}

impl AdminEndpoint {
    /// Name for the operator.
    fn name(&self) -> String {
        match self {
            Self::Socket(folder) => folder.display().to_string(),
            Self::Address { url, .. } => url.clone(),
        }
    }

    /// Returns the body of a reply.
    ///
    /// # Errors
    /// No server is running, or it refuses the request.
    async fn get(&self, path: &'static str) -> anyhow::Result<String> {
        match self {
            Self::Socket(folder) => {
                let folder = folder.clone();
                let name = self.name();
                // The request blocks its thread.
                tokio::task::spawn_blocking(move || admin::request(&folder, "GET", path))
                    .await??
                    .with_context(|| {
                        format!(
                            "no server is running with the data directory {name}; give its directory: --data-dir <DIR>"
                        )
                    })
            }
            Self::Address { url, key } => {
                let reply = tokio::time::timeout(REQUEST_TIMEOUT, get_from_address(url, key, path));
                reply
                    .await
                    .with_context(|| format!("{url} does not answer within 10 s"))?
            }
        }
    }
}

async fn get_from_address(url: &str, key: &Secret, path: &str) -> anyhow::Result<String> {
    let url = format!("{}{path}", url.trim_end_matches('/'));
    let request = http::Request::get(&url)
        .header("authorization", format!("Bearer {}", key.expose()))
        .body(bytes::Bytes::new())
        .with_context(|| format!("{url} is not a URL"))?;
    let reply = HttpClient::new()
        .send(request)
        .await
        .with_context(|| format!("cannot reach {url}"))?;
    let status = reply.status();
    let body = reply.read(MAX_REPLY_BYTES).await?;
    let body = String::from_utf8_lossy(&body).into_owned();
    if status == http::StatusCode::UNAUTHORIZED {
        bail!("{url} refuses the key; give an operator key in ATTACHE_ADMIN_KEY");
    }
    if !status.is_success() {
        bail!("{url} answers {status}: {}", body.trim());
    }
    Ok(body)
}

/// Reply of `/activity`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActivityReply {
    now: Timestamp,
    open: u64,
    open_is_exact: bool,
    states: BTreeMap<String, u64>,
    oldest: Vec<OpenTask>,
}

/// A task that has not ended.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct OpenTask {
    task: String,
    agent: String,
    tenant: String,
    caller: String,
    state: String,
    created: Timestamp,
    updated: Timestamp,
    events: u64,
}

/// Reply of `/push/deliveries`.
#[derive(Debug, Deserialize)]
struct DeliveriesReply {
    deliveries: Vec<FailingWebhook>,
    next: Option<u64>,
}

/// A webhook whose delivery has failed.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct FailingWebhook {
    number: u64,
    task: String,
    agent: String,
    caller: String,
    origin: String,
    reason: String,
    delivered: u64,
    end: u64,
}

/// State of a server at one time.
#[derive(Debug)]
pub(crate) struct ServerSample {
    at: Instant,
    activity: ActivityReply,
    /// `None` if the server has its metrics switched off.
    metrics: Option<MetricValues>,
    webhooks: Vec<FailingWebhook>,
    has_more_webhooks: bool,
}

impl ServerSample {
    /// Reads the state of a server.
    ///
    /// # Errors
    /// No server is running, or it refuses the request.
    pub(crate) async fn read(endpoint: &AdminEndpoint) -> anyhow::Result<Self> {
        let activity = endpoint.get("/activity").await?;
        let deliveries = endpoint.get("/push/deliveries").await?;
        let metrics = endpoint.get("/metrics").await;
        let deliveries: DeliveriesReply = serde_json::from_str(&deliveries)?;
        Ok(Self {
            at: Instant::now(),
            activity: serde_json::from_str(&activity)?,
            // 404 if they are switched off; the other requests have succeeded.
            metrics: metrics.ok().map(|text| MetricValues::parse(&text)),
            webhooks: deliveries.deliveries,
            has_more_webhooks: deliveries.next.is_some(),
        })
    }
}

/// What `attache top` shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerOverview {
    schema: &'static str,
    /// Data directory or URL of the server.
    server: String,
    now: Timestamp,
    /// Tasks that have not ended.
    open: u64,
    /// Whether there are not more.
    open_is_exact: bool,
    /// Open tasks by state.
    states: BTreeMap<String, u64>,
    /// `None` if the server has its metrics switched off.
    metrics: Option<ServerMetrics>,
    /// The open tasks that were created first.
    slowest: Vec<OpenTask>,
    failed_webhooks: Vec<FailingWebhook>,
    /// Whether there are more failed webhooks.
    has_more_failed_webhooks: bool,
}

/// Figures of the metrics. Rates are per second, since the sample before.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerMetrics {
    /// Tasks that ended since the start of the server, by state.
    ended: BTreeMap<String, u64>,
    calls_per_second: f64,
    errors_per_second: f64,
    /// Tasks that ended.
    tasks_per_second: f64,
    stream_events_per_second: f64,
    turns_running: u64,
    streams_open: u64,
    /// Mean duration of the turns that ended, in seconds; `None` if none has.
    turn_seconds: Option<f64>,
    deliveries_per_second: f64,
    retries_per_second: f64,
}

impl ServerOverview {
    /// Summarizes a sample; the rates are those since the sample before.
    pub(crate) fn new(
        endpoint: &AdminEndpoint,
        before: Option<&ServerSample>,
        sample: &ServerSample,
    ) -> Self {
        let activity = sample.activity.clone();
        let elapsed = before.map(|before| sample.at.duration_since(before.at));
        let metrics = sample.metrics.as_ref().map(|metrics| {
            let before = before.and_then(|before| before.metrics.as_ref());
            ServerMetrics::new(before, metrics, elapsed.unwrap_or_default())
        });
        Self {
            schema: "attache.top/1",
            server: endpoint.name(),
            now: activity.now,
            open: activity.open,
            open_is_exact: activity.open_is_exact,
            states: activity.states,
            metrics,
            slowest: activity.oldest,
            failed_webhooks: sample.webhooks.clone(),
            has_more_failed_webhooks: sample.has_more_webhooks,
        }
    }
}

/// States in which a task has ended.
const ENDED_STATES: [&str; 4] = ["completed", "failed", "canceled", "rejected"];

impl ServerMetrics {
    fn new(before: Option<&MetricValues>, now: &MetricValues, elapsed: Duration) -> Self {
        let rate = |value: &dyn Fn(&MetricValues) -> f64| match before {
            Some(before) if !elapsed.is_zero() => {
                // A restarted server counts from 0.
                (value(now) - value(before)).max(0.0) / elapsed.as_secs_f64()
            }
            _ => 0.0,
        };
        let ended = |values: &MetricValues, state: &str| {
            let state = format!("TASK_STATE_{}", state.to_ascii_uppercase());
            values.sum("attache_tasks_total", &[("state", &state)])
        };
        let all_ended = |values: &MetricValues| {
            let states = ENDED_STATES.iter();
            states.map(|state| ended(values, state)).sum::<f64>()
        };
        let calls = |values: &MetricValues| values.sum("attache_calls_total", &[]);
        let succeeded =
            |values: &MetricValues| values.sum("attache_calls_total", &[("outcome", "ok")]);
        let attempts = |values: &MetricValues, outcome: &str| {
            values.sum("attache_push_attempts_total", &[("outcome", outcome)])
        };
        let turns = now.sum("attache_turn_seconds_count", &[]);
        Self {
            ended: ENDED_STATES
                .iter()
                .map(|state| ((*state).to_owned(), whole(ended(now, state))))
                .collect(),
            calls_per_second: rate(&calls),
            errors_per_second: rate(&|values| calls(values) - succeeded(values)),
            tasks_per_second: rate(&all_ended),
            stream_events_per_second: rate(&|values| {
                values.sum("attache_stream_events_total", &[])
            }),
            turns_running: whole(now.sum("attache_turns_running", &[])),
            streams_open: whole(now.sum("attache_streams_open", &[])),
            turn_seconds: (turns > 0.0).then(|| now.sum("attache_turn_seconds_sum", &[]) / turns),
            deliveries_per_second: rate(&|values| attempts(values, "delivered")),
            retries_per_second: rate(&|values| {
                attempts(values, "retry") + attempts(values, "failed")
            }),
        }
    }
}

/// A count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count is a small number above zero"
)]
fn whole(value: f64) -> u64 {
    value.max(0.0).round() as u64
}
